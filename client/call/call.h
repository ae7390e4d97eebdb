/* call.h - a pull, push or erase on its way.
 *
 * A part of the caller's becomes a `struct work`; split.c or distinct rows make one `struct share`
 * of it for each shard; asks.c puts the shares of a shard, or cuts of them, into as few messages as
 * the limits allow. Everything lies in the call's arena and in the caller's arrays until embd_wait.
 */
#ifndef EMBD_CLIENT_CALL_H
#define EMBD_CLIENT_CALL_H

#include "client/client.h"

/* What one shard gets of one part. Arrays are the caller's or the arena's. */
struct share {
    uint32_t n_keys, n_rows;
    const uint64_t *keys;    /* [n_keys] as stored */
    const uint32_t *offsets; /* [n_rows + 1]; NULL: one key per row */
    const uint16_t *slots;   /* [n_rows]; slot tables only */
    const float *weights; /* [n_keys] or NULL. pull: weights; push: what a row's gradient is times
                             for a key */
    const uint32_t *rows; /* [n_rows] the part's output row of each; NULL: as they stand */
    const uint32_t *from; /* [n_keys] position in the part's keys; NULL: as they stand */
    uint8_t *grads;       /* push: [n_rows][dim] of the wire's dtype, made by embd__push_fill */
    const void *given;    /* push: the same, where the caller's array is sent as it is; else NULL */
    uint8_t *values;   /* pull: [n_rows][dim] of the wire's dtype, where the answer goes; of a work
                          with window_rows, so many at a time */
    uint8_t *statuses; /* [n_keys], where the answer goes; NULL: not asked for */
};

/* Gradients of the rows plan being summed. Most keys never fill a run: theirs is the sum. */
struct sums {
    size_t dim;
    float *runs;         /* [n_distinct][dim] the run being added up */
    uint32_t *counts;    /* [n_distinct] occurrences so far */
    uint32_t *totals_of; /* [n_distinct] which total, for keys with more than one run */
    float *totals;       /* [n_keys / EMBD_SUM_RUN][dim] full runs */
    uint32_t n_totals;
};

/* One part. */
struct work {
    const embd_part *part; /* the call's copy */
    uint32_t index;        /* of the part, for errors */
    const embd_schema *schema;
    uint32_t dim;
    size_t row_bytes;        /* of the wire's dtype */
    bool is_pooled;          /* rows of several keys, combined; then offsets are there */
    bool by_rows;            /* the rows plan */
    uint32_t n_keys, n_rows; /* n_rows: of `values`; n_keys when not pooled */
    const uint64_t *offsets; /* [batch rows + 1]; NULL: one key per row */
    uint64_t n_batch_rows;
    const uint64_t *keys; /* [n_keys] as stored */
    const float *weights; /* [n_keys] or NULL; pooled only */
    struct share *shares; /* [n_shards] */
    /* The rows plan: occurrence i of the part is row numbers[i] of `rows`; shares lie in it one
     * after another. */
    uint32_t n_distinct;
    uint32_t *numbers;
    uint8_t *rows;
    struct sums sums;      /* push */
    uint8_t *row_statuses; /* [n_distinct] or NULL */
    /* Pulled rows are put in their places as they come. 0: once all are there. */
    uint32_t window_rows;
    /* A push's gradients are yet to be made: what they need is there. */
    bool is_unfilled;
    float *row; /* [dim] scratch row, pooled plan only */
};

struct answer_bin {
    void *to;
    uint64_t bytes;
    uint32_t window; /* rows of `cut`, which are to be placed by so many bytes; 0: all go to `to` */
    uint32_t cut;
};

/* One part of one message: consecutive rows of a share. */
struct cut {
    uint32_t work, n_rows, n_keys;
    uint32_t first, next; /* rows of the share: its first one, and which is placed next */
    bool has_status;
};

#define ASK_CUTS_MAX LIMIT_PARTS

/* One message to one shard. */
struct ask {
    struct exchange x; /* first: asks are found by their exchange */
    struct embd_call *call;
    bool is_opening;   /* of a pusher's stream, before its first push; there are no cuts */
    uint64_t began_ns; /* then: when */
    uint32_t shard, n_cuts, n_bins;
    uint32_t at; /* bin that is coming in, of those with a window */
    struct cut cuts[ASK_CUTS_MAX];
    struct answer_bin bins[2 * ASK_CUTS_MAX];
};

struct embd_call {
    struct embd_client *client;
    struct embd_call *next, *next_free; /* of all; of those not in use */
    struct arena arena;
    struct job job;
    enum parts_kind kind;
    uint32_t deadline_ms;
    embd_dtype wire;
    embd_plan plan;
    bool zero_missing;
    struct push_extra extra;     /* of a push */
    const struct member *member; /* of a push to a round, until it is sent */
    embd_part *parts;
    struct work *works;
    uint32_t n_works;
    struct ask **asks; /* kept between calls, with their messages' buffers */
    struct exchange **exchanges;
    uint32_t n_asks, asks_made, asks_capacity;
    uint32_t n_openings; /* of n_asks; they come first */
};

/* All return EMBD_OK or a status, with the client's error set. */

/* check.c: takes a part, checked; keys get their slot offsets. */
int embd__work_begin(struct embd_call *call, struct work *work, uint32_t index);

/* split.c: shares with every occurrence in order. Fills in what is not an answer or gradient. */
int embd__split(struct embd_call *call, struct work *work);
/* split.c: shares with each distinct key once. */
int embd__split_distinct(struct embd_call *call, struct work *work);
/* The slot of each key, for slot tables: NULL and *status_out = EMBD_OK for others. */
const uint16_t *embd__key_slots(struct embd_call *call, const struct work *work, int *status_out);

/* plan.c: whether each distinct key once is the better way. */
bool embd__plan_is_rows(struct embd_call *call, const struct work *work);
/* What was found out about a batch. */
void embd__plan_note(const struct work *work, uint32_t n_distinct);

/* pull.c, push.c: shares with destinations or gradients; and what is left to do when all answers
 * are there. */
int embd__pull_lay(struct embd_call *call, struct work *work);
int embd__pull_finish(struct embd_call *call, struct work *work);
/* Rows first .. first + n of a share, the first ones of its values, into the caller's. */
void embd__pull_place(const struct embd_call *call, const struct work *work,
                      const struct share *share, uint32_t first, uint32_t n);
int embd__push_lay(struct embd_call *call, struct work *work);
/* Makes the gradients, where is_unfilled. Cannot fail. */
void embd__push_fill(struct embd_call *call, struct work *work);
int embd__push_finish(struct embd_call *call, struct work *work);
/* Statuses of distinct keys, or of shares, to the part's; both directions. */
void embd__spread_statuses(const struct embd_call *call, const struct work *work);
/* Sets where statuses of the shares go. */
int embd__lay_statuses(struct embd_call *call, struct work *work);

/* asks.c: the messages. */
int embd__asks_build(struct embd_call *call);
/* Their exchanges have ended, or were never submitted: what became of the openings is noted. */
void embd__asks_end_openings(struct embd_call *call, bool were_sent);
/* Holds back the gradients of a push, and what comes behind them, until embd__asks_go_on. */
void embd__asks_hold(struct embd_call *call);
void embd__asks_go_on(struct embd_call *call);
void embd__asks_fini(struct embd_call *call);

/* outcome.c: once all messages have ended, the call's error, or EMBD_OK. */
int embd__call_outcome(struct embd_call *call);

int embd__call_no_memory(struct embd_call *call);

#endif
