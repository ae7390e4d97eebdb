/* rows.h - the rows themselves, in chunks that never move.
 *
 * A row is one record: values of the table's dtype, padded to 4 bytes, then f32 state (schema.h),
 * then padding to 8 bytes. A chunk begins at a huge page, so records of a multiple of 64 bytes
 * are aligned to cache lines. There is no header: the index has the row of each key. Rows are
 * numbered from 0. A free row begins with the number of the row freed before it, and is the next
 * to be used. */
#ifndef EMBD_HOST_ROWS_H
#define EMBD_HOST_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/store/host/memory.h"

struct rows {
    uint8_t **chunks;
    uint64_t n_chunks, chunks_capacity;
    uint32_t stride;      /* bytes of a record */
    uint32_t chunk_shift; /* log2 of a chunk's rows */
    uint64_t n;           /* rows taken so far, those given back included */
    uint64_t n_free;      /* rows given back */
    uint32_t first_free;  /* the last of them */
    uint64_t capacity;    /* rows there is memory for */
};

void rows_open(struct rows *rows, uint32_t stride);
void rows_close(struct rows *rows);

bool rows_grow(struct rows *rows, uint64_t n);
/* Memory for n rows in use. Out of memory: false, and there is room for as many as before. */
static inline bool rows_reserve(struct rows *rows, uint64_t n)
{
    return n <= rows->capacity || rows_grow(rows, n);
}

static inline uint64_t rows_used(const struct rows *rows)
{
    return rows->n - rows->n_free;
}

/* A row there is memory for; its content is anything. */
uint32_t rows_take(struct rows *rows);
void rows_give_back(struct rows *rows, uint32_t row);
/* The free row after `row`, which is one; begin with first_free and go on n_free times. */
uint32_t rows_next_free(const struct rows *rows, uint32_t row);

static inline uint64_t rows_overhead_bytes(const struct rows *rows)
{
    return rows->chunks_capacity * sizeof *rows->chunks;
}

static inline uint8_t *rows_at(const struct rows *rows, uint32_t row)
{
    uint32_t mask = (1u << rows->chunk_shift) - 1;
    return rows->chunks[row >> rows->chunk_shift] + (size_t)(row & mask) * rows->stride;
}

/* Asks for every cache line of the first `bytes` of a record, into the second-level cache: lines on
 * their way to the first level take up its few miss buffers (measured: 62 ns for each row of 256
 * bytes that way, 31 this way). */
MEMORY_PREFETCH void rows_prefetch(const uint8_t *row, uint32_t bytes)
{
    const uint8_t *line = row - ((uintptr_t)row & 63);
    for (const uint8_t *end = row + bytes; line < end; line += 64)
        __builtin_prefetch(line, 0, 2);
}

/* ---- sets of rows ---- */

/* A bit for each row. */
struct row_set {
    uint64_t *words;
    uint64_t capacity; /* rows there is memory for, a multiple of 64 */
};

/* Memory for n rows. Out of memory: false, and as before. */
bool row_set_reserve(struct row_set *set, uint64_t n);
/* The same, keeping its rows. */
bool row_set_grow(struct row_set *set, uint64_t n);
/* Drops the first n rows. */
void row_set_clear(struct row_set *set, uint64_t n);
void row_set_fini(struct row_set *set);
static inline uint64_t row_set_bytes(const struct row_set *set)
{
    return (set->capacity + 63) / 64 * sizeof(uint64_t);
}

static inline void row_set_add(struct row_set *set, uint32_t row)
{
    set->words[row / 64] |= (uint64_t)1 << (row % 64);
}

static inline void row_set_drop(struct row_set *set, uint32_t row)
{
    set->words[row / 64] &= ~((uint64_t)1 << (row % 64));
}

static inline bool row_set_has(const struct row_set *set, uint64_t row)
{
    return set->words[row / 64] >> (row % 64) & 1;
}

#endif
