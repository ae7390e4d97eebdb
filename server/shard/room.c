/* room.c - a shard applies a push whole or not at all, also when it concerns several tables.
 *
 * Each store refuses a push without room before it changes anything, so a request of one part needs
 * nothing here, unless it has a record: one that is to be refused is not to be written. That is known
 * after the lookup alone, which is made twice only where the table's last push was refused so. Of
 * several parts, a later one could be refused when earlier ones are applied
 * already. That can only be where a table has a bound, asks no statuses and is close to its bound:
 * then, and only then, the part's distinct keys without a row are counted. Keys that admit_after
 * would keep from getting a row count as well: near the bound such a request may be refused
 * although it would just have fitted. Where the table evicts, all rows make room that the part does
 * not name: then all its distinct keys are counted. With evict_ttl fewer may go, and only the store
 * knows which: a store that can prepare pushes says so before the first part is applied; on the others such a part may
 * be refused after parts were applied, and the answer says so.
 *
 * Memory is reserved as if no key had a row, which is one comparison; only where there is not so much of it, those
 * without a row are counted. */
#include "room.h"

#include <stdlib.h>
#include <string.h>

#include "commit.h"
#include "pull.h"
#include "state.h"

#define PROBE_BYTES (256u << 10)

struct place {
    uint64_t key;
    uint16_t slot;
};

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

static uint32_t count_distinct(struct place *places, uint32_t n)
{
    qsort(places, n, sizeof *places, compare);
    uint32_t n_distinct = 0;
    for (uint32_t i = 0; i < n; i++)
        n_distinct += i == 0 || compare(&places[i - 1], &places[i]) != 0;
    return n_distinct;
}

static void on_probed(struct store_done *done, int status)
{
    (void)done;
    (void)status;
}

/* The status of every key; the rows are made too, chunk by chunk, and not looked at. */
static void probe(const struct shard_work *work, const struct work_part *part, uint8_t *statuses,
                  void *values)
{
    uint64_t row_bytes = part->table->schema.s.dim * sizeof(float);
    uint32_t chunk = (uint32_t)(PROBE_BYTES / row_bytes), n_rows = part->in.n_rows;
    for (uint32_t first = 0; first < n_rows; first += chunk) {
        struct store_pull pull = {
            .in = pull_keys(&part->in),
            .dtype = EMBD_F32,
            .first = first,
            .count = n_rows - first < chunk ? n_rows - first : chunk,
            .values = values,
            .statuses = statuses,
            .now = true,
        };
        struct store_done done = {.fn = on_probed};
        work->shard->tables.ops->pull(part->table->store, &pull, &done);
    }
}

/* Distinct keys without a row; statuses NULL: of any kind. */
static uint32_t count_keys(const struct work_part *part, const uint8_t *statuses,
                           struct place *places)
{
    const struct part *in = &part->in;
    uint32_t n = 0;
    for (uint32_t r = 0; r < in->n_rows; r++) {
        uint32_t from = in->offsets ? in->offsets[r] : r,
                 to = in->offsets ? in->offsets[r + 1] : r + 1;
        for (uint32_t k = from; k < to; k++)
            if (statuses == NULL || statuses[k] != EMBD_KEY_HIT)
                places[n++] = (struct place){in->keys[k], in->slots ? in->slots[r] : 0};
    }
    return count_distinct(places, n);
}

static int count_needed(const struct shard_work *work, const struct work_part *part,
                        uint64_t *needed_out, struct embd__error *e)
{
    uint32_t n_keys = part->in.n_keys;
    uint8_t *statuses = malloc(n_keys);
    void *values = malloc(PROBE_BYTES);
    struct place *places = malloc(n_keys * sizeof *places);
    if (statuses == NULL || values == NULL || places == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to count the new keys among %u", n_keys);
    } else {
        probe(work, part, statuses, values);
        *needed_out = count_keys(part, statuses, places);
    }
    free(places);
    free(values);
    free(statuses);
    return e->status;
}

/* Of the rows that part i and those before it for the same table may need. */
static int check_part_room(const struct shard_work *work, uint32_t i, struct embd__error *e)
{
    const struct work_part *part = &work->parts[i];
    const embd_schema *s = &part->table->schema.s;
    struct store_stats stats;
    work->shard->tables.ops->stats(part->table->store, &stats);
    uint64_t at_most = 0, needed = 0;
    for (uint32_t j = 0; j <= i; j++)
        at_most += work->parts[j].table == part->table ? work->parts[j].in.n_keys : 0;
    if (stats.rows + at_most <= s->capacity)
        return EMBD_OK;
    for (uint32_t j = 0; j <= i; j++) {
        uint64_t n = 0;
        if (work->parts[j].table == part->table && work->parts[j].in.n_keys > 0 &&
            count_needed(work, &work->parts[j], &n, e) != EMBD_OK)
            return e->status;
        needed += n;
    }
    if (stats.rows + needed <= s->capacity)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_FULL,
        "part %u: table '%s' has %llu rows, %llu more would pass its capacity of %llu", i, s->name,
        (unsigned long long)stats.rows, (unsigned long long)needed,
        (unsigned long long)s->capacity);
}

/* Where other rows go: whether the table holds those that the part names. */
static int check_part_fits(const struct work_part *part, uint32_t i, struct embd__error *e)
{
    const embd_schema *s = &part->table->schema.s;
    uint32_t n_keys = part->in.n_keys;
    if (n_keys <= s->capacity)
        return EMBD_OK;
    struct place *places = malloc(n_keys * sizeof *places);
    if (places == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to count the keys among %u", n_keys);
    uint32_t n = count_keys(part, NULL, places);
    free(places);
    if (n <= s->capacity)
        return EMBD_OK;
    return embd__error_set(e, EMBD_FULL, "part %u: table '%s' has a capacity of %llu, not of %u rows",
                           i, s->name, (unsigned long long)s->capacity, n);
}

/* What it says of a single part has to be what the store will say: admit_after is the store's. */
static bool is_asked(const struct shard_work *work)
{
    if (work->n_parts != 1)
        return work->n_parts > 1;
    const struct table *table = work->parts[0].table;
    return table->was_full && commit_is_kept(table) && table->schema.s.admit_after <= 1 &&
           !work->is_recorded && !work->shard->is_replaying;
}

int room_check(struct shard_work *work, struct embd__error *e)
{
    if (!is_asked(work))
        return EMBD_OK;
    for (uint32_t i = 0; i < work->n_parts; i++) {
        const struct work_part *part = &work->parts[i];
        const embd_schema *s = &part->table->schema.s;
        int status = EMBD_OK;
        if (s->on_full == EMBD_GROW || s->capacity == 0 || part->statuses != NULL)
            continue;
        if (s->on_full == EMBD_ERROR)
            status = check_part_room(work, i, e);
        else
            status = check_part_fits(part, i, e);
        if (status != EMBD_OK)
            return status;
    }
    return EMBD_OK;
}

/* ---- memory ---- */

/* n: of the part and of what is coming. */
static int reserve(const struct shard_work *work, const struct work_part *part, uint64_t n,
                   struct embd__error *e)
{
    const struct store_ops *ops = work->shard->tables.ops;
    struct embd__error uncounted = {.status = EMBD_OK};
    bool may_drop = part->statuses != NULL;
    uint64_t needed = n;
    int status = ops->reserve(part->table->store, n, may_drop, e);
    if (status != EMBD_NO_MEMORY || part->in.n_keys == 0 ||
        count_needed(work, part, &needed, &uncounted) != EMBD_OK || needed >= n)
        return status;
    e->status = EMBD_OK;
    return ops->reserve(part->table->store, needed, may_drop, e);
}

int room_reserve(struct shard_work *work, struct embd__error *e)
{
    for (uint32_t i = 0; i < work->n_parts; i++) {
        const struct work_part *part = &work->parts[i];
        if (reserve(work, part, part->table->n_coming + part->in.n_keys, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

int room_reserve_part(const struct shard_work *work, uint32_t i, struct embd__error *e)
{
    const struct work_part *part = &work->parts[i];
    return reserve(work, part, work->is_coming ? part->table->n_coming : part->in.n_keys, e);
}

void room_keep(struct shard_work *work)
{
    for (uint32_t i = 0; i < work->n_parts; i++)
        work->parts[i].table->n_coming += work->parts[i].in.n_keys;
    work->is_coming = true;
}

void room_part_left(const struct shard_work *work, const struct work_part *part)
{
    if (work->is_coming)
        part->table->n_coming -= part->in.n_keys;
}

void room_left(struct shard_work *work)
{
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (work->parts[i].table != NULL)
            room_part_left(work, &work->parts[i]);
    work->is_coming = false;
}
