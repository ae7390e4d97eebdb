/* deeds.c - tables are drawn small, so that they are full soon. */
#include "tests/history/deeds.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "embd/rows.h"
#include "tests/history/request.h"

#define CAPACITY_MIN 20u /* of a shard: one of five may have fewer than the keys of a slot */
#define CAPACITY_TOP 160u

/* ---- tables ---- */

static void draw_optimizer(struct world *w, embd_optimizer *o)
{
    embd_optimizer_init(o, (embd_optimizer_kind)draw(w, EMBD_OPTIMIZER_FTRL + 1),
                        one_in(w, 2) ? 0.5f : 0.03f);
    if (o->kind == EMBD_OPTIMIZER_ADAM)
        o->update = (embd_update)draw(w, EMBD_UPDATE_LAZY_GLOBAL + 1);
    else if (one_in(w, 5))
        o->update = EMBD_UPDATE_GLOBAL;
    if (o->kind == EMBD_OPTIMIZER_FTRL)
        o->l1 = 0.01f;
}

/* Those of a kind would have the same id. */
static const char *const names[TABLES_MAX] = {"good_53", "evil_1720fa9", "table42228",
                                              "table151621"};

static embd_schema draw_schema(struct world *w, uint32_t table)
{
    static const uint32_t slots[] = {1, 1, 4, SLOTS_TOP};
    embd_schema s;
    embd_schema_init(&s);
    snprintf(s.name, sizeof s.name, "%s", names[table]);
    s.dim = 1 + draw(w, DIM_TOP);
    s.slots = slots[draw(w, 4)];
    s.partition = (embd_partition)draw(w, EMBD_PARTITION_SLOT + 1);
    s.combiner = one_in(w, 2) ? EMBD_COMBINER_SUM : EMBD_COMBINER_CONCAT;
    s.dtype = one_in(w, 2) ? EMBD_DTYPE_F32 : (embd_dtype)draw(w, EMBD_DTYPE_E4M3 + 1);
    if (s.dtype == EMBD_DTYPE_I4) /* not of rows */
        s.dtype = EMBD_DTYPE_I8;
    s.seed = draw(w, 3);
    draw_optimizer(w, &s.optimizer);
    if (model_has_codes(s.dtype))
        s.optimizer.update = EMBD_UPDATE_LOCAL;
    if (s.dtype != EMBD_DTYPE_F32 && one_in(w, 2))
        s.rounding = s.optimizer.update == EMBD_UPDATE_GLOBAL || one_in(w, 2)
                         ? EMBD_ROUNDING_MASTER
                         : EMBD_ROUNDING_STOCHASTIC;
    if (one_in(w, 2)) {
        s.on_full =
            one_in(w, 3) ? EMBD_ON_FULL_ERROR : (embd_on_full)(EMBD_ON_FULL_ERROR + draw(w, 5));
        s.capacity = (one_in(w, 2) ? CAPACITY_MIN : CAPACITY_TOP / 2) + draw(w, CAPACITY_TOP / 2);
        s.ttl = s.on_full == EMBD_ON_FULL_EVICT_TTL ? 2 + draw(w, 12) : 0;
        if (s.on_full == EMBD_ON_FULL_EVICT_LFU) {
            s.lfu_half_life = one_in(w, 2) ? 0 : 1 + draw(w, 8);
            s.lfu_occurrences = one_in(w, 2);
        }
    }
    s.admit_after = one_in(w, 3) ? 2 + draw(w, 2) : 1;
    if (kind_of(table) == JOURNALED) {
        s.durability = one_in(w, 3) ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_BUFFERED;
    } else {
        s.durability = EMBD_DURABILITY_SNAPSHOT;
        s.create_on = one_in(w, 2) ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
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
         "\ncreate %s: dim %" PRIu32 ", %" PRIu32 " slots, %s, %s %s, %s, %s, %s, capacity %" PRIu64
         ", ttl %" PRIu64 ", half-life %" PRIu64 "%s, admit_after %" PRIu32 ", create_on %s, %s",
         schema.name, schema.dim, schema.slots, embd_partition_name(schema.partition),
         embd_dtype_name(schema.dtype), embd_rounding_name(schema.rounding),
         embd_optimizer_name(schema.optimizer.kind), embd_update_name(schema.optimizer.update),
         embd_on_full_name(schema.on_full), schema.capacity, schema.ttl, schema.lfu_half_life,
         schema.lfu_occurrences ? " of occurrences" : "", schema.admit_after,
         embd_create_on_name(schema.create_on), embd_durability_name(schema.durability));
    expect(w, "embd_table_create", embd_table_create(w->client, &schema), EMBD_OK);
    image_create(&w->now, table, &schema, w->n_births++);
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
    w->now.streams[kind_of(table)].tables &= ~(1u << table);
}

/* One table of an earlier cut takes the place of that of its name, or all do. */
void deed_replace(struct world *w)
{
    if (w->n_cuts == 0)
        return;
    uint32_t cut = one_in(w, 2) ? w->n_cuts - 1 : draw(w, w->n_cuts), tables = 0;
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        tables |= w->cuts[cut].image.tables[i].is_there ? 1u << i : 0;
    uint32_t one = 1u << draw(w, TABLES_MAX);
    if (one_in(w, 3) && (tables & one) != 0)
        tables = one;
    if (tables != 0)
        world_replace(w, cut, tables);
}

/* Sets a field of the definition, and tells it as text. */
static const char *draw_field(struct world *w, embd_schema *s, char value[32])
{
    uint32_t which = draw(w, 6);
    snprintf(value, 32, "%" PRIu32, 1 + draw(w, 12));
    if (which == 0 && s->on_full == EMBD_ON_FULL_EVICT_TTL) {
        s->ttl = strtoull(value, NULL, 10);
        return "ttl";
    }
    if (which == 1 && s->durability == EMBD_DURABILITY_SNAPSHOT) {
        s->create_on = one_in(w, 2) ? EMBD_CREATE_ON_PULL : EMBD_CREATE_ON_PUSH;
        snprintf(value, 32, "%s", embd_create_on_name(s->create_on));
        return "create_on";
    }
    if (which == 2) {
        s->initializer.b = strtof(value, NULL);
        return "initializer.b";
    }
    if (which == 5) {
        s->admit_after = draw(w, 5);
        snprintf(value, 32, "%" PRIu32, s->admit_after);
        return "admit_after";
    }
    if (which == 3 && (s->optimizer.kind == EMBD_OPTIMIZER_ADAGRAD ||
                       s->optimizer.kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD)) {
        s->optimizer.initial_accumulator = strtof(value, NULL);
        return "optimizer.initial_accumulator";
    }
    snprintf(value, 32, "0.%02" PRIu32, 1 + draw(w, 60));
    s->optimizer.lr = strtof(value, NULL);
    return "optimizer.lr";
}

/* A policy that keeps the same of each row's use. */
static embd_on_full draw_policy(struct world *w, embd_on_full now)
{
    if (now == EMBD_ON_FULL_EVICT_LFU || now == EMBD_ON_FULL_EVICT_SCORE)
        return now;
    if (now == EMBD_ON_FULL_GROW || now == EMBD_ON_FULL_ERROR)
        return one_in(w, 3) ? EMBD_ON_FULL_GROW : EMBD_ON_FULL_ERROR;
    return one_in(w, 2) ? EMBD_ON_FULL_EVICT_LRU : EMBD_ON_FULL_EVICT_TTL;
}

static bool bound_shards(struct image *image, uint32_t table, const embd_schema *to)
{
    bool is_done = true;
    for (uint32_t shard = 0; shard < image->n_shards; shard++)
        is_done &= model_bound(image->tables[table].shards[shard], to) == EMBD_OK;
    return is_done;
}

/* capacity and on_full: on every shard, or on none. */
static void set_bound(struct world *w, uint32_t table)
{
    char capacity[16], ttl[16];
    embd_schema s = w->now.tables[table].schema;
    s.on_full = draw_policy(w, s.on_full);
    s.capacity = s.on_full == EMBD_ON_FULL_GROW ? 0 : 1 + draw(w, CAPACITY_TOP);
    s.ttl = s.on_full == EMBD_ON_FULL_EVICT_TTL ? 1 + draw(w, 12) : 0;
    snprintf(capacity, sizeof capacity, "%" PRIu64, s.capacity);
    snprintf(ttl, sizeof ttl, "%" PRIu64, s.ttl);
    embd_field fields[] = {
        {"on_full", embd_on_full_name(s.on_full)}, {"capacity", capacity}, {"ttl", ttl}};
    struct image after = image_copy(&w->now, w->now.n_shards);
    bool is_possible = bound_shards(&after, table, &s);
    image_fini(&after);
    tell(w, "\nset t%" PRIu32 ": on_full=%s capacity=%s ttl=%s", table, fields[0].value, capacity,
         ttl);
    expect(w, "embd_table_set", embd_table_set(w->client, s.name, fields, s.ttl > 0 ? 3 : 2, NULL),
           is_possible ? EMBD_OK : EMBD_FULL);
    if (!is_possible)
        return;
    bound_shards(&w->now, table, &s);
    w->now.tables[table].schema = s;
}

void deed_set(struct world *w)
{
    char value[32];
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX)
        return;
    if (one_in(w, 2)) {
        set_bound(w, table);
        return;
    }
    struct image_table *t = &w->now.tables[table];
    embd_field field = {draw_field(w, &t->schema, value), value};
    tell(w, "\nset t%" PRIu32 ": %s=%s", table, field.field, field.value);
    expect(w, "embd_table_set", embd_table_set(w->client, t->schema.name, &field, 1, NULL),
           EMBD_OK);
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        model_admit_after(t->shards[shard], t->schema.admit_after);
        t->shards[shard]->schema = t->schema;
    }
}

/* ---- push ---- */

static embd_pusher pusher_of(const struct world *w, enum kind kind)
{
    return (embd_pusher){
        .high = w->seed, .low = (uint64_t)kind, .stream = w->now.streams[kind].number};
}

static int send_push(struct world *w, struct request *request, const embd_call_options *options)
{
    embd_part parts[REQUEST_PARTS];
    request_parts(w, request, parts);
    return embd_push(w->client, parts, request->n, options);
}

/* The shards that refused it take its number without keys. */
static void leave_out(struct world *w, struct request *request, const embd_call_options *options,
                      uint32_t refused)
{
    tell(w, ", left out");
    request_empty(request);
    request_push(w, request, refused);
    expect(w, "embd_push without keys", send_push(w, request, options), EMBD_OK);
}

static void push(struct world *w, struct request *request, bool is_numbered)
{
    enum kind kind = kind_of(request->tables[0]);
    struct image_stream *stream = &w->now.streams[kind];
    embd_pusher pusher = pusher_of(w, kind);
    embd_call_options options = EMBD_CALL_OPTIONS(.pusher = is_numbered ? &pusher : NULL,
                                                  .sequence = is_numbered ? stream->last + 1 : 0);
    request_tell(w, "push", request);
    if (is_numbered)
        tell(w, ", number %" PRIu64 " of stream %" PRIu32, options.sequence, stream->number);
    uint32_t refused = request_push(w, request, UINT32_MAX);
    request_expect(w, "embd_push", send_push(w, request, &options), refused);
    if (refused == 0)
        request_compare_statuses(w, "push", request);
    else
        w->n_full++;
    stream->last += is_numbered;
    for (uint32_t i = 0; i < request->n && is_numbered; i++)
        stream->tables |= 1u << request->tables[i];
    if (is_numbered && one_in(w, 3)) { /* a push that is sent again changes nothing */
        tell(w, ", again");
        request_expect(w, "embd_push again", send_push(w, request, &options), refused);
    }
    if (is_numbered && refused != 0)
        leave_out(w, request, &options, refused);
}

void deed_push(struct world *w)
{
    static struct request request;
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX)
        return;
    request_draw(w, table, &request);
    push(w, &request, one_in(w, 3));
}

void deed_push_and_kill(struct world *w)
{
    static struct request request;
    uint32_t table = draw(w, TABLES_MAX);
    if (kind_of(table) != JOURNALED || !w->now.tables[table].is_there)
        return;
    struct image_stream *stream = &w->now.streams[JOURNALED];
    embd_pusher pusher = pusher_of(w, JOURNALED);
    embd_call_options options = EMBD_CALL_OPTIONS(.pusher = &pusher, .sequence = ++stream->last);
    embd_part parts[REQUEST_PARTS];
    embd_call *call;
    request_draw(w, table, &request);
    uint32_t refused = request_push(w, &request, UINT32_MAX);
    for (uint32_t i = 0; i < request.n; i++)
        stream->tables |= 1u << request.tables[i];
    request_tell(w, "push", &request);
    tell(w, ", number %" PRIu64 " of stream %" PRIu32, stream->last, stream->number);
    request_parts(w, &request, parts);
    expect(w, "embd_push_start", embd_push_start(w->client, parts, request.n, &options, &call),
           EMBD_OK);
    for (uint32_t i = draw(w, 4); i > 0; i--)
        embd_is_done(call); /* moves some of its bytes */
    world_end_and_start(w, true);
    tell(w, "\nthe push once more");
    request_expect(w, "embd_push once more", send_push(w, &request, &options), refused);
    if (refused != 0)
        leave_out(w, &request, &options, refused);
    world_check(w);
}

void deed_fill(struct world *w, uint32_t table)
{
    static struct request request = {.n = 1, .keys[0].asks_statuses = true};
    request.tables[0] = table;
    for (uint32_t i = 0; i < 1 + draw(w, 3); i++) {
        request_draw_keys(w, &w->now.tables[table].schema, KEYS_MAX - 100 * draw(w, 3), false,
                          &request.keys[0]);
        push(w, &request, false);
    }
}

/* ---- erase and pull ---- */

void deed_erase(struct world *w)
{
    static struct request request;
    embd_part parts[REQUEST_PARTS];
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX)
        return;
    request_draw(w, table, &request);
    request_tell(w, "erase", &request);
    request_erase(w, &request);
    request_parts(w, &request, parts);
    expect(w, "embd_erase", embd_erase(w->client, parts, request.n, NULL), EMBD_OK);
    request_compare_statuses(w, "erase", &request);
}

/* Values that every dtype has. */
static void draw_values(struct world *w, struct keys *k, uint32_t dim)
{
    for (uint32_t i = 0; i < k->n * dim; i++)
        k->values[i] = ((float)draw(w, 32) - 16.0f) / 8.0f;
}

void deed_put(struct world *w)
{
    static struct request request;
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX || w->now.tables[table].schema.on_full != EMBD_ON_FULL_GROW)
        return;
    const struct image_table *t = &w->now.tables[table];
    struct keys *k = &request.keys[0];
    embd_part parts[REQUEST_PARTS];
    uint32_t dim = t->schema.dim;
    request_draw(w, table, &request);
    request.n = 1;
    draw_values(w, k, dim);
    request_tell(w, "put", &request);
    for (uint32_t i = 0; i < k->n; i++) {
        uint32_t shard = image_shard_of(&t->schema, w->now.n_shards, k->keys[i], k->slots[i]);
        model_put_row(t->shards[shard], k->keys[i], k->slots[i], k->values + i * dim);
    }
    request_parts(w, &request, parts);
    const embd_rows rows =
        EMBD_ROWS(.table = parts[0].table, .n_keys = k->n, .keys = k->keys, .values = k->values,
                  .slots = t->schema.partition == EMBD_PARTITION_SLOT ? k->slots : NULL);
    expect(w, "embd_put", embd_put(w->client, &rows, NULL), EMBD_OK);
}

void deed_pull(struct world *w)
{
    static struct request request;
    embd_part parts[REQUEST_PARTS];
    embd_call_options options = EMBD_CALL_OPTIONS(.zero_missing = one_in(w, 4));
    uint32_t table = draw_table(w);
    if (table == TABLES_MAX)
        return;
    request_draw_pull(w, table, &request);
    request_tell(w, options.zero_missing ? "pull or zeros" : "pull", &request);
    uint32_t refused = request_pull(w, &request, options.zero_missing);
    request_parts(w, &request, parts);
    expect(w, "embd_pull", embd_pull(w->client, parts, request.n, &options),
           refused ? EMBD_FULL : EMBD_OK);
    if (refused != 0) {
        w->n_full++;
        return;
    }
    request_compare_statuses(w, "pull", &request);
    for (uint32_t i = 0; i < request.n; i++) {
        const struct keys *k = &request.keys[i];
        size_t n = (size_t)k->n * w->now.tables[request.tables[i]].schema.dim;
        if (memcmp(k->values, k->wanted, n * sizeof *k->values) != 0)
            fail(w, "a pull of t%" PRIu32 " answers other values", request.tables[i]);
    }
}
