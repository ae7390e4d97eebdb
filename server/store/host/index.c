#include "index.h"

#define FIRST_BUCKETS 64u /* 4 KiB */
#define FULL_BUCKETS  ((uint32_t)(MEMORY_HUGE_PAGE / sizeof(struct index_bucket)))
/* 2^20 segments hold 10^11 keys. Keys made to collide reach this early: a split then does not
 * separate them. */
#define DEPTH_MAX 20u

static size_t segment_bytes(const struct index *index)
{
    return ((size_t)index->bucket_mask + 1) * sizeof(struct index_bucket);
}

/* The most entries a segment may hold: 0.7 of its places. */
static uint32_t segment_limit(uint32_t bucket_mask)
{
    return (uint32_t)(((uint64_t)bucket_mask + 1) * INDEX_BUCKET * 7 / 10);
}

static struct segment *segment_new(const struct index *index, uint32_t depth)
{
    struct segment *segment = memory_new(sizeof *segment);
    if (segment == NULL)
        return NULL;
    segment->depth = depth;
    segment->buckets = memory_new(segment_bytes(index));
    if (segment->buckets == NULL) {
        memory_free(segment, sizeof *segment);
        return NULL;
    }
    return segment;
}

static void segment_free(const struct index *index, struct segment *segment)
{
    memory_free(segment->buckets, segment_bytes(index));
    memory_free(segment, sizeof *segment);
}

/* Sets the entry of a key, or the first empty one in its way. Returns whether the key is new. */
static bool set(struct index_bucket *buckets, uint32_t bucket_mask, const struct index_entry *entry)
{
    for (uint64_t at = entry->hash & bucket_mask;; at = (at + 1) & bucket_mask) {
        struct index_bucket *b = &buckets[at];
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            bool is_new = b->ref[i] == 0;
            if (!is_new && (b->hash[i] != entry->hash || b->slot[i] != entry->slot))
                continue;
            b->hash[i] = entry->hash;
            b->ref[i] = entry->ref;
            b->slot[i] = entry->slot;
            return is_new;
        }
    }
}

static struct index_entry get(const struct index_bucket *buckets, uint64_t at)
{
    const struct index_bucket *b = &buckets[at / INDEX_BUCKET];
    unsigned i = (unsigned)(at % INDEX_BUCKET);
    return (struct index_entry){.hash = b->hash[i], .ref = b->ref[i], .slot = b->slot[i]};
}

static uint64_t segment_entries(uint32_t bucket_mask)
{
    return ((uint64_t)bucket_mask + 1) * INDEX_BUCKET;
}

bool index_open(struct index *index)
{
    *index = (struct index){.bucket_mask = FIRST_BUCKETS - 1, .n_segments = 1};
    index->directory = memory_new(sizeof *index->directory);
    if (index->directory == NULL)
        return false;
    struct segment *segment = segment_new(index, 0);
    if (segment == NULL) {
        memory_free(index->directory, sizeof *index->directory);
        index->directory = NULL;
        return false;
    }
    index->directory[0] = (struct index_place){segment->buckets, segment};
    return true;
}

/* How many places of the directory a segment stands in. */
static uint64_t segment_places(const struct index *index, const struct segment *segment)
{
    return (uint64_t)1 << (index->depth - segment->depth);
}

void index_close(struct index *index)
{
    if (index->directory == NULL)
        return;
    for (uint64_t i = 0; i < (uint64_t)1 << index->depth;) {
        struct segment *segment = index->directory[i].segment;
        i += segment_places(index, segment);
        segment_free(index, segment);
    }
    memory_free(index->directory, sizeof *index->directory << index->depth);
}

/* Gives the only segment of a small index that many buckets. */
static bool resize(struct index *index, uint32_t n_buckets)
{
    struct segment *segment = index->directory[0].segment;
    struct index_bucket *buckets = memory_new(n_buckets * sizeof *buckets);
    if (buckets == NULL)
        return false;
    for (uint64_t at = 0; at < segment_entries(index->bucket_mask); at++) {
        struct index_entry entry = get(segment->buckets, at);
        if (entry.ref != 0)
            set(buckets, n_buckets - 1, &entry);
    }
    memory_free(segment->buckets, segment_bytes(index));
    segment->buckets = index->directory[0].buckets = buckets;
    index->n_moves++;
    index->bucket_mask = n_buckets - 1;
    return true;
}

static bool double_directory(struct index *index)
{
    size_t n = (size_t)1 << index->depth;
    struct index_place *directory = memory_new(2 * n * sizeof *directory);
    if (directory == NULL)
        return false;
    for (size_t i = 0; i < n; i++)
        directory[2 * i] = directory[2 * i + 1] = index->directory[i];
    memory_free(index->directory, n * sizeof *directory);
    index->directory = directory;
    index->depth++;
    return true;
}

/* Deals the entries of a segment out to its two halves by the next bit of the hash. */
static void deal(const struct index *index, const struct segment *from, struct segment *halves[2])
{
    for (uint64_t at = 0; at < segment_entries(index->bucket_mask); at++) {
        struct index_entry entry = get(from->buckets, at);
        if (entry.ref == 0)
            continue;
        struct segment *to = halves[(entry.hash >> (63 - from->depth)) & 1];
        set(to->buckets, index->bucket_mask, &entry);
        to->used++;
    }
}

/* Splits the segment at place `at` of the directory. */
static bool split(struct index *index, uint64_t at)
{
    struct segment *segment = index->directory[at].segment;
    if (segment->depth == index->depth) {
        if (index->depth == DEPTH_MAX || !double_directory(index))
            return false;
        at *= 2;
    }
    struct segment *halves[2] = {segment_new(index, segment->depth + 1), NULL};
    if (halves[0] == NULL)
        return false;
    halves[1] = segment_new(index, segment->depth + 1);
    if (halves[1] == NULL) {
        segment_free(index, halves[0]);
        return false;
    }
    deal(index, segment, halves);
    uint64_t places = segment_places(index, segment), first = at & ~(places - 1);
    for (uint64_t i = 0; i < places; i++) {
        struct segment *half = halves[i >= places / 2];
        index->directory[first + i] = (struct index_place){half->buckets, half};
    }
    index->n_segments++;
    index->n_moves++;
    segment_free(index, segment);
    return true;
}

/* Room for n more entries in the only segment, up to a full one. */
static bool grow_small(struct index *index, uint64_t n)
{
    uint32_t buckets = index->bucket_mask + 1;
    while (buckets < FULL_BUCKETS && segment_limit(buckets - 1) < index->n_entries + n)
        buckets *= 2;
    return buckets == index->bucket_mask + 1 || resize(index, buckets);
}

static void count_pending(struct index *index, const uint64_t *hashes, size_t n)
{
    for (uint64_t i = 0; i < (uint64_t)1 << index->depth; i++)
        index->directory[i].segment->pending = 0;
    for (size_t i = 0; i < n; i++)
        index_place(index, hashes[i])->segment->pending++;
}

/* Splits each segment that could not take what is pending, once. */
static bool split_overfull(struct index *index, bool *split_out)
{
    uint32_t limit = segment_limit(index->bucket_mask);
    *split_out = false;
    for (uint64_t i = 0; i < (uint64_t)1 << index->depth; i++) {
        const struct segment *segment = index->directory[i].segment;
        if ((uint64_t)segment->used + segment->pending <= limit)
            continue;
        uint32_t depth = index->depth;
        if (!split(index, i))
            return false;
        *split_out = true;
        i = (i << (index->depth - depth)) | (index->depth - depth);
    }
    return true;
}

bool index_reserve(struct index *index, const uint64_t *hashes, size_t n)
{
    if (index->depth == 0 && !grow_small(index, n))
        return false;
    bool again = true;
    while (again) {
        count_pending(index, hashes, n);
        if (!split_overfull(index, &again))
            return false;
    }
    return true;
}

bool index_reserve_count(struct index *index, uint64_t n)
{
    if (!grow_small(index, n))
        return false;
    /* 0.65: keys do not fall evenly; a segment that gets more than 0.7 splits. */
    while ((index->n_segments * segment_limit(index->bucket_mask)) / 70 * 65 < n) {
        uint64_t places = (uint64_t)1 << index->depth;
        for (uint64_t i = 0; i < places; i++)
            if (!split(index, 2 * i))
                return false;
    }
    return true;
}

void index_put(struct index *index, uint64_t hash, uint32_t slot, uint32_t ref)
{
    struct segment *segment = index_place(index, hash)->segment;
    struct index_entry entry = {.hash = hash, .ref = ref, .slot = slot};
    if (set(segment->buckets, index->bucket_mask, &entry)) {
        segment->used++;
        index->n_entries++;
    }
}

/* Where an entry stands in a segment. */
struct spot {
    uint64_t bucket;
    unsigned i;
};

static bool find_spot(const struct index *index, const struct segment *segment, uint64_t hash,
                      uint32_t slot, struct spot *out)
{
    for (uint64_t at = hash & index->bucket_mask;; at = (at + 1) & index->bucket_mask) {
        const struct index_bucket *b = &segment->buckets[at];
        for (unsigned i = 0; i < INDEX_BUCKET; i++) {
            if (b->ref[i] == 0)
                return false;
            if (b->hash[i] == hash && b->slot[i] == slot) {
                *out = (struct spot){at, i};
                return true;
            }
        }
    }
}

static void copy(struct index_bucket *to, unsigned i, const struct index_bucket *from, unsigned j)
{
    to->hash[i] = from->hash[j];
    to->ref[i] = from->ref[j];
    to->slot[i] = from->slot[j];
}

/* An entry behind the full bucket `hole` that searches find by passing it: the first such. */
static bool find_passer(const struct index *index, const struct segment *segment, uint64_t hole,
                        struct spot *out)
{
    uint64_t mask = index->bucket_mask;
    for (uint64_t gap = 1;; gap++) {
        uint64_t at = (hole + gap) & mask;
        const struct index_bucket *b = &segment->buckets[at];
        for (unsigned i = 0; i < INDEX_BUCKET && b->ref[i] != 0; i++)
            if (((at - b->hash[i]) & mask) >= gap) {
                *out = (struct spot){at, i};
                return true;
            }
        if (!index_is_full(b))
            return false;
    }
}

/* The entry's bucket is filled up from its own end; where that bucket was full, from those behind
 * it, whose hole is then filled likewise. */
bool index_remove(struct index *index, uint64_t hash, uint32_t slot)
{
    struct segment *segment = index_place(index, hash)->segment;
    struct spot hole, passer;
    if (!find_spot(index, segment, hash, slot, &hole))
        return false;
    for (;;) {
        struct index_bucket *b = &segment->buckets[hole.bucket];
        bool was_full = index_is_full(b);
        unsigned last = INDEX_BUCKET - 1;
        while (b->ref[last] == 0)
            last--;
        copy(b, hole.i, b, last);
        b->hash[last] = 0;
        b->ref[last] = b->slot[last] = 0;
        if (!was_full || !find_passer(index, segment, hole.bucket, &passer))
            break;
        copy(b, last, &segment->buckets[passer.bucket], passer.i);
        hole = passer;
    }
    segment->used--;
    index->n_entries--;
    index->n_moves++;
    return true;
}

/* A segment is gone through at the first of its places; behind its last entry *at may point to the
 * second. */
bool index_next(const struct index *index, uint64_t *at, struct index_entry *out)
{
    uint64_t per_segment = segment_entries(index->bucket_mask);
    while (*at < per_segment << index->depth) {
        uint64_t i = *at / per_segment;
        const struct segment *segment = index->directory[i].segment;
        uint64_t places = segment_places(index, segment), first = i & ~(places - 1);
        for (uint64_t j = *at % per_segment; i == first && j < per_segment; j++) {
            *out = get(segment->buckets, j);
            *at = i * per_segment + j + 1;
            if (out->ref != 0)
                return true;
        }
        *at = (first + places) * per_segment;
    }
    *at = UINT64_MAX;
    return false;
}

/* The first hash behind those of a segment, 0 after the last. */
static uint64_t hash_behind(const struct segment *segment, uint64_t hash)
{
    uint64_t range = segment->depth > 0 ? (uint64_t)1 << (64 - segment->depth) : 0;
    return range == 0 ? 0 : (hash & ~(range - 1)) + range;
}

const struct index_bucket *index_segment(const struct index *index, uint64_t hash, uint64_t *n_out,
                                         uint64_t *next_out)
{
    const struct segment *segment = index_place(index, hash)->segment;
    *n_out = (uint64_t)index->bucket_mask + 1;
    *next_out = hash_behind(segment, hash);
    return segment->buckets;
}

bool index_next_of(const struct index *index, uint64_t hash, uint64_t *at, struct index_entry *out,
                   uint64_t *next_out)
{
    const struct segment *segment = index_place(index, hash)->segment;
    uint64_t n = segment_entries(index->bucket_mask);
    for (; *at < n; ++*at) {
        *out = get(segment->buckets, *at);
        if (out->ref != 0) {
            ++*at;
            return true;
        }
    }
    *next_out = hash_behind(segment, hash);
    return false;
}

uint64_t index_bytes(const struct index *index)
{
    return index->n_segments * (segment_bytes(index) + sizeof(struct segment)) +
           (sizeof *index->directory << index->depth);
}
