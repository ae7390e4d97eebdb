/* mark.c - see mark.h. */
#include "server/service/mark.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "proto/digest.h"
#include "server/engine/block.h"
#include "server/service/state.h"
#include "server/snapshot/cut_read.h"

#define REST_NS     100000000u   /* what is under way is not waited for longer */
#define BLOCK_BYTES (256u << 10) /* of rows, between two requests */

struct mark_table {
    char name[EMBD_NAME_MAX + 1];
    struct table *table; /* NULL: it is digested, and thawed */
    uint64_t rows, candidates, step;
    struct digest digest;
};

/* ---- beginning ---- */

#define WANTED_NS UINT64_C(10000000000) /* for its follower, which may have died, to ask again */

static bool is_free(const struct shard *shard)
{
    const struct marking *mark = &shard->mark;
    bool is_wanted = mark->state == MARK_DONE && !mark->is_told &&
                     clock_ns() + MARK_KEPT_NS < mark->until_ns + WANTED_NS;
    return mark->state != MARK_READS && mark->state != MARK_RESTS && !is_wanted;
}

/* Something else has tables frozen, or will, or makes them others. */
static bool is_possible(const struct shard *shard)
{
    return shard->commit.journal != NULL && !shard->draining && shard->cut == NULL &&
           shard->cut_read == NULL && shard->compacting.state == COMPACTING_NOT &&
           shard->hold.holders == NULL && !shard->engine.set.is_on &&
           !moving_is_on(&shard->moving) && shard->engine.tables.n_joining == 0 &&
           shard->engine.tables.apart.n == 0;
}

static bool freeze(struct shard *shard, struct mark_table *marked, struct table *table)
{
    const struct store_ops *ops = shard->engine.tables.ops;
    struct store_cut whole = {.id = 0};
    struct store_stats stats;
    struct embd__error e = {.status = EMBD_OK};
    if (tables_freeze(&shard->engine.tables, table, &whole, &e) != EMBD_OK)
        return false;
    ops->stats(table->store, &stats);
    memcpy(marked->name, table->schema.s.name, sizeof marked->name);
    marked->table = table;
    marked->rows = stats.rows;
    marked->candidates = stats.candidates;
    marked->step = stats.steps;
    return true;
}

bool mark_freeze(struct shard *shard, uint64_t id)
{
    struct marking *mark = &shard->mark;
    const struct tables *tables = &shard->engine.tables;
    if (!is_free(shard) || !is_possible(shard) || shard_n_in_flight(shard) > 0)
        return false;
    subscribers_give_way(shard);
    mark_end(shard);
    mark->tables = calloc(tables->n + 1, sizeof *mark->tables);
    if (mark->tables == NULL)
        return false;
    *mark = (struct marking){.state = MARK_READS,
                             .id = id,
                             .position = shard->commit.applied.position,
                             .tables = mark->tables};
    for (uint32_t i = 0; i < tables->n; i++) {
        struct table *table = tables->by_name[i];
        if (!table_is_journaled(table))
            continue;
        if (!freeze(shard, &mark->tables[mark->n], table)) {
            mark_end(shard);
            return false;
        }
        mark->n++;
    }
    return true;
}

bool mark_ask(struct shard *shard, uint64_t id)
{
    struct marking *mark = &shard->mark;
    if (mark->id == id)
        return mark->state == MARK_RESTS;
    if (!is_free(shard) || !is_possible(shard) || mark_freeze(shard, id))
        return false;
    mark_end(shard);
    *mark = (struct marking){.state = MARK_RESTS, .id = id, .until_ns = clock_ns() + REST_NS};
    return true;
}

/* ---- digesting ---- */

static bool add_block(struct shard *shard, struct mark_table *t)
{
    const struct store_ops *ops = shard->engine.tables.ops;
    const embd_schema *schema = &t->table->schema.s;
    struct embd__error e = {.status = EMBD_OK};
    struct store_scan scan;
    bool is_last = false;
    uint32_t max_rows = block_rows_in(schema, BLOCK_BYTES);
    void *memory = block_new(schema, max_rows + (max_rows == 0), &scan);
    if (memory == NULL || ops->scan_frozen(t->table->store, max_rows + (max_rows == 0), &scan,
                                           &is_last, &e) != EMBD_OK) {
        free(memory);
        return false;
    }
    const struct row_block block = block_of(&scan);
    embd__digest_add(&t->digest, schema, &block);
    free(memory);
    if (is_last) {
        ops->thaw(t->table->store);
        t->table = NULL;
    }
    return true;
}

/* Each table has a number: no order counts. */
static uint64_t sum(const struct marking *mark)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < mark->n; i++) {
        const struct mark_table *t = &mark->tables[i];
        const uint64_t numbers[] = {t->digest.rows, t->digest.candidates, t->step,
                                    embd__digest_sum(&t->digest),
                                    XXH3_64bits(t->digest.counts, sizeof t->digest.counts)};
        all += XXH3_64bits_withSeed(numbers, sizeof numbers, XXH3_64bits(t->name, strlen(t->name)));
    }
    return all != 0 ? all : 1;
}

static bool digest(struct shard *shard)
{
    struct marking *mark = &shard->mark;
    for (uint32_t i = 0; i < mark->n; i++) {
        if (mark->tables[i].table == NULL)
            continue;
        if (!add_block(shard, &mark->tables[i]))
            mark_give_way(shard);
        return mark->state == MARK_READS;
    }
    mark->digest = sum(mark);
    mark->state = MARK_DONE;
    mark->until_ns = clock_ns() + MARK_KEPT_NS;
    return false;
}

/* It waited in vain: who asked may ask for another one. */
static bool begin_at_rest(struct shard *shard)
{
    struct marking *mark = &shard->mark;
    uint64_t id = mark->id;
    bool is_over = shard_n_in_flight(shard) == 0 || clock_ns() >= mark->until_ns;
    if (!is_over)
        return false;
    mark_end(shard);
    mark_freeze(shard, id);
    return true;
}

bool mark_collect(struct shard *shard, bool *rested_out)
{
    if (shard->mark.state == MARK_RESTS)
        *rested_out = begin_at_rest(shard);
    return shard->mark.state == MARK_READS && digest(shard);
}

/* ---- what it says ---- */

uint64_t mark_position(const struct marking *mark, uint64_t id)
{
    bool is_made = mark->state == MARK_READS || mark->state == MARK_DONE;
    return is_made && mark->id == id ? mark->position : 0;
}

uint64_t mark_digest(const struct marking *mark, uint64_t id)
{
    return mark->state == MARK_DONE && mark->id == id ? mark->digest : 0;
}

/* ---- the end ---- */

void mark_end(struct shard *shard)
{
    struct marking *mark = &shard->mark;
    for (uint32_t i = 0; i < mark->n; i++)
        if (mark->tables[i].table != NULL)
            shard->engine.tables.ops->thaw(mark->tables[i].table->store);
    free(mark->tables);
    *mark = (struct marking){.state = MARK_NOT};
}

void mark_give_way(struct shard *shard)
{
    if (shard->mark.state == MARK_READS)
        mark_end(shard);
}

void mark_drop(struct shard *shard, const struct table *table)
{
    for (uint32_t i = 0; i < shard->mark.n; i++)
        if (shard->mark.tables[i].table == table) {
            mark_end(shard);
            return;
        }
}

void mark_look(struct shard *shard, uint64_t now_ns)
{
    if (shard->mark.state == MARK_DONE && now_ns >= shard->mark.until_ns)
        mark_end(shard);
}

/* ---- to admins ---- */

static void list(struct call *call, const struct marking *mark)
{
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 1);
    embd__msg_str(m, "tables");
    embd__msg_array(m, mark->n);
    for (uint32_t i = 0; i < mark->n; i++) {
        const struct mark_table *t = &mark->tables[i];
        embd__msg_map(m, 4);
        embd__msg_field_str(m, "table", t->name);
        embd__msg_field_uint(m, "rows", t->rows);
        embd__msg_field_uint(m, "candidates", t->candidates);
        embd__msg_field_uint(m, "step", t->step);
    }
}

static int answer(struct call *call, const struct marking *mark, const struct mark_table *t)
{
    struct msg *m = call->answer;
    struct digest *copy = malloc(sizeof *copy);
    if (copy == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for a digest");
    *copy = t->digest;
    call->work->memory = copy;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 6);
    embd__msg_field_uint(m, "rows", copy->rows);
    embd__msg_field_uint(m, "candidates", copy->candidates);
    embd__msg_field_uint(m, "next", 1);
    embd__msg_field_bool(m, "done", true);
    embd__msg_field_uint(m, "step", t->step);
    embd__msg_field_uint(m, "position", mark->position);
    embd__digest_write(m, copy);
    return EMBD_OK;
}

int mark_scan(struct call *call, const struct cut_scan *scan)
{
    const struct marking *mark = &call->shard->mark;
    if (mark->state != MARK_DONE)
        return embd__error_set(&call->error, EMBD_BUSY, "scan: digests of the mark are being made");
    if (scan->table[0] == '\0') {
        list(call, mark);
        return EMBD_OK;
    }
    if (!scan->is_digest || scan->cursor != 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "scan: of the mark %016llx there are digests alone: ask with digest "
                               "true and cursor 0",
                               (unsigned long long)scan->id);
    for (uint32_t i = 0; i < mark->n; i++)
        if (strcmp(mark->tables[i].name, scan->table) == 0)
            return answer(call, mark, &mark->tables[i]);
    return embd__error_set(&call->error, EMBD_UNKNOWN_TABLE, "the mark has no table '%s'",
                           scan->table);
}
