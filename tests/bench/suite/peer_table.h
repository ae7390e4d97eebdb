/* peer_table.h - the table of the peer: what finding keys and moving rows costs one thread, done
 * plainly. */
#ifndef EMBD_BENCH_PEER_TABLE_H
#define EMBD_BENCH_PEER_TABLE_H

#include <stddef.h>
#include <stdint.h>

struct peer_slot {
    uint64_t key;
    uint32_t row;
    uint32_t is_used;
};

struct peer_table {
    struct peer_slot *slots; /* [mask + 1] */
    uint64_t mask;
    float *rows; /* [n_rows][dim] */
    uint64_t n_rows;
    uint32_t dim;
};

/* Rows for workload_key(0 .. n_keys-1). 0, or -1: out of memory. */
int peer_table_open(struct peer_table *t, uint64_t n_keys, uint32_t dim);
void peer_table_close(struct peer_table *t);

/* All keys given below have rows. */

/* out[i] = row of keys[i] */
void peer_table_copy(const struct peer_table *t, const uint64_t *keys, uint64_t n, float *out);
/* out[r] = sum of the rows of keys[r * keys_per_row ..] */
void peer_table_sum(const struct peer_table *t, const uint64_t *keys, uint64_t n_rows,
                    uint32_t keys_per_row, float *out);
/* row of keys[i] += grads[i] */
void peer_table_add(struct peer_table *t, const uint64_t *keys, uint64_t n, const float *grads);

/* The row numbers of keys, and the gather that needs no finding. */
void peer_table_find(const struct peer_table *t, const uint64_t *keys, uint64_t n,
                     uint32_t *rows_out);
void peer_table_gather(const struct peer_table *t, const uint32_t *rows, uint64_t n, float *out);

#endif
