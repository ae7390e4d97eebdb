/* eviction_queue.c - the rows to evict next, found before room runs out: see evict.h. */
#include <string.h>

#include "server/store/host/memory.h"
#include "server/store/host/table.h"

/* ---- going through the rows ---- */

MEMORY_PREFETCH void prefetch_use(const struct store *store, uint32_t row)
{
    __builtin_prefetch(row_use_at(store, row), 0, 2);
}

/* How many buckets ahead their memory is prefetched. */
#define AHEAD_BUCKETS 8u

MEMORY_PREFETCH void prefetch_uses(const struct store *store, const struct index_bucket *bucket)
{
    for (unsigned i = 0; i < INDEX_BUCKET; i++)
        if (index_has_row(bucket->ref[i]))
            prefetch_use(store, bucket->ref[i] - 1);
}

/* Those of buckets from .. end of a segment. */
static void visit_buckets(struct store *store, const struct segment *segment, uint64_t from,
                          uint64_t end, row_visit *visit, void *arg)
{
    for (uint64_t at = from; at < end; at++) {
        const struct index_bucket *b = &segment->buckets[at];
        if (at + 2 * AHEAD_BUCKETS < end)
            __builtin_prefetch(b + 2 * AHEAD_BUCKETS, 0, 2);
        if (at + AHEAD_BUCKETS < end)
            prefetch_uses(store, b + AHEAD_BUCKETS);
        for (unsigned i = 0; i < INDEX_BUCKET && b->ref[i] != 0; i++) {
            struct index_entry entry = index_entry_of(&store->index, segment, b, i);
            if (index_has_row(entry.ref))
                visit(store, &entry, arg);
        }
    }
}

uint64_t eviction_queue_visit(struct store *store, uint64_t address, row_visit *visit, void *arg)
{
    uint64_t next;
    const struct segment *segment = index_segment(&store->index, address, &next);
    visit_buckets(store, segment, 0, (uint64_t)segment->bucket_mask + 1, visit, arg);
    return next;
}

bool eviction_queue_visit_some(struct store *store, struct visit_place *place, uint64_t n_buckets,
                               row_visit *visit, void *arg)
{
    uint64_t next;
    const struct segment *segment = index_segment(&store->index, place->address, &next);
    uint64_t n = (uint64_t)segment->bucket_mask + 1, left = n - place->bucket;
    uint64_t end = place->bucket + (left < n_buckets ? left : n_buckets);
    visit_buckets(store, segment, place->bucket, end, visit, arg);
    place->bucket = end < n ? end : 0;
    if (end < n)
        return true;
    place->address = next;
    return next != 0;
}

/* ---- the queue ---- */

#define FEWEST 4u /* halves of a pass */
#define MOST   8u
#define SPARE  4096u

static uint64_t most_of(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t less(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

static uint64_t a_pass(const struct store *store)
{
    return store->schema->s.capacity / USE_PASS_PART;
}

void eviction_queue_drop(struct store *store)
{
    struct eviction_queue *queue = &store->queue;
    memory_free(queue->rows, queue->capacity * sizeof *queue->rows);
    row_set_fini(&queue->has);
    *queue = (struct eviction_queue){.halves = queue->halves};
}

static void lengthen(struct eviction_queue *queue)
{
    uint64_t halves = most_of(queue->halves, FEWEST) * 2;
    queue->halves = (uint32_t)(halves < MOST ? halves : MOST);
}

void eviction_queue_was_short(struct store *store)
{
    lengthen(&store->queue);
    eviction_queue_drop(store);
}

/* The true entries alone, one for each row in the queue. */
static void tidy(struct eviction_queue *queue)
{
    uint64_t begin = queue->n;
    for (uint64_t i = queue->n; i-- > 0;)
        if (row_set_has(&queue->has, queue->rows[i].row)) {
            row_set_drop(&queue->has, queue->rows[i].row);
            queue->rows[--begin] = queue->rows[i];
        }
    queue->n -= begin;
    if (begin > 0)
        memmove(queue->rows, queue->rows + begin, queue->n * sizeof *queue->rows);
    for (uint64_t i = 0; i < queue->n; i++)
        row_set_add(&queue->has, queue->rows[i].row);
}

static bool is_within(const struct queue_bound *bound, const struct victim *row)
{
    if (bound->is_all)
        return true;
    if (row->count != bound->rank.count)
        return row->count < bound->rank.count;
    if (row->stamp != bound->rank.stamp)
        return row->stamp < bound->rank.stamp;
    struct use_rank rank = victim_rank(row);
    return !use_goes_first(&bound->rank, &rank);
}

/* Adds a row that is not in the queue. If there is no room for it, or so little that the queue
 * would be cleaned up again and again, the queue is dropped. */
static void add(struct store *store, const struct victim *row)
{
    struct eviction_queue *queue = &store->queue;
    if (queue->n == queue->capacity) {
        tidy(queue);
        if (queue->n > queue->capacity / 16 * 15) {
            eviction_queue_drop(store);
            return;
        }
    }
    row_set_add(&queue->has, row->row);
    queue->rows[queue->n++] = *row;
    queue->n_queued++;
    queue->n_sure += queue->is_ready && is_within(&queue->bound, row);
}

/* It may have been above the bound: the number of sure rows does not decrease. */
static void take_off(struct eviction_queue *queue, uint32_t row)
{
    row_set_drop(&queue->has, row);
    queue->n_queued--;
    queue->n_sure = less(queue->n_sure, 1);
}

/* ---- filling it ---- */

static void add_to_sample(struct store *store, const struct index_entry *entry, void *arg)
{
    struct victim row = victim_of(entry, row_use_of(store, entry->ref - 1));
    if (!pending_has(&store->pending, row.row))
        victims_add(arg, &row);
}

static void add_if_low(struct store *store, const struct index_entry *entry, void *arg)
{
    (void)arg;
    struct eviction_queue *queue = &store->queue;
    if (!queue->is_on || row_set_has(&queue->has, entry->ref - 1))
        return;
    struct victim row = victim_of(entry, row_use_of(store, entry->ref - 1));
    if (is_within(&queue->next, &row) && !pending_has(&store->pending, row.row))
        add(store, &row);
}

static void read_on(struct store *store, row_visit *visit, void *arg)
{
    struct eviction_queue *queue = &store->queue;
    uint64_t next = eviction_queue_visit(store, queue->read_to, visit, arg);
    if (!queue->is_on) /* there were too many */
        return;
    queue->read_to = next;
    if (next != 0)
        return;
    queue->is_filling = false;
    queue->is_ready = true;
    queue->bound = queue->next;
    queue->n_sure = queue->n_queued;
}

/* The length of the queue for a pass that takes this many rows. */
static uint64_t wanted(const struct eviction_queue *queue, uint64_t n_pass)
{
    return n_pass * most_of(queue->halves, FEWEST) / 2;
}

#define SAMPLE 65536u

/* The first segments of the index, with so many entries: returns the address behind them. */
static uint64_t sample_end(const struct store *store, uint64_t *n_out)
{
    uint64_t at = 0;
    *n_out = 0;
    do
        *n_out += index_segment(&store->index, at, &at)->used;
    while (at != 0 && *n_out < SAMPLE);
    return at;
}

/* Up to which rank: of a sample the lowest, as many as it has of those that are wanted. */
static bool aim(struct store *store, uint64_t n_wanted)
{
    struct eviction_queue *queue = &store->queue;
    uint64_t n, at = 0, end = sample_end(store, &n), all = most_of(store->index.n_entries, 1);
    struct victims sample;
    if (!victims_open(&sample, n_wanted * n / all + 1, most_of(n, 1)))
        return false;
    do
        at = eviction_queue_visit(store, at, add_to_sample, &sample);
    while (at != end);
    victims_finish(&sample);
    queue->next = (struct queue_bound){.is_all = !sample.is_cut};
    if (sample.is_cut) {
        const struct victim *last = &sample.list[sample.most - 1];
        queue->next.rank = victim_rank(last);
        if (queue->is_ready && is_within(&queue->bound, last))
            queue->next = queue->bound;
    }
    victims_close(&sample);
    return true;
}

/* Rows that every pass must find, and what one request may take off before more is filled. */
static uint64_t needed(const struct store *store)
{
    return a_pass(store) + 2 * store->queue.n_keys;
}

static void begin_filling(struct store *store, uint64_t spared)
{
    struct eviction_queue *queue = &store->queue;
    queue->is_on = queue->is_filling = true;
    queue->read_to = 0;
    queue->spared = spared;
    read_on(store, add_if_low, NULL);
}

/* There is memory for the longest queue, for rows that the sample did not predict, and for new
 * ones; pages that are not written take none. */
static bool begin(struct store *store, uint64_t n_pass)
{
    struct eviction_queue *queue = &store->queue;
    uint64_t n_wanted = wanted(queue, n_pass), rows = rows_used(&store->rows);
    uint64_t capacity = n_pass * MOST / 2 / 4 * 5;
    queue->capacity = (capacity < rows ? capacity : rows) + n_pass + SPARE;
    queue->rows = memory_new(queue->capacity * sizeof *queue->rows);
    if (queue->rows != NULL && row_set_reserve(&queue->has, host_row_numbers(store)) &&
        aim(store, n_wanted)) {
        begin_filling(store, less(n_wanted, needed(store)) / 2);
        return queue->is_on;
    }
    eviction_queue_drop(store);
    return false;
}

/* Whether a pass finds all it needs up to the bound. */
static bool is_enough(const struct store *store)
{
    return store->queue.is_ready && store->queue.n_sure >= needed(store);
}

/* Up to a higher rank. Without memory it stays as it is. */
static void begin_further(struct store *store)
{
    struct eviction_queue *queue = &store->queue;
    lengthen(queue);
    uint64_t n_wanted = wanted(queue, a_pass(store));
    uint64_t now = less(queue->n_sure, needed(store)), then = less(n_wanted, needed(store)) / 2;
    if (aim(store, n_wanted))
        begin_filling(store, is_enough(store) && now < then ? now : then);
}

static bool read_up_to(struct store *store, uint64_t address)
{
    struct eviction_queue *queue = &store->queue;
    while (queue->is_on && queue->is_filling && queue->read_to < address)
        read_on(store, add_if_low, NULL);
    return queue->is_on;
}

/* Half of the rows that can be spared were taken off; where these are few, to draw further would
 * cost more than it saves. */
static bool is_short(const struct store *store)
{
    const struct eviction_queue *queue = &store->queue;
    uint64_t spare = less(wanted(queue, a_pass(store)), needed(store));
    return !queue->bound.is_all && spare >= a_pass(store) / 4 &&
           queue->n_sure < needed(store) + spare / 2;
}

/* The number of requests like this one until the filling must be complete: they find room, and rows
 * to remove. */
static uint64_t requests_left(const struct store *store, uint32_t n_new, uint64_t n_off)
{
    const struct eviction_queue *queue = &store->queue;
    uint64_t n = UINT64_MAX;
    if (!is_enough(store) && n_new > 0)
        n = 1 + host_room(store) / n_new;
    if (n_off > 0 && 1 + queue->spared / n_off < n)
        n = 1 + queue->spared / n_off;
    return n;
}

void eviction_queue_go_on(struct store *store, uint32_t n_new, uint32_t n_keys)
{
    struct eviction_queue *queue = &store->queue;
    uint64_t n_off = queue->n_off, n;
    queue->n_off = 0;
    queue->n_keys = most_of(queue->n_keys, n_keys);
    if (!queue->is_on && (n_new == 0 || host_room(store) >= a_pass(store) ||
                          !begin(store, most_of(a_pass(store), n_new))))
        return;
    if (queue->is_ready && !queue->is_filling && n_off > 0 && is_short(store))
        begin_further(store);
    if (!queue->is_filling || (n = requests_left(store, n_new, n_off)) == UINT64_MAX)
        return;
    queue->spared = less(queue->spared, n_off);
    read_up_to(store, queue->read_to + (UINT64_MAX - queue->read_to) / n);
}

bool eviction_queue_prepare(struct store *store, uint64_t most)
{
    struct eviction_queue *queue = &store->queue;
    if (!queue->is_on && !begin(store, most))
        return false;
    if (!queue->is_ready && !read_up_to(store, UINT64_MAX))
        return false;
    tidy(queue);
    return true;
}

bool eviction_queue_prepare_further(struct store *store)
{
    struct eviction_queue *queue = &store->queue;
    if (!queue->is_filling || !read_up_to(store, UINT64_MAX))
        return false;
    tidy(queue);
    return true;
}

/* ---- what changes ---- */

/* Whether the queue has rows like this one, as far as it is filled. */
static bool has_such(const struct eviction_queue *queue, const struct victim *row)
{
    return (queue->is_ready && is_within(&queue->bound, row)) ||
           (queue->is_filling && index_address(row->hash) < queue->read_to &&
            is_within(&queue->next, row));
}

static void add_such(struct store *store, const struct index_entry *entry)
{
    struct victim row = victim_of(entry, row_use_of(store, entry->ref - 1));
    if (has_such(&store->queue, &row))
        add(store, &row);
}

void eviction_queue_note_new(struct store *store, const struct index_entry *entry)
{
    if (store->queue.is_on)
        add_such(store, entry);
}

void eviction_queue_before_use(struct store *store, const struct index_entry *entry)
{
    struct eviction_queue *queue = &store->queue;
    if (!queue->is_filling || index_address(entry->hash) < queue->read_to ||
        row_set_has(&queue->has, entry->ref - 1))
        return;
    struct victim row = victim_of(entry, row_use_of(store, entry->ref - 1));
    queue->n_off += is_within(&queue->next, &row);
}

void eviction_queue_note_use(struct store *store, const struct index_entry *entry)
{
    struct eviction_queue *queue = &store->queue;
    uint32_t row = entry->ref - 1;
    bool was_queued = row_set_has(&queue->has, row);
    if (!was_queued && !store->use_rule.scores) /* its rank has not fallen */
        return;
    if (was_queued)
        take_off(queue, row);
    add_such(store, entry);
    queue->n_off += was_queued && queue->is_on && !row_set_has(&queue->has, row);
}

void eviction_queue_note_gone(struct store *store, uint32_t row)
{
    struct eviction_queue *queue = &store->queue;
    if (!row_set_has(&queue->has, row))
        return;
    take_off(queue, row);
    queue->n_off++;
}

void eviction_queue_cut(struct store *store, uint64_t n)
{
    struct eviction_queue *queue = &store->queue;
    if (!queue->is_filling && queue->n < n + needed(store)) {
        eviction_queue_drop(store);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        take_off(queue, queue->rows[i].row);
    queue->n -= n;
    memmove(queue->rows, queue->rows + n, queue->n * sizeof *queue->rows);
}
