/* answer.h - one request while it is read and handled, and its answer. */
#ifndef EMBD_SERVICE_ANSWER_H
#define EMBD_SERVICE_ANSWER_H

#include "server/service/work.h"

struct call {
    struct shard *shard;
    struct request *request;
    struct shard_work *work;
    struct msg *answer; /* the request's */
    struct reader reader;
    struct push_extra extra; /* of a push */
    struct embd__error error;
};

/* The request's answer is the error, in the place of one that was begun or made. */
static inline void request_fail(struct request *request, const struct embd__error *e)
{
    if (request->frame->has_msgid)
        embd__msg_error(&request->answer, request->frame->msgid, e->status, e->text);
    else
        embd__msg_error_notice(&request->answer, e->status, e->text);
}

uint64_t clock_ns(void);
/* That the shard's thread has worked, and not waited for a processor. With a device, which works
 * meanwhile, as clock_ns. */
uint64_t clock_work_ns(const struct shard *shard);
/* Gives the operation the time of day, which goes on while servers are down. */
void clock_read(struct op *op);
/* The same if a table needs it. */
static inline void clock_tell(struct op *op)
{
    if (op_is_timed(op))
        clock_read(op);
}

/* Nothing may follow a request's fields and bins. Returns call->error.status. */
int call_end(struct call *call, struct fields *fields);

enum {
    ANSWER_BYTES = 256,     /* of heads of answers without parts that change something */
    ANSWER_PART_BYTES = 96, /* more for each part; a push's has at most 85 */
};

static inline uint64_t answer_head_bytes(uint32_t n_parts)
{
    return ANSWER_BYTES + (uint64_t)n_parts * ANSWER_PART_BYTES;
}

/* A push may be longer than the frame of an answer. EMBD_TOO_LARGE: the statuses it asks for do not
 * fit one. */
int answer_check_statuses(const struct op *op, struct embd__error *e);
/* Reserves memory for an answer about `n_parts` before anything changes, so that the result can
 * always be answered. */
static inline int call_reserve_answer(struct call *call, uint32_t n_parts)
{
    uint32_t bytes = (uint32_t)answer_head_bytes(n_parts);
    if (embd__msg_reserve(call->answer, bytes, n_parts) == EMBD_OK)
        return EMBD_OK;
    call->answer->status = EMBD_OK;
    return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for the answer");
}

/* Answers the request with request->answer, or with the error if one is set. The request may be
 * freed afterwards. */
void call_answer(struct shard *shard, struct request *request, const struct embd__error *e);

/* It is not answered: a notification. */
void call_ignore(struct shard *shard, struct request *request);

#endif
