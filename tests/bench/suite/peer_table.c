/* peer_table.c - open addressing, linear probing, at most two thirds full; rows in one array.
 *
 * This is the ceiling that embd's store is held against, so it does what a careful page of C does
 * and nothing else: keys are taken in groups, each group's slots are prefetched, then its rows,
 * then the rows are used. It does not grow, delete, route, or know an absent key. Keys are
 * scattered already, so their low bits are the hash. */
#include "tests/bench/suite/peer_table.h"

#include "client/bench/pages.h"
#include "client/bench/workload.h"

#include <string.h>

#define GROUP      64u /* keys whose misses are in flight together */
#define LINE_BYTES 64u
#define AHEAD      24u /* rows prefetched before the one copied, in the gather without finding */

static size_t row_bytes(const struct peer_table *t)
{
    return (size_t)t->dim * sizeof(float);
}

static void insert(struct peer_table *t, uint64_t key, uint32_t row)
{
    uint64_t p = key & t->mask;
    while (t->slots[p].is_used)
        p = (p + 1) & t->mask;
    t->slots[p] = (struct peer_slot){key, row, 1};
}

int peer_table_open(struct peer_table *t, uint64_t n_keys, uint32_t dim)
{
    uint64_t slots = GROUP;
    while (slots < n_keys + n_keys / 2)
        slots *= 2;
    *t = (struct peer_table){.mask = slots - 1, .n_rows = n_keys, .dim = dim};
    t->slots = pages_new(slots * sizeof *t->slots);
    t->rows = pages_new(n_keys * row_bytes(t));
    if (!t->slots || !t->rows) {
        peer_table_close(t);
        return -1;
    }
    for (uint64_t rank = 0; rank < n_keys; rank++) {
        insert(t, workload_key(rank), (uint32_t)rank);
        t->rows[rank * dim] = (float)(rank & 0xffff);
    }
    return 0;
}

void peer_table_close(struct peer_table *t)
{
    pages_free(t->slots, (t->mask + 1) * sizeof *t->slots);
    pages_free(t->rows, t->n_rows * row_bytes(t));
    *t = (struct peer_table){0};
}

static void prefetch_row(const float *row, size_t bytes)
{
    for (size_t b = 0; b < bytes; b += LINE_BYTES)
        __builtin_prefetch((const char *)row + b);
}

static uint32_t find(const struct peer_table *t, uint64_t key)
{
    uint64_t p = key & t->mask;
    while (t->slots[p].key != key && t->slots[p].is_used)
        p = (p + 1) & t->mask;
    return t->slots[p].row;
}

/* The rows of a group, on their way into the cache. n <= GROUP */
static void find_group(const struct peer_table *t, const uint64_t *keys, uint32_t n,
                       float *rows[GROUP])
{
    for (uint32_t i = 0; i < n; i++)
        __builtin_prefetch(&t->slots[keys[i] & t->mask]);
    for (uint32_t i = 0; i < n; i++) {
        rows[i] = t->rows + (size_t)find(t, keys[i]) * t->dim;
        prefetch_row(rows[i], row_bytes(t));
    }
}

static uint32_t group_size(uint64_t left)
{
    return left < GROUP ? (uint32_t)left : GROUP;
}

void peer_table_copy(const struct peer_table *t, const uint64_t *keys, uint64_t n, float *out)
{
    float *rows[GROUP];
    for (uint64_t at = 0; at < n; at += GROUP) {
        uint32_t count = group_size(n - at);
        find_group(t, keys + at, count, rows);
        for (uint32_t i = 0; i < count; i++)
            memcpy(out + (at + i) * t->dim, rows[i], row_bytes(t));
    }
}

static void add_row(float *restrict to, const float *restrict from, uint32_t dim)
{
    for (uint32_t c = 0; c < dim; c++)
        to[c] += from[c];
}

void peer_table_sum(const struct peer_table *t, const uint64_t *keys, uint64_t n_rows,
                    uint32_t keys_per_row, float *out)
{
    float *rows[GROUP];
    uint64_t n = n_rows * keys_per_row;
    uint32_t in_row = 0; /* keys of the output row that were added so far */
    for (uint64_t at = 0; at < n; at += GROUP) {
        uint32_t count = group_size(n - at);
        find_group(t, keys + at, count, rows);
        for (uint32_t i = 0; i < count; i++) {
            if (in_row == 0)
                memcpy(out, rows[i], row_bytes(t));
            else
                add_row(out, rows[i], t->dim);
            if (++in_row == keys_per_row) {
                in_row = 0;
                out += t->dim;
            }
        }
    }
}

void peer_table_add(struct peer_table *t, const uint64_t *keys, uint64_t n, const float *grads)
{
    float *rows[GROUP];
    for (uint64_t at = 0; at < n; at += GROUP) {
        uint32_t count = group_size(n - at);
        find_group(t, keys + at, count, rows);
        for (uint32_t i = 0; i < count; i++)
            add_row(rows[i], grads + (at + i) * t->dim, t->dim);
    }
}

void peer_table_find(const struct peer_table *t, const uint64_t *keys, uint64_t n,
                     uint32_t *rows_out)
{
    for (uint64_t i = 0; i < n; i++)
        rows_out[i] = find(t, keys[i]);
}

void peer_table_gather(const struct peer_table *t, const uint32_t *rows, uint64_t n, float *out)
{
    for (uint64_t i = 0; i < n; i++) {
        if (i + AHEAD < n)
            prefetch_row(t->rows + (size_t)rows[i + AHEAD] * t->dim, row_bytes(t));
        memcpy(out + i * t->dim, t->rows + (size_t)rows[i] * t->dim, row_bytes(t));
    }
}
