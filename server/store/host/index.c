/* index.c - entries are put, found again and removed; index_grow.c makes the room. */
#include "server/store/host/index_segment.h"

static struct index_cell cell_of(const struct index *index, uint64_t hash, uint32_t slot,
                                 uint32_t ref)
{
    return (struct index_cell){index_word(hash, slot, index->has_slots), ref,
                               index->has_slots ? slot >> INDEX_LOW_SLOT : 0};
}

bool index_cell_put(struct index_bucket *buckets, uint64_t mask, uint64_t home,
                    const struct index_cell *cell)
{
    for (uint64_t at = home & mask;; at = (at + 1) & mask) {
        struct index_bucket *b = &buckets[at];
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            bool is_new = b->ref[i] == 0;
            if (!is_new && !index_cell_is(b, i, cell))
                continue;
            index_cell_set(b, i, cell);
            return is_new;
        }
    }
}

void index_put(struct index *index, uint64_t hash, uint32_t slot, uint32_t ref)
{
    struct segment *segment = index_segment_of(index, hash);
    const struct index_cell cell = cell_of(index, hash, slot, ref);
    if (index_cell_put(segment->buckets, segment->bucket_mask, index_home(hash), &cell)) {
        segment->used++;
        index->n_entries++;
    }
}

uint32_t index_find_behind(const struct index *index, uint64_t hash, uint32_t slot, uint32_t passed)
{
    const struct index_place *place = index_place(index, hash);
    for (uint64_t behind = passed;; behind++) {
        const struct index_bucket *b = index_bucket(place, hash, behind);
        uint32_t ref =
            index->has_slots ? index_look(b, hash, slot, true) : index_look(b, hash, 0, false);
        if (ref != 0 || !index_is_full(b))
            return ref;
    }
}

/* ---- removal ---- */

/* Where an entry stands in a segment. */
struct spot {
    uint64_t bucket;
    unsigned i;
};

static bool find_spot(const struct segment *segment, uint64_t hash, const struct index_cell *cell,
                      struct spot *out)
{
    for (uint64_t at = index_home(hash);; at++) {
        const struct index_bucket *b = &segment->buckets[at & segment->bucket_mask];
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            if (b->ref[i] == 0)
                return false;
            if (index_cell_is(b, i, cell)) {
                *out = (struct spot){at & segment->bucket_mask, i};
                return true;
            }
        }
    }
}

/* An entry behind the full bucket `hole` that searches find by passing it: the first such. */
static bool find_passer(const struct index *index, const struct segment *segment, uint64_t hole,
                        struct spot *out)
{
    uint64_t mask = segment->bucket_mask;
    for (uint64_t gap = 1;; gap++) {
        uint64_t at = (hole + gap) & mask;
        const struct index_bucket *b = &segment->buckets[at];
        for (unsigned i = 0; i < INDEX_BUCKET && b->ref[i] != 0; i++) {
            const struct index_cell cell = index_cell_at(b, i);
            if (((at - index_cell_home(index, &cell)) & mask) >= gap) {
                *out = (struct spot){at, i};
                return true;
            }
        }
        if (!index_is_full(b))
            return false;
    }
}

static void copy(struct index_bucket *to, unsigned i, const struct index_bucket *from, unsigned j)
{
    const struct index_cell cell = index_cell_at(from, j);
    index_cell_set(to, i, &cell);
}

/* The entry's bucket is filled up from its own end; where that bucket was full, from those behind
 * it, whose hole is then filled likewise. */
bool index_remove(struct index *index, uint64_t hash, uint32_t slot)
{
    struct segment *segment = index_segment_of(index, hash);
    const struct index_cell cell = cell_of(index, hash, slot, 0), none = {.ref = 0};
    struct spot hole, passer;
    if (!find_spot(segment, hash, &cell, &hole))
        return false;
    for (;;) {
        struct index_bucket *b = &segment->buckets[hole.bucket];
        bool was_full = index_is_full(b);
        unsigned last = INDEX_BUCKET - 1;
        while (b->ref[last] == 0)
            last--;
        copy(b, hole.i, b, last);
        index_cell_set(b, last, &none);
        if (!was_full || !find_passer(index, segment, hole.bucket, &passer))
            break;
        copy(b, last, &segment->buckets[passer.bucket], passer.i);
        hole = passer;
    }
    segment->used--;
    index->n_entries--;
    index_note_move(index, segment);
    return true;
}

/* ---- one entry after another ---- */

/* The first used entry of a segment from number *at on; *at moves behind it. */
static bool next_in(const struct index *index, const struct segment *segment, uint64_t *at,
                    struct index_entry *out)
{
    uint64_t n = ((uint64_t)segment->bucket_mask + 1) * INDEX_BUCKET;
    for (; *at < n; ++*at) {
        const struct index_bucket *b = &segment->buckets[*at / INDEX_BUCKET];
        unsigned i = (unsigned)(*at % INDEX_BUCKET);
        if (b->ref[i] != 0) {
            *out = index_entry_of(index, segment, b, i);
            ++*at;
            return true;
        }
    }
    return false;
}

/* A segment is scanned at the first of its places; behind its last entry *at may point to the
 * second. */
bool index_next(const struct index *index, uint64_t *at, struct index_entry *out)
{
    const uint64_t per_place = (uint64_t)INDEX_BUCKETS_MAX * INDEX_BUCKET;
    while (*at < per_place << index->depth) {
        uint64_t i = *at / per_place, j = *at % per_place;
        const struct segment *segment = index->segments[i];
        uint64_t places = index_segment_places(index, segment), first = i & ~(places - 1);
        bool is_found = i == first && next_in(index, segment, &j, out);
        *at = is_found ? i * per_place + j : (first + places) * per_place;
        if (is_found)
            return true;
    }
    *at = UINT64_MAX;
    return false;
}

static const struct segment *segment_at(const struct index *index, uint64_t address)
{
    return index->segments[address >> (64 - index->depth)];
}

/* The first address behind those of a segment, 0 after the last. */
static uint64_t address_behind(const struct segment *segment, uint64_t address)
{
    uint64_t range = (uint64_t)1 << (64 - segment->depth);
    return (address & ~(range - 1)) + range;
}

const struct segment *index_segment(const struct index *index, uint64_t address, uint64_t *next_out)
{
    const struct segment *segment = segment_at(index, address);
    *next_out = address_behind(segment, address);
    return segment;
}

uint64_t index_moved(const struct index *index, uint64_t address)
{
    return segment_at(index, address)->moved;
}

bool index_next_of(const struct index *index, uint64_t address, uint64_t *at,
                   struct index_entry *out, uint64_t *next_out)
{
    const struct segment *segment = segment_at(index, address);
    if (next_in(index, segment, at, out))
        return true;
    *next_out = address_behind(segment, address);
    return false;
}
