/* bound.c - see bound.h. The happy path: the new bound is not below the table's rows, and nothing
 * happens. Below them the rows that go first by use.h go, as many as are too many. What can fail:
 * the policy lets none go, or not enough of them.
 *
 * A store that can (store_caps.shrinks) does it in slices. On any other, one pass over the table
 * finds the rows, by the store's scan, and they are erased; the shard does nothing else meanwhile.
 * The pass holds the lowest ranks in a heap whose root is the highest of them. */
#include "server/engine/bound.h"

#include <stdlib.h>

#include "server/engine/block.h"
#include "server/store/use.h"

#define SCAN_BYTES ((uint64_t)4 << 20)
#define ERASE_KEYS 65536u

struct leaving {
    struct use_rank rank;
    uint64_t key;
};

struct pass {
    const embd_schema *to;
    uint64_t now, lifetime;        /* steps or seconds */
    uint32_t state_floats, use_at; /* of a row */
    uint64_t n, most;
    struct leaving *heap; /* [most] */
};

static uint64_t excess(const struct store_stats *stats, const embd_schema *to)
{
    uint64_t bound = embd__schema_bound(to);
    return stats->rows > bound ? stats->rows - bound : 0;
}

/* ---- the heap ---- */

static bool is_before(const struct leaving *a, const struct leaving *b)
{
    return use_goes_first(&a->rank, &b->rank);
}

static void swap(struct leaving *a, struct leaving *b)
{
    struct leaving kept = *a;
    *a = *b;
    *b = kept;
}

static void rise(struct leaving *heap, uint64_t i)
{
    for (; i > 0 && is_before(&heap[(i - 1) / 2], &heap[i]); i = (i - 1) / 2)
        swap(&heap[(i - 1) / 2], &heap[i]);
}

static void sink(struct leaving *heap, uint64_t n)
{
    uint64_t i = 0;
    for (uint64_t child = 1; child < n; child = 2 * i + 1) {
        child += child + 1 < n && is_before(&heap[child], &heap[child + 1]);
        if (!is_before(&heap[i], &heap[child]))
            return;
        swap(&heap[i], &heap[child]);
        i = child;
    }
}

static void offer(struct pass *pass, const struct leaving *row)
{
    if (pass->n < pass->most) {
        pass->heap[pass->n] = *row;
        rise(pass->heap, pass->n++);
    } else if (is_before(row, &pass->heap[0])) {
        pass->heap[0] = *row;
        sink(pass->heap, pass->n);
    }
}

/* ---- choosing ---- */

static bool may_go(const struct pass *pass, const struct leaving *row)
{
    return pass->to->on_full != EMBD_ON_FULL_EVICT_TTL ||
           use_expiry(row->rank.stamp, pass->lifetime) <= pass->now;
}

static void consider(struct pass *pass, const struct store_scan *block)
{
    struct use_rule rule = use_rule_of(pass->to);
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const float *use = block->states + (size_t)i * pass->state_floats + pass->use_at;
        uint32_t slot = block->slots != NULL ? block->slots[i] : 0;
        struct leaving row = {.key = block->keys[i],
                              .rank = use_rank_of(use, &rule, block->keys[i], slot)};
        if (may_go(pass, &row))
            offer(pass, &row);
    }
}

/* Then as many as are too many may go, whichever these are. */
static bool lets_all_go(const embd_schema *to)
{
    return embd__schema_use_floats(to) > 0 && to->on_full != EMBD_ON_FULL_EVICT_TTL;
}

static int scan(const struct store_ops *ops, const struct table *table, struct pass *pass,
                struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    struct store_scan block;
    uint32_t fits = block_rows_in(s, SCAN_BYTES), max_rows = fits > 0 ? fits : 1;
    void *memory = block_new(s, max_rows, &block);
    if (memory == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to choose rows to evict",
                               s->name);
    for (uint64_t cursor = 0; cursor != UINT64_MAX && e->status == EMBD_OK;)
        if (ops->scan(table->store, &cursor, max_rows, &block, e) == EMBD_OK)
            consider(pass, &block);
    free(memory);
    return e->status;
}

static int refuse(const struct store_stats *stats, const embd_schema *to, uint64_t may_go,
                  struct embd__error *e)
{
    return embd__error_set(
        e, EMBD_FULL,
        "schema field 'capacity' of table '%s' is to be %llu; the shard has %llu rows, and with "
        "on_full '%s' %llu of them may go: erase rows, or set a capacity of %llu or more",
        to->name, (unsigned long long)to->capacity, (unsigned long long)stats->rows,
        embd_on_full_name(to->on_full), (unsigned long long)may_go,
        (unsigned long long)(stats->rows - may_go));
}

/* The rows that go; free pass->heap. */
static int choose(const struct store_ops *ops, const struct table *table, const embd_schema *to,
                  struct pass *pass, struct embd__error *e)
{
    struct store_stats stats;
    ops->stats(table->store, &stats);
    bool is_timed = embd__schema_is_timed(to);
    *pass = (struct pass){.to = to,
                          .now = is_timed ? stats.clock : stats.steps,
                          .lifetime = is_timed ? to->ttl_seconds : to->ttl,
                          .most = excess(&stats, to)};
    pass->state_floats = embd__schema_state_floats(&table->schema.s);
    pass->use_at = pass->state_floats - embd__schema_use_floats(&table->schema.s);
    if (pass->most == 0)
        return EMBD_OK;
    if (embd__schema_use_floats(to) == 0)
        return refuse(&stats, to, 0, e);
    pass->heap = malloc(pass->most * sizeof *pass->heap);
    if (pass->heap == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to choose %llu rows",
                               to->name, (unsigned long long)pass->most);
    if (scan(ops, table, pass, e) == EMBD_OK && pass->n < pass->most)
        refuse(&stats, to, pass->n, e);
    return e->status;
}

/* ---- removing ---- */

struct block {
    uint64_t keys[ERASE_KEYS];
    uint16_t slots[ERASE_KEYS];
};

static int erase(const struct store_ops *ops, struct table *table, const struct pass *pass,
                 struct block *block, uint32_t *n_gone_out, struct embd__error *e)
{
    bool has_slots = table->schema.s.partition == EMBD_PARTITION_SLOT;
    for (uint64_t at = 0; at < pass->n && e->status == EMBD_OK; at += ERASE_KEYS) {
        uint32_t n = pass->n - at < ERASE_KEYS ? (uint32_t)(pass->n - at) : ERASE_KEYS;
        for (uint32_t i = 0; i < n; i++) {
            block->keys[i] = pass->heap[at + i].key;
            block->slots[i] = (uint16_t)pass->heap[at + i].rank.slot;
        }
        struct store_erase gone = {.in = {.n_keys = n,
                                          .n_rows = n,
                                          .keys = block->keys,
                                          .slots = has_slots ? block->slots : NULL}};
        if (ops->erase(table->store, &gone, e) == EMBD_OK)
            *n_gone_out += n;
    }
    return e->status;
}

static int remove_rows(const struct store_ops *ops, struct table *table, const struct pass *pass,
                       uint32_t *n_gone_out, struct embd__error *e)
{
    struct block *block = malloc(sizeof *block);
    if (block == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to evict rows",
                               table->schema.s.name);
    erase(ops, table, pass, block, n_gone_out, e);
    free(block);
    return e->status;
}

/* ---- room ---- */

/* capacity with on_full = grow is room that a start makes at once: no more than there is by now. */
static int check_room(const struct store_ops *ops, const struct table *table, const embd_schema *to,
                      struct embd__error *e)
{
    const embd_schema *was = &table->schema.s;
    struct store_stats stats;
    ops->stats(table->store, &stats);
    uint64_t most = stats.capacity;
    if (was->on_full == EMBD_ON_FULL_GROW && was->capacity > most)
        most = was->capacity;
    if (to->on_full != EMBD_ON_FULL_GROW || to->capacity <= most)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_INVALID,
        "schema field 'capacity' of table '%s' is to be %llu; with on_full 'grow' the table takes "
        "room as it needs it, and has room for %llu rows: set capacity to that at most, or to 0",
        to->name, (unsigned long long)to->capacity, (unsigned long long)most);
}

/* ---- a store that does it in slices ---- */

static uint64_t excess_now(const struct store_ops *ops, const struct table *table,
                           const embd_schema *to)
{
    struct store_stats stats;
    ops->stats(table->store, &stats);
    return excess(&stats, to);
}

static int refuse_shrink(const struct store_ops *ops, const struct table *table,
                         const struct store_shrink *shrink, struct embd__error *e)
{
    struct store_stats stats;
    ops->stats(table->store, &stats);
    e->status = EMBD_OK;
    return refuse(&stats, shrink->to, shrink->n_may_go, e);
}

int bound_go_on(const struct store_ops *ops, struct table *table, struct store_shrink *shrink,
                uint32_t *n_gone_out, struct embd__error *e)
{
    bool shows = shrink->phase == STORE_SHRINK_CHOSEN;
    int status = ops->shrink(table->store, shrink, e);
    if (status == EMBD_FULL)
        return refuse_shrink(ops, table, shrink, e);
    if (shows)
        *n_gone_out = (uint32_t)shrink->n;
    table->lost.shrunk += shows ? shrink->n : 0;
    return status;
}

/* Whether enough rows may go. */
static int count(const struct store_ops *ops, const struct table *table,
                 struct store_shrink *shrink, struct embd__error *e)
{
    shrink->only_counts = true;
    while (e->status == EMBD_OK && shrink->phase != STORE_SHRINK_DONE)
        ops->shrink(table->store, shrink, e);
    if (e->status == EMBD_OK && shrink->n_may_go < shrink->n)
        refuse_shrink(ops, table, shrink, e);
    return e->status;
}

/* ---- both ---- */

int bound_check(const struct store_ops *ops, const struct table *table, const embd_schema *to,
                struct embd__error *e)
{
    struct pass pass;
    struct store_shrink shrink = {.to = to, .n = excess_now(ops, table, to)};
    if (check_room(ops, table, to, e) != EMBD_OK || lets_all_go(to) || shrink.n == 0)
        return e->status;
    if (ops->caps.shrinks && embd__schema_use_floats(to) > 0)
        return count(ops, table, &shrink, e);
    choose(ops, table, to, &pass, e);
    free(pass.heap);
    return e->status;
}

static int make(const struct store_ops *ops, struct table *table, const embd_schema *to,
                uint32_t *n_gone_out, struct embd__error *e)
{
    struct pass pass;
    int status = choose(ops, table, to, &pass, e);
    if (status == EMBD_OK && pass.n > 0)
        status = remove_rows(ops, table, &pass, n_gone_out, e);
    free(pass.heap);
    table->lost.shrunk += *n_gone_out;
    return status;
}

int bound_begin(const struct store_ops *ops, struct table *table, const embd_schema *to,
                struct store_shrink *shrink_out, uint32_t *n_gone_out, struct embd__error *e)
{
    *n_gone_out = 0;
    *shrink_out = (struct store_shrink){.to = to, .n = excess_now(ops, table, to)};
    if (shrink_out->n > 0 && ops->caps.shrinks && embd__schema_use_floats(to) > 0)
        return EMBD_OK;
    shrink_out->phase = STORE_SHRINK_DONE;
    return make(ops, table, to, n_gone_out, e);
}
