#include "server/store/host/index.h"

#define FIRST_BUCKETS 64u /* 4 KiB */
#define FULL_BUCKETS  ((uint32_t)(MEMORY_HUGE_PAGE / sizeof(struct index_bucket)))
_Static_assert(FULL_BUCKETS *INDEX_BUCKET == INDEX_SEGMENT_MAX, "index.h says how many");

/* How full, in hundredths: the only segment of a small table at most; all together where room was
 * made at once; when splits ahead begin, and when all of a level are split; one of several at most.
 */
#define SMALL_FULL  70u
#define RESERVED    65u
#define AHEAD_BEGIN 62u
#define AHEAD_END   76u
#define FULL        80u
/* At most one split ahead for this many new keys, if splits are behind: room that was made at once
 * is outgrown. */
#define AHEAD_KEYS 8192u

static size_t segment_bytes(const struct index *index)
{
    return ((size_t)index->bucket_mask + 1) * sizeof(struct index_bucket);
}

static uint64_t segment_entries(uint32_t bucket_mask)
{
    return ((uint64_t)bucket_mask + 1) * INDEX_BUCKET;
}

/* So many entries fill a segment to `full` hundredths. */
static uint64_t segment_part(uint32_t bucket_mask, uint32_t full)
{
    return segment_entries(bucket_mask) * full / 100;
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

static void note_move(struct index *index, struct segment *segment)
{
    segment->moved = ++index->n_moves;
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
    note_move(index, segment);
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

/* Deals the entries of a segment out to itself and `other` by the next bit of the hash, bucket by
 * bucket, from one on that no search comes to by passing a full one: then what is taken out of a
 * bucket finds its place there or before it. */
static void deal(const struct index *index, struct segment *segment, struct segment *other)
{
    struct segment *halves[2] = {segment, other};
    uint64_t first = 0;
    while (index_is_full(&segment->buckets[first]))
        first++;
    segment->used = 0;
    for (uint64_t i = 1; i <= (uint64_t)index->bucket_mask + 1; i++) {
        struct index_bucket *bucket = &segment->buckets[(first + i) & index->bucket_mask];
        struct index_bucket taken = *bucket;
        *bucket = (struct index_bucket){.ref = {0}};
        for (uint64_t j = 0; j < INDEX_BUCKET && taken.ref[j] != 0; j++) {
            struct index_entry entry = get(&taken, j);
            struct segment *to = halves[(entry.hash >> (63 - segment->depth)) & 1];
            set(to->buckets, index->bucket_mask, &entry);
            to->used++;
        }
    }
}

/* Splits the segment at place `at` of the directory: it keeps the lower half of its hashes. */
static bool split(struct index *index, uint64_t at)
{
    struct segment *segment = index->directory[at].segment;
    if (segment->depth == index->depth) {
        if (index->depth == INDEX_DEPTH_MAX || !double_directory(index))
            return false;
        at *= 2;
    }
    struct segment *other = segment_new(index, segment->depth + 1);
    if (other == NULL)
        return false;
    deal(index, segment, other);
    uint64_t places = segment_places(index, segment), first = at & ~(places - 1);
    for (uint64_t i = places / 2; i < places; i++)
        index->directory[first + i] = (struct index_place){other->buckets, other};
    segment->depth++;
    index->n_segments++;
    note_move(index, segment);
    note_move(index, other);
    return true;
}

/* Buckets of the only segment for n more entries: up to a full one. */
static uint32_t small_buckets(const struct index *index, uint64_t n)
{
    uint32_t buckets = index->bucket_mask + 1;
    while (buckets < FULL_BUCKETS && segment_part(buckets - 1, SMALL_FULL) < index->n_entries + n)
        buckets *= 2;
    return buckets;
}

static bool grow_small(struct index *index, uint64_t n)
{
    uint32_t buckets = small_buckets(index, n);
    return buckets == index->bucket_mask + 1 || resize(index, buckets);
}

/* In a small index the only segment grows. */
static bool is_full_size(const struct index *index)
{
    return index->bucket_mask + 1 == FULL_BUCKETS;
}

/* Whether n entries require one more split. */
static bool is_behind(const struct index *index, uint64_t n)
{
    uint64_t begin = segment_part(index->bucket_mask, AHEAD_BEGIN) << index->level;
    uint64_t end = segment_part(index->bucket_mask, AHEAD_END) << index->level;
    if (n <= begin || n <= index->n_reserved)
        return false;
    return n >= end || (n - begin) << index->level > index->n_split * (end - begin);
}

static void go_on_splitting(struct index *index)
{
    if (++index->n_split >> index->level != 0) {
        index->level++;
        index->n_split = 0;
    }
}

/* Splits ahead of n more entries. It may be left undone if there is no memory: split_overfull does
 * the necessary ones. */
static void split_ahead(struct index *index, uint64_t n)
{
    uint64_t left = 1 + n / AHEAD_KEYS;
    if (!is_full_size(index))
        return;
    for (; left > 0 && is_behind(index, index->n_entries + n); go_on_splitting(index)) {
        uint64_t at = (uint64_t)index->n_split << (index->depth - index->level);
        if (index->directory[at].segment->depth > index->level)
            continue;
        if (!split(index, at))
            return;
        left--;
    }
}

/* ---- how much that is ---- */

/* Splits ahead of n entries in all, of which `more` are new; as split_ahead makes them. */
static uint64_t splits_ahead(const struct index *index, uint64_t n, uint64_t more)
{
    uint64_t begin = segment_part(index->bucket_mask, AHEAD_BEGIN) << index->level;
    uint64_t end = segment_part(index->bucket_mask, AHEAD_END) << index->level;
    if (!is_behind(index, n))
        return 0;
    uint64_t due = n >= end ? UINT64_MAX : ((n - begin) << index->level) / (end - begin) + 1;
    uint64_t behind = due > index->n_split ? due - index->n_split : 0;
    return behind < 1 + more / AHEAD_KEYS ? behind : 1 + more / AHEAD_KEYS;
}

uint64_t index_growth(const struct index *index, uint64_t n)
{
    uint32_t buckets = index->depth == 0 ? small_buckets(index, n) : FULL_BUCKETS;
    uint64_t bytes = buckets > index->bucket_mask + 1 ? buckets * sizeof(struct index_bucket) : 0;
    if (n == 0 || buckets < FULL_BUCKETS)
        return n == 0 ? 0 : bytes;
    uint64_t all = index->n_entries + n, full = segment_part(FULL_BUCKETS - 1, FULL);
    uint64_t needed = (all + full - 1) / full, ahead = 0;
    if (is_full_size(index))
        ahead = splits_ahead(index, all, n);
    uint64_t segments = needed > index->n_segments ? needed - index->n_segments : 0;
    return bytes + (segments > ahead ? segments : ahead) * MEMORY_HUGE_PAGE;
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
    uint64_t limit = segment_part(index->bucket_mask, FULL);
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
    split_ahead(index, n);
    bool again = true;
    while (again) {
        count_pending(index, hashes, n);
        if (!split_overfull(index, &again))
            return false;
    }
    return true;
}

bool index_reserve_more(struct index *index, uint64_t n)
{
    if (index->depth == 0 && !grow_small(index, n))
        return false;
    uint64_t full = segment_part(index->bucket_mask, FULL);
    for (; is_full_size(index) && full * index->n_segments < index->n_entries + n;
         go_on_splitting(index)) {
        uint64_t at = (uint64_t)index->n_split << (index->depth - index->level);
        if (index->directory[at].segment->depth <= index->level && !split(index, at))
            return false;
    }
    return true;
}

bool index_reserve_count(struct index *index, uint64_t n)
{
    if (!grow_small(index, n))
        return false;
    index->n_reserved = n;
    while (is_full_size(index) && segment_part(index->bucket_mask, RESERVED) << index->depth < n) {
        uint64_t places = (uint64_t)1 << index->depth;
        for (uint64_t i = 0; i < places; i++)
            if (!split(index, 2 * i))
                return false;
        index->level++;
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
    note_move(index, segment);
    return true;
}

/* A segment is scanned at the first of its places; behind its last entry *at may point to the
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

uint64_t index_moved(const struct index *index, uint64_t hash)
{
    return index_place(index, hash)->segment->moved;
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
