/* model.h - the oracle: what a table is, in the plainest code. Stores, client and servers are
 * compared with it bit for bit, and it shares no code with them. One table, however many shards the
 * real one has.
 *
 *     table.c      pull, push, insert, erase: begin here
 *     keys.c       the keys it has seen, sorted
 *     admit.c      which keys of a request get a row
 *     evict.c      which rows go when there is no room
 *     combine.c    sums of rows and of gradients
 *     optimizer.c  one step of one row
 *     wholerow.c   steps that look at a whole row: clipping, decay, limits
 *     state.c      what stands behind a row: optimizer state, and steps it remembers
 *     first.c      the value a row begins with
 *     redefine.c   a table loaded into another definition
 *     round.c      to the precision of a dtype
 *     codes.c      rows of i8 and e4m3
 *     wire.c       to what a row is on the wire */
#ifndef EMBD_TESTS_MODEL_H
#define EMBD_TESTS_MODEL_H

#include "embd/embd.h"

/* Why rows went; candidates that were too many. */
struct model_losses {
    uint64_t evicted[EMBD_ON_FULL_EVICT_SCORE + 1], shrunk, erased, forgotten;
};

/* A key that was ever named: it has a row, or is a candidate that was seen `sights` times, or
 * neither. */
struct model_key {
    uint64_t key;
    uint32_t slot; /* 0 but in slot tables */
    bool has_row;
    uint32_t sights;
    float *w;     /* [dim], values of the table's dtype */
    float scale;  /* of a row of codes */
    float *state; /* [model->state_floats] */
    /* Of the last request that named it. */
    uint64_t request;
    uint32_t index; /* among the request's distinct keys */
    embd_key_status status;
};

struct model {
    embd_schema schema;          /* slot_sizes stay the caller's */
    uint64_t n_keys, n_keys_max; /* there are, there is room for */
    struct model_key **keys;     /* sorted by key and slot */
    uint64_t n_rows, n_candidates;
    struct model_losses lost;
    uint64_t least_candidates; /* that are kept */
    bool forgets;              /* the request at hand forgets all candidates first */
    float lr;                  /* of pushes to come; 0: the schema's */
    uint64_t step, request;    /* pushes, and requests that may change something, so far */
    uint64_t seconds, clock;   /* the time of requests to come; the latest of those applied, and of
                                  rows that were set: ttl_seconds */
    uint32_t state_floats;     /* all of a row: the optimizer's, the stamp of lazy_global, master
                               values, the use of evict tables */
    uint32_t optimizer_floats, use_at;
    uint32_t master_at; /* dim floats from there on: */
    bool has_master;    /* the values that a row is rounded from */
    bool has_stamp;     /* the step of a row's last push stands behind optimizer_floats */
    /* Where pooled rows are partial sums of n_parts devices: which one has a key. NULL: one sum. */
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
    const float *scores; /* [n_keys] or NULL; -inf is none */
};

struct model_counts {
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
};

/* Of models to come: what server/store/candidates.h has. */
extern uint64_t model_least_candidates;

struct model *model_new(const embd_schema *schema);
void model_free(struct model *model);

/* values [n_rows][dim] as f32, statuses [n_keys] or NULL. `divide`: mean and sqrtn are finished.
 * Partial sums are added in the order of the parts; a part without a key of the row adds nothing.
 * The caller rounds to a wire dtype with model_round_row. */
void model_pull(struct model *model, const struct model_batch *batch, bool zero_missing,
                bool divide, float *values, uint8_t *statuses);

/* grads [n_rows][dim], already rounded to the wire dtype. `divide`: they are gradients of finished
 * rows, so that a key's share is grad * (weight / divisor), as embd_push has it; else grad *
 * weight, as a shard has it. EMBD_FULL: nothing changed. counts_out may be NULL. */
int model_push(struct model *model, const struct model_batch *batch, const float *grads,
               bool divide, uint8_t *statuses, struct model_counts *counts_out);
int model_insert(struct model *model, const struct model_batch *batch, uint8_t *statuses,
                 struct model_counts *counts_out);
/* The status that either of them would return, without `statuses`; changes nothing. */
int model_foresee(struct model *model, const struct model_batch *batch);

/* Returns how many distinct keys had a row. */
uint32_t model_erase(struct model *model, const struct model_batch *batch, uint8_t *statuses);

/* The table's capacity and on_full become those of `to`: rows beyond the capacity go. EMBD_FULL:
 * not as many may go, and nothing changed. */
int model_bound(struct model *model, const embd_schema *to);

/* Keys get rows in their n-th request from now on; with 0 and 1 no key waits any more. */
void model_admit_after(struct model *model, uint32_t n);

/* The key's entry, or NULL where it was never named. */
struct model_key *model_find(const struct model *model, uint64_t key, uint32_t slot);

/* As loading does: a row with these values, narrowed where rows are codes; a candidate, unless the
 * key has a row. */
void model_set_row(struct model *model, uint64_t key, uint32_t slot, const float *w,
                   const float *state);
/* A row of another model, to the bit. */
void model_copy_row(struct model *model, const struct model_key *from);
/* The clock that the table has where its rows are set anew: their latest. */
void model_reset_clock(struct model *model);
/* As a put without states does: with the state of a new row. */
void model_put_row(struct model *model, uint64_t key, uint32_t slot, const float *w);
void model_set_candidate(struct model *model, uint64_t key, uint32_t slot, uint32_t sights);

/* The same table as one of another definition, as a load makes it; both are to be freed. */
struct model *model_redefine(const struct model *was, const embd_schema *to);

/* x rounded to dtype, nearest even. */
float model_round(float x, embd_dtype dtype);
/* Of the two values around x that with the larger magnitude where x is further on the way to it
 * than 1 - chance / 65536. */
float model_round_by(float x, embd_dtype dtype, uint32_t chance);

/* What decides how a push's gradients become i8 or i4: id and number of the push, and table. */
struct model_chance {
    uint64_t id, number;
    uint32_t table;
};

/* A row as it comes over a wire of that dtype. i8 and i4: by chance as row `at` of a push, or to
 * nearest where `chance` is NULL. */
void model_round_row(float *row, uint32_t dim, embd_dtype wire, const struct model_chance *chance,
                     uint32_t at);
/* Rows of i8 and e4m3. */
bool model_has_codes(embd_dtype dtype);
/* w [dim] as codes of one byte times a scale, which is returned: to nearest, or by chances [dim] as
 * model_round_by. */
float model_round_codes(float *w, uint32_t dim, embd_dtype dtype, const uint32_t *chances);
/* The row as it is stored: the scale, codes, zeros up to a multiple of four bytes. */
void model_write_codes(const struct model *model, const struct model_key *k, uint8_t *out);

/* Philox4x32-10 of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3"
 * (2011). */
void model_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);

/* The first value of a row, rounded to the table's dtype. */
void model_first_value(const struct model *model, uint64_t key, uint32_t slot, float *w);

#endif
