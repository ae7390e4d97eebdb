/* group.h - one table over all GPUs of the process: what the C files of this folder share.
 *
 *   wire       the devices, and how bytes get from one to another
 *   kernels/   whose a key is, and moving what is somebody else's
 *   group      failure; how devices and the host wait for each other
 *   flow       one call's memory
 *   queue      the calls, from the shard's call to its done; deadlines
 *   batch      a request cut into one batch for each device, sent there and grouped by owner
 *   passage    the way there and back of what was grouped
 *   pull, partial, push   what happens at the owners
 *   capacity   the bound of the table as a whole
 *   evict      rows that go where there is no room for others
 *   load, erase   a block or keys cut by owner
 *   nccl_store opens, closes, scans; what store.h asks for
 *
 * Every device is a home and an owner. As a home it has a part of the request's rows: it finds out
 * whose their keys are, sends them there, and gets rows, or the statuses of keys, back. As an
 * owner it has a cuda store of its own, with the rows of the keys that are its; what it gets from
 * the homes comes in the order of the request, because homes have ascending rows and grouping
 * keeps their order. So sums have the order they have on one device, and their bits.
 *
 * Items: in hash and modulo tables a key, whose row comes back as it is stored and is pooled at
 * home; in slot tables a row with its keys, which is pooled by its owner. Where it may be so
 * (store_gpus.partial_sums) or makes no difference (a push), pooled rows of hash and modulo tables
 * are items in parts: every owner has those of all rows, and answers a partial sum of each, or
 * gets its gradient once.
 *
 * A device has four streams, so that it works at as many calls at once: on the front items are
 * grouped and sent to their owners; on the stream of the device's own store is all that needs the
 * table; on the return NCCL carries rows home; on the rear what came home is put in its place,
 * pooled and handed over. Devices wait for each other by events, and only for what they need of
 * each other: they need not be at the same call. The host has to know how much goes where, so it
 * comes back to a call when that was counted, and to one that may create rows once more when these
 * were. It never waits but in scan, load, erase, a pull that says `now`, a push that finds less
 * room than it needs, and a prepare that has to look at keys.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_NCCL_GROUP_H
#define EMBD_NCCL_GROUP_H

#include "server/store/cuda/cuda_store.h"
#include "server/store/nccl/kernels/move.h"

/* A part of a request, on its device. Pointers are to what the caller brought until the batch was
 * sent there. */
struct share {
    uint32_t n_rows, n_keys;
    uint32_t first; /* key that offsets count from */
    const uint64_t *keys;
    const uint32_t *offsets;
    const uint16_t *slots;
    const float *weights;
    const uint8_t *grads;
    uint8_t *values;   /* pull: the caller's, of any kind of memory */
    uint8_t *statuses; /* the caller's, or NULL */
};

/* How many things go from where to where. */
struct space {
    struct starts sent[WIRE_MAX]; /* of home h: those for owner o are sent[h].at[o] .. [o + 1] */
    struct starts got[WIRE_MAX];  /* of owner o: those of home h are got[o].at[h] .. [h + 1] */
};

/* Device memory that is kept from one call to the next. It grows by half at least; what it was
 * before is kept too, because giving memory back waits for the device, which may be stuck. */
#define BLOCK_GROWTHS 80u
struct block {
    uint8_t *memory;
    uint64_t bytes;
    uint8_t *before[BLOCK_GROWTHS];
    uint32_t n_before;
};

/* What goes from homes to owners, then what comes back. */
enum lane {
    LANE_KEYS,
    LANE_SLOTS,
    LANE_WEIGHTS,
    LANE_STARTS, /* where the items' keys begin */
    LANE_GRADS,
    LANE_PLACES, /* where the home wants the item's row */
    LANES_OUT,
    LANE_ROWS = LANES_OUT,
    LANE_STATUSES,
    LANES
};
struct lane_shape {
    const struct space *space;
    uint32_t bytes; /* of a thing; 0: this call has no such lane */
};
/* Where the things of a lane are on one device. */
struct lane_ends {
    uint8_t *home;         /* in the home's order */
    const uint32_t *order; /* by which they are grouped; NULL: they lie grouped */
    uint8_t *row;          /* without peer access: the home's, grouped */
    uint8_t *owner;        /* grouped, from all homes */
};

/* One device's side of a call. */
struct member {
    struct store *table;
    void *event;
    struct block home, owner;
    struct lane_ends lanes[LANES];

    /* As a home. */
    struct share batch;
    struct route_view route;
    struct route_report *report; /* pinned */
    void *temp;                  /* of a sort or a sum */
    uint32_t *row_of;            /* [n_keys] with offsets, if items are keys */
    uint32_t *refs;              /* [n_keys] of rows that came back, to be pooled */
    uint8_t *values;             /* of the batch, before they are copied to the caller's */

    /* As an owner. */
    struct keys_view in; /* row_of: set by passage_out, where there is one */
    uint32_t *offsets;
    uint32_t *found;   /* [in.n] refs */
    struct call *call; /* of the table, while a push or insert is planned */
    struct store_push push;
};

enum flow_state {
    FLOW_ROUTED,   /* where its items go is on its way from the devices */
    FLOW_PLANNED,  /* what it creates is */
    FLOW_ENQUEUED, /* all of it is */
    FLOW_ENDED,    /* with `status`; done is to be called */
};

struct flow {
    struct flow *next;
    struct group *group;
    enum call_kind kind;
    enum flow_state state;
    int status;
    uint64_t deadline_ms;
    struct store_pull *pull;
    struct store_push *push;
    struct store_insert *insert;
    struct store_plan *plan; /* an insert that is only planned; else NULL */
    struct store_done *done;

    bool may_drop;             /* it is not refused for want of room */
    bool by_row, by_part;      /* items are rows, or parts of rows */
    bool has_offsets;          /* the request has */
    bool is_delivered;         /* owners store rows right where homes want them */
    bool is_turned;            /* it goes on on the rears */
    bool has_evicted;          /* or could not */
    struct evicting *evicting; /* while it does; kept where the group fails */
    uint32_t n_keys;
    uint8_t *pinned;
    size_t pinned_bytes;
    uint8_t *statuses, *values; /* pinned, on their way to the caller's; or NULL */
    uint8_t *statuses_out, *values_out;
    uint64_t values_bytes;
    uint32_t n_inserted, n_full, n_filtered, n_evicted;
    uint64_t step; /* the table's after this push, or 0 */
    struct space items, keys;
    struct lane_shape lanes[LANES];
    struct member members[WIRE_MAX];
};

struct group {
    const struct table_schema *schema; /* the caller's */
    struct table_schema member_schema; /* the members'; its arrays are the caller's */
    uint32_t n;
    struct store *tables[WIRE_MAX];
    void *fronts[WIRE_MAX], *streams[WIRE_MAX]; /* streams[d] is tables[d]'s */
    void *returns[WIRE_MAX], *rears[WIRE_MAX];
    bool has_parts;            /* pooled pulls of hash and modulo tables may be by_part */
    struct flow *first, *last; /* the queue */
    struct flow *spare;
    uint64_t step; /* as of the calls whose done was called; members may be ahead */
    uint32_t cut_gone_at,
        cut_at;            /* members of a cut: whose gone keys are read, and whose rest is next */
    uint64_t cut_read;     /* bits of those that are read */
    uint64_t cut_waits_ms; /* since when none gives anything; 0: one did */
    bool failed;           /* the devices are not to be trusted any more */
    char why[300];
    struct group *given_up; /* the one closed before, of those that failed */
};

/* Milliseconds that the devices have for one call before they count as lost. */
extern uint64_t group_patience_ms;

/* Sets the error of a status, which is not 0: EMBD_NO_MEMORY, or EMBD_INTERNAL for good, with the
 * wire given up. */
int group_error(struct group *group, int status, const char *what, struct embd__error *e);
/* The same of a call that was not done in time. */
void group_lose_patience(struct group *group);
/* Each of the streams `to`, one of each device, waits for what `from` of the same device, or of
 * all, have got. */
int group_meet(struct flow *flow, void *const from[], void *const to[], bool of_all);
/* Waits for what is enqueued on the streams: 0, or a status; WIRE_LOST: not in time. */
int group_await(struct flow *flow);
uint32_t element_bytes(embd_dtype dtype);

/* ---- flow ---- */

/* At least `bytes` of the block, in memory that peers reach. The device is in use. */
int block_need(struct block *block, uint64_t bytes);
struct flow *flow_new(struct group *group);
void flow_free(struct flow *flow);
void flow_free_spare(struct group *group);

/* ---- queue ---- */

void flow_submit(struct group *group, enum call_kind kind, void *request, struct store_done *done);
/* Finds out what would become of the keys of `insert`, whose statuses are NULL, behind all calls
 * made before. Waits; done is called from inside. */
void flow_plan(struct group *group, struct store_plan *plan, struct store_insert *insert,
               struct store_done *done);
/* Rows that calls under way may make, at most. */
uint64_t flow_most_coming(const struct group *group);
/* A pull whose batches lie on their devices already, and so do their values. */
void flow_submit_batches(struct group *group, struct store_pull *pull, const struct share batches[],
                         struct store_done *done);
bool flow_collect(struct group *group);
void flow_forget(struct group *group, struct store_done *done);
void flow_wait_all(struct group *group);

/* ---- batch ---- */

/* Cuts the request into batches. DEVICE_NO_MEMORY. */
int batch_cut(struct flow *flow);
/* Sends the batches to their devices and groups their items; enqueued up to the report. */
int batch_route(struct flow *flow, bool is_there);

/* ---- passage ---- */

/* The spaces, from the reports. */
void passage_count(struct flow *flow);
/* The owners' memory of all lanes, from `arena`; then `in` of the member is what it looks up. */
void passage_lay_out(struct flow *flow, uint32_t device, struct arena *arena);
/* All that goes out to the owners, on the fronts; each device's stream waits for what it got. */
int passage_out(struct flow *flow);
/* The lanes from `first` on, LANE_ROWS or LANE_STATUSES, back to the homes. They are there on the
 * rears, where the rest of the call follows. */
int passage_back(struct flow *flow, enum lane first);

/* ---- pull, push: 0 or a status ---- */

int pull_run(struct flow *flow);
/* Everything up to the report of what is to be created. */
int push_plan(struct flow *flow);
/* EMBD_FULL, EMBD_NO_MEMORY: nothing changed. *again: rows went, and the plan is enqueued anew. */
int push_run(struct flow *flow, bool *again, struct embd__error *e);
/* The same up to what changes, of a flow that has a plan, which is told. Waits. */
int push_foresee(struct flow *flow, struct embd__error *e);
/* ---- capacity ---- */

/* Rows the table as a whole may still get. */
uint64_t group_room(const struct group *group);
int group_refuse(const struct group *group, uint64_t n_leaders, uint64_t room,
                 struct embd__error *e); /* EMBD_FULL */
/* How many rows a member may get for now, beyond those it has. */
void group_set_share(struct store *table, uint64_t room);

/* ---- evict ---- */

/* n_leaders keys need a row, more than there is `room` for: others go, once; *again: some did. */
int group_evict(struct flow *flow, uint64_t n_leaders, uint64_t room, bool *again,
                struct embd__error *e);

/* ---- load ---- */

int group_load(struct group *group, const struct row_block *block, struct embd__error *e);

/* ---- erase ---- */

int group_erase(struct group *group, struct store_erase *erase, struct embd__error *e);

#endif
