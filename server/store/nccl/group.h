/* group.h - one table over all GPUs of the process: what the C files of this folder share.
 *
 *   wire          the devices, and how bytes get from one to another
 *   kernels/      which device owns a key; moving items between devices
 *   group         failure; how devices and the host wait for each other
 *   flow          one call's memory
 *   queue         the calls, from submission to done; deadlines
 *   batch         cuts a request into one batch for each device, and groups it by owner
 *   exchange      moves items to their owners, and results back
 *   pull, push    what happens at the owners
 *   capacity      the bound of the table as a whole
 *   evict         removes rows to make room
 *   load, read, erase   cut a block or keys by owner
 *   nccl_store    opens, closes, scans; the table of store.h's functions
 *
 * Every device is a home and an owner. As a home it has a part of the request's rows: it finds the
 * owner of each key, sends the key there, and gets a row or a status back. As an owner it has a
 * cuda store with the rows of its keys. It gets keys in the order of the request, because homes
 * have ascending rows and grouping is stable. So sums have the order, and the bits, that they have
 * on one device.
 *
 * Items: in hash and modulo tables an item is a key; its row comes back as it is stored and is
 * pooled at home. In slot tables an item is a row with its keys, pooled by its owner. If partial
 * sums are allowed (store_gpus.partial_sums), or for a push, pooled rows of hash and modulo tables
 * are sent in parts: every owner gets a part of each row, and returns a partial sum or takes the
 * gradient once.
 *
 * A device has four streams and so works on as many calls at once. The route stream groups items
 * and sends them to their owners. The table stream, which is the cuda store's, runs all that needs
 * the table. The return stream carries rows home by NCCL. The finish stream puts what came home in
 * its place, pools it and hands it over. Devices wait for each other by events, and only for what
 * they need: they need not be at the same call. The host has to know how much goes where, so it
 * returns to a call once that is counted, and to a call that may create rows once more when these
 * are counted. It waits only in scan, load, erase, a pull with `now`, a push that finds less room
 * than it needs, and a prepare that has to look keys up.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_NCCL_GROUP_H
#define EMBD_NCCL_GROUP_H

#include "server/store/cuda/call.h"
#include "server/store/cuda/memory.h"
#include "server/store/nccl/kernels/move.h"

/* A part of a request, on its device. Until the batch is sent there, pointers are to the caller's
 * memory. */
struct device_batch {
    uint32_t n_rows, n_keys;
    uint32_t first; /* first key: offsets count from it */
    const uint64_t *keys;
    const uint32_t *offsets;
    const uint16_t *slots;
    const float *weights, *scores;
    const uint8_t *grads;
    uint8_t *values;   /* pull: the caller's, of any kind of memory */
    uint8_t *statuses; /* the caller's, or NULL */
};

/* How many keys or items go from each home to each owner. */
struct route_counts {
    struct starts sent[WIRE_MAX]; /* of home h: owner o gets sent[h].at[o] .. [o + 1] */
    struct starts got[WIRE_MAX];  /* of owner o: home h sent got[o].at[h] .. [h + 1] */
};

/* Device memory that is reused from call to call. It grows by half at least. Outgrown blocks are
 * kept too, because freeing waits for the device, which may be stuck. */
#define BLOCK_GROWTHS 80u
struct block {
    uint8_t *memory;
    uint64_t bytes;
    uint8_t *before[BLOCK_GROWTHS];
    uint32_t n_before;
};

/* The arrays that go from homes to owners, then those that come back. */
enum lane {
    LANE_KEYS,
    LANE_SLOTS,
    LANE_WEIGHTS,
    LANE_SCORES,
    LANE_STARTS, /* begin of each item's keys */
    LANE_GRADS,
    LANE_PLACES, /* the row's place at home */
    LANES_OUT,
    LANE_ROWS = LANES_OUT,
    LANE_STATUSES,
    LANES
};
struct lane_shape {
    const struct route_counts *counts;
    uint32_t bytes; /* of an element; 0: this call does not have the lane */
};
/* Where a lane lies on one device. */
struct lane_ends {
    uint8_t *home;         /* in the home's order */
    const uint32_t *order; /* order that groups them by owner; NULL: they lie grouped */
    uint8_t *row;          /* without peer access: grouped by owner, at home */
    uint8_t *owner;        /* grouped by home, at the owner */
};

/* One device's part of a call. */
struct member {
    struct store *table;
    void *event;
    struct block home, owner;
    struct lane_ends lanes[LANES];

    /* As a home. */
    struct device_batch batch;
    struct route_view route;
    struct route_report *report; /* pinned */
    void *temp;                  /* scratch of a sort or a sum */
    uint32_t *row_of;            /* [n_keys] with offsets, if items are keys */
    uint32_t *refs;              /* [n_keys] refs of the returned rows, to pool */
    uint8_t *values;             /* rows of the batch, before they are copied to the caller */

    /* As an owner. */
    struct keys_view in; /* row_of is set by exchange_out where it is needed */
    uint32_t *offsets;
    uint32_t *found;   /* [in.n] refs */
    struct call *call; /* of the cuda store, while a push or insert is planned */
    struct store_change push;
};

/* A call's progress. queue.c has the allowed moves. */
enum flow_state {
    FLOW_NEW,
    FLOW_ROUTED,    /* the devices find out where its items go */
    FLOW_PLANNED,   /* they count what it creates */
    FLOW_REPLANNED, /* they count again, after the one eviction that a call may cause */
    FLOW_ENQUEUED,  /* nothing is left but to wait */
    FLOW_ENDED,     /* with `status`; call done */
    FLOW_STATES
};

/* The items of a call from homes to owners. */
enum flow_item { ITEM_KEY, ITEM_ROW, ITEM_PART };

/* The streams that carry a call's last work so far. */
enum flow_streams { ON_ROUTE_STREAMS, ON_TABLE_STREAMS, ON_FINISH_STREAMS };

struct flow {
    struct flow *next;
    struct group *group;
    enum call_kind kind;
    enum flow_state state;
    int status;
    uint64_t deadline_ms;
    struct store_pull *pull;
    struct store_change *change; /* of a push or insert; pull is that of a pull */
    bool is_only_planned;
    struct store_done *done;

    bool may_drop;    /* keys without room are reported; else the call is refused */
    bool has_offsets; /* the request has offsets */
    enum flow_item item;
    enum flow_streams ends_on;
    struct group_eviction *eviction; /* while it evicts; kept if the group fails */
    uint32_t n_keys;
    uint8_t *pinned;
    size_t pinned_bytes;
    uint8_t *statuses, *values; /* pinned copies for the caller, or NULL */
    uint8_t *statuses_out, *values_out;
    uint64_t values_bytes;
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
    uint64_t step; /* the table's step after this push, or 0 */
    struct route_counts items, keys;
    struct lane_shape lanes[LANES];
    struct member members[WIRE_MAX];
};

/* Whether owners store the rows of a pull right where homes want them: peer access reaches them. */
static inline bool flow_stores_at_home(const struct flow *flow)
{
    return flow->kind == CALL_PULL && wire_is_peer();
}

struct group {
    const struct table_schema *schema; /* the caller's */
    struct table_schema member_schema; /* the members' schema; its arrays are the caller's */
    uint32_t n;
    struct store *tables[WIRE_MAX];
    void *route_streams[WIRE_MAX], *table_streams[WIRE_MAX]; /* table_streams[d] is tables[d]'s */
    void *return_streams[WIRE_MAX], *finish_streams[WIRE_MAX];
    bool has_parts;            /* pooled pulls of hash and modulo tables may go as ITEM_PART */
    struct flow *first, *last; /* the queue */
    struct flow *spare;
    uint64_t n_promised;          /* keys that tickets keep memory for */
    uint64_t step;                /* after the calls whose done was called; members may be ahead */
    uint32_t cut_gone_at, cut_at; /* next member of a cut to read: removed keys; rows */
    uint64_t cut_read;            /* bits of members that are read */
    uint64_t cut_waits_ms;        /* since when no member returned anything; 0: one did */
    bool failed;                  /* for good: `why` is the answer to every call */
    char why[300];
    struct group *given_up; /* the failed group closed before this one */
};

/* Milliseconds that a call may take before the devices count as lost. */
extern uint64_t group_patience_ms;

/* Sets the error of a status, which is not 0: EMBD_NO_MEMORY, or EMBD_INTERNAL. The latter fails
 * the group for good and aborts the wire. */
int group_error(struct group *group, int status, const char *what, struct embd__error *e);
/* Fails the group for good, because a call missed its deadline. */
void group_lose_patience(struct group *group);
/* Makes each stream of `to`, one of each device, wait for the work on the stream of `from` of the
 * same device, or of all devices. */
int group_meet(struct flow *flow, void *const from[], void *const to[], bool of_all);
/* Waits for the work on the table streams. 0 or a status; WIRE_LOST: not in time. */
int group_await(struct flow *flow);
uint32_t element_bytes(embd_dtype dtype);

/* ---- flow ---- */

/* Grows the block to `bytes` at least, in memory that peers reach. The device is in use. */
int block_need(struct block *block, uint64_t bytes);
struct flow *flow_new(struct group *group);
void flow_free(struct flow *flow);
void flow_free_spare(struct group *group);

/* ---- queue ---- */

void flow_submit(struct group *group, enum call_kind kind, void *request, struct store_done *done);
/* Decides what would happen to the keys of `insert`, whose statuses are NULL, after all calls made
 * before, and sets its counts. Waits; calls done from inside. */
void flow_plan(struct group *group, struct store_change *insert, bool may_drop,
               struct store_done *done);
/* The most rows that calls under way may create. */
uint64_t flow_most_coming(const struct group *group);
/* Submits a pull whose batches and values lie on their devices already. */
void flow_submit_batches(struct group *group, struct store_pull *pull,
                         const struct device_batch batches[], struct store_done *done);
bool flow_collect(struct group *group);
int flow_cancel(struct group *group, struct store_ticket *ticket);
void flow_wait_all(struct group *group);

/* ---- batch ---- */

/* Cuts the request into batches. 0 or DEVICE_NO_MEMORY. */
int batch_cut(struct flow *flow);
/* Enqueues the transfer and grouping of the batches, up to the report. */
int batch_route(struct flow *flow, bool is_there);

/* ---- exchange ---- */

/* Sets the counts of keys and items, from the reports. */
void exchange_count(struct flow *flow);
/* Lays out the owner's memory of all lanes, and sets `in` of the member to the keys that it must
 * look up. */
void exchange_lay_out(struct flow *flow, uint32_t device, struct arena *arena);
/* Sends everything to the owners, on the route streams. Each table stream waits for what its device
 * gets. */
int exchange_out(struct flow *flow);
/* Sends the lanes from `first` on, LANE_ROWS or LANE_STATUSES, back to the homes. The rest of the
 * call follows on the finish streams. */
int exchange_back(struct flow *flow, enum lane first);

/* ---- pull, push: 0 or a status ---- */

int pull_run(struct flow *flow);
/* Enqueues everything up to the report of the keys to create. */
int push_plan(struct flow *flow);
/* EMBD_FULL, EMBD_NO_MEMORY: nothing changed. *again: rows were evicted, and the plan is enqueued
 * again. */
int push_run(struct flow *flow, bool *again, struct embd__error *e);
/* The same without effect: sets the counts of flow->change. Waits. */
int push_decide(struct flow *flow, struct embd__error *e);
/* ---- capacity ---- */

/* Rows that the table as a whole may still get. */
uint64_t group_room(const struct group *group);
int group_refuse(const struct group *group, uint64_t n_leaders, uint64_t room,
                 struct embd__error *e); /* EMBD_FULL */
/* Lets a member get `room` rows beyond those it has. */
void group_set_room(struct store *table, uint64_t room);

/* ---- evict ---- */

/* Evicts, once per call, because n_leaders keys need a row and there is `room` for fewer. *again:
 * rows were evicted. */
int group_evict(struct flow *flow, uint64_t n_leaders, uint64_t room, bool *again,
                struct embd__error *e);

/* ---- load ---- */

int group_load(struct group *group, const struct row_block *block, struct embd__error *e);

/* ---- read ---- */

int group_read(struct group *group, const struct store_read *read, struct embd__error *e);

/* ---- erase ---- */

int group_erase(struct group *group, struct store_erase *erase, struct embd__error *e);

#endif
