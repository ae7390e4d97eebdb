/* round_step.c - the pushes of a round become one push of the store, and each worker is answered.
 *
 * The happy path: a push is checked and waits (round_enter); when its round is complete, the parts
 * for one table are put one behind another in the order of their workers, gradients widened to f32
 * and divided by the number of workers (round_make); the store takes them as one request, so that a
 * key's gradients are summed in an order that does not depend on when they came; every worker is
 * told of the step (on_made). Where its tables are journaled, that one request is the record: a
 * replay knows nothing of workers, and makes the same step.
 *
 * While a push waits, what its connection sends next waits behind it. Tables may change meanwhile,
 * so everything is checked again before the step is made. One failure fails the whole step, and
 * nothing is changed. Parts are copied, so that a worker may go away while a device works. */
#include "server/shard/rounds/round_step.h"

#include <stdlib.h>
#include <string.h>

#include "server/engine/check.h"
#include "server/shard/commit.h"
#include "proto/dtype.h"
#include "server/shard/own_frame.h"
#include "server/shard/push.h"
#include "server/shard/room.h"
#include "server/shard/settle.h"
#include "server/shard/state.h"

/* A request that comes from nobody carries the merged parts. */
struct round_step {
    struct request carrier;       /* first: the step is found by it */
    struct shard_session session; /* the carrier's: nobody's */
    struct round_step *next;      /* being made */
    uint32_t n_members;
    void *buffers[LIMIT_PARTS]; /* from store_ops.buffer_new; NULL: none */
    uint64_t buffer_bytes[LIMIT_PARTS];
    uint32_t *keys_at; /* [n_members][parts], where a worker's keys begin among the step's */
    struct request *members[]; /* [n_members] in the order of workers; NULL: gone */
};

/* ---- waiting ---- */

void behind_park(struct shard_session *session, struct request *request)
{
    request->state = REQUEST_PARKED;
    request->waits = WAITS_BEHIND;
    request->next = NULL;
    if (session->behind == NULL)
        session->behind = request;
    else
        session->behind_last->next = request;
    session->behind_last = request;
}

void behind_unpark(struct shard_session *session, struct request *request)
{
    struct request **at = &session->behind, *before = NULL;
    while (*at != request) {
        before = *at;
        at = &(*at)->next;
    }
    *at = request->next;
    if (session->behind_last == request)
        session->behind_last = before;
    request->next = NULL;
}

/* The push waits no more: what is behind it is tried in its turn. */
static void leave(struct shard *shard, struct request *request)
{
    struct shard_session *session = request->session;
    session->in_round = NULL;
    request->state = REQUEST_RECEIVED;
    while (session->behind != NULL) {
        struct request *behind = session->behind;
        behind_unpark(session, behind);
        hold_park(&shard->hold, behind);
    }
}

static void refuse(struct shard *shard, struct request *request, int status, const char *text)
{
    struct embd__error e = {.status = EMBD_OK};
    embd__error_set(&e, status, "%s", text);
    leave(shard, request);
    call_answer(shard, request, &e);
}

/* A worker leaves, or is another process from now on. */
static void on_replaced(void *arg, const struct job *job, uint32_t worker)
{
    struct shard *shard = arg;
    struct request *request;
    while ((request = rounds_take_out(&shard->rounds, job, worker)) != NULL)
        refuse(shard, request, EMBD_CLOSED,
               "the worker has left, or another process has joined for it");
}

int round_enter(struct call *call)
{
    struct shard *shard = call->shard;
    struct shard_work *work = call->work;
    struct request *replaced;
    uint32_t tables[LIMIT_PARTS];
    embd_durability durability;
    if (commit_durability(work, &durability, &call->error) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < work->n_parts; i++)
        tables[i] = work->parts[i].in.table;
    if (call->request->session->has_ended)
        return embd__error_set(&call->error, EMBD_CLOSED,
                               "the connection has ended its side: a round takes pushes of workers "
                               "that stay");
    if (rounds_join(&shard->rounds, &shard->jobs, &call->extra.round, tables, work->n_parts,
                    shard->now_ns, call->request, &replaced, &call->error) != EMBD_OK)
        return call->error.status;
    for (uint32_t i = 0; i < work->n_parts; i++)
        work->parts[i].table = NULL;
    shard->counters.parked++;
    call->request->state = REQUEST_PARKED;
    call->request->waits = WAITS_ROUND;
    call->request->session->in_round = call->request;
    if (replaced != NULL)
        refuse(shard, replaced, EMBD_CLOSED,
               "the worker has pushed for this round anew, on another connection");
    return CALL_LATER;
}

/* ---- merging ---- */

static int find_tables(struct shard *shard, struct request *member, struct embd__error *e)
{
    struct shard_work *work = member->work;
    for (uint32_t i = 0; i < work->n_parts; i++) {
        struct work_part *part = &work->parts[i];
        if (check_part(&shard->tables, &part->in, i, &part->table, e) != EMBD_OK ||
            check_grads(part->table, &part->in, i, 0, e) != EMBD_OK ||
            settle(shard, member->session, part->table, CHANGE_ROWS, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

/* What part i of the step has room for, and where its arrays begin in the buffer. */
struct layout {
    uint64_t n_keys, n_rows;
    bool has_offsets, has_slots, has_weights, want_status;
    uint64_t offsets, slots, weights, grads, bytes;
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
        const struct part *in = &step->members[m]->work->parts[i].in;
        l->n_keys += in->n_keys;
        l->n_rows += in->n_rows;
        l->has_offsets |= in->offsets != NULL;
        l->has_slots |= in->slots != NULL;
        l->has_weights |= in->weights != NULL;
        l->want_status |= in->want_status;
    }
    place(&l->bytes, 8 * l->n_keys);
    l->offsets = place(&l->bytes, l->has_offsets ? 4 * (l->n_rows + 1) : 0);
    l->slots = place(&l->bytes, l->has_slots ? 2 * l->n_rows : 0);
    l->weights = place(&l->bytes, l->has_weights ? 4 * l->n_keys : 0);
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

static void append_grads(float *to, const struct part *in, uint32_t dim, float n_members)
{
    size_t n = (size_t)in->n_rows * dim;
    embd__to_f32(to, in->grads, in->dtype, n);
    for (size_t i = 0; i < n; i++)
        to[i] /= n_members;
}

/* Part i of every member, one behind another. */
static void merge(const struct round_step *step, uint32_t i, uint8_t *buffer,
                  const struct layout *l, struct work_part *to)
{
    uint32_t dim = to->table->schema.s.dim, key = 0, row = 0;
    uint64_t *keys = (uint64_t *)buffer;
    uint32_t *offsets = (uint32_t *)(buffer + l->offsets);
    uint16_t *slots = (uint16_t *)(buffer + l->slots);
    float *weights = (float *)(buffer + l->weights), *grads = (float *)(buffer + l->grads);
    for (uint32_t m = 0; m < step->n_members; m++) {
        const struct shard_work *work = step->members[m]->work;
        const struct part *in = &work->parts[i].in;
        step->keys_at[m * work->n_parts + i] = key;
        if (in->n_keys > 0)
            memcpy(keys + key, in->keys, 8 * (size_t)in->n_keys);
        if (l->has_offsets)
            append_offsets(offsets + row, in, key);
        if (l->has_slots && in->n_rows > 0)
            memcpy(slots + row, in->slots, 2 * (size_t)in->n_rows);
        if (l->has_weights)
            append_weights(weights + key, in);
        append_grads(grads + (size_t)row * dim, in, dim, (float)step->n_members);
        key += in->n_keys;
        row += in->n_rows;
    }
    to->in = (struct part){.table = step->members[0]->work->parts[i].in.table,
                           .dtype = EMBD_DTYPE_F32,
                           .n_keys = key,
                           .n_rows = row,
                           .want_status = l->want_status,
                           .keys = keys,
                           .offsets = l->has_offsets ? offsets : NULL,
                           .slots = l->has_slots ? slots : NULL,
                           .weights = l->has_weights ? weights : NULL,
                           .grads = grads,
                           .grads_bytes = 4 * (uint64_t)row * dim};
}

static int merge_part(struct shard *shard, struct round_step *step, uint32_t i,
                      struct embd__error *e)
{
    struct work_part *to = &step->carrier.work->parts[i];
    struct layout l;
    to->table = step->members[0]->work->parts[i].table;
    lay(step, i, to->table->schema.s.dim, &l);
    if (l.n_keys > LIMIT_KEYS || l.n_rows > LIMIT_ROWS)
        return embd__error_set(e, EMBD_TOO_LARGE,
                               "part %u: the round's pushes have %llu keys and %llu rows together, "
                               "the limits are %u and %u",
                               i, (unsigned long long)l.n_keys, (unsigned long long)l.n_rows,
                               LIMIT_KEYS, LIMIT_ROWS);
    step->buffers[i] = shard->tables.ops->buffer_new(l.bytes + 64);
    step->buffer_bytes[i] = l.bytes + 64;
    if (step->buffers[i] == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "part %u: no memory for %llu bytes of a round", i,
                               (unsigned long long)l.bytes);
    merge(step, i, step->buffers[i], &l, to);
    return EMBD_OK;
}

/* All of it, ready for the store. */
static int prepare(struct shard *shard, struct round_step *step, struct embd__error *e)
{
    for (uint32_t m = 0; m < step->n_members; m++)
        if (find_tables(shard, step->members[m], e) != EMBD_OK)
            return e->status;
    uint32_t n_parts = step->members[0]->work->n_parts;
    struct shard_work *work = work_new(shard, &step->carrier);
    if (work == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the step of a round");
    work->began_ns = clock_ns();
    step->keys_at = calloc((size_t)step->n_members * n_parts, sizeof *step->keys_at);
    if (step->keys_at == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the step of a round");
    if (work_size_parts(work, n_parts, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n_parts; i++)
        if (merge_part(shard, step, i, e) != EMBD_OK)
            return e->status;
    return work_size_statuses(work, e) == EMBD_OK ? room_check(work, e) : e->status;
}

/* ---- making ---- */

static bool is_let_in(const void *hold, const struct request *push)
{
    return hold_lets_in(hold, push);
}

/* Under a hold a step is made where it is on other shards already: of pushes that are all let in.
 */
static struct round_step *step_new(struct shard *shard)
{
    struct request *requests[EMBD_WORKERS_MAX];
    uint32_t n = rounds_take(&shard->rounds, shard->now_ns,
                             hold_is_on(&shard->hold) ? is_let_in : NULL, &shard->hold, requests);
    if (n == 0)
        return NULL;
    struct round_step *step = calloc(1, sizeof *step + n * sizeof *step->members);
    if (step == NULL) {
        for (uint32_t i = 0; i < n; i++)
            refuse(shard, requests[i], EMBD_NO_MEMORY, "no memory for the step of a round");
        return NULL;
    }
    step->n_members = n;
    memcpy(step->members, requests, n * sizeof *requests);
    step->next = shard->steps;
    shard->steps = step;
    return step;
}

static void step_free(struct shard *shard, struct round_step *step)
{
    struct round_step **at = &shard->steps;
    while (*at != step)
        at = &(*at)->next;
    *at = step->next;
    for (uint32_t i = 0; i < LIMIT_PARTS; i++)
        if (step->buffers[i] != NULL)
            shard->tables.ops->buffer_free(step->buffers[i], step->buffer_bytes[i]);
    if (step->carrier.work != NULL)
        work_free(step->carrier.work);
    free(step->keys_at);
    free(step);
}

/* What the step gave, to worker m; the error where it failed. */
static void answer(struct round_step *step, uint32_t m, const struct shard_work *made,
                   const struct embd__error *e)
{
    struct shard_work *work = step->members[m]->work;
    for (uint32_t i = 0; i < work->n_parts && e->status == EMBD_OK; i++) {
        struct work_part *part = &work->parts[i];
        const struct work_part *from = &made->parts[i];
        part->step = from->step;
        part->n_inserted = from->n_inserted;
        part->n_full = from->n_full;
        part->n_filtered = from->n_filtered;
        part->n_evicted = from->n_evicted;
        if (part->statuses != NULL && part->in.n_keys > 0)
            memcpy(part->statuses, from->statuses + step->keys_at[m * work->n_parts + i],
                   part->in.n_keys);
    }
    for (uint32_t i = 0; i < work->n_parts; i++)
        work->parts[i].table = NULL;
    work->error = *e;
    work->began_ns = clock_ns(); /* what was before is the step's time, or waiting */
    push_end(work);
}

static void answer_all(struct shard *shard, struct round_step *step, const struct embd__error *e)
{
    for (uint32_t m = 0; m < step->n_members; m++) {
        if (step->members[m] == NULL)
            continue;
        leave(shard, step->members[m]);
        answer(step, m, step->carrier.work, e);
        step->members[m] = NULL;
    }
}

static void on_made(struct shard_work *work)
{
    struct shard *shard = work->shard;
    struct round_step *step = (struct round_step *)(void *)work->request;
    room_left(work);
    if (work->error.status != EMBD_OK) {
        commit_refused(work);
        push_tell_applied(work);
    } else {
        shard->counters.round_steps++;
    }
    shard->counters.push_ns += clock_ns() - work->began_ns;
    answer_all(shard, step, &work->error);
    step_free(shard, step);
}

/* The step as one push, in the form of a request that was received: what a journal takes. It is
 * copied there, or not needed. */
struct step_request {
    struct msg msg;
    struct part parts[LIMIT_PARTS];
    struct own_frame own;
};

static int write_request(const struct shard_work *work, struct step_request *out,
                         struct embd__error *e)
{
    for (uint32_t i = 0; i < work->n_parts; i++) {
        out->parts[i] = work->parts[i].in;
        if (out->parts[i].grads_bytes > UINT32_MAX)
            return embd__error_set(e, EMBD_TOO_LARGE,
                                   "part %u: the round's gradients have %llu bytes together, the "
                                   "limit of a journal is %u",
                                   i, (unsigned long long)out->parts[i].grads_bytes, UINT32_MAX);
    }
    embd__msg_request(&out->msg, 0, METHOD_PUSH);
    embd__push_write(&out->msg, out->parts, work->n_parts, NULL);
    return own_frame_scan(&out->own, &out->msg, e);
}

/* EMBD_OK: it is made, or will be. */
static int record(struct shard *shard, struct round_step *step, struct embd__error *e)
{
    struct step_request *request = malloc(sizeof *request);
    if (request == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the step of a round");
    struct call call = {.shard = shard, .request = &step->carrier, .work = step->carrier.work};
    embd__msg_init(&request->msg);
    step->carrier.session = &step->session;
    step->carrier.frame = &request->own.frame;
    if (write_request(call.work, request, e) == EMBD_OK && commit_push(&call) != CALL_LATER)
        *e = call.error;
    embd__msg_fini(&request->msg);
    free(request);
    return e->status;
}

static int make(struct shard *shard, struct round_step *step, struct embd__error *e)
{
    struct shard_work *work = step->carrier.work;
    embd_durability durability;
    work->next_call = push_next_call;
    work->end = on_made;
    if (commit_durability(work, &durability, e) != EMBD_OK)
        return e->status;
    if (durability != EMBD_DURABILITY_SNAPSHOT)
        return record(shard, step, e);
    if (push_prepare(work, e) != EMBD_OK)
        return e->status;
    work_run(work);
    return EMBD_OK;
}

bool round_make(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    if (shard->rounds.n_waiting == 0)
        return false;
    struct round_step *step = step_new(shard);
    if (step == NULL)
        return false;
    int status = prepare(shard, step, &e);
    if (status == EMBD_OK)
        status = make(shard, step, &e);
    if (status != EMBD_OK) {
        answer_all(shard, step, &e);
        step_free(shard, step);
    }
    return true;
}

/* ---- ends ---- */

void round_open(struct shard *shard)
{
    shard->jobs.on_replaced = on_replaced;
    shard->jobs.arg = shard;
}

void round_end_session(struct shard *shard, struct shard_session *session)
{
    struct request *request = session->in_round;
    if (request != NULL && rounds_withdraw(&shard->rounds, request, shard->now_ns))
        refuse(shard, request, EMBD_CLOSED,
               "the connection has ended its side: its push is not in the round");
}

void round_refuse_all(struct shard *shard)
{
    struct request *request;
    while ((request = rounds_take_any(&shard->rounds)) != NULL)
        refuse(shard, request, EMBD_DRAINING, "the server shuts down, and the round is not made");
}

void round_forget(struct shard *shard, struct request *request)
{
    rounds_withdraw(&shard->rounds, request, shard->now_ns);
    for (struct round_step *step = shard->steps; step != NULL; step = step->next)
        for (uint32_t m = 0; m < step->n_members; m++)
            if (step->members[m] == request)
                step->members[m] = NULL;
    request->session->in_round = NULL;
}

void round_close(struct shard *shard)
{
    while (shard->steps != NULL) {
        work_forget(shard->steps->carrier.work);
        step_free(shard, shard->steps);
    }
    rounds_fini(&shard->rounds);
}
