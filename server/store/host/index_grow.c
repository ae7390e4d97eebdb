/* index_grow.c - segments of the index: made, doubled while they are small, split in two when they
 * have their full size; and how many bytes that will be.
 *
 * Segments of full size stand in chunks of one huge page and stay where they are; smaller ones are
 * on the heap. What can fail is memory: then the index is as it was. */
#include "server/store/host/index_segment.h"

#include <math.h>

#define FIRST_BUCKETS 64u /* of all segments together: 4 KiB */
/* How full a segment is at most, in hundredths; and where there is no memory for a larger one. */
#define FULL         84u
#define MOST         90u
#define BLOCK_BYTES  ((uint64_t)INDEX_BUCKETS_MAX * sizeof(struct index_bucket))
#define CHUNK_BLOCKS (MEMORY_HUGE_PAGE / BLOCK_BYTES)

struct index_chunk {
    struct index_chunk *next;
    struct index_bucket *blocks; /* the last n_blocks_left of the first chunk are free */
};

/* The number of entries that fill the buckets to `full` hundredths. */
static uint64_t part(uint64_t n_buckets, uint32_t full)
{
    return n_buckets * INDEX_BUCKET * full / 100;
}

static uint64_t n_buckets_of(const struct segment *segment)
{
    return (uint64_t)segment->bucket_mask + 1;
}

/* ---- memory ---- */

static bool add_chunk(struct index *index)
{
    struct index_chunk *chunk = memory_new(sizeof *chunk);
    if (chunk == NULL)
        return false;
    chunk->blocks = memory_new(MEMORY_HUGE_PAGE);
    if (chunk->blocks == NULL) {
        memory_free(chunk, sizeof *chunk);
        return false;
    }
    chunk->next = index->chunks;
    index->chunks = chunk;
    index->n_blocks_left = CHUNK_BLOCKS;
    return true;
}

static void free_chunks(struct index *index)
{
    while (index->chunks != NULL) {
        struct index_chunk *chunk = index->chunks;
        index->chunks = chunk->next;
        memory_free(chunk->blocks, MEMORY_HUGE_PAGE);
        memory_free(chunk, sizeof *chunk);
    }
}

static struct index_bucket *buckets_new(struct index *index, uint64_t n)
{
    if (n < INDEX_BUCKETS_MAX)
        return memory_new(n * sizeof(struct index_bucket));
    if (index->n_blocks_left == 0 && !add_chunk(index))
        return NULL;
    uint64_t taken = CHUNK_BLOCKS - index->n_blocks_left--;
    return index->chunks->blocks + taken * INDEX_BUCKETS_MAX;
}

static void small_free(struct segment *segment)
{
    if (n_buckets_of(segment) < INDEX_BUCKETS_MAX)
        memory_free(segment->buckets, n_buckets_of(segment) * sizeof(struct index_bucket));
}

static struct segment *segment_new(struct index *index, uint64_t n_buckets)
{
    struct segment *segment = memory_new(sizeof *segment);
    if (segment == NULL)
        return NULL;
    segment->bucket_mask = (uint32_t)n_buckets - 1;
    segment->buckets = buckets_new(index, n_buckets);
    if (segment->buckets == NULL) {
        memory_free(segment, sizeof *segment);
        return NULL;
    }
    index->n_segments++;
    index->bucket_bytes += n_buckets * sizeof(struct index_bucket);
    return segment;
}

static void segment_free(struct segment *segment)
{
    small_free(segment);
    memory_free(segment, sizeof *segment);
}

/* ---- the directory ---- */

static bool directory_new(struct index *index, uint32_t depth)
{
    struct index_place *places = memory_new(sizeof *places << depth);
    struct segment **segments = memory_new(sizeof *segments << depth);
    if (places == NULL || segments == NULL) {
        memory_free(places, sizeof *places << depth);
        memory_free(segments, sizeof *segments << depth);
        return false;
    }
    index->places = places;
    index->segments = segments;
    index->depth = depth;
    index->shift = 64 - depth;
    return true;
}

static void directory_free(struct index *index)
{
    memory_free(index->places, sizeof *index->places << index->depth);
    memory_free(index->segments, sizeof *index->segments << index->depth);
}

static bool double_directory(struct index *index)
{
    struct index before = *index;
    if (!directory_new(index, before.depth + 1))
        return false;
    for (uint64_t i = 0; i < (uint64_t)2 << before.depth; i++) {
        index->places[i] = before.places[i / 2];
        index->segments[i] = before.segments[i / 2];
    }
    directory_free(&before);
    return true;
}

/* In n places from `at` on. */
static void set_places(struct index *index, uint64_t at, uint64_t n, struct segment *segment)
{
    const struct index_place place = {.buckets = (const char *)segment->buckets,
                                      .byte_mask = (uint64_t)segment->bucket_mask *
                                                   sizeof(struct index_bucket)};
    for (uint64_t i = at; i < at + n; i++) {
        index->places[i] = place;
        index->segments[i] = segment;
    }
}

static uint64_t first_place(const struct index *index, const struct segment *segment, uint64_t at)
{
    return at & ~(index_segment_places(index, segment) - 1);
}

/* The first of the hashes that have a place, or a later one. */
static uint64_t first_hash(uint64_t place, uint32_t depth)
{
    uint64_t address = place << (64 - depth), from = 0, to = (1u << 30) - 1;
    while (from < to) {
        uint64_t middle = from + (to - from) / 2;
        if (index_address_first(middle << 34) < address)
            from = middle + 1;
        else
            to = middle;
    }
    return from << 34;
}

/* ---- its life ---- */

void index_close(struct index *index)
{
    if (index->places == NULL)
        return;
    for (uint64_t i = 0; i < (uint64_t)1 << index->depth && index->segments[i] != NULL;) {
        struct segment *segment = index->segments[i];
        i += index_segment_places(index, segment);
        segment_free(segment);
    }
    free_chunks(index);
    directory_free(index);
    index->places = NULL;
}

bool index_open(struct index *index, bool has_slots)
{
    const uint32_t depth = INDEX_DEPTH_MIN;
    *index = (struct index){.has_slots = has_slots};
    if (!directory_new(index, depth))
        return false;
    for (uint64_t i = 0; i < (uint64_t)1 << depth; i++) {
        struct segment *segment = segment_new(index, FIRST_BUCKETS >> depth);
        if (segment == NULL) {
            index_close(index);
            return false;
        }
        segment->depth = depth;
        segment->first = first_hash(i, depth);
        set_places(index, i, 1, segment);
    }
    return true;
}

/* ---- one segment grows ---- */

/* A small one gets that many buckets. */
static bool resize(struct index *index, uint64_t at, uint64_t n_buckets)
{
    struct segment *segment = index->segments[at];
    struct index_bucket *buckets = buckets_new(index, n_buckets);
    if (buckets == NULL)
        return false;
    for (uint64_t j = 0; j < n_buckets_of(segment); j++) {
        const struct index_bucket *b = &segment->buckets[j];
        for (unsigned i = 0; i < INDEX_BUCKET && b->ref[i] != 0; i++) {
            const struct index_cell cell = index_cell_at(b, i);
            index_cell_put(buckets, n_buckets - 1, index_cell_home(index, &cell), &cell);
        }
    }
    index->bucket_bytes += (n_buckets - n_buckets_of(segment)) * sizeof *buckets;
    small_free(segment);
    segment->buckets = buckets;
    segment->bucket_mask = (uint32_t)n_buckets - 1;
    set_places(index, first_place(index, segment, at), index_segment_places(index, segment),
               segment);
    index_note_move(index, segment);
    return true;
}

/* Deals the entries of a bucket out to its segment and `other`. */
static void deal_bucket(const struct index *index, struct segment *segment, struct segment *other,
                        struct index_bucket *bucket)
{
    struct index_bucket taken = *bucket;
    *bucket = (struct index_bucket){.ref = {0}};
    for (unsigned i = 0; i < INDEX_BUCKET && taken.ref[i] != 0; i++) {
        uint64_t hash = index_entry_hash(index, segment, &taken, i);
        struct segment *to = hash < other->first ? segment : other;
        const struct index_cell cell = index_cell_at(&taken, i);
        index_cell_put(to->buckets, to->bucket_mask, index_home(hash), &cell);
        to->used++;
    }
}

/* Bucket by bucket, from one on that no search comes to by passing a full one: then what is taken
 * out of a bucket finds its place there or before it. */
static void deal(const struct index *index, struct segment *segment, struct segment *other)
{
    uint64_t first = 0;
    while (index_is_full(&segment->buckets[first]))
        first++;
    segment->used = 0;
    for (uint64_t i = 1; i <= n_buckets_of(segment); i++)
        deal_bucket(index, segment, other, &segment->buckets[(first + i) & segment->bucket_mask]);
}

/* Splits the segment at a place: it keeps the lower half of its addresses. */
static bool split(struct index *index, uint64_t at)
{
    struct segment *segment = index->segments[at];
    if (segment->depth == index->depth) {
        if (index->depth == INDEX_DEPTH_MAX || !double_directory(index))
            return false;
        at *= 2;
    }
    struct segment *other = segment_new(index, n_buckets_of(segment));
    if (other == NULL)
        return false;
    uint64_t places = index_segment_places(index, segment) / 2;
    uint64_t middle = first_place(index, segment, at) + places;
    other->depth = segment->depth + 1;
    other->first = first_hash(middle / places, other->depth);
    deal(index, segment, other);
    segment->depth++;
    set_places(index, middle, places, other);
    index_note_move(index, segment);
    index_note_move(index, other);
    return true;
}

/* Buckets of a segment that is to have n entries: up to a full one. */
static uint64_t buckets_for(uint64_t n_buckets, uint64_t n)
{
    while (n_buckets < INDEX_BUCKETS_MAX && part(n_buckets, FULL) < n)
        n_buckets *= 2;
    return n_buckets;
}

static bool has_room(const struct segment *segment, uint64_t n, uint32_t full)
{
    return segment->used + n <= part(n_buckets_of(segment), full);
}

/* One step towards room for n more in the segment at a place. Without memory it may do without. */
static bool grow(struct index *index, uint64_t at, uint64_t n)
{
    struct segment *segment = index->segments[at];
    uint64_t before = n_buckets_of(segment), after = buckets_for(before, segment->used + n);
    if (after > before ? resize(index, at, after) : split(index, at))
        return true;
    index->n_sure = 0;
    return false;
}

/* ---- keys that are known ---- */

/* Makes room for what is pending in the segment of a hash. *again_out: it may need more. */
static bool make_room(struct index *index, uint64_t hash, bool *again_out)
{
    struct segment *segment = index_segment_of(index, hash);
    uint64_t n = segment->pending;
    segment->pending = 0;
    if (has_room(segment, n, FULL))
        return true;
    if (!grow(index, index_address_first(hash) >> index->shift, n))
        return has_room(segment, n, MOST);
    *again_out |= !has_room(index_segment_of(index, segment->first), n, FULL);
    *again_out |= !has_room(index_segment_of(index, hash), n, FULL);
    return true;
}

bool index_reserve(struct index *index, const uint64_t *hashes, size_t n)
{
    bool again = true, is_done = true;
    while (again && is_done) {
        again = false;
        for (size_t i = 0; i < n; i++)
            index_segment_of(index, hashes[i])->pending++;
        for (size_t i = 0; i < n; i++) /* all of them: none stays pending */
            is_done &= make_room(index, hashes[i], &again);
    }
    return is_done;
}

/* ---- keys that are not ---- */

/* Of n new keys so many fall into the segment at a place in the mean. */
static double mean_share(const struct index *index, uint64_t at, uint64_t n)
{
    const struct segment *segment = index->segments[at];
    uint64_t behind = at + index_segment_places(index, segment);
    double end = behind >> index->depth ? 0x1p64 : (double)index->segments[behind]->first;
    return (double)n * (end - (double)segment->first) * 0x1p-64;
}

/* More fall there once in 30,000 times. */
static uint64_t most_share(double mean, uint64_t n)
{
    double most = mean + 4 * sqrt(mean) + 1;
    return most < (double)n ? (uint64_t)most : n;
}

/* The number of new keys whose most_share is no more than each segment's room beyond FULL. */
static uint64_t sure(uint64_t fewest_buckets, double largest)
{
    double room = (double)(part(fewest_buckets, MOST) - part(fewest_buckets, FULL));
    double root = sqrt(room + 3) - 2;
    return room < 2 ? 0 : (uint64_t)(root * root / largest);
}

/* The result of a walk over all segments. */
struct found {
    uint64_t fewest; /* buckets of one */
    double largest;  /* part of all hashes that one has */
    bool is_short;   /* there was no memory for one, which does with what it has */
};

/* Makes room for n times its part in the segment at a place; or it is split and is to be looked at
 * again: then *places_out is 0. */
static bool make_share(struct index *index, uint64_t at, uint64_t n, struct found *found,
                       uint64_t *places_out)
{
    const struct segment *segment = index->segments[at];
    double part_of_all = mean_share(index, at, 1);
    uint64_t room = most_share(part_of_all * (double)n, n);
    bool has = has_room(segment, room, FULL);
    *places_out = 0;
    if (!has && grow(index, at, room))
        return true;
    *places_out = index_segment_places(index, segment);
    found->is_short |= !has;
    if (n_buckets_of(segment) < found->fewest)
        found->fewest = n_buckets_of(segment);
    if (part_of_all > found->largest)
        found->largest = part_of_all;
    return has_room(segment, room, MOST);
}

bool index_grow_more(struct index *index, uint64_t n)
{
    struct found found = {.fewest = INDEX_BUCKETS_MAX};
    for (uint64_t at = 0, places; at < (uint64_t)1 << index->depth; at += places) {
        uint32_t depth = index->depth;
        if (!make_share(index, at, n, &found, &places))
            return false;
        at <<= index->depth - depth;
    }
    if (!found.is_short)
        index->n_sure = sure(found.fewest, found.largest);
    return true;
}

/* ---- how much that is ---- */

/* Growth to come. */
struct growth {
    uint64_t n;      /* keys */
    uint64_t bytes;  /* of segments */
    uint64_t copied; /* beside so many, which then go */
    uint32_t depth;  /* of the directory */
};

/* Of the segment at a place. */
static void add_growth(const struct index *index, uint64_t at, struct growth *g)
{
    const struct segment *segment = index->segments[at];
    double mean = mean_share(index, at, g->n);
    uint64_t before = n_buckets_of(segment), used = segment->used;
    uint64_t after = buckets_for(before, used + most_share(mean, g->n));
    uint32_t halvings = 0;
    while (used + most_share(mean, g->n) > part(after, FULL)) {
        used = used / 2 + used / 50;
        mean /= 2;
        halvings++;
    }
    if (after > before && before * sizeof(struct index_bucket) > g->copied)
        g->copied = before * sizeof(struct index_bucket);
    if (segment->depth + halvings > g->depth)
        g->depth = segment->depth + halvings;
    g->bytes += (after - before) * sizeof(struct index_bucket);
    g->bytes += (((uint64_t)1 << halvings) - 1) * (BLOCK_BYTES + sizeof *segment);
}

uint64_t index_growth(const struct index *index, uint64_t n)
{
    uint64_t place = sizeof *index->places + sizeof *index->segments;
    struct growth g = {.n = n, .depth = index->depth};
    for (uint64_t at = 0; n > 0 && at < (uint64_t)1 << index->depth;
         at += index_segment_places(index, index->segments[at]))
        add_growth(index, at, &g);
    if (g.depth > index->depth)
        g.bytes += (place << g.depth) + (place << (g.depth - 1));
    return g.bytes + g.copied;
}
