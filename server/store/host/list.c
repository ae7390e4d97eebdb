/* list.c - which keys have rows, part by part, while the table changes.
 *
 * Keys come in an order of their hashes, which does not depend on how the index lies: buckets that
 * double, and segments that split or move, change nothing, so a key that stays is listed once. Yet
 * what follows in that order lies together, so a part costs as much as it lists.
 *
 * All addresses (index_address) are cut into chunks, which have their first `depth` bits in common:
 * one is as large as its segment was when the list came to it. Within a chunk keys follow by rank:
 * first the bits that name the bucket, then the first bits of the address. Those of one bucket of
 * one segment are a cell: they stand in that bucket, or in those behind it while buckets are full.
 * A cell with more keys than there is room for is halved. A small segment gets more buckets, each
 * of which takes over from one before; bits in reversed order keep these together.
 *
 * The cursor is the chunk's depth and the rank of the first key of the rest. */
#include "server/store/host/table.h"

#include <stdlib.h>

/* Buckets that one call looks through: where keys only wait for a row, there is nothing to list. */
#define LOOKS 131072u

#define HOME_BITS 13u /* of a rank: the bucket */
#define REST_BITS 44u /* behind them */
#define HOMES     (1u << HOME_BITS)
#define REST      ((UINT64_C(1) << REST_BITS) - 1)
_Static_assert(HOMES == INDEX_BUCKETS_MAX, "a rank names each bucket");
_Static_assert(INDEX_DEPTH_MAX < 31 && INDEX_DEPTH_MAX <= REST_BITS, "UINT64_MAX is no cursor");

struct cell {
    uint64_t from, to; /* ranks */
    uint64_t first;    /* rest of the chunk's first address */
    uint64_t behind;   /* of the address behind it */
    uint64_t end;      /* of segment or chunk, likewise */
    uint32_t depth;    /* of the chunk */
    const struct segment *segment;
};

static uint64_t rest_of(uint64_t address)
{
    return address >> (64 - REST_BITS);
}

/* Of a bucket its place in the order, and back. */
static uint32_t reversed(uint32_t x)
{
    x = (x & 0x5555) << 1 | (x >> 1 & 0x5555);
    x = (x & 0x3333) << 2 | (x >> 2 & 0x3333);
    x = (x & 0x0f0f) << 4 | (x >> 4 & 0x0f0f);
    x = (x & 0x00ff) << 8 | (x >> 8 & 0x00ff);
    return x >> (16 - HOME_BITS);
}

static uint64_t rank_of(uint64_t hash)
{
    return (uint64_t)reversed((uint32_t)(hash >> INDEX_HOME) % HOMES) << REST_BITS |
           rest_of(index_address(hash));
}

/* ---- the cursor ---- */

static uint64_t cursor_at(uint32_t depth, uint64_t rank)
{
    return (uint64_t)depth << (HOME_BITS + REST_BITS) | rank;
}

/* Where the chunk begins that has this rest of an address first: as large as its segment, or
 * smaller if a peer's cursor was in the midst of it. */
static uint64_t chunk_at(const struct index *index, uint64_t rest)
{
    if (rest > REST)
        return UINT64_MAX;
    uint64_t next;
    uint32_t depth = index_segment(index, rest << (64 - REST_BITS), &next)->depth;
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

/* The last of the homes that share the bucket. A segment that is less than its chunk has a bucket
 * for each. */
static uint64_t rank_behind(const struct cell *cell)
{
    uint64_t together = HOMES / ((uint64_t)cell->segment->bucket_mask + 1);
    uint64_t last = (cell->from >> REST_BITS) | (together - 1);
    return (last << REST_BITS) + cell->end;
}

static struct cell cell_at(const struct index *index, uint64_t cursor)
{
    uint64_t rank = cursor & (((uint64_t)HOMES << REST_BITS) - 1), next;
    uint32_t depth = (uint32_t)(cursor >> (HOME_BITS + REST_BITS));
    struct cell cell = {.from = rank, .depth = depth < INDEX_DEPTH_MAX ? depth : INDEX_DEPTH_MAX};
    cell.first = rank & REST & ~(REST >> cell.depth);
    cell.behind = cell.first + (REST >> cell.depth) + 1;
    cell.segment = index_segment(index, rank << (64 - REST_BITS), &next);
    uint64_t segment_end = next == 0 ? REST + 1 : rest_of(next);
    cell.end = segment_end < cell.behind ? segment_end : cell.behind;
    cell.to = rank_behind(&cell);
    return cell;
}

static bool is_listed(const struct store *store, const struct cell *cell,
                      const struct index_bucket *b, unsigned i)
{
    uint64_t rank = rank_of(index_entry_hash(&store->index, cell->segment, b, i));
    return index_has_row(b->ref[i]) && rank >= cell->from && rank < cell->to &&
           !pending_has(&store->pending, b->ref[i] - 1);
}

static void add(const struct store *store, const struct cell *cell, const struct index_bucket *b,
                unsigned i, struct store_scan *out)
{
    struct index_entry entry = index_entry_of(&store->index, cell->segment, b, i);
    if (store->schema->s.partition == EMBD_PARTITION_SLOT)
        out->slots[out->n_rows] = (uint16_t)entry.slot;
    out->keys[out->n_rows++] = index_key(entry.hash, entry.slot);
}

/* Adds its keys; false: they are more than there is room for, and none was added. *looks counts
 * buckets. */
static bool add_cell(const struct store *store, const struct cell *cell, uint32_t max_keys,
                     struct store_scan *out, uint64_t *looks)
{
    uint64_t at = reversed((uint32_t)(cell->from >> REST_BITS));
    uint32_t n_before = out->n_rows;
    const struct index_bucket *b;
    do {
        b = &cell->segment->buckets[at++ & cell->segment->bucket_mask];
        ++*looks;
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            if (!is_listed(store, cell, b, i))
                continue;
            if (out->n_rows == max_keys) {
                out->n_rows = n_before;
                return false;
            }
            add(store, cell, b, i, out);
        }
    } while (index_is_full(b));
    return true;
}

/* The first of several homes, or the first ranks of one. */
static void halve(struct cell *cell)
{
    uint64_t home = cell->from >> REST_BITS, last = (cell->to - 1) >> REST_BITS;
    if (last > home)
        cell->to = ((home + (last - home) / 2) << REST_BITS) + cell->end;
    else
        cell->to = cell->from + (cell->to - cell->from) / 2;
}

/* Halves it until its keys fit; false: one rank has more. */
static bool fit(const struct store *store, struct cell *cell, uint32_t max_keys,
                struct store_scan *out, uint64_t *looks)
{
    while (!add_cell(store, cell, max_keys, out, looks)) {
        if (cell->to - cell->from == 1)
            return false;
        halve(cell);
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
