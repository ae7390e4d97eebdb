/* index_segment.h - what the two files of the index share: segments and what stands in them.
 * index_grow.c makes, doubles and splits them; index.c finds, puts and removes entries. */
#ifndef EMBD_HOST_INDEX_SEGMENT_H
#define EMBD_HOST_INDEX_SEGMENT_H

#include "server/store/host/index.h"

/* An entry as it stands. */
struct index_cell {
    uint64_t word;
    uint32_t ref, high_slot;
};

/* Whether it is the i-th of this bucket. */
static inline bool index_cell_is(const struct index_bucket *b, unsigned i,
                                 const struct index_cell *cell)
{
    return b->word[i] == cell->word && index_high_slot(b, i) == cell->high_slot;
}

static inline struct index_cell index_cell_at(const struct index_bucket *b, unsigned i)
{
    return (struct index_cell){b->word[i], b->ref[i], index_high_slot(b, i)};
}

static inline void index_cell_set(struct index_bucket *b, unsigned i, const struct index_cell *cell)
{
    uint32_t mask = ((1u << INDEX_HIGH_SLOT) - 1) << (INDEX_HIGH_SLOT * i);
    b->word[i] = cell->word;
    b->ref[i] = cell->ref;
    b->slots = (b->slots & ~mask) | cell->high_slot << (INDEX_HIGH_SLOT * i);
}

/* The bits that name buckets. */
static inline uint64_t index_home(uint64_t hash)
{
    return hash >> INDEX_HOME;
}

static inline uint64_t index_cell_home(const struct index *index, const struct index_cell *cell)
{
    return index_home(index->has_slots ? cell->word >> INDEX_LOW_SLOT : cell->word);
}

/* Sets the entry of a key, or the first empty one in its way. Returns whether the key is new. */
bool index_cell_put(struct index_bucket *buckets, uint64_t mask, uint64_t home,
                    const struct index_cell *cell);

/* How many places of the directory a segment stands in. */
static inline uint64_t index_segment_places(const struct index *index,
                                            const struct segment *segment)
{
    return (uint64_t)1 << (index->depth - segment->depth);
}

static inline struct segment *index_segment_of(const struct index *index, uint64_t hash)
{
    return index->segments[index_address_first(hash) >> index->shift];
}

static inline void index_note_move(struct index *index, struct segment *segment)
{
    segment->moved = ++index->n_moves;
}

#endif
