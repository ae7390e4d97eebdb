/* recent.c - see recent.h. Byte x of the segment is at x % RECENT_BYTES; the window says which are
 * there, and pins are counted by chunk. */
#include "server/journal/recent.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "server/journal/record.h"

#define CHUNK_BYTES (UINT64_C(1) << 20)
#define CHUNKS      (RECENT_BYTES / CHUNK_BYTES)
#define GAP_BYTES   RECORD_BLOCK_BYTES /* of zeros, up to the next block */

struct recent {
    atomic_bool keeps;
    atomic_uint_fast64_t bytes; /* of memory */
    pthread_mutex_t lock;
    /* Under the lock; the writer alone changes what follows, but for the pins and for memory that
     * nobody needs. */
    bool is_written; /* the writer puts bytes into the memory */
    bool has_gap;    /* it may have left out some, since nobody followed */
    uint8_t *memory; /* NULL: nothing is kept */
    uint64_t number, from, to;
    uint32_t pins[CHUNKS];
    uint32_t n_pins;
};

struct recent *recent_new(void)
{
    struct recent *recent = calloc(1, sizeof *recent);
    if (recent == NULL)
        return NULL;
    atomic_init(&recent->keeps, false);
    atomic_init(&recent->bytes, 0);
    pthread_mutex_init(&recent->lock, NULL);
    return recent;
}

void recent_free(struct recent *recent)
{
    if (recent == NULL)
        return;
    pthread_mutex_destroy(&recent->lock);
    free(recent->memory);
    free(recent);
}

static void forget(struct recent *recent)
{
    recent->number = recent->from = recent->to = 0;
}

/* Under the lock. Nobody follows, and nobody is at work with the memory. */
static void drop_unneeded(struct recent *recent)
{
    if (atomic_load(&recent->keeps) || recent->is_written || recent->n_pins > 0)
        return;
    free(recent->memory);
    recent->memory = NULL;
    atomic_store(&recent->bytes, 0);
    forget(recent);
}

void recent_keep(struct recent *recent, bool keeps)
{
    if (recent == NULL)
        return;
    atomic_store(&recent->keeps, keeps);
    if (keeps || recent_bytes(recent) == 0)
        return;
    pthread_mutex_lock(&recent->lock);
    recent->has_gap = true;
    drop_unneeded(recent);
    pthread_mutex_unlock(&recent->lock);
}

uint64_t recent_bytes(const struct recent *recent)
{
    return recent != NULL ? atomic_load(&recent->bytes) : 0;
}

/* ---- the writer ---- */

void recent_forget(struct recent *recent)
{
    if (recent == NULL)
        return;
    pthread_mutex_lock(&recent->lock);
    forget(recent);
    pthread_mutex_unlock(&recent->lock);
}

/* Whether there is memory to write to. */
static bool fit_memory(struct recent *recent)
{
    bool keeps = atomic_load(&recent->keeps);
    if (keeps && recent->memory == NULL) {
        recent->memory = malloc(RECENT_BYTES);
        atomic_store(&recent->bytes, recent->memory != NULL ? RECENT_BYTES : 0);
    }
    return keeps && recent->memory != NULL;
}

/* Whether a byte from that chunk on, up to `to`, lies where one is being read. */
static bool has_pins(const struct recent *recent, uint64_t chunk, uint64_t to)
{
    for (; chunk <= (to - 1) / CHUNK_BYTES; chunk++)
        if (recent->pins[chunk % CHUNKS] > 0)
            return true;
    return false;
}

/* Makes room for the bytes from `at` up to `to` by forgetting the oldest, or all where they do not
 * go on behind them. False: they cannot be kept. */
static bool make_room(struct recent *recent, uint64_t number, uint64_t at, uint64_t to)
{
    bool goes_on = recent->number == number && at >= recent->to && at - recent->to < GAP_BYTES;
    uint64_t begin = goes_on ? recent->to : at;
    uint64_t next_chunk = (begin + CHUNK_BYTES - 1) / CHUNK_BYTES;
    uint64_t behind = (to - 1) / CHUNK_BYTES * CHUNK_BYTES + CHUNK_BYTES;
    uint64_t first = behind > RECENT_BYTES ? behind - RECENT_BYTES : 0;
    bool is_read = goes_on ? has_pins(recent, next_chunk, to) : recent->n_pins > 0;
    if (is_read || to - begin > RECENT_BYTES / 2) {
        forget(recent);
        return false;
    }
    if (!goes_on)
        recent->from = begin;
    recent->from = recent->from > first ? recent->from : first;
    recent->to = begin;
    recent->number = number;
    return true;
}

static void put(struct recent *recent, uint64_t at, const uint8_t *bytes, uint64_t n)
{
    uint64_t place = at % RECENT_BYTES, rest = RECENT_BYTES - place, first = n < rest ? n : rest;
    if (bytes == NULL)
        memset(recent->memory + place, 0, first);
    else
        memcpy(recent->memory + place, bytes, first);
    if (n > first)
        put(recent, at + first, bytes == NULL ? NULL : bytes + first, n - first);
}

void recent_note(struct recent *recent, uint64_t number, uint64_t at, const uint8_t *bytes,
                 uint64_t n)
{
    if (recent == NULL || n == 0 || !atomic_load(&recent->keeps))
        return;
    pthread_mutex_lock(&recent->lock);
    if (recent->has_gap)
        forget(recent);
    recent->has_gap = false;
    bool keeps = fit_memory(recent) && make_room(recent, number, at, at + n);
    uint64_t to = recent->to;
    recent->is_written = keeps;
    pthread_mutex_unlock(&recent->lock);
    if (!keeps)
        return;
    put(recent, to, NULL, at - to);
    put(recent, at, bytes, n);
    pthread_mutex_lock(&recent->lock);
    recent->to = at + n;
    recent->is_written = false;
    drop_unneeded(recent);
    pthread_mutex_unlock(&recent->lock);
}

/* ---- readers ---- */

static void pin(struct recent *recent, uint64_t at, uint64_t n, bool is_pinned)
{
    for (uint64_t chunk = at / CHUNK_BYTES; chunk <= (at + n - 1) / CHUNK_BYTES; chunk++)
        recent->pins[chunk % CHUNKS] += is_pinned ? 1u : -1u;
    recent->n_pins += is_pinned ? 1u : -1u;
}

static void get(const struct recent *recent, uint64_t at, uint8_t *out, uint64_t n)
{
    uint64_t place = at % RECENT_BYTES, rest = RECENT_BYTES - place, first = n < rest ? n : rest;
    memcpy(out, recent->memory + place, first);
    memcpy(out + first, recent->memory, n - first);
}

bool recent_read(struct recent *recent, uint64_t number, uint64_t at, uint8_t *out, uint64_t n)
{
    if (recent == NULL)
        return false;
    pthread_mutex_lock(&recent->lock);
    bool is_here = recent->memory != NULL && recent->number == number && n > 0 &&
                   at >= recent->from && at < recent->to && n <= recent->to - at;
    if (is_here)
        pin(recent, at, n, true);
    pthread_mutex_unlock(&recent->lock);
    if (!is_here)
        return false;
    get(recent, at, out, n);
    pthread_mutex_lock(&recent->lock);
    pin(recent, at, n, false);
    drop_unneeded(recent);
    pthread_mutex_unlock(&recent->lock);
    return true;
}
