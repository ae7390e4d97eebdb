/* inside.h - what the files of the model are to each other. */
#ifndef EMBD_TESTS_MODEL_INSIDE_H
#define EMBD_TESTS_MODEL_INSIDE_H

#include "tests/model/model.h"

/* The keys of row r are keys[begin] to keys[end - 1]. */
static inline uint32_t model_row_begin(const struct model_batch *batch, uint32_t r)
{
    return batch->offsets ? batch->offsets[r] : r;
}

static inline uint32_t model_row_end(const struct model_batch *batch, uint32_t r)
{
    return batch->offsets ? batch->offsets[r + 1] : r + 1;
}

static inline uint32_t model_row_slot(const struct model_batch *batch, uint32_t r)
{
    return batch->slots ? batch->slots[r] : 0;
}

/* Keys of a request. The entry of keys[i] is named[i]. */
struct model_request {
    struct model_key **named;    /* [n_keys] */
    struct model_key **distinct; /* [n_distinct], in order of first occurrence */
    uint32_t n_distinct;
};

/* keys.c: the key's entry, a new one where it was never named. */
struct model_key *model_see(struct model *model, uint64_t key, uint32_t slot);
/* From now on it has a row, is a candidate (sights > 0), or neither. */
void model_become(struct model *model, struct model_key *k, bool has_row, uint32_t sights);
/* A row with its first value. */
void model_make_row(struct model *model, struct model_key *k);

/* keys.c: the values of another model's row, to the bit, codes too. */
void model_keep_codes(struct model *model, const struct model_key *from);

/* first.c: a row's first values before they are rounded. */
void model_first_exact(const struct model *model, uint64_t key, uint32_t slot, float *w);
/* As model_first_value; returns the scale of a row of codes. */
float model_first_row(const struct model *model, uint64_t key, uint32_t slot, float *w);

/* admit.c: says of each distinct key what becomes of it, when there is room for so many more rows.
 */
struct model_counts model_judge(const struct model *model, const struct model_request *request,
                                uint64_t room);
uint64_t model_room(const struct model *model);
/* Whether the request forgets all candidates before it is judged; it does. */
void model_decide_candidates(struct model *model, const struct model_request *request);
void model_forget_candidates(struct model *model);

/* evict.c: the rows that go so that `missing` others have room. Free the array. */
struct model_key **model_choose_victims(const struct model *model, uint32_t missing,
                                        uint32_t *n_out);
/* Whether rows expire by seconds; a request was applied. */
bool model_is_timed(const struct model *model);
void model_advance_clock(struct model *model);
/* The row is created (0 occurrences) or pushed to now. */
void model_note_use(const struct model *model, struct model_key *k, uint32_t occurrences);
/* The largest score that a push to an evict_score table gives the row; -inf: none. */
void model_note_score(const struct model *model, struct model_key *k, float score);

/* combine.c: what mean and sqrtn divide row r by. */
float model_divisor(const struct model *model, const struct model_batch *batch, uint32_t r);
/* A sum of gradients, one column of one key. Begins as zeros. */
struct model_sum {
    float runs, run;
    uint32_t n;
};
void model_sum_add(struct model_sum *sum, float gradient);
float model_sum_of(const struct model_sum *sum);

/* optimizer.c: one step of a row, with the gradient g [dim]. */
void model_step_row(const struct model *model, struct model_key *k, const float *g);
/* One step of its columns, each for itself. */
void model_step_columns(const struct model *model, const embd_optimizer *o, struct model_key *k,
                        const float *g);
/* base^n, squaring from the lowest bit of n. */
double model_power(double base, uint64_t n);
/* The sum of squares over a row, in 32 lanes. */
float model_squares(const float *g, uint32_t dim);

/* wholerow.c: whether a table's steps need it, and such a step but for the row's rounding. */
bool model_is_wholerow(const embd_schema *s);
void model_step_wholerow(const struct model *model, const embd_optimizer *o, struct model_key *k,
                         const float *g);

/* state.c: how many floats a row's state has, and where. */
void model_lay_out_state(struct model *model);
/* A step, in the two floats that hold it exactly. */
void model_write_step(float halves[2], uint64_t step);
uint64_t model_read_step(const float halves[2]);

#endif
