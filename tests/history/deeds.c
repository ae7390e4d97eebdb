/* deeds.c - tables and batches are drawn from small sets, so that keys meet again. */
#include "deeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/batch.h"

#define KEYS_MAX  400u /* of a batch */
#define KEYS      150u /* different ones in a slot */
#define SLOTS_TOP 10u
#define DIM_TOP   5u

/* One sample: row s has the keys of slot s. */
struct keys {
    uint32_t n;
    uint64_t offsets[SLOTS_TOP + 1], keys[KEYS_MAX];
    uint16_t slots[KEYS_MAX]; /* the model's: 0 but in slot tables */
    float values[KEYS_MAX * DIM_TOP], wanted[KEYS_MAX * DIM_TOP];
    uint8_t statuses[KEYS_MAX], wanted_statuses[KEYS_MAX];
};

/* ---- tables ---- */

static void draw_optimizer(struct world *w, embd_optimizer *o)
{
    embd_optimizer_init(o, (embd_optimizer_kind)draw(w, EMBD_FTRL + 1),
                        one_in(w, 2) ? 0.5f : 0.03f);
    if (o->kind == EMBD_ADAM)
        o->update = (embd_update)draw(w, EMBD_LAZY_GLOBAL + 1);
    else if (one_in(w, 5))
        o->update = EMBD_GLOBAL;
    if (o->kind == EMBD_FTRL)
        o->l1 = 0.01f;
}

static embd_schema draw_schema(struct world *w, uint32_t table)
{
    static const uint32_t slots[] = {1, 1, 4, SLOTS_TOP};
    embd_schema s;
    embd_schema_init(&s);
    snprintf(s.name, sizeof s.name, "t%" PRIu32, table);
    s.dim = 1 + draw(w, DIM_TOP);
    s.slots = slots[draw(w, 4)];
    s.partition = (embd_partition)draw(w, EMBD_SLOT + 1);
    s.combiner = one_in(w, 2) ? EMBD_SUM : EMBD_CONCAT;
    s.dtype = one_in(w, 2) ? EMBD_F32 : (embd_dtype)draw(w, EMBD_BF16 + 1);
    s.seed = draw(w, 3);
    draw_optimizer(w, &s.optimizer);
    if (one_in(w, 2)) {
        s.on_full = (embd_on_full)(EMBD_ERROR + draw(w, 4));
        s.capacity = CAPACITY_MIN + draw(w, 60);
        s.ttl = s.on_full == EMBD_EVICT_TTL ? 2 + draw(w, 12) : 0;
    }
    s.admit_after = one_in(w, 3) ? 2 + draw(w, 2) : 1;
    if (kind_of(table) == JOURNALED) {
        s.durability = one_in(w, 3) ? EMBD_DURABLE : EMBD_BUFFERED;
    } else {
        s.durability = EMBD_SNAPSHOT;
        s.create_on = one_in(w, 4) ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
    }
    return s;
}

void deed_create(struct world *w)
{
    uint32_t first = draw(w, TABLES_MAX), i = 0;
    while (i < TABLES_MAX && w->now.tables[(first + i) % TABLES_MAX].is_there)
        i++;
    if (i == TABLES_MAX)
        return;
    uint32_t table = (first + i) % TABLES_MAX;
    embd_schema schema = draw_schema(w, table);
    tell(w,
         "\ncreate %s: dim %" PRIu32 ", %" PRIu32 " slots, %s, %s, %s, %s, %s, capacity %" PRIu64
         ", ttl %" PRIu64 ", admit_after %" PRIu32 ", create_on %s, %s",
         schema.name, schema.dim, schema.slots, embd_partition_name(schema.partition),
         embd_dtype_name(schema.dtype), embd_optimizer_name(schema.optimizer.kind),
         embd_update_name(schema.optimizer.update), embd_on_full_name(schema.on_full),
         schema.capacity, schema.ttl, schema.admit_after, embd_create_on_name(schema.create_on),
         embd_durability_name(schema.durability));
    expect(w, "embd_table_create", embd_table_create(w->client, &schema), EMBD_OK);
    image_create(&w->now, table, &schema);
    world_open_table(w, table);
    deed_fill(w, table);
}

/* A table that is there; TABLES_MAX: none is. */
static uint32_t draw_table(struct world *w)
{
    uint32_t first = draw(w, TABLES_MAX);
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (w->now.tables[(first + i) % TABLES_MAX].is_there)
            return (first + i) % TABLES_MAX;
    return TABLES_MAX;
}

void deed_drop(struct world *w)
{
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX)
        return;
    tell(w, "\ndrop t%" PRIu32, table);
    expect(w, "embd_table_drop", embd_table_drop(w->client, w->now.tables[table].schema.name),
           EMBD_OK);
    image_drop(&w->now, table);
}

/* ---- batches ---- */

/* n keys of one slot, or of all. */
static void draw_keys(struct world *w, const embd_schema *schema, uint32_t n, bool is_one_slot,
                      struct keys *k)
{
    uint32_t slot = draw(w, schema->slots);
    bool is_spread = schema->seed == 1; /* keys of all 64 bits */
    k->n = 0;
    for (uint32_t s = 0; s < schema->slots; s++) {
        uint32_t n_here =
            is_one_slot ? (s == slot ? n : 0) : (n + schema->slots - 1 - s) / schema->slots;
        k->offsets[s] = k->n;
        for (uint32_t i = 0; i < n_here; i++, k->n++) {
            k->keys[k->n] = draw(w, KEYS) * (is_spread ? 0x9e3779b97f4a7c15ULL : 1);
            k->slots[k->n] = schema->partition == EMBD_SLOT ? (uint16_t)s : 0;
            for (uint32_t c = 0; c < schema->dim; c++)
                k->values[k->n * schema->dim + c] = batch_random_float(&w->dice);
        }
    }
    k->offsets[schema->slots] = k->n;
}

/* Mostly few keys: then blocks of increments are of one shard. */
static void draw_few_keys(struct world *w, const embd_schema *schema, struct keys *k)
{
    static const uint32_t n[] = {1, 1, 1, 2, 3, 3, 50, 200};
    draw_keys(w, schema, n[draw(w, 8)], one_in(w, 2), k);
}

static embd_part part_of(struct world *w, uint32_t table, struct keys *k, bool asks_statuses)
{
    return (embd_part){.table = w->handles[table],
                       .n_rows = w->now.tables[table].schema.slots,
                       .offsets = k->offsets,
                       .n_keys = k->n,
                       .keys = k->keys,
                       .values = k->values,
                       .statuses = asks_statuses ? k->statuses : NULL,
                       .raw = true};
}

/* One shard's keys of a batch, and where they stand in it. */
struct share {
    struct model *model;
    uint32_t n, at[KEYS_MAX];
    uint64_t keys[KEYS_MAX];
    uint16_t slots[KEYS_MAX];
    float values[KEYS_MAX * DIM_TOP];
    uint8_t statuses[KEYS_MAX];
};

static struct model_batch share_of(struct world *w, uint32_t table, const struct keys *k,
                                   uint32_t shard, struct share *share)
{
    const struct image_table *t = &w->now.tables[table];
    uint32_t dim = t->schema.dim;
    share->model = t->shards[shard];
    share->n = 0;
    for (uint32_t i = 0; i < k->n; i++) {
        if (image_shard_of(&t->schema, w->now.n_shards, k->keys[i], k->slots[i]) != shard)
            continue;
        memcpy(share->values + share->n * dim, k->values + i * dim, dim * sizeof *k->values);
        share->keys[share->n] = k->keys[i];
        share->slots[share->n] = k->slots[i];
        share->at[share->n++] = i;
    }
    return (struct model_batch){
        .n_keys = share->n, .n_rows = share->n, .keys = share->keys, .slots = share->slots};
}

static void return_share(const struct share *share, struct keys *k)
{
    uint32_t dim = share->model->schema.dim;
    for (uint32_t i = 0; i < share->n; i++) {
        k->wanted_statuses[share->at[i]] = share->statuses[i];
        memcpy(k->wanted + share->at[i] * dim, share->values + i * dim, dim * sizeof *k->wanted);
    }
}

static void compare_statuses(struct world *w, const char *deed, const struct keys *k)
{
    for (uint32_t i = 0; i < k->n; i++)
        if (k->statuses[i] != k->wanted_statuses[i])
            fail(w, "%s: the status of key %" PRIu64 " is %d, it should be %d", deed, k->keys[i],
                 k->statuses[i], k->wanted_statuses[i]);
}

/* ---- push ---- */

/* What embd_push of one table must answer. Without statuses a shard may refuse what others take:
 * then there is one. */
static int push_to_image(struct world *w, uint32_t table, struct keys *k, bool asks_statuses)
{
    static struct share share;
    int status = EMBD_OK;
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        struct model_batch batch = share_of(w, table, k, shard, &share);
        int answer = model_push(share.model, &batch, share.values, false,
                                asks_statuses ? share.statuses : NULL, NULL);
        status = answer ? answer : status;
        if (asks_statuses)
            return_share(&share, k);
    }
    return status;
}

static void push(struct world *w, const uint32_t *tables, uint32_t n, struct keys *k,
                 bool asks_statuses, bool is_numbered)
{
    enum kind kind = kind_of(tables[0]);
    struct image_stream *stream = &w->now.streams[kind];
    embd_pusher pusher = {.high = w->seed, .low = (uint64_t)kind, .stream = stream->number};
    embd_call_options options = {.pusher = is_numbered ? &pusher : NULL,
                                 .sequence = is_numbered ? stream->last + 1 : 0};
    embd_part parts[2] = {{0}};
    int wanted = EMBD_OK;
    for (uint32_t i = 0; i < n; i++) {
        tell(w, "\npush t%" PRIu32 ", %" PRIu32 " keys", tables[i], k[i].n);
        parts[i] = part_of(w, tables[i], &k[i], asks_statuses);
        int status = push_to_image(w, tables[i], &k[i], asks_statuses);
        wanted = status ? status : wanted;
    }
    if (is_numbered)
        tell(w, ", number %" PRIu64 " of stream %" PRIu32, options.sequence, stream->number);
    expect(w, "embd_push", embd_push(w->client, parts, n, &options), wanted);
    for (uint32_t i = 0; i < n && asks_statuses; i++)
        compare_statuses(w, "push", &k[i]);
    stream->last += is_numbered;
    if (is_numbered && one_in(w, 3)) { /* a push that is sent again changes nothing */
        tell(w, ", again");
        expect(w, "embd_push again", embd_push(w->client, parts, n, &options), EMBD_OK);
    }
}

void deed_push(struct world *w)
{
    static struct keys k[2];
    uint32_t tables[2] = {draw_table(w)}, n = 1;
    if (tables[0] == TABLES_MAX)
        return;
    const embd_schema *schema = &w->now.tables[tables[0]].schema;
    bool may_be_refused = schema->on_full != EMBD_GROW;
    draw_few_keys(w, schema, &k[0]);
    tables[1] = tables[0] ^ 1; /* of the same kind */
    const struct image_table *other = &w->now.tables[tables[1]];
    if (other->is_there && !may_be_refused && other->schema.on_full == EMBD_GROW && one_in(w, 3))
        draw_few_keys(w, &other->schema, &k[n++]);
    /* Where some shards refuse a push, the others' steps are ahead from then on, and what a start
     * or a load gives back is the greatest: histories leave that out. */
    bool asks_statuses = (may_be_refused && w->now.n_shards > 1) || one_in(w, 2);
    push(w, tables, n, k, asks_statuses, (asks_statuses || !may_be_refused) && one_in(w, 3));
}

void deed_push_and_kill(struct world *w)
{
    static struct keys k;
    uint32_t table = draw(w, TABLES_MAX);
    if (kind_of(table) != JOURNALED || !w->now.tables[table].is_there)
        return;
    struct image_stream *stream = &w->now.streams[JOURNALED];
    embd_pusher pusher = {.high = w->seed, .low = JOURNALED, .stream = stream->number};
    embd_call_options options = {.pusher = &pusher, .sequence = ++stream->last};
    embd_call *call;
    draw_few_keys(w, &w->now.tables[table].schema, &k);
    push_to_image(w, table, &k, true);
    tell(w, "\npush t%" PRIu32 ", %" PRIu32 " keys, number %" PRIu64 " of stream %" PRIu32, table,
         k.n, stream->last, stream->number);
    embd_part part = part_of(w, table, &k, true);
    expect(w, "embd_push_start", embd_push_start(w->client, &part, 1, &options, &call), EMBD_OK);
    for (uint32_t i = draw(w, 4); i > 0; i--)
        embd_is_done(call); /* moves some of its bytes */
    world_end_and_start(w, true);
    part.table = w->handles[table];
    tell(w, "\nthe push once more");
    expect(w, "embd_push once more", embd_push(w->client, &part, 1, &options), EMBD_OK);
    world_check(w);
}

void deed_fill(struct world *w, uint32_t table)
{
    static struct keys k;
    for (uint32_t i = 0; i < 1 + draw(w, 3); i++) {
        draw_keys(w, &w->now.tables[table].schema, KEYS_MAX - 100 * draw(w, 3), false, &k);
        push(w, &table, 1, &k, true, false);
    }
}

/* ---- erase and pull ---- */

void deed_erase(struct world *w)
{
    static struct keys k;
    static struct share share;
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX)
        return;
    draw_few_keys(w, &w->now.tables[table].schema, &k);
    tell(w, "\nerase t%" PRIu32 ", %" PRIu32 " keys", table, k.n);
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        struct model_batch batch = share_of(w, table, &k, shard, &share);
        model_erase(share.model, &batch, share.statuses);
        return_share(&share, &k);
    }
    embd_part part = part_of(w, table, &k, true);
    expect(w, "embd_erase", embd_erase(w->client, &part, 1, NULL), EMBD_OK);
    compare_statuses(w, "erase", &k);
}

void deed_pull(struct world *w)
{
    static struct keys k;
    static struct share share;
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX)
        return;
    const embd_schema *schema = &w->now.tables[table].schema;
    draw_few_keys(w, schema, &k);
    tell(w, "\npull t%" PRIu32 ", %" PRIu32 " keys", table, k.n);
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        struct model_batch batch = share_of(w, table, &k, shard, &share);
        bool creates = schema->create_on == EMBD_CREATE_ON_PULL;
        if (creates)
            model_insert(share.model, &batch, share.statuses, NULL);
        model_pull(share.model, &batch, false, false, share.values,
                   creates ? NULL : share.statuses);
        return_share(&share, &k);
    }
    embd_part part = part_of(w, table, &k, true);
    expect(w, "embd_pull", embd_pull(w->client, &part, 1, NULL), EMBD_OK);
    compare_statuses(w, "pull", &k);
    if (memcmp(k.values, k.wanted, (size_t)k.n * schema->dim * sizeof *k.values) != 0)
        fail(w, "a pull of t%" PRIu32 " answers other values", table);
}
