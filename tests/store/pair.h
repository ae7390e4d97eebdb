/* pair.h - a store and the model beside it: every call goes to both, and what they answer is
 * compared bit for bit. Arrays are allocated at their exact size, so that a sanitizer sees a step
 * beyond. */
#ifndef EMBD_TESTS_STORE_PAIR_H
#define EMBD_TESTS_STORE_PAIR_H

#include "tests/model/model.h"
#include "server/store/store.h"

/* Numbers that are the same in every run: splitmix64. */
struct dice {
    uint64_t state;
};
uint64_t dice_next(struct dice *dice);
uint32_t dice_below(struct dice *dice, uint32_t n);
float dice_float(struct dice *dice); /* [-1, 1), 12 bits */

/* A batch that owns its arrays, for both sides. */
struct batch {
    struct model_batch in;
    uint64_t *keys;
    uint32_t *offsets;
    uint16_t *slots;
    float *weights;
    float *scores; /* of a push, or NULL */
};

struct pair {
    const struct store_ops *ops;
    struct store *store;
    struct table_schema schema;
    struct model *model;
    struct dice dice;
    const uint64_t *pool; /* keys that batches draw from, where there are no slot_sizes */
    uint32_t n_pool;
    bool has_one_lr;               /* pushes are drawn without a learning rate of their own */
    float gradient;                /* every gradient of a push; 0: they are drawn */
    bool spares_first;             /* the first column gets none */
    const struct store_skip *skip; /* what cuts are read without; NULL: nothing */
    uint64_t n_told;               /* times that a store told of rows before a pull had ended */
};

/* Of store nccl: peer, nccl or auto. Before the first table is opened. */
void pair_set_way(const char *way);
void pair_open(struct pair *pair, const char *store, const embd_schema *schema, uint64_t seed);
void pair_close(struct pair *pair);

/* n_rows rows of up to row_max keys each; is_raw: no offsets, n_rows keys. */
void batch_draw(struct pair *pair, struct batch *batch, uint32_t n_rows, uint32_t row_max,
                bool is_raw, bool weights);
/* All rows of one key each. */
void batch_of(struct batch *batch, const uint64_t *keys, uint32_t n_keys);
void batch_free(struct batch *batch);

struct store_keys batch_keys(const struct batch *batch);

/* Each fails the test where store and model differ. Returns the status both gave. */
int pair_pull(struct pair *pair, const struct batch *batch, embd_dtype wire, bool zero_missing,
              bool scale);
/* A push's learning rate; of two in four 0: the table's. */
float pair_draw_lr(struct pair *pair);
/* pair_read.c: the time of the next request, which may be earlier than the last. */
uint64_t pair_draw_seconds(struct pair *pair);
/* pair_read.c: [n_keys] of a push to a table with evict_score, to be freed; NULL: none. */
float *pair_draw_scores(struct pair *pair, uint32_t n_keys);
int pair_push(struct pair *pair, const struct batch *batch, embd_dtype wire, bool want_status);
int pair_insert(struct pair *pair, const struct batch *batch, bool want_status);

/* Nothing happens where the store cannot. */
void pair_erase(struct pair *pair, const struct batch *batch, bool want_status);

/* All rows, states, candidates, counts and the step, scanned and by key. */
void pair_compare(struct pair *pair);
/* pair_read.c: figures. pair_compare does. */
void pair_compare_stats(const struct pair *pair);
/* Of rows. */
static const embd_dtype pair_dtypes[] = {EMBD_DTYPE_F32, EMBD_DTYPE_F16, EMBD_DTYPE_BF16,
                                         EMBD_DTYPE_I8, EMBD_DTYPE_E4M3};
#define PAIR_DTYPES (sizeof pair_dtypes / sizeof pair_dtypes[0])

/* The model's row as the store has it. */
void pair_stored(const struct pair *pair, const struct model_key *k, uint8_t *row);

/* pair_read.c: rows by key, those that there are and others. pair_compare does. */
void pair_read(struct pair *pair);
/* Scans the store into a fresh one, block by block, which takes its place. */
void pair_reload(struct pair *pair);
/* The same, of a store whose pushes the model has not seen. */
void pair_reload_at(struct pair *pair, uint64_t step);

/* A done that keeps the status. */
struct outcome {
    struct store_done done;
    int status;
    int calls;
};
void outcome_init(struct outcome *outcome);

/* One call of `scan`, with arrays of its own. */
struct scanned {
    struct store_scan out;
};
void scanned_init(struct scanned *scanned, const embd_schema *schema, uint32_t max_rows,
                  uint32_t state_floats);
void scanned_free(struct scanned *scanned);
struct row_block scanned_block(const struct scanned *scanned);

#endif
