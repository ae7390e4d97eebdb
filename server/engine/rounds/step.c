/* step.c - the pushes of a round become one operation.
 *
 * The parts for one table are put one behind another in the order of their workers, gradients
 * widened to f32 and divided by the number of workers; the engine takes them as one push, so that a
 * key's gradients are summed in an order that does not depend on when they came. A journal has that
 * one operation: a replay knows nothing of workers, and makes the same step.
 *
 * Tables may change while a push waits, so everything is checked again before the step is made. One
 * failure fails the whole step, and nothing is changed. */
#include "server/engine/rounds/step.h"
#include "embd/sync.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/convert.h"
#include "server/engine/check.h"
#include "server/engine/engine.h"

#define LR_TEXT 24

/* ---- waiting ---- */

/* "0.1", or "the table's" */
static const char *name_lr(char text[LR_TEXT], float lr)
{
    if (lr == 0.0f)
        return "the table's";
    snprintf(text, LR_TEXT, "%.9g", (double)lr);
    return text;
}

/* One step has one learning rate. */
static int check_lr(const struct op *op, const struct op *other, struct embd__error *e)
{
    char own[LR_TEXT], theirs[LR_TEXT];
    for (uint32_t i = 0; i < op->n_parts; i++) {
        float lr = op->parts[i].in.lr, expected = other->parts[i].in.lr;
        if (lr != expected)
            return embd__error_set(e, EMBD_INVALID,
                                   "part %u field 'lr' is %s, pushes of other workers that wait "
                                   "for this step have %s; all have to give the same",
                                   i, name_lr(own, lr), name_lr(theirs, expected));
    }
    return EMBD_OK;
}

static const struct sources *sources_of(const struct op *op)
{
    const struct engine *engine = op->engine;
    return op_is_of_journaled(op) ? &engine->journaled_sources : &engine->sources;
}

bool round_has_made(const struct op *op)
{
    return sources_have(sources_of(op), &op->source);
}

/* No later one of its client has been applied. */
static bool is_last(const struct op *op)
{
    uint32_t place;
    return sources_find(sources_of(op), op->source.client, &place) && place == op->source.place;
}

static bool is_same(const struct push_source *a, const struct push_source *b)
{
    return a->client == b->client && a->place == b->place;
}

/* The push in a step that is being made; NULL: there is none. */
static struct round_member *find_member(const struct op *op)
{
    for (struct round_step *step = op->engine->steps; step != NULL; step = step->next)
        for (uint32_t m = 0; m < step->n_members; m++)
            if (is_same(&step->members[m].source, &op->source))
                return &step->members[m];
    return NULL;
}

/* What its client sent by a connection that it has left may arrive late. `other`: the same push, or
 * NULL. */
static int check_newest(const struct op *op, const struct op *other, struct embd__error *e)
{
    if (other == NULL || !is_same(&other->source, &op->source) ||
        other->connection <= op->connection)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CLOSED,
                           "the worker has sent this push on a newer connection: this one came "
                           "late, and is in no round");
}

/* Who waits keeps no table: it may be dropped meanwhile. */
static void forget_tables(struct op *op)
{
    for (uint32_t i = 0; i < op->n_parts; i++)
        op->parts[i].table = NULL;
}

/* EMBD_OK: this one gets the result of its step. */
static int repeat(struct op *op, const struct push_round *push, const uint32_t *tables,
                  uint64_t now_ns, struct op **replaced_out, struct embd__error *e)
{
    struct engine *engine = op->engine;
    struct round_member *member = find_member(op);
    if (member != NULL && check_newest(op, member->push, e) != EMBD_OK)
        return e->status;
    if (rounds_repeat(&engine->rounds, &engine->jobs, push, member != NULL || is_last(op), tables,
                      op->n_parts, now_ns, e) == EMBD_INVALID)
        return e->status;
    e->status = EMBD_OK; /* without room nothing is learned, and the push is in its step */
    op->is_again = true;
    if (member == NULL)
        return PUSH_AGAIN;
    *replaced_out = member->push;
    member->push = op;
    forget_tables(op);
    return EMBD_OK;
}

int round_enter(struct op *op, const struct push_round *push, bool may_come_again, uint64_t now_ns,
                struct op **replaced_out, struct embd__error *e)
{
    struct engine *engine = op->engine;
    uint32_t tables[LIMIT_PARTS];
    embd_durability durability;
    if (op_durability(op, &durability, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < op->n_parts; i++)
        tables[i] = op->parts[i].in.table;
    if (may_come_again && op->source.client != 0 && (find_member(op) != NULL || round_has_made(op)))
        return repeat(op, push, tables, now_ns, replaced_out, e);
    const struct op *other = rounds_own(&engine->rounds, push, tables, op->n_parts);
    if (may_come_again && op->source.client != 0 && check_newest(op, other, e) != EMBD_OK)
        return e->status;
    other = rounds_beside(&engine->rounds, push, tables, op->n_parts);
    if (other != NULL && check_lr(op, other, e) != EMBD_OK)
        return e->status;
    if (rounds_join(&engine->rounds, &engine->jobs, push, tables, op->n_parts, now_ns, op,
                    replaced_out, e) != EMBD_OK)
        return e->status;
    forget_tables(op);
    return EMBD_OK;
}

void round_forget(struct op *op, uint64_t now_ns)
{
    rounds_withdraw(&op->engine->rounds, op, now_ns);
    for (struct round_step *step = op->engine->steps; step != NULL; step = step->next)
        for (uint32_t m = 0; m < step->n_members; m++)
            if (step->members[m].push == op)
                step->members[m].push = NULL;
}

/* ---- merging ---- */

static int find_tables(struct op *member, struct embd__error *e)
{
    for (uint32_t i = 0; i < member->n_parts; i++) {
        struct op_part *part = &member->parts[i];
        if (check_part(&member->engine->tables, &part->in, i, &part->table, e) != EMBD_OK ||
            check_grads(part->table, &part->in, i, 0, e) != EMBD_OK)
            return e->status;
    }
    return engine_make_way(member, e);
}

/* The room of part i of the step, and where its arrays begin in the buffer. */
struct layout {
    uint64_t n_keys, n_rows;
    bool has_offsets, has_slots, has_weights, has_scores, want_status;
    uint64_t offsets, slots, weights, scores, grads, bytes;
};

static uint64_t place(uint64_t *bytes, uint64_t n)
{
    uint64_t at = *bytes;
    *bytes += (n + 63) / 64 * 64;
    return at;
}

static void lay(const struct round_step *step, uint32_t i, uint32_t dim, struct layout *l)
{
    *l = (struct layout){0};
    for (uint32_t m = 0; m < step->n_members; m++) {
        const struct part *in = &step->members[m].push->parts[i].in;
        l->n_keys += in->n_keys;
        l->n_rows += in->n_rows;
        l->has_offsets |= in->offsets != NULL;
        l->has_slots |= in->slots != NULL;
        l->has_weights |= in->weights != NULL;
        l->has_scores |= in->scores != NULL;
        l->want_status |= in->want_status;
    }
    place(&l->bytes, 8 * l->n_keys);
    l->offsets = place(&l->bytes, l->has_offsets ? 4 * (l->n_rows + 1) : 0);
    l->slots = place(&l->bytes, l->has_slots ? 2 * l->n_rows : 0);
    l->weights = place(&l->bytes, l->has_weights ? 4 * l->n_keys : 0);
    l->scores = place(&l->bytes, l->has_scores ? 4 * l->n_keys : 0);
    l->grads = place(&l->bytes, 4 * l->n_rows * dim);
}

static void append_offsets(uint32_t *to, const struct part *in, uint32_t first)
{
    for (uint32_t r = 0; r <= in->n_rows; r++)
        to[r] = first + (in->offsets != NULL ? in->offsets[r] : r);
}

static void append_weights(float *to, const struct part *in)
{
    for (uint32_t k = 0; k < in->n_keys; k++)
        to[k] = in->weights != NULL ? in->weights[k] : 1.0f;
}

/* A worker without scores gives its keys none. */
static void append_scores(float *to, const struct part *in)
{
    for (uint32_t k = 0; k < in->n_keys; k++)
        to[k] = in->scores != NULL ? in->scores[k] : -INFINITY;
}

static void append_grads(float *to, const struct part *in, uint32_t dim, float n_members)
{
    size_t n = (size_t)in->n_rows * dim;
    embd__to_f32(to, in->grads, in->dtype, n);
    for (size_t i = 0; i < n; i++)
        to[i] /= n_members;
}

/* Part i of every member, one behind another. */
static void merge(const struct round_step *step, uint32_t i, uint8_t *buffer,
                  const struct layout *l, struct op_part *to)
{
    uint32_t dim = to->table->schema.s.dim, key = 0, row = 0;
    uint64_t *keys = (uint64_t *)buffer;
    uint32_t *offsets = (uint32_t *)(buffer + l->offsets);
    uint16_t *slots = (uint16_t *)(buffer + l->slots);
    float *weights = (float *)(buffer + l->weights), *scores = (float *)(buffer + l->scores);
    float *grads = (float *)(buffer + l->grads);
    for (uint32_t m = 0; m < step->n_members; m++) {
        const struct op *member = step->members[m].push;
        const struct part *in = &member->parts[i].in;
        step->keys_at[m * member->n_parts + i] = key;
        if (in->n_keys > 0)
            memcpy(keys + key, in->keys, 8 * (size_t)in->n_keys);
        if (l->has_offsets)
            append_offsets(offsets + row, in, key);
        if (l->has_slots && in->n_rows > 0)
            memcpy(slots + row, in->slots, 2 * (size_t)in->n_rows);
        if (l->has_weights)
            append_weights(weights + key, in);
        if (l->has_scores)
            append_scores(scores + key, in);
        append_grads(grads + (size_t)row * dim, in, dim, (float)step->n_members);
        key += in->n_keys;
        row += in->n_rows;
    }
    to->in = (struct part){.table = step->members[0].push->parts[i].in.table,
                           .dtype = EMBD_DTYPE_F32,
                           .n_keys = key,
                           .n_rows = row,
                           .want_status = l->want_status,
                           .lr = step->members[0].push->parts[i].in.lr,
                           .keys = keys,
                           .offsets = l->has_offsets ? offsets : NULL,
                           .slots = l->has_slots ? slots : NULL,
                           .weights = l->has_weights ? weights : NULL,
                           .scores = l->has_scores ? scores : NULL,
                           .grads = grads,
                           .grads_bytes = 4 * (uint64_t)row * dim};
}

static int merge_part(struct round_step *step, uint32_t i, struct embd__error *e)
{
    struct op_part *to = &step->op.parts[i];
    struct layout l;
    to->table = step->members[0].push->parts[i].table;
    lay(step, i, to->table->schema.s.dim, &l);
    if (l.n_keys > LIMIT_KEYS || l.n_rows > LIMIT_ROWS)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "part %u: the round's pushes have %llu keys and %llu rows together, "
                               "the limits are %u and %u",
                               i, (unsigned long long)l.n_keys, (unsigned long long)l.n_rows,
                               LIMIT_KEYS, LIMIT_ROWS);
    struct round_buffer *buffer = &step->buffers[i];
    buffer->data = step->op.engine->tables.ops->buffer_new(l.bytes + 64);
    buffer->bytes = l.bytes + 64;
    if (buffer->data == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "part %u: no memory for %llu bytes of a round", i,
                               (unsigned long long)l.bytes);
    step->n_buffers = i + 1;
    merge(step, i, buffer->data, &l, to);
    return EMBD_OK;
}

/* A record has no room for those of more workers. */
static void add_sources(struct round_step *step)
{
    struct op *op = &step->op;
    op->sources = step->sources;
    for (uint32_t m = 0; m < step->n_members && op->n_sources < PUSH_SOURCES_MAX; m++)
        if (step->members[m].source.client != 0)
            step->sources[op->n_sources++] = step->members[m].source;
}

/* All of it, ready for the store. */
static int prepare(struct round_step *step, struct embd__error *e)
{
    for (uint32_t m = 0; m < step->n_members; m++)
        if (find_tables(step->members[m].push, e) != EMBD_OK)
            return e->status;
    uint32_t n_parts = step->members[0].push->n_parts;
    step->keys_at = calloc((size_t)step->n_members * n_parts, sizeof *step->keys_at);
    step->buffers = malloc(n_parts * sizeof *step->buffers);
    if (step->keys_at == NULL || (step->buffers == NULL && n_parts > 0))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the step of a round");
    if (op_size_parts(&step->op, n_parts, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n_parts; i++)
        if (merge_part(step, i, e) != EMBD_OK)
            return e->status;
    return op_size_statuses(&step->op, e);
}

/* ---- the step ---- */

static void tell(struct op *member, int status, const char *text)
{
    member->error.status = EMBD_OK;
    embd__error_set(&member->error, status, "%s", text);
    op_end(member);
}

struct round_step *round_take(struct engine *engine, uint64_t now_ns,
                              bool (*may)(const void *arg, const struct op *push), const void *arg)
{
    struct op *members[EMBD_WORKERS_MAX];
    if (engine->rounds.n_waiting == 0)
        return NULL;
    uint32_t n = rounds_take(&engine->rounds, now_ns, may, arg, members);
    if (n == 0)
        return NULL;
    struct round_step *step = calloc(1, sizeof *step + n * sizeof *step->members);
    if (step == NULL) {
        for (uint32_t i = 0; i < n; i++)
            tell(members[i], EMBD_NO_MEMORY, "no memory for the step of a round");
        return NULL;
    }
    step->n_members = n;
    for (uint32_t m = 0; m < n; m++)
        step->members[m] = (struct round_member){members[m], members[m]->source};
    step->next = engine->steps;
    engine->steps = step;
    op_begin(&step->op, engine, OP_PUSH);
    step->op.now_ns = now_ns;
    add_sources(step);
    prepare(step, &step->op.error);
    return step;
}

static void step_free(struct round_step *step)
{
    struct engine *engine = step->op.engine;
    struct round_step **at = &engine->steps;
    while (*at != step)
        at = &(*at)->next;
    *at = step->next;
    for (uint32_t i = 0; i < step->n_buffers; i++)
        engine->tables.ops->buffer_free(step->buffers[i].data, step->buffers[i].bytes);
    op_fini(&step->op);
    free(step->buffers);
    free(step->keys_at);
    free(step);
}

/* Writes the step's result to the push of worker m. */
static void give(const struct round_step *step, uint32_t m, struct op *member)
{
    for (uint32_t i = 0; i < member->n_parts; i++) {
        struct op_part *part = &member->parts[i];
        const struct op_part *from = &step->op.parts[i];
        part->step = from->step;
        part->n_inserted = from->n_inserted;
        part->n_full = from->n_full;
        part->n_filtered = from->n_filtered;
        part->n_evicted = from->n_evicted;
        part->table = NULL;
        if (part->statuses != NULL && part->in.n_keys > 0)
            memcpy(part->statuses, from->statuses + step->keys_at[m * member->n_parts + i],
                   part->in.n_keys);
    }
}

void round_spread(struct round_step *step)
{
    const struct embd__error *e = &step->op.error;
    step->op.engine->counters.round_steps += e->status == EMBD_OK;
    for (uint32_t m = 0; m < step->n_members; m++) {
        struct op *member = step->members[m].push;
        if (member == NULL)
            continue;
        step->members[m].push = NULL;
        if (e->status == EMBD_OK && !member->is_again)
            give(step, m, member);
        member->record.is_replicated = step->op.record.is_replicated;
        member->record.is_synced = step->op.record.is_synced;
        member->record.position = step->op.record.position;
        member->error = *e;
        op_end(member);
    }
    step_free(step);
}

void round_close(struct engine *engine)
{
    while (engine->steps != NULL) {
        op_forget(&engine->steps->op);
        step_free(engine->steps);
    }
}
