/* moving_scan.c - the rows of all tables, block by block, and which of them are other shards'. */
#include <string.h>

#include "server/service/moving.h"
#include "server/service/state.h"
#include "server/snapshot/cut.h"

struct table *moving_table(struct shard *shard)
{
    struct moving *moving = &shard->moving;
    const struct tables *tables = &shard->engine.tables;
    uint32_t i = tables_from(tables, moving->table);
    bool is_there = i < tables->n && strcmp(tables->by_name[i]->schema.s.name, moving->table) == 0;
    i += is_there && moving->is_read;
    if (i == tables->n) {
        moving->table[0] = '\0';
        moving->is_read = false;
        return NULL;
    }
    if (!is_there || moving->is_read)
        memcpy(moving->table, tables->by_name[i]->schema.s.name, sizeof moving->table);
    moving->is_read = false;
    return tables->by_name[i];
}

struct subscriber *moving_subscriber(struct shard *shard, const struct shard_session *session,
                                     const struct table *table, struct embd__error *e)
{
    struct subscriber *s = subscriber_of(shard, session, table);
    if (s == NULL)
        s = subscriber_new_mover(shard, session, table, e);
    if (s != NULL)
        s->asked_ns = clock_ns();
    return s;
}

/* A cut of all rows does not say which keys of an earlier one have lost theirs. */
static int check_begun(const struct moving *moving, const struct subscriber *s,
                       const struct table *table, struct embd__error *e)
{
    bool is_sweep = s->session == &moving->own; /* which needs to know nothing of these */
    if (is_sweep || !s->has_all || s->given == 0 || s->given == s->made)
        return EMBD_OK;
    return embd__error_set(e, EMBD_BUSY,
                           "table '%s' was compacted, set or short of memory while its rows were "
                           "read, and which of them are gone is not known any more; try again",
                           table->schema.s.name);
}

bool moving_reads_all(const struct shard *shard)
{
    const struct moving *moving = &shard->moving;
    return moving->reads_all && clock_ns() - moving->read_ns < SUBSCRIBER_IDLE_NS;
}

/* Keys that stay on the shard. */
struct staying {
    struct store_skip skip; /* first */
    const struct placement *place;
    embd_partition partition;
    uint32_t shard;
};

static bool stays(const struct store_skip *skip, uint64_t key, uint32_t slot)
{
    const struct staying *s = (const struct staying *)skip;
    return embd__placement_shard(s->place, s->partition, slot, key) == s->shard;
}

/* The sweep's subscriber goes by the map that holds. */
static struct staying staying_of(const struct shard *shard, const struct subscriber *s,
                                 const struct table *table)
{
    bool is_sweep = s->session == &shard->moving.own;
    return (struct staying){.skip = {.has = stays},
                            .place = is_sweep ? shard->config.placement : &shard->moving.next,
                            .partition = table->schema.s.partition,
                            .shard = shard->config.index};
}

bool moving_scan(struct shard *shard, struct subscriber *subscriber, struct table *table,
                 uint32_t max_rows, struct store_scan *out, struct embd__error *e)
{
    struct moving *moving = &shard->moving;
    struct embd__error not_now = {.status = EMBD_OK};
    const struct staying staying = staying_of(shard, subscriber, table);
    bool is_last = false;
    moving->reads_all = false;
    if (!subscriber_freeze(shard, subscriber, table, cut_is_on(shard), &not_now) ||
        check_begun(moving, subscriber, table, e) != EMBD_OK)
        return false;
    out->skip = &staying.skip;
    int status =
        shard->engine.tables.ops->scan_frozen(table->store, max_rows, out, &is_last, &not_now);
    out->skip = NULL;
    if (status != EMBD_OK) {
        subscriber_give_up_round(shard, subscriber);
        return false;
    }
    subscriber->given = subscriber->made;
    moving->is_read = is_last;
    moving->reads_all = subscriber->has_all && !is_last;
    moving->read_ns = subscriber->asked_ns;
    if (is_last)
        subscriber_end_round(shard, subscriber);
    return true;
}

static void *after(void *array, uint64_t bytes)
{
    return array != NULL ? (uint8_t *)array + bytes : NULL;
}

struct store_scan moving_behind(const embd_schema *schema, const struct store_scan *block)
{
    uint64_t n = block->n_rows, m = block->n_candidates;
    uint64_t row_bytes = embd__value_bytes(schema->dtype, schema->dim),
             state_bytes = embd__schema_state_floats(schema) * sizeof(float);
    return (struct store_scan){
        .keys = after(block->keys, n * sizeof *block->keys),
        .slots = after(block->slots, n * sizeof *block->slots),
        .rows = after(block->rows, n * row_bytes),
        .states = after(block->states, n * state_bytes),
        .candidate_keys = after(block->candidate_keys, m * sizeof *block->candidate_keys),
        .candidate_slots = after(block->candidate_slots, m * sizeof *block->candidate_slots),
        .candidate_counts = after(block->candidate_counts, m * sizeof *block->candidate_counts)};
}

/* Array element `from` becomes element `to`. */
static void shift(void *array, uint64_t bytes, uint32_t from, uint32_t to)
{
    if (array != NULL && from != to)
        memcpy((uint8_t *)array + to * bytes, (uint8_t *)array + from * bytes, bytes);
}

static void keep_rows(const struct placement *place, uint32_t shard, const embd_schema *schema,
                      struct store_scan *scan)
{
    uint64_t row_bytes = embd__value_bytes(schema->dtype, schema->dim),
             state_bytes = embd__schema_state_floats(schema) * sizeof(float);
    uint32_t n = 0;
    for (uint32_t i = 0; i < scan->n_rows; i++) {
        uint32_t slot = scan->slots != NULL ? scan->slots[i] : 0;
        if (embd__placement_shard(place, schema->partition, slot, scan->keys[i]) == shard)
            continue;
        shift(scan->keys, sizeof *scan->keys, i, n);
        shift(scan->slots, sizeof *scan->slots, i, n);
        shift(scan->rows, row_bytes, i, n);
        shift(scan->states, state_bytes, i, n);
        n++;
    }
    scan->n_rows = n;
}

static void keep_candidates(const struct placement *place, uint32_t shard,
                            const embd_schema *schema, struct store_scan *scan)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < scan->n_candidates; i++) {
        uint32_t slot = scan->candidate_slots != NULL ? scan->candidate_slots[i] : 0;
        if (embd__placement_shard(place, schema->partition, slot, scan->candidate_keys[i]) == shard)
            continue;
        shift(scan->candidate_keys, sizeof *scan->candidate_keys, i, n);
        shift(scan->candidate_slots, sizeof *scan->candidate_slots, i, n);
        shift(scan->candidate_counts, sizeof *scan->candidate_counts, i, n);
        n++;
    }
    scan->n_candidates = n;
}

void moving_keep_own(const struct shard *shard, const struct table *table, struct store_scan *scan)
{
    const struct placement *own = shard->config.placement;
    uint32_t n = 0;
    for (uint32_t i = 0; own != NULL && i < scan->n_rows; i++) {
        uint32_t slot = scan->slots != NULL ? scan->slots[i] : 0;
        if (embd__placement_shard(own, table->schema.s.partition, slot, scan->keys[i]) !=
            shard->config.index)
            continue;
        shift(scan->keys, sizeof *scan->keys, i, n);
        shift(scan->slots, sizeof *scan->slots, i, n);
        n++;
    }
    scan->n_rows = own != NULL ? n : scan->n_rows;
}

void moving_keep_foreign(const struct shard *shard, const struct table *table,
                         const struct placement *place, struct store_scan *scan)
{
    keep_rows(place, shard->config.index, &table->schema.s, scan);
    keep_candidates(place, shard->config.index, &table->schema.s, scan);
}
