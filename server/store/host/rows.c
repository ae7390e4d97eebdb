/* rows.c - see rows.h. */
#include "server/store/host/rows.h"

#include <string.h>

/* Large enough that the rounding to huge pages and the list of chunks cost nothing, small enough
 * that growing by one is cheap. */
#define CHUNK_BYTES  ((size_t)16 << 20)
#define FIRST_COMMIT ((size_t)64 << 10)
#define FIRST_CHUNKS 64u

/* More than half of CHUNK_BYTES, so always mapped, never from the heap: it can be committed bit by
 * bit. */
static size_t chunk_bytes(const struct rows *rows)
{
    return (size_t)rows->stride << rows->chunk_shift;
}

void rows_open(struct rows *rows, uint32_t stride)
{
    *rows = (struct rows){.stride = stride};
    while (chunk_bytes(rows) * 2 <= CHUNK_BYTES)
        rows->chunk_shift++;
}

void rows_close(struct rows *rows)
{
    for (uint64_t i = 0; i < rows->n_chunks; i++)
        memory_free(rows->chunks[i], chunk_bytes(rows));
    memory_free(rows->chunks, rows->chunks_capacity * sizeof *rows->chunks);
}

static bool reserve_chunk_list(struct rows *rows)
{
    if (rows->n_chunks < rows->chunks_capacity)
        return true;
    uint64_t capacity = rows->chunks_capacity ? 2 * rows->chunks_capacity : FIRST_CHUNKS;
    uint8_t **chunks = memory_new(capacity * sizeof *chunks);
    if (chunks == NULL)
        return false;
    if (rows->n_chunks)
        memcpy(chunks, rows->chunks, rows->n_chunks * sizeof *chunks);
    memory_free(rows->chunks, rows->chunks_capacity * sizeof *chunks);
    rows->chunks = chunks;
    rows->chunks_capacity = capacity;
    return true;
}

static bool add_chunk(struct rows *rows)
{
    if (!reserve_chunk_list(rows))
        return false;
    uint8_t *chunk = memory_reserve(chunk_bytes(rows));
    if (chunk == NULL)
        return false;
    rows->chunks[rows->n_chunks++] = chunk;
    return true;
}

/* More memory in the last chunk: the first chunk of a table doubles, so that small tables stay
 * small; later ones come whole. */
static bool commit_more(struct rows *rows)
{
    uint64_t before = (rows->n_chunks - 1) << rows->chunk_shift;
    size_t committed = (size_t)(rows->capacity - before) * rows->stride;
    size_t bytes = committed * 2 < FIRST_COMMIT ? FIRST_COMMIT : committed * 2;
    if (bytes > chunk_bytes(rows) || rows->n_chunks > 1)
        bytes = chunk_bytes(rows);
    if (!memory_commit(rows->chunks[rows->n_chunks - 1], bytes))
        return false;
    rows->capacity = before + bytes / rows->stride;
    return true;
}

bool rows_grow(struct rows *rows, uint64_t n)
{
    while (rows->capacity < n) { /* the free ones are among them */
        bool is_full = rows->capacity == rows->n_chunks << rows->chunk_shift;
        if (is_full && !add_chunk(rows))
            return false;
        if (!commit_more(rows))
            return false;
    }
    return true;
}

uint32_t rows_next_free(const struct rows *rows, uint32_t row)
{
    uint32_t next;
    memcpy(&next, rows_at(rows, row), sizeof next);
    return next;
}

uint32_t rows_take(struct rows *rows)
{
    if (rows->n_free == 0)
        return (uint32_t)rows->n++;
    uint32_t row = rows->first_free;
    rows->first_free = rows_next_free(rows, row);
    rows->n_free--;
    return row;
}

void rows_give_back(struct rows *rows, uint32_t row)
{
    memcpy(rows_at(rows, row), &rows->first_free, sizeof rows->first_free);
    rows->first_free = row;
    rows->n_free++;
}

/* ---- sets of rows ---- */

#define FIRST_SET_ROWS 4096u

static uint64_t set_bytes(uint64_t rows)
{
    return (rows + 63) / 64 * sizeof(uint64_t);
}

static bool set_grow(struct row_set *set, uint64_t n, bool keeps)
{
    if (n <= set->capacity)
        return true;
    uint64_t capacity = set->capacity ? set->capacity : FIRST_SET_ROWS;
    while (capacity < n)
        capacity *= 2;
    uint64_t *words = memory_new(set_bytes(capacity));
    if (words == NULL)
        return false;
    if (keeps && set->capacity > 0)
        memcpy(words, set->words, set_bytes(set->capacity));
    row_set_fini(set);
    *set = (struct row_set){.words = words, .capacity = capacity};
    return true;
}

bool row_set_reserve(struct row_set *set, uint64_t n)
{
    return set_grow(set, n, false);
}

bool row_set_grow(struct row_set *set, uint64_t n)
{
    return set_grow(set, n, true);
}

void row_set_clear(struct row_set *set, uint64_t n)
{
    if (n != 0)
        memset(set->words, 0, set_bytes(n));
}

void row_set_fini(struct row_set *set)
{
    memory_free(set->words, set_bytes(set->capacity));
    *set = (struct row_set){0};
}
