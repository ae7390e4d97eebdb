/* disk_phase.h - a phase of a snapshot that the disk takes its time for: directories and manifests
 * are synced, and files removed, by a thread of their own (server/files/errand.h), while the shard
 * serves others. The request is answered at its end.
 *
 * A shard has one at a time. Its state (struct snapshot_parts) changes before `run` and in `done`.
 */
#ifndef EMBD_SNAPSHOT_DISK_PHASE_H
#define EMBD_SNAPSHOT_DISK_PHASE_H

#include "server/access/access.h"
#include "server/service/state.h"
#include "server/snapshot/snapshot_use.h"

struct cut;
struct disk_phase;

struct disk_phase_order {
    const char *what, *name; /* of the phase, a constant, and of the snapshot */
    /* On the thread: reads and sets what is in the struct, and `error`. */
    void (*run)(struct disk_phase *phase);
    /* Afterwards on the shard's, also after an error. `m`: the result's fields are to be written;
     * NULL: nobody hears of it. */
    void (*done)(struct disk_phase *phase, struct msg *m);
};

/* Owner: the shard's thread, but for `in` and `error` while `run` runs. */
struct disk_phase {
    struct disk_phase_order order;
    struct shard *shard;
    struct request *request;             /* to be answered; NULL: it is gone, or there was none */
    const struct shard_session *session; /* that asked; NULL: likewise */
    struct errand *errand;               /* NULL: nobody wakes this shard, and it ran at once */
    char name[SNAPSHOT_NAME_MAX + 1];
    struct embd__error error;
    struct {                            /* of the phases that need them */
        int data_dir, dir;              /* the shard's; of NAME.tmp, to be closed, or -1 */
        struct manifest_base base;      /* begin */
        struct base_tables base_tables; /* begin: malloc'd */
        struct table_scope scope;       /* begin */
        struct grant bound;             /* begin: of the trainer that it is for */
        struct snapshot_quota quota;    /* begin */
        bool is_bound;                  /* begin: there is one */
        uint64_t sequence;
        struct snapshot_piece piece; /* blob: reads the request's bytes */
        char blob[128], file[MANIFEST_BLOB_FILE];
        char *text;      /* commit: the manifest, malloc'd */
        struct cut *cut; /* abort: that is to end first; or NULL */
        bool removes;
        struct snapshot_use use;     /* of phases that look at the directory */
        uint32_t n_kept, n_removed;  /* keep */
        char job[EMBD_NAME_MAX + 1]; /* keep: of the snapshot; "": any */
    } in;
};

/* A phase for `call`, or of nobody where it is NULL. NULL: EMBD_BUSY, another one is under way;
 * EMBD_NO_MEMORY. */
struct disk_phase *disk_phase_new(struct shard *shard, struct call *call,
                                  const struct disk_phase_order *order, struct embd__error *e);
/* Begins; takes the phase. CALL_LATER; or the status of phase->error, where one is set, or of no
 * thread, EMBD_NO_MEMORY: `done` was called, and `run` was not. */
int disk_phase_start(struct disk_phase *phase, struct embd__error *e);

/* Ends the phase if its thread has ended. */
void disk_phase_collect(struct shard *shard);
/* The same, but waits. */
void disk_phase_close(struct shard *shard);

/* The request, or the connection, is going. */
void disk_phase_forget(struct shard *shard, const struct request *request);
void disk_phase_leave(struct shard *shard, const struct shard_session *session);

/* Whether one still reads tables' definitions: they may not be dropped. */
bool disk_phase_has_cut(const struct shard *shard);

#endif
