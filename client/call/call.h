/* call.h - a pull, push or erase on its way.
 *
 * A part of the caller's becomes a `struct work`; split.c or distinct rows make one `struct share`
 * of it for each shard; messages.c puts the shares of a shard, or slices of them, into as few
 * messages as the limits allow. Everything lies in the call's arena and in the caller's arrays
 * until embd_wait. */
#ifndef EMBD_CALL_CALL_H
#define EMBD_CALL_CALL_H

#include "client/core/client.h"
#include "proto/packed.h"

/* The share of one shard in one part. Arrays are the caller's or the arena's. */
struct share {
    uint32_t n_keys, n_rows;
    const uint64_t *keys;    /* [n_keys] as stored */
    const uint32_t *offsets; /* [n_rows + 1]; NULL: one key per row */
    const uint16_t *slots;   /* [n_rows]; slot tables only */
    const float *weights; /* [n_keys] or NULL. pull: weights; push: what a row's gradient is times
                             for a key */
    const float *scores;  /* push: [n_keys] or NULL */
    const uint32_t *rows; /* [n_rows] the part's output row of each; NULL: as they stand */
    const uint32_t *from; /* [n_keys] position in the part's keys; NULL: as they stand */
    uint8_t *grads;       /* push: [n_rows] of row_bytes, made by embd__push_fill */
    const void *given;    /* push: the same, where the caller's array is sent as it is; else NULL */
    uint8_t *values;      /* pull: [n_rows] of row_bytes, where the answer goes; one row of them
                             where the work is_placed */
    const uint8_t *into;  /* pull: where in shared memory the server puts them; NULL: nowhere */
    uint8_t *statuses;    /* [n_keys], the statuses of the answer; NULL: not requested */
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
    size_t row_bytes;        /* on the wire */
    bool is_pooled;          /* rows of several keys, combined; then there are offsets */
    bool by_rows;            /* the rows plan */
    uint32_t n_keys, n_rows; /* n_rows: of `values`; n_keys when not pooled */
    const uint64_t *offsets; /* [batch rows + 1]; NULL: one key per row */
    uint64_t n_batch_rows;
    const uint64_t *keys;     /* [n_keys] as stored */
    const float *weights;     /* [n_keys] or NULL; pooled only */
    const float *scores;      /* [n_keys] or NULL; of a push */
    struct share *shares;     /* [n_shards] */
    const uint16_t *shard_of; /* [n_keys] of single rows of several shards, every occurrence; else
                                 NULL */
    /* The rows plan: occurrence i of the part is row numbers[i] of `rows`; shares lie in it one
     * after another. */
    uint32_t n_distinct;
    uint32_t *numbers;
    uint8_t *rows;
    struct sums sums;      /* push */
    uint8_t *row_statuses; /* [n_distinct] or NULL */
    bool is_placed;        /* pulled rows get to their places as they arrive */
    /* A push's gradients are not made yet: their inputs are here. */
    bool is_unfilled;
    float *row;     /* [dim] scratch row, pooled plan only */
    uint8_t **ends; /* [n_shards] scratch, where `shard_of` is set */
};

struct answer_bin {
    void *to;
    uint64_t bytes;
    uint32_t unit; /* rows of `slice`, of so many bytes, are placed as they come; 0: all go to `to`
                    */
    uint32_t slice;
};

/* One part of one message: consecutive rows of a share. */
struct slice {
    uint32_t work, n_rows, n_keys;
    uint32_t first, next; /* rows of the share: its first one, and which is placed next */
    bool has_status;
};

/* The answer about a part. */
union part_result {
    struct part_answer pull;
    struct push_answer push;
    struct erase_answer erase;
};

#define MESSAGE_BINS       6u
#define MESSAGE_HEAD_BYTES 256u

/* One message to one shard, in client->messages. */
struct message {
    struct exchange x; /* first: messages are found by their exchange */
    struct embd_call *call;
    uint64_t began_ns; /* of one that opens a stream (numbered.c), and has no slices: when */
    uint32_t stream;   /* of a push that the client numbers, and its number; 0: it has none */
    uint64_t sequence;
    bool may_have_columns; /* the server takes them */
    bool has_columns;
    uint32_t shard, n_slices, n_bins;
    uint32_t at; /* bin that is coming in, of those with a unit */
    /* In the call's arena. */
    uint32_t capacity; /* slices */
    struct slice *slices;
    struct answer_bin *bins; /* [2 * capacity] */
    uint32_t answers_capacity;
    union part_result *answers; /* [answers_capacity] room to read what is answered, as an array of
                                   one of its kinds; other messages have it, too */
    /* Of x.msg, with one part or a few. */
    struct msg_bin first_bins[MESSAGE_BINS];
    uint8_t first_head[MESSAGE_HEAD_BYTES];
};

#define KNOWN_ANSWERS     64u /* of the numbers of keys that shards have in a call, most */
#define KNOWN_BYTES       96u
#define KNOWN_PUSH_SHARDS 16u /* fewer shards: answers to a push are not kept */

/* What an answer about one part has to say. */
struct known_expected {
    enum parts_kind kind;
    embd_dtype wire;
    uint32_t n_keys, n_rows, dim;
    bool has_status;
};

/* An answer that said so. Owner: the loop's thread. */
struct known_answer {
    struct known_expected expected;
    uint32_t bytes; /* 0: none yet */
    /* Of these, the last ones are the length of the one bin, which ends the answer; 0: it has no
     * bin. Others are scanned. */
    uint32_t length_bytes;
    bool is_plain;
    uint8_t tail[KNOWN_BYTES];
};

struct embd_call {
    struct embd_client *client;
    struct embd_call *next, *next_free; /* of all; of those not in use */
    bool shares;                        /* with a server: lent.c */
    struct shared_use *uses;            /* blocks that it has of the memory for that */
    struct arena arena;
    struct job job;
    enum parts_kind kind;
    uint32_t deadline_ms;
    embd_dtype wire;
    embd_plan plan;
    bool zero_missing;
    uint32_t replica; /* that answers the pull, of client/core/replicas.h; 0: the cluster does */
    uint64_t deadline_ns;        /* of a pull by a replica: of all attempts */
    struct push_extra extra;     /* of a push */
    struct chance chance;        /* of a push with i8 or i4 on the wire; its table is the work's */
    bool wants_number;           /* neither a pusher nor a round has one for it */
    struct own_stream *own;      /* [shards] of a push that the client numbers; NULL: it does not */
    uint64_t number;             /* of the calls with `own`, rising as they are started */
    uint64_t opening_ns;         /* that the call waited for streams to be opened */
    bool is_started;             /* and embd_wait has not ended it */
    uint64_t started;            /* of the calls of a client, rising */
    uint64_t placement;          /* version of the map that split it; 0: the even one, */
    uint32_t n_shards;           /* and its shards: the client may have more since */
    struct push_number *again;   /* [n_shards] numbers for it; NULL: it is sent once */
    int again_status;            /* why it could not be sent again */
    bool is_noted;               /* its failure (numbering.c) */
    const struct member *member; /* of a push to a round, until it is sent */
    embd_part *parts;
    struct work *works;
    uint32_t n_works;
    struct message **messages; /* kept between calls, with their messages' buffers */
    struct exchange **exchanges;
    uint64_t begun_ns; /* when its first message was */
    uint32_t n_messages, messages_made, messages_capacity;
    uint32_t n_openings; /* of n_messages; they come first */
};

/* All that return int return EMBD_OK or a status, with the client's error set. */

static inline int embd__call_no_memory(struct embd_call *call)
{
    return embd__error_set(&call->client->error, EMBD_NO_MEMORY,
                           "no memory for the buffers of a call");
}

/* ---- split.c ---- */

/* Shares with every occurrence in order. Fills in what is not an answer or gradient. */
int embd__split(struct embd_call *call, struct work *work);
/* Shares with each distinct key once. */
int embd__split_distinct(struct embd_call *call, struct work *work);
/* The slot of each key, for slot tables: NULL and *status_out = EMBD_OK for others. */
const uint16_t *embd__key_slots(struct embd_call *call, const struct work *work, int *status_out);
/* Where statuses come to, of a part that asks for them; and from there to the part. */
int embd__place_statuses(struct embd_call *call, struct work *work);
void embd__scatter_statuses(const struct embd_call *call, const struct work *work);

/* ---- plan.c ---- */

#define PLAN_FEW_KEYS 256u /* with fewer the round trip costs more than either plan */

/* Whether each distinct key once is the better way, for batches of PLAN_FEW_KEYS and more. */
bool embd__plan_is_rows(struct embd_call *call, const struct work *work);
/* How many keys of a batch were distinct. */
void embd__plan_note(const struct work *work, uint32_t n_distinct);

/* ---- pull.c ---- */

/* Shares with destinations. */
int embd__pull_prepare(struct embd_call *call, struct work *work);
/* Rows first .. first + n of a share, as they came, into the caller's. */
void embd__pull_place(const struct embd_call *call, const struct work *work,
                      const struct share *share, const uint8_t *rows, uint32_t first, uint32_t n);
/* All answers have arrived: rows become the caller's values. */
int embd__pull_finish(struct embd_call *call, struct work *work);

/* ---- push.c ---- */

/* Shares with gradients, made here or where is_unfilled is set, by embd__push_fill. */
int embd__push_prepare(struct embd_call *call, struct work *work);
/* The push has its number: it decides how gradients are rounded by chance. */
void embd__push_begin(struct embd_call *call);
/* Makes the gradients, where is_unfilled. Cannot fail. */
void embd__push_fill(struct embd_call *call, struct work *work);

/* ---- messages.c ---- */

int embd__messages_build(struct embd_call *call);
/* The next message of a call, empty, to this shard; NULL: no memory. */
struct message *embd__message_begin(struct embd_call *call, uint32_t shard);
void embd__messages_fini(struct embd_call *call);

/* ---- answers.c: of a message's exchange ---- */

void *embd__message_on_bin(struct exchange *x, uint32_t index, uint32_t bytes);
void embd__message_on_units(struct exchange *x, const uint8_t *p, uint32_t bytes);
void embd__message_on_answer(struct exchange *x, struct reader *reader);

/* ---- known.c ---- */

/* Whether an answer with this head was read before, and was as it should be. */
bool embd__message_knows(struct exchange *x, const struct frame_scanner *frame);
/* The same of one that may be whole: it is taken, if it was read before (exchange.h). */
size_t embd__message_take_known(struct exchange *x, uint8_t *p, size_t n);
/* It was, with one part, and has told of nothing else. */
void embd__message_keep_known(const struct message *message, const struct frame_scanner *frame);

/* ---- numbered.c ---- */

/* The push of a pusher, with its number. EMBD_INVALID; EMBD_MOVED: its stream has ended. */
int embd__numbered_take(struct embd_call *call, const embd_pusher *pusher, uint64_t sequence);
/* A push that some shards have applied, and that others refused since keys had moved: its stream
 * ends. */
void embd__numbered_part(struct opened *opened, const struct push_number *number);
/* Whether it is that push, or one behind it. */
bool embd__numbered_has_ended(const struct opened *opened, const struct push_number *number);
/* A push with a number of its caller's. */
static inline bool embd__call_is_numbered(const struct embd_call *call)
{
    return call->extra.number.sequence > 0 && call->own == NULL;
}
/* Before the first push of a stream: an opening to each shard. */
int embd__numbered_open(struct embd_call *call);
/* An opening of the stream that call->extra.number names, as the call's next message; NULL: the
 * client's error is set. */
struct message *embd__numbered_opening(struct embd_call *call, uint32_t shard);
/* The exchanges of openings have ended, or were never submitted: what became of them is noted. */
void embd__numbered_end(struct embd_call *call, bool were_sent);

/* ---- sending.c ---- */

/* Of a call whose parts were taken: all up to its messages; and their submission. */
int embd__call_prepare(struct embd_call *call);
void embd__call_submit(struct embd_call *call);

/* ---- again.c ---- */

/* The same of a call that was refused by all shards, with the numbers that it had. */
void embd__call_again(struct embd_call *call);

/* Once the messages of a pull by a replica have ended: what it did not answer goes to the
 * cluster. */
void embd__call_leave_replica(struct embd_call *call);

/* ---- moved.c ---- */

/* Once its messages have ended, and one has failed: if the map has changed, the call is split and
 * sent again. */
void embd__call_follow(struct embd_call *call);
/* What a push that was applied has lost with shards that left is no failure. */
void embd__call_forgive_left(struct embd_call *call);
/* Of a call that has failed: if it is a push of a pusher's that stays applied in part, the stream
 * ends there. */
void embd__call_part(struct embd_call *call);

/* ---- lent.c ---- */

/* NULL: there is no room. */
void *embd__lent_take_block(struct embd_call *call, uint64_t bytes);
/* Blocks that no server may still write to can be taken again. */
void embd__lent_give_back(struct embd_call *call);

/* Looks whether servers share memory now. */
static inline void embd__lent_begin(struct embd_call *call)
{
    const embd_client *client = call->client;
    call->uses = NULL;
    call->shares = false;
    for (uint32_t s = 0; s < client->n_shards && !client->shared->is_off && call->replica == 0; s++)
        call->shares |= embd__link_terms(client->shards[s].link)->shares;
}

/* Its server may yet read and write blocks of the call. */
static inline bool embd__lent_is_loose(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->messages[i]->x.is_loose)
            return true;
    return false;
}

static inline void embd__lent_end(struct embd_call *call)
{
    if (call->shares && (call->uses != NULL || embd__lent_is_loose(call)))
        embd__lent_give_back(call);
    call->uses = NULL;
}

/* A block of it until the call ends; NULL: it is not shared, not worth it, or there is no room. */
static inline void *embd__lent_take(struct embd_call *call, uint64_t bytes)
{
    bool is_worth_it = call->shares && bytes >= SHARED_LEAST_BYTES_OF_CALL;
    return is_worth_it ? embd__lent_take_block(call, bytes) : NULL;
}

/* Where the shard has `to`, for rows to be put there; 0: it has not. */
static inline uint64_t embd__lent_into(const struct embd_call *call, uint32_t shard, const void *to,
                                       uint64_t bytes)
{
    const struct shared *shared = call->client->shared;
    if (!call->shares || !embd__link_terms(call->client->shards[shard].link)->shares ||
        !embd__shared_has(shared, to, bytes))
        return 0;
    uint64_t at = embd__shared_at(shared, to);
    return at % 8 == 0 ? at : 0;
}

/* From now on bins of the message that lie there are named. */
static inline void embd__lent_name(const struct embd_call *call, struct message *message)
{
    const struct shared *shared = call->client->shared;
    const struct shared_range range = {shared->base, shared->bytes};
    if (call->shares && embd__link_terms(message->x.link)->shares)
        embd__msg_share(&message->x.msg, &range);
}

/* ---- outcome.c ---- */

/* Whether a shard answered that keys are placed by another map. */
bool embd__call_is_moved(const struct embd_call *call);
/* Once all messages have ended: whether a push stays applied in part, as one shard has it, or may
 * have it, and another one has refused it for its map. */
bool embd__call_is_parted(const struct embd_call *call);
/* Likewise: the error of a call that failed. */
int embd__call_outcome(struct embd_call *call);

#endif
