/* gates.h - pulls and pushes in memory of a GPU whose keys the peer's stream is still to write
 * (proto/device.h). They wait in their connection's order, and what it sends next waits behind
 * them. Nothing of the tables is theirs meanwhile, so they hold nobody else up. */
#ifndef EMBD_SERVICE_GATES_H
#define EMBD_SERVICE_GATES_H

#include "server/service/answer.h"

/* Whether the request in `call` has no gate, one that its stream has reached, or none that can be:
 * that is the handler's to refuse. Sets request->gate; uses call->reader up, and call->error. */
bool gate_is_open(struct call *call);

/* The request waits until gates_look finds its gate open; one whose peer has closed its side of the
 * connection is answered EMBD_CLOSED. */
void gate_park(struct shard *shard, struct request *request);

/* Parks those whose gates are open with the others: true, then they are to be dispatched. One that
 * has waited for a minute is answered EMBD_DEADLINE. There is no event for what a GPU writes, so
 * look again soon while any is left in shard->gated. */
bool gates_look(struct shard *shard);

void gate_refuse(struct shard *shard, struct request *request, int status, const char *why);
void gate_refuse_ended(struct shard *shard, struct request *request);

/* The request is going, without an answer. */
void gate_drop(struct shard *shard, struct request *request);

/* Its gate has let the request in: until gate_end, before its answer, or gate_leave, without one,
 * no later call of the gate counts as ended. GATE_FAILED_AT is of pulls: a push whose failure it
 * told would have pushes of other tables behind it refused, by shards that come to them later. */
void gate_enter(struct request *request);
static inline void gate_end(struct request *request, bool has_failed)
{
    embd__gate_end(&request->session->turns, &request->turn, has_failed && request->is_lent_pull);
}

static inline void gate_leave(struct request *request)
{
    embd__gate_leave(&request->session->turns, &request->turn);
}

/* EMBD_INVALID: the gate is not in memory that the peer shares, its client ended the call already,
 * or a pull that this one needs has failed. */
int gate_check(struct call *call, const struct device_gate *gate);

#endif
