/* coordinator.h - snapshots of the whole cluster, made by one server for an admin, or for a trainer
 * of their job; tables that take the places of others on all shards; and keys that move to other
 * shards.
 *
 * A request begins a job and is answered at once. A thread of this process does the job by asking
 * all shards (server/peers); any admin may watch it or cancel it, and so may trainers of its own
 * job. For an admin it shows other servers what the admin has passed on. For a trainer it shows
 * them its own token (peer_token) and names the trainer's, so that each of them checks what that
 * one may do. The job goes on to its end
 * even if its asker leaves. Only a job that needs its asker (for the trainer's files, or to fetch
 * rows) ends when the asker leaves, or is silent for COORDINATOR_QUIET_NS.
 *
 * One job at a time. All functions: any thread. */
#ifndef EMBD_COORDINATOR_H
#define EMBD_COORDINATOR_H

#include "proto/partfile.h"
#include "proto/placement.h"
#include "proto/shard_entry.h"
#include "server/peers/peers.h"

#define COORDINATOR_QUIET_NS UINT64_C(10000000000)

/* While others wait for their turn, a trainer's files have to come at this rate, after this time:
 * else its job ends with EMBD_BUSY. */
#define COORDINATOR_FILES_NS   UINT64_C(5000000000)
#define COORDINATOR_FILES_RATE (16u << 20) /* bytes a second */

enum job_state { JOB_RUNNING, JOB_DONE, JOB_FAILED, JOB_STATES };
enum job_phase {
    JOB_BEGIN,  /* staged directories are made */
    JOB_FILES,  /* the asker sends its files */
    JOB_HOLD,   /* changes wait, for the moment of the cut */
    JOB_WRITE,  /* the shards write */
    JOB_READ,   /* the asker fetches rows of the cut, or rows are copied to other shards */
    JOB_COMMIT, /* complete here and there: it cannot be cancelled any more */
    JOB_KEEP,   /* older ones are removed, or rows that have moved */
    JOB_ABORT,  /* everything that was begun is removed */
    JOB_PHASES
};
extern const char *const job_state_names[JOB_STATES];
extern const char *const job_phase_names[JOB_PHASES];

/* The trainer's token that a job is for; zero: it is an admin's. */
struct job_asker {
    char token[64]; /* its name */
    uint64_t principal;
};

/* The request. */
struct job_order {
    struct job_asker asker;
    char name[SNAPSHOT_NAME_MAX + 1];
    char base[SNAPSHOT_NAME_MAX + 1]; /* "": all rows */
    struct table_scope scope;         /* of what is written */
    uint32_t keep;                    /* 0: all older ones */
    bool has_files;                   /* the asker sends files, and then job_go */
    bool is_read; /* a cut whose rows the asker fetches, until job_go: nothing is written */
    char table[EMBD_NAME_MAX + 1]; /* of those: this one alone; "": all */
    uint64_t staged;               /* id of staged tables that take their places; 0: none do */
    uint32_t n_staged;             /* of these, on each shard */
    bool is_move;                  /* keys move to this map: */
    struct placement place;
    struct shard_entry *added; /* [n_added] malloc'd: shards that the map adds. coordinator_start
                                  takes it, with the proof */
    uint32_t n_added;
    uint64_t rate; /* of the rows that move: bytes a second; 0: no limit */
    bool is_abort; /* only what an interrupted one of that name has left is removed */
    struct peers_proof proof;
    /* The cluster as it is now. Lifetimes: the call. */
    const char *const *addresses, *const *admin_addresses, *const *admin_hosts; /* [n_shards] */
};

struct job_report {
    uint64_t id; /* of the job, and of its cut */
    char name[SNAPSHOT_NAME_MAX + 1];
    struct job_asker asker;
    char job[EMBD_NAME_MAX + 1]; /* of the snapshot */
    enum job_state state;
    enum job_phase phase;
    bool is_read, is_replace, is_move;
    uint32_t shards_done; /* of this phase */
    uint64_t rows, bytes, pause_us, elapsed_us;
    uint64_t expected_rows, expected_bytes; /* that a move copies, about; 0: not known */
    uint64_t rate;                          /* its limit, bytes a second; 0: none */
    struct embd__error error;               /* of JOB_FAILED */
};

struct coordinator_config {
    uint32_t n_shards, first_own, n_own;
    const char *cert, *key; /* paths of this server's; NULL: none. Outlive the coordinator */
    const char *peer_token; /* likewise: of its token for other servers, for jobs of trainers */
    const struct dialer *dialer; /* likewise: to the shards of this process; NULL: by sockets */
};

struct coordinator;

int coordinator_open(const struct coordinator_config *config, struct coordinator **out,
                     struct embd__error *e);
/* The authorities that this server believes, for jobs of trainers that begin from now on; copied.
 * EMBD_NO_MEMORY: those before stay. */
int coordinator_set_ca(struct coordinator *c, const void *ca, uint64_t ca_bytes,
                       bool believes_system, struct embd__error *e);
/* Shards of the cluster, from the next job on. */
void coordinator_set_shards(struct coordinator *c, uint32_t n_shards);
/* The same, and all of them are of this process. */
void coordinator_set_own(struct coordinator *c, uint32_t n_shards);
/* Whether the server has shard 0. */
bool coordinator_is_first(const struct coordinator *c);
/* The job that runs ends soon, and no other begins. NULL is allowed, here and below. */
void coordinator_stop(struct coordinator *c);
/* Waits for the thread. */
void coordinator_close(struct coordinator *c);

/* Snapshots of the cluster that failed here since the start. Those that were cancelled, or had to
 * wait for another one, are none. 0 where c is NULL. */
uint64_t coordinator_failures(struct coordinator *c);

/* Begins the job. Takes what proof points to, also after an error. EMBD_BUSY: another one runs, and
 * the error names it; EMBD_DRAINING; EMBD_NO_MEMORY. */
int coordinator_start(struct coordinator *c, struct job_order *order, struct job_report *out,
                      struct embd__error *e);
/* Who asks about jobs: those that it may not know of are to it as if they were not there. Zero: it
 * may know of all. */
struct job_viewer {
    bool (*may_see)(const void *arg, const struct job_report *report);
    const void *arg;
};

/* The newest job of that name, or the newest of all (""), among the last eight. EMBD_INVALID: none.
 */
int coordinator_look(struct coordinator *c, const struct job_viewer *viewer, const char *name,
                     struct job_report *out, struct embd__error *e);
/* The move of that name ("": the newest job) copies no more than so many bytes a second from now
 * on; 0: no limit. *out: the move. EMBD_INVALID: no keys are being moved. */
int coordinator_set_rate(struct coordinator *c, const char *name, uint64_t rate,
                         struct job_report *out, struct embd__error *e);
/* The asker of that job has sent its files, or fetched its rows. */
int coordinator_go(struct coordinator *c, const struct job_viewer *viewer, const char *name,
                   uint64_t id, struct embd__error *e);
/* Ends the job of that name: it fails with EMBD_CLOSED, and leaves nothing. EMBD_BUSY: it is being
 * committed; EMBD_INVALID: no job of that name runs. */
int coordinator_cancel(struct coordinator *c, const struct job_viewer *viewer, const char *name,
                       struct embd__error *e);
/* The connection of its asker is closed: a job that needs its asker ends. */
void coordinator_leave(struct coordinator *c, uint64_t id);
/* Its asker lives. */
void coordinator_hear(struct coordinator *c, const struct job_viewer *viewer, const char *name);
/* It has sent so much of its files. */
void coordinator_hear_files(struct coordinator *c, const char *name, uint64_t bytes);

#endif
