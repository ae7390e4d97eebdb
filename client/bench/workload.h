/* workload.h - the requested keys: the same batches for embd and for every peer that it is compared
 * with. */
#ifndef EMBD_BENCH_WORKLOAD_H
#define EMBD_BENCH_WORKLOAD_H

#include <stdint.h>

#define WORKLOAD_BATCHES          16u /* made beforehand and replayed in turn */
#define WORKLOAD_KEYS_PER_ROW_MAX 1024u

enum workload_mix { MIX_PULL, MIX_POOLED, MIX_PUSH, MIX_TRAIN };

struct workload_spec {
    uint64_t table_keys;   /* rows of the table */
    uint32_t dim;          /* columns of a row */
    uint32_t batch;        /* keys of a request; a multiple of keys_per_row */
    uint32_t keys_per_row; /* 1 but for MIX_POOLED */
    double zipf;           /* exponent; 0: uniform */
    enum workload_mix mix;
};

struct workload {
    struct workload_spec spec;
    uint64_t *keys;    /* [WORKLOAD_BATCHES][batch] */
    uint64_t *offsets; /* [batch / keys_per_row + 1]; NULL with one key per row */
};

/* 0, or -1: out of memory. workload_fini takes any workload that was zero or made. */
int workload_init(struct workload *w, const struct workload_spec *spec);
void workload_fini(struct workload *w);

/* The keys of the i-th request. */
const uint64_t *workload_batch(const struct workload *w, uint64_t i);

/* The key of a rank: the most popular has rank 0. */
uint64_t workload_key(uint64_t rank);

/* "pull", "pooled", "push", "train" */
const char *workload_mix_name(enum workload_mix mix);

/* Output rows of a request. */
uint32_t workload_rows(const struct workload_spec *spec);

#endif
