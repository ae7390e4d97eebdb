/* test_refusals.c - random requests of one and several parts against the model. It says beforehand
 * which requests find no room; those are refused, no others, and after each refusal all tables are
 * what they were: rows, states, uses, candidates and steps. At the end a journal gives the same
 * tables.
 *
 * usage: test-refusals STORE [ROUNDS]: rounds of some hundred requests, each with other tables. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/opening.h"
#include "proto/route.h"
#include "server/service/state.h"
#include "tests/model/model.h"

enum {
    TABLES = 5,
    KEYS = 56,
    PARTS = 6,
    PART_KEYS = 30,
    DIM = 2,
    REQUESTS = 250,
    TOGETHER = 4,
    SLOTS = 3
};

enum keeping { KEPT_NOT, KEPT_AT_ONCE, KEPT_BY_THREADS };

struct world {
    const struct store_ops *ops;
    enum keeping keeping;
    uint64_t random;
    char dir[64];
    struct rig rig;
    embd_schema schemas[TABLES];
    struct model *models[TABLES];
};

/* One request, and what the model says of it. */
struct asked {
    enum method method;
    uint32_t n_parts, tables[PARTS];
    struct part parts[PARTS];
    uint64_t keys[PARTS][PART_KEYS];
    uint32_t offsets[PARTS][PART_KEYS + 1];
    uint16_t slots[PARTS][PART_KEYS];
    float grads[PARTS][PART_KEYS * DIM];
    int status;
    float values[PARTS][PART_KEYS * DIM];
    uint8_t statuses[PARTS][PART_KEYS];
    struct model_counts counts[PARTS];
    uint64_t steps[PARTS];
    uint32_t n_erased[PARTS];
    struct exchange *x;
};

/* How often it came to what. */
static struct {
    uint32_t pushes_alone, pushes, pulls_alone, pulls, pulls_joined, loads, others, made_room;
} seen;

static const struct store_ops *store;
static uint32_t n_rounds = 6;

static uint32_t below(struct world *w, uint32_t n)
{
    w->random = w->random * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)((w->random >> 33) % n);
}

/* ---- tables ---- */

static void draw_schema(struct world *w, uint32_t i)
{
    static const embd_optimizer_kind kinds[] = {EMBD_OPTIMIZER_SGD, EMBD_OPTIMIZER_ADAM,
                                                EMBD_OPTIMIZER_ROWWISE_ADAGRAD};
    static const uint32_t admissions[] = {0, 2, 3};
    embd_schema *s = &w->schemas[i];
    bool is_kept = w->keeping != KEPT_NOT;
    embd_schema_init(s);
    snprintf(s->name, sizeof s->name, "t%u", i);
    s->dim = DIM;
    s->combiner = below(w, 2) ? EMBD_COMBINER_SUM : EMBD_COMBINER_CONCAT;
    s->seed = i;
    s->on_full = (embd_on_full)i;
    s->capacity = s->on_full == EMBD_ON_FULL_GROW ? 0 : 4 + below(w, 24);
    s->ttl = s->on_full == EMBD_ON_FULL_EVICT_TTL ? 1 + below(w, 6) : 0;
    if (s->on_full == EMBD_ON_FULL_EVICT_LFU) {
        s->lfu_half_life = below(w, 5);
        s->lfu_occurrences = below(w, 2);
    }
    s->admit_after = admissions[below(w, 3)];
    s->create_on = !is_kept && below(w, 3) ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
    s->durability = !is_kept      ? EMBD_DURABILITY_SNAPSHOT
                    : below(w, 2) ? EMBD_DURABILITY_BUFFERED
                                  : EMBD_DURABILITY_DURABLE;
    s->partition = below(w, 3) ? EMBD_PARTITION_HASH : EMBD_PARTITION_SLOT;
    s->slots = SLOTS;
    embd_optimizer_init(&s->optimizer, kinds[below(w, 3)], 0.05f);
}

static void world_open(struct world *w, enum keeping keeping, uint64_t random)
{
    *w = (struct world){.ops = store, .keeping = keeping, .random = random};
    scratch_new(w->dir);
    rig_open(&w->rig, w->ops, 0, 1, keeping == KEPT_NOT ? NULL : w->dir);
    if (keeping == KEPT_BY_THREADS)
        rig_wake(&w->rig);
    for (uint32_t i = 0; i < TABLES; i++) {
        draw_schema(w, i);
        create_table(&w->rig, &w->schemas[i]);
        w->models[i] = model_new(&w->schemas[i]);
    }
}

static void world_close(struct world *w)
{
    rig_close(&w->rig);
    scratch_remove(w->dir);
    for (uint32_t i = 0; i < TABLES; i++)
        model_free(w->models[i]);
}

static int compare_records(const void *a, const void *b, void *bytes)
{
    return memcmp(a, b, *(const size_t *)bytes);
}

/* As image_take has it of a shard. */
static void image_of_model(const struct model *model, struct image *image)
{
    uint32_t state_bytes = model->state_floats * 4;
    uint64_t n = 0;
    image->record_bytes = 14 + DIM * 4 + state_bytes;
    image->records = calloc(model->n_keys + 1, image->record_bytes);
    image->rows = model->n_rows;
    image->candidates = model->n_candidates;
    image->step = model->step;
    for (uint64_t i = 0; i < model->n_keys; i++) {
        const struct model_key *k = model->keys[i];
        uint8_t *record = image->records + n * image->record_bytes;
        uint16_t slot = (uint16_t)k->slot;
        if (!k->has_row && k->sights == 0)
            continue;
        memcpy(record, &k->key, 8);
        memcpy(record + 8, &slot, 2);
        n++;
        if (!k->has_row) {
            memcpy(record + 10, &k->sights, 4);
            continue;
        }
        memcpy(record + 14, k->w, DIM * 4);
        memcpy(record + 14 + DIM * 4, k->state, state_bytes);
    }
    assert_int_equal(n, image->rows + image->candidates);
    qsort_r(image->records, n, image->record_bytes, compare_records, &image->record_bytes);
}

static void compare_tables(struct world *w)
{
    for (uint32_t i = 0; i < TABLES; i++) {
        struct image image;
        image_of_model(w->models[i], &image);
        image_check(&w->rig, w->schemas[i].name, &image);
        image_fini(&image);
    }
}

/* ---- requests ---- */

static struct model_batch batch_of(const struct part *part)
{
    return (struct model_batch){.n_keys = part->n_keys,
                                .n_rows = part->n_rows,
                                .keys = part->keys,
                                .offsets = part->offsets,
                                .slots = part->slots};
}

static void draw_part(struct world *w, struct asked *a, uint32_t i)
{
    const embd_schema *s = &w->schemas[a->tables[i]];
    struct part *part = &a->parts[i];
    uint32_t n = below(w, 4) ? below(w, 7) : below(w, PART_KEYS + 1), n_rows = 0;
    bool is_pooled = s->combiner == EMBD_COMBINER_SUM && a->method != METHOD_ERASE && below(w, 2);
    for (uint32_t k = 0; k < n; k++)
        a->keys[i][k] = below(w, KEYS);
    for (uint32_t k = 0; is_pooled && k < n && n_rows < PART_KEYS; n_rows++) {
        a->offsets[i][n_rows] = k; /* of some rows none, of the last all that are left */
        k += below(w, 3);
        k = k < n ? k : n;
    }
    a->offsets[i][n_rows] = n;
    n_rows = is_pooled ? n_rows : n;
    for (uint32_t r = 0; r < PART_KEYS; r++)
        a->slots[i][r] = (uint16_t)below(w, SLOTS);
    for (uint32_t g = 0; g < n_rows * DIM; g++)
        a->grads[i][g] = (float)below(w, 64) / 16.0f - 2.0f;
    *part = (struct part){.table = embd__table_id(s->name),
                          .n_keys = n,
                          .n_rows = n_rows,
                          .want_status = below(w, 3) == 0,
                          .zero_missing = a->method == METHOD_PULL && below(w, 6) == 0,
                          .keys = a->keys[i],
                          .offsets = is_pooled ? a->offsets[i] : NULL,
                          .slots = s->partition == EMBD_PARTITION_SLOT ? a->slots[i] : NULL};
    if (a->method == METHOD_PUSH) {
        part->grads = a->grads[i];
        part->grads_bytes = n_rows * DIM * sizeof(float);
    }
}

/* A push names a table once; a pull as often as it likes. */
static void draw_request(struct world *w, struct asked *a, enum method method)
{
    uint32_t first = below(w, TABLES), most = method == METHOD_PUSH ? TABLES : PARTS;
    memset(a, 0, sizeof *a);
    a->method = method;
    a->n_parts = below(w, 3) ? 1 + below(w, most) : 1;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        a->tables[i] = method == METHOD_PUSH ? (first + i) % TABLES : below(w, TABLES);
        draw_part(w, a, i);
    }
}

static void push_model(struct world *w, struct asked *a)
{
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct model_batch batch = batch_of(&a->parts[i]);
        if (!a->parts[i].want_status && model_foresee(w->models[a->tables[i]], &batch) != EMBD_OK)
            a->status = EMBD_FULL;
    }
    for (uint32_t i = 0; i < a->n_parts && a->status == EMBD_OK; i++) {
        struct model *model = w->models[a->tables[i]];
        struct model_batch batch = batch_of(&a->parts[i]);
        assert_int_equal(
            model_push(model, &batch, a->grads[i], false, a->statuses[i], &a->counts[i]), EMBD_OK);
        a->steps[i] = model->step;
        seen.made_room += a->counts[i].n_evicted > 0;
    }
    seen.pushes_alone += a->status != EMBD_OK && a->n_parts == 1;
    seen.pushes += a->status != EMBD_OK && a->n_parts > 1;
}

/* All keys of a pull for which one table makes rows. */
struct joined {
    struct model_batch in;
    uint32_t n_parts;
    bool may_drop;
    uint64_t keys[PARTS * PART_KEYS];
    uint16_t slots[PARTS * PART_KEYS];
    uint8_t statuses[PARTS * PART_KEYS];
};

static bool creates(const struct world *w, const struct asked *a, uint32_t i)
{
    return w->schemas[a->tables[i]].create_on == EMBD_CREATE_ON_PULL && !a->parts[i].zero_missing &&
           a->parts[i].n_keys > 0;
}

static void join_parts(const struct world *w, const struct asked *a, uint32_t table,
                       struct joined *j)
{
    uint32_t n = 0;
    memset(j, 0, sizeof *j);
    j->may_drop = true;
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct model_batch batch = batch_of(&a->parts[i]);
        if (a->tables[i] != table || !creates(w, a, i))
            continue;
        for (uint32_t r = 0; r < batch.n_rows; r++) {
            uint32_t k = batch.offsets ? batch.offsets[r] : r,
                     end = batch.offsets ? batch.offsets[r + 1] : r + 1;
            for (; k < end; k++, n++) {
                j->keys[n] = batch.keys[k];
                j->slots[n] = batch.slots ? batch.slots[r] : 0;
            }
        }
        j->n_parts++;
        j->may_drop &= a->parts[i].want_status;
    }
    j->in = (struct model_batch){
        .n_keys = n,
        .n_rows = n,
        .keys = j->keys,
        .slots = w->schemas[table].partition == EMBD_PARTITION_SLOT ? j->slots : NULL};
}

static void insert_joined(struct world *w, struct asked *a, uint32_t table, struct joined *j)
{
    struct model_counts counts;
    model_insert(w->models[table], &j->in, j->statuses, &counts);
    seen.made_room += counts.n_evicted > 0;
    for (uint32_t i = 0, at = 0; i < a->n_parts; i++) {
        if (a->tables[i] != table || !creates(w, a, i))
            continue;
        memcpy(a->statuses[i], j->statuses + at, a->parts[i].n_keys);
        at += a->parts[i].n_keys;
    }
}

static void pull_model(struct world *w, struct asked *a)
{
    struct joined joined[TABLES];
    uint32_t n_tables = 0, most_parts = 0;
    for (uint32_t t = 0; t < TABLES; t++) {
        join_parts(w, a, t, &joined[t]);
        n_tables += joined[t].n_parts > 0;
        most_parts = joined[t].n_parts > most_parts ? joined[t].n_parts : most_parts;
        if (!joined[t].may_drop && model_foresee(w->models[t], &joined[t].in) != EMBD_OK)
            a->status = EMBD_FULL;
    }
    seen.pulls_alone += a->status != EMBD_OK && n_tables == 1;
    seen.pulls += a->status != EMBD_OK && n_tables > 1;
    seen.pulls_joined += a->status != EMBD_OK && most_parts > 1;
    for (uint32_t t = 0; t < TABLES && a->status == EMBD_OK; t++)
        if (joined[t].n_parts > 0)
            insert_joined(w, a, t, &joined[t]);
    for (uint32_t i = 0; i < a->n_parts && a->status == EMBD_OK; i++) {
        struct model_batch batch = batch_of(&a->parts[i]);
        model_pull(w->models[a->tables[i]], &batch, a->parts[i].zero_missing, false, a->values[i],
                   creates(w, a, i) ? NULL : a->statuses[i]);
    }
}

static void erase_model(struct world *w, struct asked *a)
{
    for (uint32_t i = 0; i < a->n_parts; i++) {
        struct model_batch batch = batch_of(&a->parts[i]);
        a->n_erased[i] = model_erase(w->models[a->tables[i]], &batch, a->statuses[i]);
    }
}

static void send_request(struct world *w, struct asked *a)
{
    if (a->method == METHOD_PUSH)
        push_model(w, a);
    else if (a->method == METHOD_PULL)
        pull_model(w, a);
    else
        erase_model(w, a);
    a->x = ask(&w->rig, &w->rig.data, a->method);
    embd__parts_write(&a->x->out, a->parts, a->n_parts,
                      a->method == METHOD_PUSH   ? PARTS_PUSH
                      : a->method == METHOD_PULL ? PARTS_PULL
                                                 : PARTS_ERASE);
    ask_send(a->x);
}

static void check_push(struct asked *a)
{
    struct push_answer answers[PARTS];
    bool again;
    assert_int_equal(embd__push_answer_read(&a->x->reader, answers, PARTS, &again), a->n_parts);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        assert_int_equal(answers[i].step, a->steps[i]);
        assert_int_equal(answers[i].n_inserted, a->counts[i].n_inserted);
        assert_int_equal(answers[i].n_full, a->counts[i].n_full);
        assert_int_equal(answers[i].n_filtered, a->counts[i].n_filtered);
        assert_int_equal(answers[i].n_evicted, a->counts[i].n_evicted);
        if (a->parts[i].want_status && a->parts[i].n_keys > 0)
            assert_memory_equal(answers[i].statuses, a->statuses[i], a->parts[i].n_keys);
    }
}

static void check_pull(struct asked *a)
{
    struct part_answer answers[PARTS];
    assert_int_equal(embd__pull_answer_read(&a->x->reader, answers, PARTS), a->n_parts);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        if (a->parts[i].n_rows > 0)
            assert_memory_equal(answers[i].values, a->values[i],
                                a->parts[i].n_rows * DIM * sizeof(float));
        if (a->parts[i].want_status && a->parts[i].n_keys > 0)
            assert_memory_equal(answers[i].statuses, a->statuses[i], a->parts[i].n_keys);
    }
}

static void check_erase(struct asked *a)
{
    struct erase_answer answers[PARTS];
    assert_int_equal(embd__erase_answer_read(&a->x->reader, answers, PARTS), a->n_parts);
    for (uint32_t i = 0; i < a->n_parts; i++) {
        assert_int_equal(answers[i].n_erased, a->n_erased[i]);
        if (a->parts[i].want_status && a->parts[i].n_keys > 0)
            assert_memory_equal(answers[i].statuses, a->statuses[i], a->parts[i].n_keys);
    }
}

static void take_answer(struct asked *a)
{
    static const char *const none[] = {NULL}, *const full[] = {"need a row", "capacity", NULL};
    ask_wait(a->x);
    ask_read(a->x);
    if (a->status != EMBD_OK || a->x->reader.answer_status != EMBD_OK)
        check_error(a->x, a->status, a->status != EMBD_OK ? full : none);
    else if (a->method == METHOD_PUSH)
        check_push(a);
    else if (a->method == METHOD_PULL)
        check_pull(a);
    else
        check_erase(a);
    ask_free(a->x);
}

/* Some requests of one connection, of which none waits for an answer. */
static void ask_together(struct world *w)
{
    static struct asked asked[TOGETHER];
    uint32_t n = 1 + (below(w, 2) ? below(w, TOGETHER) : 0);
    bool is_refused = false;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t kind = below(w, 16);
        draw_request(w, &asked[i], kind == 0 ? METHOD_ERASE : kind < 9 ? METHOD_PUSH : METHOD_PULL);
        send_request(w, &asked[i]);
        is_refused |= asked[i].status != EMBD_OK;
    }
    for (uint32_t i = 0; i < n; i++)
        take_answer(&asked[i]);
    if (is_refused || below(w, 8) == 0)
        compare_tables(w);
}

/* ---- loads ---- */

struct load {
    struct row_block block;
    uint64_t keys[PART_KEYS], candidate_keys[PART_KEYS];
    uint16_t slots[PART_KEYS], candidate_slots[PART_KEYS];
    uint32_t counts[PART_KEYS];
    float rows[PART_KEYS * DIM], states[PART_KEYS * 16];
};

static void draw_load(struct world *w, const embd_schema *s, struct load *l)
{
    uint32_t n = below(w, PART_KEYS), n_candidates = s->admit_after > 1 ? below(w, 4) : 0;
    memset(l, 0, sizeof *l);
    for (uint32_t i = 0; i < n; i++) {
        l->keys[i] = i + below(w, KEYS - PART_KEYS);
        l->keys[i] = i > 0 && l->keys[i] <= l->keys[i - 1] ? l->keys[i - 1] + 1 : l->keys[i];
        l->slots[i] = s->partition == EMBD_PARTITION_SLOT ? (uint16_t)below(w, SLOTS) : 0;
    }
    for (uint32_t i = 0; i < n_candidates; i++) {
        l->candidate_keys[i] = KEYS + i;
        l->candidate_slots[i] = s->partition == EMBD_PARTITION_SLOT ? (uint16_t)below(w, SLOTS) : 0;
        l->counts[i] = 1 + below(w, s->admit_after - 1);
    }
    for (uint32_t i = 0; i < n * DIM; i++)
        l->rows[i] = (float)below(w, 100);
    l->block = (struct row_block){
        .n_rows = n,
        .n_candidates = n_candidates,
        .keys = l->keys,
        .slots = s->partition == EMBD_PARTITION_SLOT ? l->slots : NULL,
        .rows = l->rows,
        .states = l->states,
        .candidate_keys = l->candidate_keys,
        .candidate_slots = s->partition == EMBD_PARTITION_SLOT ? l->candidate_slots : NULL,
        .candidate_counts = l->counts};
}

/* Of the rows of a block so many have none in the table, which never evicts for a load. */
static bool load_fits(const struct model *model, const struct load *l)
{
    uint64_t n_rows = model->n_rows;
    for (uint32_t i = 0; i < l->block.n_rows; i++) {
        const struct model_key *k = model_find(model, l->keys[i], l->slots[i]);
        n_rows += k == NULL || !k->has_row;
    }
    return model->schema.on_full == EMBD_ON_FULL_GROW || n_rows <= model->schema.capacity;
}

static void ask_load(struct world *w)
{
    static struct load l;
    uint32_t table = below(w, TABLES);
    const embd_schema *s = &w->schemas[table];
    struct model *model = w->models[table];
    draw_load(w, s, &l);
    struct exchange *x = ask(&w->rig, &w->rig.admin, METHOD_LOAD);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", s->name);
    embd__msg_field_uint(&x->out, "rows", l.block.n_rows);
    embd__msg_field_uint(&x->out, "candidates", l.block.n_candidates);
    embd__row_block_write(&x->out, s, &l.block);
    if (load_fits(model, &l)) {
        ask_ok(x);
        ask_free(x);
        for (uint32_t i = 0; i < l.block.n_rows; i++)
            model_set_row(model, l.keys[i], l.slots[i], &l.rows[i * DIM], l.states);
        for (uint32_t i = 0; i < l.block.n_candidates; i++)
            model_set_candidate(model, l.candidate_keys[i], l.candidate_slots[i], l.counts[i]);
    } else {
        seen.loads++;
        ask_error(x, EMBD_FULL, "capacity", NULL);
    }
    compare_tables(w);
}

/* ---- what is wrong otherwise ---- */

/* The last part is wrong, behind others that are right. */
static void ask_wrong_part(struct world *w)
{
    static const enum method methods[] = {METHOD_PUSH, METHOD_PULL, METHOD_ERASE};
    static struct asked a;
    draw_request(w, &a, methods[below(w, 3)]);
    struct part *last = &a.parts[a.n_parts - 1];
    int status = EMBD_UNKNOWN_TABLE;
    if (a.method == METHOD_PUSH && last->n_rows > 0 && below(w, 2)) {
        a.grads[a.n_parts - 1][last->n_rows * DIM - 1] = 0.0f / 0.0f;
        status = EMBD_NOT_FINITE;
    } else if (a.method == METHOD_PUSH && below(w, 2)) {
        last->grads_bytes += 4;
        status = EMBD_MALFORMED;
    } else {
        last->table ^= 1;
    }
    a.x = ask(&w->rig, &w->rig.data, a.method);
    embd__parts_write(&a.x->out, a.parts, a.n_parts,
                      a.method == METHOD_PUSH   ? PARTS_PUSH
                      : a.method == METHOD_PULL ? PARTS_PULL
                                                : PARTS_ERASE);
    ask_error(a.x, status, NULL);
}

static void ask_other_table(struct world *w)
{
    embd_schema schema = w->schemas[below(w, TABLES)];
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_TABLE_CREATE);
    bool is_new = below(w, 2);
    schema.dim = is_new ? 0 : schema.dim + 1;
    if (is_new)
        strcpy(schema.name, "new");
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, &schema);
    ask_error(x, is_new ? EMBD_INVALID : EMBD_EXISTS, "dim", NULL);
}

static void ask_drop_of_none(struct world *w)
{
    struct exchange *x = ask(&w->rig, &w->rig.admin, METHOD_TABLE_DROP);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", "new");
    ask_error(x, EMBD_UNKNOWN_TABLE, "new", NULL);
}

static struct exchange *ask_tick(struct world *w, uint32_t worker, uint64_t clock)
{
    struct exchange *x = ask(&w->rig, &w->rig.data, METHOD_TICK);
    embd__msg_map(&x->out, 4);
    embd__msg_field_str(&x->out, "job", "j");
    embd__msg_field_uint(&x->out, "worker", worker);
    embd__msg_field_uint(&x->out, "workers", 2);
    embd__msg_field_uint(&x->out, "clock", clock);
    return x;
}

/* The slowest clock is what it was. */
static void ask_falling_tick(struct world *w)
{
    struct fields f;
    struct exchange *x = ask_tick(w, 0, 7);
    ask_ok(x);
    ask_free(x);
    ask_error(ask_tick(w, 0, 6), EMBD_INVALID, "6", "7", NULL);
    ask_error(ask_tick(w, 2, 1), EMBD_INVALID, "worker", NULL);
    x = ask_tick(w, 1, 9);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "tick");
    assert_int_equal(embd__field_uint(&f, "slowest", 0, UINT64_MAX - 1, FIELD_REQUIRED), 7);
    ask_free(x);
}

static void ask_what_is_wrong(struct world *w)
{
    switch (below(w, 6)) {
    case 0:
        ask_other_table(w);
        break;
    case 1:
        ask_drop_of_none(w);
        break;
    case 2:
        ask_falling_tick(w);
        break;
    default:
        ask_wrong_part(w);
    }
    seen.others++;
    compare_tables(w);
}

/* ---- rounds ---- */

static void run_round(enum keeping keeping, uint64_t random)
{
    struct world w;
    world_open(&w, keeping, random);
    for (uint32_t i = 0; i < REQUESTS; i++) {
        uint32_t kind = below(&w, 24);
        if (kind == 0)
            ask_what_is_wrong(&w);
        else if (kind == 1)
            ask_load(&w);
        else
            ask_together(&w);
    }
    compare_tables(&w);
    if (keeping != KEPT_NOT) {
        rig_close(&w.rig);
        rig_open(&w.rig, w.ops, 0, 1, w.dir);
        compare_tables(&w);
    }
    world_close(&w);
}

static void what_has_no_room_is_refused_whole_and_nothing_else_is(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < n_rounds; i++) {
        run_round(KEPT_NOT, 1000 + i);
        run_round(i % 2 ? KEPT_AT_ONCE : KEPT_BY_THREADS, 2000 + i);
    }
    assert_true(seen.pushes_alone > n_rounds && seen.pushes > n_rounds &&
                seen.pulls_alone > n_rounds);
    assert_true(seen.pulls > 0 && seen.pulls_joined > 0 && seen.loads > 0 &&
                seen.others > n_rounds);
    assert_true(seen.made_room > n_rounds);
}

/* ---- numbers of pushes that are refused ---- */

static const struct push_number numbered = {.high = 7, .low = 9, .stream = 3};

static void open_small(struct rig *rig)
{
    embd_schema small;
    embd_schema_init(&small);
    strcpy(small.name, "small");
    small.dim = DIM;
    small.capacity = 4;
    small.on_full = EMBD_ON_FULL_ERROR;
    rig_open(rig, store, 0, 1, NULL);
    create_table(rig, &small);
    open_stream(rig, &numbered, false);
}

static struct exchange *send_numbered(struct rig *rig, struct shard_session *session,
                                      uint64_t sequence, uint32_t n_keys)
{
    static const uint64_t keys[] = {1, 2, 3, 4, 5};
    static const float grads[5 * DIM] = {1, 2, 3};
    const struct part part = {.table = embd__table_id("small"),
                              .n_keys = n_keys,
                              .n_rows = n_keys,
                              .keys = keys,
                              .grads = grads,
                              .grads_bytes = n_keys * DIM * sizeof *grads,
                              .dtype = EMBD_DTYPE_F32};
    struct push_extra extra = {.number = numbered};
    extra.number.sequence = sequence;
    struct exchange *x = ask(rig, session, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_send(x);
    return x;
}

static void check_refused(struct exchange *x, int status)
{
    ask_wait(x);
    ask_error(x, status, NULL);
}

static void check_applied(struct rig *rig, uint64_t sequence)
{
    struct exchange *x = send_numbered(rig, &rig->data, sequence, 2);
    ask_wait(x);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(figure(rig, "small", "steps"), sequence);
}

/* It is not said to be applied when it is sent again. */
static void a_push_that_is_refused_after_its_pusher_left_keeps_no_number(void **state)
{
    struct rig rig;
    (void)state;
    open_small(&rig);
    struct exchange *x = send_numbered(&rig, &rig.data, 1, 5);
    assert_int_equal(x->is_answered, !store->caps.is_async);
    ask_free(x);
    assert_int_equal(rig.shard->engine.n_in_flight, 0);
    check_refused(send_numbered(&rig, &rig.data, 1, 5), EMBD_FULL);
    assert_int_equal(figure(&rig, "small", "rows"), 0);
    check_applied(&rig, 1);
    ask_free(send_numbered(&rig, &rig.data, 2, 1));
    check_refused(send_numbered(&rig, &rig.data, 4, 1), EMBD_GAP);
    check_applied(&rig, 3);
    rig_close(&rig);
}

/* Sent while the one before it is under way, which is refused then; so with an opening, which
 * tells the last number. Other streams do not wait. */
static void the_next_number_waits_for_a_push_that_may_be_refused(void **state)
{
    const struct push_number other = {.high = 7, .low = 9, .stream = 4};
    struct rig rig;
    (void)state;
    open_small(&rig);
    struct shard_session second = rig.data, third = second, fourth = second;
    struct exchange *x = send_numbered(&rig, &rig.data, 1, 5),
                    *y = send_numbered(&rig, &second, 2, 1),
                    *opening = ask_opening(&rig, &numbered, false),
                    *another = ask_opening(&rig, &other, false);
    opening->request.session = &third;
    another->request.session = &fourth;
    ask_send(opening);
    ask_send(another);
    assert_int_equal(opening->is_answered, !store->caps.is_async);
    assert_true(another->is_answered);
    ask_wait(opening);
    check_refused(x, EMBD_FULL);
    check_refused(y, EMBD_GAP);
    uint64_t last;
    bool opened;
    ask_ok(opening);
    assert_int_equal(embd__opened_read(&opening->reader, &last, &opened), EMBD_OK);
    assert_int_equal(last, 0);
    ask_free(opening);
    ask_free(another);
    check_applied(&rig, 1);
    rig_close(&rig);
}

int main(int argc, char **argv)
{
    struct embd__error e = {.status = EMBD_OK};
    store = store_find(argc > 1 ? argv[1] : "host", &e);
    if (store == NULL) {
        fprintf(stderr, "%s\n", e.text);
        return 2;
    }
    if (argc > 2)
        n_rounds = (uint32_t)atoi(argv[2]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_has_no_room_is_refused_whole_and_nothing_else_is),
        cmocka_unit_test(a_push_that_is_refused_after_its_pusher_left_keeps_no_number),
        cmocka_unit_test(the_next_number_waits_for_a_push_that_may_be_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
