/* list.c - which keys have rows, part by part, while the table changes.
 *
 * A part is a range of hashes, which does not depend on how the index lies: segments that split or
 * move change nothing, so a key that stays is listed once. The range is chosen so that its keys
 * should fit, and halved where they do not. The cursor is the first hash of the rest, without its
 * lowest bit, so that UINT64_MAX is free to say that there is no rest. */
#include "server/store/host/table.h"

#include <stdlib.h>

/* Ranges that one call looks through: where keys only wait for a row, there is nothing to list. */
#define RANGES 16u
#define END    (UINT64_C(1) << 63)

/* Halves of hashes from `from` up to `to`, of the segment that they stand in. */
struct range {
    uint64_t from, to;
    const struct index_bucket *buckets;
    uint64_t n_buckets;
};

/* So many of them hold about 7/8 of `room` keys, as evenly as hashes fall. */
static uint64_t expected_span(const struct store *store, uint32_t room)
{
    uint64_t n = store->index.n_entries;
    if (n <= room)
        return END;
    uint64_t span = END / n * room;
    return span - span / 8;
}

/* From `from` on, within a segment. */
static struct range next_range(const struct store *store, uint64_t from, uint32_t room)
{
    struct range range = {.from = from};
    uint64_t next, span = expected_span(store, room);
    range.buckets = index_segment(&store->index, from << 1, &range.n_buckets, &next);
    range.to = next == 0 ? END : next >> 1;
    if (range.to - from > span)
        range.to = from + span;
    return range;
}

static bool is_listed(const struct store *store, const struct range *range,
                      const struct index_bucket *b, unsigned i)
{
    uint64_t half = b->hash[i] >> 1;
    return index_has_row(b->ref[i]) && half >= range->from && half < range->to &&
           !pending_has(&store->pending, b->ref[i] - 1);
}

static void add(const struct store *store, const struct index_bucket *b, unsigned i,
                struct store_scan *out)
{
    if (store->schema->s.partition == EMBD_PARTITION_SLOT)
        out->slots[out->n_rows] = (uint16_t)b->slot[i];
    out->keys[out->n_rows++] = index_key(b->hash[i], b->slot[i]);
}

/* Adds its keys; false: they are more than there is room for, and none was added. */
static bool add_range(const struct store *store, const struct range *range, uint32_t max_keys,
                      struct store_scan *out)
{
    uint32_t n_before = out->n_rows;
    for (uint64_t at = 0; at < range->n_buckets; at++)
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            if (!is_listed(store, range, &range->buckets[at], i))
                continue;
            if (out->n_rows == max_keys) {
                out->n_rows = n_before;
                return false;
            }
            add(store, &range->buckets[at], i, out);
        }
    return true;
}

/* Halves it until its keys fit; false: one hash has more. */
static bool fit(const struct store *store, struct range *range, uint32_t max_keys,
                struct store_scan *out)
{
    while (!add_range(store, range, max_keys, out)) {
        if (range->to - range->from == 1)
            return false;
        range->to = range->from + (range->to - range->from) / 2;
    }
    return true;
}

int host_list(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
              struct embd__error *e)
{
    out->n_rows = 0;
    for (uint32_t i = 0; i < RANGES && *cursor < END && out->n_rows <= max_keys / 2; i++) {
        struct range range = next_range(store, *cursor, max_keys - out->n_rows);
        bool fits = fit(store, &range, max_keys, out);
        if (!fits && out->n_rows == 0)
            return embd__error_set(e, EMBD_TOO_LARGE,
                                   "table %s: more than %u keys stand at one place: ask for more "
                                   "at a time, 131072 always fit",
                                   store->schema->s.name, max_keys);
        if (!fits)
            return EMBD_OK;
        *cursor = range.to;
    }
    if (*cursor >= END)
        *cursor = UINT64_MAX;
    return EMBD_OK;
}
