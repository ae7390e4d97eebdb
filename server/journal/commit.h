/* commit.h - an operation's record comes to the disk before the operation is applied.
 *
 * Here a journal and an engine meet: what is submitted is written, where its tables are journaled,
 * and applied, in one order. */
#ifndef EMBD_JOURNAL_COMMIT_H
#define EMBD_JOURNAL_COMMIT_H

#include "server/journal/journal.h"
#include "server/journal/operation.h"

struct commit_place {
    uint64_t position, chain;
};

/* Owner: the shard's thread. */
struct commit {
    struct engine *engine;
    struct journal *journal; /* NULL: no data directory; nothing is recorded */
    int data_dir;
    uint32_t shard;
    bool is_deferred; /* a thread writes records; else they are written inline */
    bool is_alone;    /* the record on its way shares no group, as pushes, openings and what
                         is_unnamed do: until it is applied, nothing else that changes tables is
                         submitted */
    bool is_load;     /* it is a load's: other loads may be submitted behind it */
    bool rests;       /* it would be applied now, were no store calls under way */
    uint32_t n_long;  /* recorded pushes that are not applied yet, to tables that are is_long */
    uint64_t n_refused, refused_since_ns; /* operations since the disk takes no records */
    uint64_t n_errors;                    /* ever */
    uint64_t n_were_long;                 /* pushes that n_long had, ever */
    uint64_t now_ns;                      /* of the operation that was submitted last */
    /* Records before this position were applied, and the checksum of the last one; and the same of
     * those whose operations have ended, which followers may have. */
    struct commit_place applied, ended;
    uint64_t reached; /* all records that were applied, or are being applied, are before it */
    bool settles;     /* nothing is applied until all operations have ended */
    bool follows;     /* it takes the records of another journal, and can refuse none of them */
    struct msg msg;   /* of the record being built */
    struct frame_scanner frame;
    struct operation_reader reader; /* of records whose owner has left */
};

void commit_init(struct commit *commit, struct engine *engine);
/* Applies what was appended, closes the journal, and frees. */
void commit_fini(struct commit *commit);

#define COMMIT_WAITS 1

/* Commits an admitted operation (engine_admit). EMBD_OK: it is applied, now or when a device has
 * finished, and op->done is or was called, unless it is NULL; `op` may be freed. COMMIT_WAITS: its
 * record is being written; when its turn comes, or the writing has failed, `turn` is called, then
 * it is applied or ends with EMBD_IO. Only pushes, openings and what is_unnamed may overlap,
 * and loads among themselves. EMBD_INVALID (some of its tables are journaled, others are
 * not), EMBD_UNSUPPORTED (there is no journal), EMBD_IO, EMBD_NO_MEMORY, EMBD_TOO_LARGE, errors of
 * tables_create and of store_ops.prepare: it is not applied, and done is not called. */
int commit_submit(struct commit *commit, struct op *op, void (*turn)(struct op *op),
                  struct embd__error *e);

/* Applies some of the operations written since, and has the next group written. True: call it again
 * soon. *ended_out: waiting operations have ended. */
bool commit_collect(struct commit *commit, bool *ended_out);

/* The operation's owner is going: its record, if it has one, will be applied nevertheless. */
void commit_forget(struct op *op);

/* All that the journal has is applied: it was opened. */
void commit_opened(struct commit *commit);
/* Sets commit->ended, as far as operations have ended. */
static inline void commit_settle(struct commit *commit)
{
    if (commit->engine->n_in_flight > 0)
        return;
    commit->ended = commit->applied;
    commit->settles = false;
}

/* The record of another journal becomes the next one of this, and is applied as one whose owner has
 * left. `is_alone`: its kind shares no group (operation_shares), and no other record is on its way.
 * `is_durable`: it is synced before it is applied. EMBD_NO_MEMORY: as if not asked. */
int commit_take(struct commit *commit, const struct frame_scanner *frame, bool is_alone,
                bool is_durable, struct embd__error *e);
/* Writes a record that changes nothing, at once, so that no follower takes what comes behind it for
 * what it has: the journal's tables have become others than its records say. EMBD_IO,
 * EMBD_NO_MEMORY. */
int commit_break(struct commit *commit, struct embd__error *e);

/* Writes a record that says which map the shard has, at once, while nothing is under way. The map
 * is the engine's from then on, for the next base, also after an error. EMBD_IO, EMBD_NO_MEMORY. */
int commit_place(struct commit *commit, const struct placement *place, struct embd__error *e);

/* Whether a replay goes on after an operation that ended so: it was refused then, too. */
bool commit_is_replayed(int status);

/* Applies an operation that was read from a record, at op.now_ns = now_ns. EMBD_OK, or why it was
 * refused. EMBD_BUSY: not now. *is_partly_done_out: it failed after parts of it were applied. */
int commit_replay(struct operation_reader *reader, struct engine *engine, uint8_t *bytes,
                  const struct record *record, uint64_t now_ns, bool *is_partly_done_out,
                  struct embd__error *e);

#endif
