/* model.h - what a table is, in the plainest code: the oracle that stores, client and servers are
 * compared with, bit for bit. It shares no code with them: its own Philox, its own rounding, its
 * own sums. One table, however many shards the real one has. */
#ifndef EMBD_TESTS_MODEL_H
#define EMBD_TESTS_MODEL_H

#include "embd/embd.h"

/* A key that was seen: has_row says whether it has a row, else `sights` how often it would have got
 * one. */
struct model_key {
    uint64_t key;
    uint32_t slot; /* 0 but in slot tables */
    bool has_row;
    uint32_t sights;
    float *w;     /* [dim], values of the table's dtype */
    float *state; /* [model->state_floats] */
    /* Of the push being made. */
    uint64_t request;
    embd_key_status status;
    float *total, *run; /* [dim] */
    uint32_t n;
};

struct model {
    embd_schema schema; /* slot_sizes stay the caller's */
    uint32_t state_floats, optimizer_floats; /* all of a row; the first of them, before stamps */
    uint32_t use_at; /* what an evicting table knows of a row's use: two halves of a step, a count */
    struct model_key **keys; /* in the order first seen */
    uint64_t n_keys;
    uint64_t n_rows, n_candidates, step;
    void *tree;
    uint64_t request;
    /* Where pooled rows are partial sums of n_parts shards or devices: which one has a key. n_parts 0: one sum. */
    uint32_t n_parts;
    uint32_t (*part_of)(const struct model *model, uint64_t key);
};

/* A CSR batch. Keys have their slot offsets added. Row r belongs to slot slots[r] (slot tables
 * only). */
struct model_batch {
    uint32_t n_keys, n_rows;
    const uint64_t *keys;
    const uint32_t *offsets; /* [n_rows + 1]; NULL: one row per key, raw */
    const uint16_t *slots;
    const float *weights;
};

struct model_counts {
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
};

struct model *model_new(const embd_schema *schema);
void model_free(struct model *model);

/* values [n_rows][dim] as f32, statuses [n_keys] or NULL. `divide`: mean and sqrtn are finished. Partial sums are
 * added in the order of the parts; a part without a key of the row adds nothing. The caller rounds to a wire dtype with model_round. */
void model_pull(struct model *model, const struct model_batch *batch, bool zero_missing,
                bool divide, float *values, uint8_t *statuses);

/* grads [n_rows][dim], already rounded to the wire dtype. `divide`: they are gradients of finished
 * rows, so that a key's share is grad * (weight / divisor), as embd_push has it; else grad *
 * weight, as a shard has it. EMBD_FULL: nothing changed. counts_out may be NULL. */
int model_push(struct model *model, const struct model_batch *batch, const float *grads,
               bool divide, uint8_t *statuses, struct model_counts *counts_out);
int model_insert(struct model *model, const struct model_batch *batch, uint8_t *statuses,
                 struct model_counts *counts_out);

/* Returns how many distinct keys had a row. */
uint32_t model_erase(struct model *model, const struct model_batch *batch, uint8_t *statuses);

/* The key's entry, or NULL where it was never seen. */
const struct model_key *model_find(const struct model *model, uint64_t key, uint32_t slot);

/* As loading does: a row with these values; a candidate, unless the key has a row. */
void model_set_row(struct model *model, uint64_t key, uint32_t slot, const float *w,
                   const float *state);
void model_set_candidate(struct model *model, uint64_t key, uint32_t slot, uint32_t sights);

/* x rounded to dtype, nearest even. */
float model_round(float x, embd_dtype dtype);

/* Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (2011). */
void model_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The first value of a row, rounded to the table's dtype. */
void model_first_value(const struct model *model, uint64_t key, uint32_t slot, float *w);

#endif
