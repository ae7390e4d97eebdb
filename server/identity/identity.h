/* identity.h - the owner of a data directory: `identity.json` in it, and what the other servers of
 * the cluster know of this one.
 *
 * A directory belongs to one server of one cluster. Its epoch rises at each start and every ten
 * minutes; the others remember it. So a directory of another cluster or server, an older copy of
 * the own one, and an empty one are distinguished from the right one. They keep the shards of the
 * process from serving until an operator accepts them (--accept-empty), which the file records.
 *
 * Reading order: identity_file (the file), judge (the meaning of the others' answers), identity
 * (this: the state of a process), asking (the thread that asks the others). A mutex guards the
 * state; any thread. */
#ifndef EMBD_IDENTITY_H
#define EMBD_IDENTITY_H

#include "proto/errors.h"
#include "proto/placement.h"
#include "proto/shard_entry.h"
#include "server/identity/judge.h"

struct identity_server {
    const char *name; /* "" where it has none */
    uint32_t first_shard, n_shards;
};

/* Lifetimes: to identity_close. */
struct identity_config {
    const char *data_dir;
    struct identity_server *servers; /* [n_servers], with room for LIMIT_SHARDS more */
    uint32_t n_servers, self;
    uint32_t n_shards;                 /* of the cluster */
    bool joins;                        /* --join: a new directory is of no member yet */
    bool accepts;                      /* --accept-empty */
    bool is_by_etcd;                   /* etcd says which directory serves, and where others are */
    const struct placement *placement; /* of the configuration; NULL: the directory's */
    void (*changed)(void *arg);        /* the state is another one; any thread */
    void *arg;
};

struct identity;

/* Locks the directory. EMBD_IO: it cannot be opened, or another server uses it; EMBD_CORRUPT: the
 * file cannot be read; EMBD_NO_MEMORY. */
int identity_open(const struct identity_config *config, struct identity **out,
                  struct embd__error *e);
/* Stops asking. Call it before the objects of `changed` are freed, and before identity_close. */
void identity_stop(struct identity *identity);
void identity_close(struct identity *identity); /* NULL is allowed */

enum identity_state {
    IDENTITY_ASKING,  /* the other servers are asked: nothing is read or served yet */
    IDENTITY_OPEN,    /* it is this server's, as far as anybody knows */
    IDENTITY_REFUSED, /* it is not; also found after it was open, where nobody could be asked */
};
enum identity_state identity_state(const struct identity *identity);

#define IDENTITY_WHY_BYTES 320u
/* Why it is not open, and what to do; "" while it is. */
void identity_why(struct identity *identity, char out[IDENTITY_WHY_BYTES]);

struct identity_figures {
    bool is_refused;
    uint32_t n_accepted;   /* directories, ever */
    uint32_t n_other_cuts; /* servers that began with another snapshot, by the last round */
};
void identity_figures(struct identity *identity, struct identity_figures *out);

/* ---- answers to others ---- */

/* The snapshot that the process began with, and how many rows came from it. */
void identity_set_cut(struct identity *identity, uint64_t cut, uint64_t rows);
/* The answer of this process, without its tables. `first_shard`: of the server that asks; its epoch
 * may be new. */
void identity_tell(struct identity *identity, uint64_t first_shard, uint64_t epoch,
                   struct identity_answer *out);

/* ---- the placement of keys ---- */

/* Of this start. */
const struct placement *identity_placement(const struct identity *identity);
/* It takes the place of the directory's once all shards of the process have found themselves empty:
 * none may serve before. Any thread. */
bool identity_placement_waits(struct identity *identity);
/* A shard has. The last one writes the map to the directory, and wakes all. EMBD_IO. */
int identity_is_empty(struct identity *identity, struct embd__error *e);

/* ---- shards that are added, or leave ---- */

/* Shards of the cluster. Changes with identity_place. */
uint32_t identity_shards(struct identity *identity);
/* That the cluster ever had, where some have left; 0: none have. */
uint32_t identity_most_shards(struct identity *identity);
/* The process is a member no more: the directory serves no start from now on. Any number of times.
 * EMBD_IO. */
int identity_leave(struct identity *identity, struct embd__error *e);
/* Those from `first` on, which is how many there are, may become members with a later map: the
 * directory has them from now on. EMBD_IO, EMBD_NO_MEMORY: the directory has those before. */
int identity_members_begin(struct identity *identity, uint32_t first,
                           const struct shard_entry *list, uint32_t n, struct embd__error *e);
/* Where an added shard is. False: the directory does not have it. */
bool identity_member(struct identity *identity, uint32_t shard, struct shard_entry *out);

/* ---- keys that move ---- */

/* A later map, which all shards of the cluster have decided on: the directory's from now on. Any
 * number of times. EMBD_IO: the directory has the one before. */
int identity_place(struct identity *identity, const struct placement *place, struct embd__error *e);
/* The process follows: its journals alone say which map it has, and how many shards, all its own,
 * until it is promoted: until identity_place. */
void identity_forget_placement(struct identity *identity);
/* Meanwhile: the process has so many shards from now on. EMBD_IO: the directory cannot note it. */
int identity_set_room(struct identity *identity, uint32_t n_shards, struct embd__error *e);
/* A shard may have rows of other shards' keys until it says move_ends: the directory notes it, for
 * the next start. EMBD_IO. */
int identity_move_begins(struct identity *identity, struct embd__error *e);
void identity_move_ends(struct identity *identity);
/* Whether servers can ask each other what shard 0 has decided; a server alone can. */
bool identity_can_ask(struct identity *identity);
/* Whether the directory had such a note at this start: then each shard is to say move_ends. */
bool identity_was_moving(const struct identity *identity);

/* ---- to clients ---- */

/* The history is a number that stays while each start of the directory has all that the one before
 * had acknowledged of journaled tables. The epoch is 0 where the file could not be written. */
void identity_tell_history(const struct identity *identity, uint64_t *history_out,
                           uint64_t *epoch_out);
/* A number of the cluster that the directory is of; 0: not known. */
uint64_t identity_cluster_number(struct identity *identity);
/* This start has less: damage of a journal was accepted. Accepted directories do so themselves. */
void identity_begin_history(struct identity *identity);

/* ---- the other servers ---- */

struct identity_asking {
    const char *cert, *key; /* NULL: none */
    uint32_t wait_ms;       /* for identity_set_addresses or identity_go_on; 0: not at all */
};
/* The others cannot be asked: the directory itself decides the state. */
void identity_believe(struct identity *identity);
/* Asks from now on, in a thread of its own; until the first round is over nothing is open. Nothing,
 * where that is so. EMBD_NO_MEMORY. */
int identity_ask(struct identity *identity, const struct identity_asking *asking,
                 const char *const *addresses, struct embd__error *e);
/* Shown from now on; "": none. */
void identity_set_token(struct identity *identity, const char *token);
/* The authorities to believe from now on, copied; none: no TLS. EMBD_NO_MEMORY: those before stay.
 */
int identity_set_ca(struct identity *identity, const void *ca, uint64_t ca_bytes,
                    bool believes_system, struct embd__error *e);
/* No addresses will come soon. */
void identity_go_on(struct identity *identity);
/* Where the shards are now; "": not known. [n_shards] or more, copied. */
void identity_set_addresses(struct identity *identity, const char *const *addresses);

/* Servers that began with another snapshot than this one, and rows came from either; names them. */
uint32_t identity_other_cuts(struct identity *identity, char *names, uint64_t names_bytes);

#endif
