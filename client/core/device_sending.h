/* device_sending.h - a pull or push in lent memory of a GPU on its way: the same request to each
 * shard, with the set of vshards whose keys the shard takes. */
#ifndef EMBD_CORE_DEVICE_SENDING_H
#define EMBD_CORE_DEVICE_SENDING_H

#include "client/core/device_part.h"
#include "client/core/outcomes.h"

struct device_sending;

/* The request to one shard. */
struct device_leg {
    struct device_sending *sending;
    uint32_t shard;
    struct started_request *request;
    bool is_due, was_sent;    /* it is to be sent; it was, and nobody has waited for it */
    struct embd__error error; /* of the last time, once somebody has waited for it */
    struct shard_outcome outcome;
    struct gate_turn turn; /* of device_call.c; guarded by the client's turns_lock */
};

struct device_sending {
    embd_client *client;
    enum method method;
    uint32_t n, capacity; /* shards of the map that it was split by; legs that were made */
    uint64_t placement;   /* version of that map; 0: the even one */
    uint64_t order;       /* of a push, among those of the client */
    const uint8_t *own;   /* [n][PLACEMENT_SET_BYTES] the client's; NULL: there is one shard */
    uint64_t deadline_ns;
    struct device_leg *legs; /* [capacity] */
};

void embd__device_sending_fini(struct device_sending *s);
void embd__device_sets_fini(embd_client *client);

/* A call of s->method to all shards that the client knows: nothing is sent yet. EMBD_NO_MEMORY. */
int embd__device_split(struct device_sending *s, const embd_device_part *part);

/* Writes the requests of legs that are due. `gate`: of shard 0, with those of the others behind it;
 * a number of 0: none. EMBD_NO_MEMORY. */
int embd__device_write(struct device_sending *s, const embd_device_part *part,
                       const struct device_gate *gate);

/* Sends what was written. on_end: of request.h, with the leg; NULL: nobody is called. EMBD_OK, or
 * nothing was sent. */
int embd__device_send(struct device_sending *s, void (*on_end)(void *leg));

/* Until all that was sent has ended, and reads the answers into the legs. */
void embd__device_await(struct device_sending *s);

/* The map has changed, or the cluster has more shards: the client has another map now than the one
 * that this was split by. May wait for that until the deadline; then the legs say why not. */
bool embd__device_learn(struct device_sending *s);

/* Whether no shard has, or may have, taken a part of a push. */
bool embd__device_is_untaken(const struct device_sending *s);

/* The call has ended: its error, which is the client's then. EMBD_OK: it has none. */
int embd__device_outcome(struct device_sending *s);

#endif
