/* device.h - the messages about memory of a GPU that a client on the server's host lends: opened
 * once by its handle, then named in pulls and pushes of one table, whose keys, rows and gradients
 * lie there and go through no socket. */
#ifndef EMBD_PROTO_DEVICE_H
#define EMBD_PROTO_DEVICE_H

#include <stdatomic.h>

#include "proto/message.h"
#include "proto/placement.h"

#define DEVICE_HANDLE_BYTES 64u /* of cudaIpcMemHandle_t */
#define DEVICE_UUID_BYTES   16u
#define DEVICE_ALIGNMENT    16u /* of keys, rows and gradients */
/* Of one memory: beyond any device's, and sums of two are no overflow. */
#define LIMIT_DEVICE_BYTES (UINT64_C(1) << 44)

/* A gate: three words of memory that both sides share. The peer's stream writes the number of a
 * call at GATE_READY_AT when keys and gradients are there; whoever ends the call writes it at
 * GATE_DONE_AT, and before that, if it is a pull that failed, at GATE_FAILED_AT. Numbers of a gate
 * rise. */
#define GATE_BYTES     128u
#define GATE_ALIGNMENT 64u
#define GATE_READY_AT  0u
#define GATE_DONE_AT   64u
#define GATE_FAILED_AT 68u
#define LIMIT_GATE     2147483647u /* the last number */

struct device_gate {
    uint64_t at;     /* in the memory that the client shares */
    uint32_t number; /* of this call; 0: it has no gate */
    uint32_t needs;  /* of an earlier pull that must not have failed; 0: none */
    /* With `needs` and several shards: where the gates of all shards begin, and how many there are.
     * The pull must not have failed at any of them. 0: there is this one. */
    uint64_t all_at;
    uint32_t n_all;
};

/* A call at its gate that has not ended. */
struct gate_turn {
    struct gate_turn *next;
    uint8_t *gate;
    uint32_t number;
    uint32_t done; /* what the word becomes when it ends: the number of one behind it, perhaps */
};

/* Adds a turn to the list of those whose words one thread, or one lock, has. */
void embd__gate_begin(struct gate_turn **first, struct gate_turn *turn, uint8_t *gate,
                      uint32_t number);
/* The call has ended: writes its words; has_failed: a pull that failed. GATE_DONE_AT says that
 * all calls up to a number have ended, and calls of one gate may end in another order; so it waits
 * for those that began before. */
void embd__gate_end(struct gate_turn **first, struct gate_turn *turn, bool has_failed);
/* Removes it, if it is there, and writes nothing. Returns the last turn that is still before it at
 * its gate; NULL: none. */
struct gate_turn *embd__gate_leave(struct gate_turn **first, struct gate_turn *turn);
/* The word of a gate is `number` from now on, or a later one. Any thread of any process. */
void embd__gate_raise(uint8_t *gate, uint32_t at, uint32_t number);

static inline bool embd__gate_has(const uint8_t *gate, uint32_t at, uint32_t number)
{
    const _Atomic uint32_t *word = (const _Atomic uint32_t *)(const void *)(gate + at);
    return atomic_load_explicit(word, memory_order_acquire) >= number;
}

struct device_lent {
    uint64_t bytes;        /* from the begin of the allocation that the handle is of */
    const uint8_t *handle; /* [DEVICE_HANDLE_BYTES] */
    const uint8_t *uuid;   /* [DEVICE_UUID_BYTES] of its GPU */
    uint64_t address;      /* where the peer is this process: of the memory; 0: the handle is */
};

void embd__device_open_write(struct msg *m, const struct device_lent *lent);
/* EMBD_INVALID, EMBD_MALFORMED: naming the field. */
int embd__device_open_read(struct reader *r, struct device_lent *out);

struct device_opened {
    uint64_t number;  /* names the memory on this connection */
    bool takes_turns; /* server and client work on one GPU, which serves one of them at a time */
    bool has_gates;   /* the server knows them */
    bool takes_own;   /* there are or were several shards: it takes device_batch.own */
};

void embd__device_opened_write(struct msg *m, const struct device_opened *opened);
int embd__device_opened_read(struct reader *r, struct device_opened *out);

void embd__device_close_write(struct msg *m, uint64_t number);
int embd__device_close_read(struct reader *r, uint64_t *number_out);

/* A place in lent memory. */
struct device_place {
    uint64_t number, at; /* at: bytes from its begin */
};

/* A pull or push of single keys. */
struct device_batch {
    uint32_t table; /* embd__table_id */
    embd_dtype dtype;
    uint32_t n_keys;
    struct device_place keys; /* [n_keys] u64 */
    struct device_place rows; /* [n_keys][dim] of dtype: a pull's rows, a push's gradients */
    bool zero_missing;        /* of a pull */
    float lr;                 /* of a push; 0: the table's */
    struct device_gate gate;
    /* [PLACEMENT_SET_BYTES] the vshards (residues of a `modulo` table) whose keys take part, all of
     * one shard; NULL: all keys do. It was made by the map of version `placement`; 0: the even
     * one. */
    const uint8_t *own;
    uint64_t placement;
    uint64_t order; /* of a push to several shards: among those of its client; 0: none */
};

/* Copies `own` into the message. */
void embd__device_batch_write(struct msg *m, const struct device_batch *batch);
/* out->own lies in the message. EMBD_INVALID, EMBD_MALFORMED: naming the field. */
int embd__device_batch_read(struct reader *r, bool is_push, struct device_batch *out);

#endif
