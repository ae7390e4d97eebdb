/* identity_internal.h - the state of a process, for the files that share it: identity.c, which
 * decides, and asking.c, whose thread asks. */
#ifndef EMBD_IDENTITY_INTERNAL_H
#define EMBD_IDENTITY_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/identity/decision.h"
#include "server/identity/identity_file.h"
#include "server/peers/peers.h"

#define IDENTITY_TOKEN_BYTES 260u

struct identity {
    struct identity_config config;
    int dir, lock;
    atomic_int state;                    /* enum identity_state; changed with the mutex held */
    atomic_uint_fast64_t history, epoch; /* as clients are told; changed with the mutex held */
    atomic_uint_fast64_t asked_here; /* `asked` while shard 0, of this process, has not answered */
    pthread_mutex_t mutex;
    pthread_cond_t news;
    /* Guarded. */
    struct identity_file file;
    struct placement placement;       /* of this start; stays */
    struct placement current;         /* to which keys have moved since */
    uint32_t n_moving;                /* shards that may have rows of others' keys */
    bool was_moving;                  /* the directory had, at the start; stays */
    bool is_by_records;               /* see identity_forget_placement */
    uint32_t n_to_be_empty;           /* shards that are to be empty before it counts */
    char refusal[IDENTITY_WHY_BYTES]; /* of the directory itself; "": none */
    char why[IDENTITY_WHY_BYTES];
    struct identity_answer *answers; /* [n_servers], of the last round; that of self is zero */
    bool *is_met;                    /* [n_servers] have answered, ever; room as config.servers */
    bool is_raised;                  /* the epoch is one of this start, and on disk */
    uint64_t raised_s;               /* when, by the monotonic clock */
    bool was_open;
    bool is_settled; /* others have answered, and it is open: nothing can be found any more */
    bool is_loaded, is_hinted, stops;
    uint64_t cut, cut_rows;
    uint32_t n_other_cuts; /* as the log has it */
    bool is_believed;      /* the others cannot be asked */
    uint64_t asked;        /* number of a decision; 0: none was ever */
    enum decision answered;
    char token[IDENTITY_TOKEN_BYTES];
    struct peers_proof ca; /* the authorities alone */
    char **addresses;      /* [n_shards]; NULL: unknown yet */
    struct peers *peers;   /* while a round runs */
    /* The thread's. */
    struct identity_asking asking;
    pthread_t thread;
    bool has_thread;
};

static inline const struct identity_server *identity_self(const struct identity *identity)
{
    return &identity->config.servers[identity->config.self];
}

/* ---- placement.c ---- */

/* Once the directory's file is read. EMBD_INVALID: the configuration has another map. */
int identity_choose_placement(struct identity *identity, struct embd__error *e);
void identity_tell_placement(const struct identity *identity, struct identity_answer *out);
/* The number of a server that has answered, and has another map; -1: none. */
int64_t identity_other_placement(const struct identity *identity);

/* ---- members.c ---- */

/* At the start: shards that the configuration lacks, and servers of it that were not added yet. */
void identity_find_members(struct identity *identity);
/* The cluster has `n` shards from now on. With the mutex held. False: the directory does not say
 * where some of them are. */
bool identity_resize(struct identity *identity, uint32_t n);

/* After a round, with the mutex held. True: the state has changed. */
bool identity_decide(struct identity *identity);

#endif
