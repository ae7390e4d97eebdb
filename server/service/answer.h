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
/* Gives the operation the time of this machine's clock, if a table needs it. */
void clock_tell(struct op *op);

/* Nothing may follow a request's fields and bins. Returns call->error.status. */
int call_end(struct call *call, struct fields *fields);

/* A push may be longer than the frame of an answer. EMBD_TOO_LARGE: the statuses it asks for do not
 * fit one. */
int answer_check_statuses(const struct op *op, struct embd__error *e);
/* Reserves memory for an answer about `n_parts` before anything changes, so that the result can
 * always be answered. */
int call_reserve_answer(struct call *call, uint32_t n_parts);

/* Answers the request with request->answer, or with the error if one is set. The request may be
 * freed afterwards. */
void call_answer(struct shard *shard, struct request *request, const struct embd__error *e);

/* It is not answered: a notification. */
void call_ignore(struct shard *shard, struct request *request);

#endif
