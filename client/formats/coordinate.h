/* coordinate.h - jobs of the server that coordinates snapshots: one request begins a job, others
 * watch it. Shard 0's server is asked. */
#ifndef EMBD_FORMATS_COORDINATE_H
#define EMBD_FORMATS_COORDINATE_H

#include "embd/admin.h"
#include "client/core/request.h"
#include "proto/placement.h"
#include "proto/scope.h"
#include "proto/shard_entry.h"

/* The request. */
struct job_ask {
    const char *name, *base, *table; /* NULL: none */
    uint32_t keep;
    bool has_files, is_read;
    struct table_scope scope;
    uint64_t staged;                 /* id of staged tables that take their places; 0: none do */
    uint32_t n_staged;               /* of these */
    const struct placement *place;   /* keys move to this map; NULL: they do not */
    const struct shard_entry *added; /* [n_added] shards that it adds */
    uint32_t n_added;
    uint64_t rate; /* of the rows that move: bytes a second; 0: no limit */
    bool retires;  /* the map lacks the last shards */
};

/* How far it is. */
struct job_told {
    uint64_t id;
    char name[64 + 1], state[16], phase[16];
    bool is_read;
    uint32_t shards_done;
    uint64_t rows, bytes, pause_us, elapsed_us;
    struct embd__error error; /* EMBD_OK: it has not failed */
};

/* The client's error says what went wrong. EMBD_BUSY: another job runs; EMBD_UNSUPPORTED: the
 * server is of an earlier version. */
int embd__job_start(embd_client *client, const struct job_ask *ask, struct job_told *out);
/* The newest of that name, or the newest of all (""). */
int embd__job_look(embd_client *client, const char *name, struct job_told *out);
int embd__job_go(embd_client *client, const struct job_told *job);
/* The server knows of no such job: sets the error EMBD_CLOSED, and returns it. */
int embd__job_forgotten(embd_client *client, const char *name);
/* Asks for its end. *out: the job, or the one that cleans up. */
int embd__job_cancel(embd_client *client, const char *name, struct job_told *out);

/* Of keys that move. */
struct job_rate {
    uint64_t rate; /* bytes a second; 0: no limit */
    uint64_t expected_rows, expected_bytes;
};

/* How fast the newest move of that name ("": of any) may go, and what it will copy, about. With
 * `rate` it is changed first, which needs one that runs. EMBD_UNSUPPORTED: the server is of an
 * earlier version. */
int embd__job_rate(embd_client *client, const char *name, const uint64_t *rate,
                   struct job_rate *out);

bool embd__job_runs(const struct job_told *job);
/* Waits until the job has ended, or is in `phase` (NULL: until it has ended). An error: it has
 * failed, or its server is gone. */
int embd__job_await(embd_client *client, struct job_told *job, const char *phase);

/* A job `what`-VERSION whose next map has n_shards: `ask` says the rest. Waits for it, sets the
 * figures of *out, and takes the map that there is then. */
int embd__resize(embd_client *client, const char *what, uint32_t n_shards, struct job_ask *ask,
                 embd_rebalance_report *out);

#endif
