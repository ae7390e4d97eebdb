/* list.c - which keys have rows, part by part, while the table changes.
 *
 * A part is a range of hashes, which does not depend on how the index lies: segments that split or
 * move change nothing, so a key that stays is listed once. The range is chosen so that its keys
 * fit: the segment's share of hashes, halved until they do. The cursor is the first hash of the
 * rest, without its lowest bit, so that UINT64_MAX is free to say that there is no rest. */
#include "server/store/host/table.h"

#include <stdlib.h>

/* Ranges that one call looks through: where keys only wait for a row, there is nothing to list. */
#define RANGES 16u

/* Halves of hashes from `from` up to `to`, of the segment that they stand in. */
struct range {
    uint64_t from, to;
    const struct index_bucket *buckets;
    uint64_t n_buckets;
};

static struct range rest_of_segment(const struct store *store, uint64_t from)
{
    struct range range = {.from = from};
    uint64_t next;
    range.buckets = index_segment(&store->index, from << 1, &range.n_buckets, &next);
    range.to = next == 0 ? UINT64_C(1) << 63 : next >> 1;
    return range;
}

static bool is_listed(const struct store *store, const struct range *range,
                      const struct index_bucket *b, unsigned i)
{
    uint64_t half = b->hash[i] >> 1;
    return index_has_row(b->ref[i]) && half >= range->from && half < range->to &&
           !pending_has(&store->pending, b->ref[i] - 1);
}

static uint32_t count(const struct store *store, const struct range *range)
{
    uint32_t n = 0;
    for (uint64_t at = 0; at < range->n_buckets; at++)
        for (unsigned i = 0; i < INDEX_BUCKET; i++)
            n += is_listed(store, range, &range->buckets[at], i);
    return n;
}

/* Shortens the range until its keys fit; returns how many they are, more than `room` where it
 * cannot be shortened. The first cut goes by how evenly hashes fall. */
static uint32_t fit(const struct store *store, struct range *range, uint32_t room)
{
    uint32_t n = count(store, range);
    uint64_t parts = 1;
    while (n > room && parts * room < n + n / 8u)
        parts *= 2;
    if (n > room && (range->to - range->from) / parts > 0) {
        range->to = range->from + (range->to - range->from) / parts;
        n = count(store, range);
    }
    while (n > room && range->to - range->from > 1) {
        range->to = range->from + (range->to - range->from) / 2;
        n = count(store, range);
    }
    return n;
}

static void copy(const struct store *store, const struct range *range, struct store_scan *out)
{
    for (uint64_t at = 0; at < range->n_buckets; at++)
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            const struct index_bucket *b = &range->buckets[at];
            if (!is_listed(store, range, b, i))
                continue;
            if (store->schema->s.partition == EMBD_PARTITION_SLOT)
                out->slots[out->n_rows] = (uint16_t)b->slot[i];
            out->keys[out->n_rows++] = index_key(b->hash[i], b->slot[i]);
        }
}

int host_list(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
              struct embd__error *e)
{
    const uint64_t end = UINT64_C(1) << 63;
    out->n_rows = 0;
    for (uint32_t i = 0; i < RANGES && *cursor < end && out->n_rows <= max_keys / 2; i++) {
        struct range range = rest_of_segment(store, *cursor);
        uint32_t n = fit(store, &range, max_keys - out->n_rows);
        if (n > max_keys - out->n_rows && out->n_rows > 0)
            return EMBD_OK;
        if (n > max_keys)
            return embd__error_set(e, EMBD_TOO_LARGE,
                                   "table %s: %u keys have one hash, and %u were asked for: ask "
                                   "for more at a time",
                                   store->schema->s.name, n, max_keys);
        copy(store, &range, out);
        *cursor = range.to;
    }
    if (*cursor >= end)
        *cursor = UINT64_MAX;
    return EMBD_OK;
}
