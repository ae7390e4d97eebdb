/* list.c - which keys have rows, part by part, while the table changes.
 *
 * Keys come in an order of their hashes, which does not depend on how the index lies: buckets that
 * double, and segments that split or move, change nothing, so a key that stays is listed once. Yet
 * what follows in that order lies together, so a part costs as much as it lists.
 *
 * All hashes are cut into chunks, which have their first `depth` bits in common: one is as large as
 * its segment was when the list came to it. Within a chunk keys follow by rank: first the bits that
 * name the bucket, then the first bits of the hash. Those of one bucket of one segment are a cell:
 * they stand in that bucket, or in those behind it while buckets are full. A cell with more keys
 * than there is room for is halved. The only segment of a small table gets more buckets, each of
 * which takes over from one before; bits in reversed order keep these together.
 *
 * The cursor is the chunk's depth and the rank of the first key of the rest. */
#include "server/store/host/table.h"

#include <stdlib.h>

/* Buckets that one call looks through: where keys only wait for a row, there is nothing to list. */
#define LOOKS 131072u

#define HOME_BITS 15u /* of a rank: the bucket */
#define REST_BITS 44u /* behind them */
#define HOMES     (1u << HOME_BITS)
#define REST      ((UINT64_C(1) << REST_BITS) - 1)
_Static_assert(HOMES == INDEX_SEGMENT_MAX / INDEX_BUCKET, "a rank names each bucket");
_Static_assert(INDEX_DEPTH_MAX < 31 && INDEX_DEPTH_MAX <= REST_BITS, "UINT64_MAX is no cursor");

struct cell {
    uint64_t from, to; /* ranks */
    uint64_t first;    /* rest of the chunk's first hash */
    uint64_t behind;   /* of the hash behind it */
    uint32_t depth;    /* of the chunk */
    const struct index_bucket *buckets;
    uint64_t n_buckets;
};

static uint64_t rest_of(uint64_t hash)
{
    return hash >> (64 - REST_BITS);
}

static uint32_t reversed(uint32_t x)
{
    x = (x & 0x5555) << 1 | (x >> 1 & 0x5555);
    x = (x & 0x3333) << 2 | (x >> 2 & 0x3333);
    x = (x & 0x0f0f) << 4 | (x >> 4 & 0x0f0f);
    x = (x & 0x00ff) << 8 | (x >> 8 & 0x00ff);
    return x >> (16 - HOME_BITS);
}

/* A bucket's place in the order, and back. Several segments have all their buckets. */
static uint32_t home_of(uint32_t bucket, uint32_t depth)
{
    return depth == 0 ? reversed(bucket) : bucket;
}

static uint64_t rank_of(uint64_t hash, uint32_t depth)
{
    return (uint64_t)home_of((uint32_t)hash % HOMES, depth) << REST_BITS | rest_of(hash);
}

/* ---- the cursor ---- */

static uint64_t cursor_at(uint32_t depth, uint64_t rank)
{
    return (uint64_t)depth << (HOME_BITS + REST_BITS) | rank;
}

/* Where the chunk begins that has this rest of a hash first: as large as its segment, or smaller
 * if a peer's cursor was in the midst of it. */
static uint64_t chunk_at(const struct index *index, uint64_t rest)
{
    if (rest > REST)
        return UINT64_MAX;
    uint32_t depth = index_place(index, rest << (64 - REST_BITS))->segment->depth;
    while (depth < INDEX_DEPTH_MAX && (rest & (REST >> depth)) != 0)
        depth++;
    return cursor_at(depth, rest);
}

static uint64_t cursor_behind(const struct index *index, const struct cell *cell)
{
    uint64_t home = (cell->to - cell->behind) >> REST_BITS;
    if (((cell->to - cell->behind) & REST) != 0)
        return cursor_at(cell->depth, cell->to); /* its last home has more */
    if (home + 1 < HOMES)
        return cursor_at(cell->depth, (home + 1) << REST_BITS | cell->first);
    return chunk_at(index, cell->behind);
}

/* ---- a cell ---- */

/* The last of the homes that share the bucket, and the end of segment or chunk. */
static uint64_t end_of(const struct cell *cell, uint64_t segment_end)
{
    uint64_t together = cell->depth == 0 ? HOMES / cell->n_buckets : 1;
    uint64_t last = (cell->from >> REST_BITS) | (together - 1);
    return (last << REST_BITS) + (segment_end < cell->behind ? segment_end : cell->behind);
}

static struct cell cell_at(const struct index *index, uint64_t cursor)
{
    uint64_t rank = cursor & (((uint64_t)HOMES << REST_BITS) - 1), next;
    uint32_t depth = (uint32_t)(cursor >> (HOME_BITS + REST_BITS));
    struct cell cell = {.from = rank, .depth = depth < INDEX_DEPTH_MAX ? depth : INDEX_DEPTH_MAX};
    cell.first = rank & REST & ~(REST >> cell.depth);
    cell.behind = cell.first + (REST >> cell.depth) + 1;
    cell.buckets = index_segment(index, rank << (64 - REST_BITS), &cell.n_buckets, &next);
    cell.to = end_of(&cell, next == 0 ? REST + 1 : rest_of(next));
    return cell;
}

static bool is_listed(const struct store *store, const struct cell *cell,
                      const struct index_bucket *b, unsigned i)
{
    uint64_t rank = rank_of(b->hash[i], cell->depth);
    return index_has_row(b->ref[i]) && rank >= cell->from && rank < cell->to &&
           !pending_has(&store->pending, b->ref[i] - 1);
}

static void add(const struct store *store, const struct index_bucket *b, unsigned i,
                struct store_scan *out)
{
    if (store->schema->s.partition == EMBD_PARTITION_SLOT)
        out->slots[out->n_rows] = (uint16_t)b->slot[i];
    out->keys[out->n_rows++] = index_key(b->hash[i], b->slot[i]);
}

/* Adds its keys; false: they are more than there is room for, and none was added. *looks counts
 * buckets. */
static bool add_cell(const struct store *store, const struct cell *cell, uint32_t max_keys,
                     struct store_scan *out, uint64_t *looks)
{
    uint64_t at = home_of((uint32_t)(cell->from >> REST_BITS), cell->depth);
    uint32_t n_before = out->n_rows;
    const struct index_bucket *b;
    do {
        b = &cell->buckets[at++ & (cell->n_buckets - 1)];
        ++*looks;
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            if (!is_listed(store, cell, b, i))
                continue;
            if (out->n_rows == max_keys) {
                out->n_rows = n_before;
                return false;
            }
            add(store, b, i, out);
        }
    } while (index_is_full(b));
    return true;
}

/* Halves it until its keys fit; false: one rank has more. */
static bool fit(const struct store *store, struct cell *cell, uint32_t max_keys,
                struct store_scan *out, uint64_t *looks)
{
    while (!add_cell(store, cell, max_keys, out, looks)) {
        if (cell->to - cell->from == 1)
            return false;
        cell->to = cell->from + (cell->to - cell->from) / 2;
    }
    return true;
}

int host_list(struct store *store, uint64_t *cursor, uint32_t max_keys, struct store_scan *out,
              struct embd__error *e)
{
    out->n_rows = 0;
    if (*cursor == 0)
        *cursor = chunk_at(&store->index, 0);
    for (uint64_t looks = 0; looks < LOOKS && *cursor != UINT64_MAX && out->n_rows < max_keys;) {
        struct cell cell = cell_at(&store->index, *cursor);
        bool fits = fit(store, &cell, max_keys, out, &looks);
        if (!fits && out->n_rows == 0)
            return embd__error_set(e, EMBD_TOO_LARGE,
                                   "table %s: more than %u keys share a place in its index: ask "
                                   "for more at a time; 131072 always suffice",
                                   store->schema->s.name, max_keys);
        if (!fits)
            return EMBD_OK;
        *cursor = cursor_behind(&store->index, &cell);
    }
    return EMBD_OK;
}
