/* client.h - what a client handle holds. Owner: the caller's thread; what belongs to the loop's
 * thread is only reached through jobs (thread.h). */
#ifndef EMBD_CLIENT_CLIENT_H
#define EMBD_CLIENT_CLIENT_H

#include "client/call/arena.h"
#include "client/call/distinct.h"
#include "client/follow.h"
#include "client/link/identity.h"
#include "client/opened.h"
#include "proto/schema.h"
#include "client/thread.h"

struct client_shard {
    /* Changed by the loop's thread where the shard moves (follow.c); what they point to stays.
     * admin_address is "" where the server has none, admin_host, "host:port" on TCP, likewise. */
    char *_Atomic address, *_Atomic admin_address, *_Atomic admin_host;
    char *texts;               /* that they were in the first map; the client's */
    struct link *link, *admin; /* admin is NULL where there is none */
};

/* What plan.c remembers of batches of one size. */
struct plan_history {
    uint32_t calls_left;  /* until keys are counted again; 0: now */
    float distinct_ratio; /* distinct keys / keys */
};

struct embd_table {
    struct embd_client *client;
    struct table_schema schema;
    uint32_t id;
    struct plan_history history[32]; /* by the power of two of n_keys */
    struct embd_table *next;
};

struct embd_client {
    struct embd_options options;
    struct identity identity;
    uint64_t id;              /* what servers know its pushes by; not 0 */
    struct embd__error error; /* of the last failed call */
    struct courier courier;
    uint32_t n_shards;
    struct client_shard *shards;
    uint32_t last_msgid;
    struct embd_table *tables;
    struct embd_call *calls;      /* all that were ever made */
    struct embd_call *free_calls; /* those not in use */
    struct exchange request;      /* of request.h */
    struct distinct distinct;     /* of the rows plan */
    struct follower follower;
    struct opened opened;   /* streams of pushers */
    struct member *members; /* of members.h */
    struct beats *beats;    /* signs of life for them; NULL: none are given yet */
};

uint32_t embd__next_msgid(struct embd_client *client);
/* Prepares an exchange that waits no longer than `deadline_ms` (0: the client's). */
void embd__exchange_begin(struct embd_client *client, struct exchange *x, uint32_t deadline_ms);

/* map.c: finds the cluster and sets client->shards, without links. EMBD_INVALID: the list cannot be
 * read; and errors of embd_connect. */
int embd__map_find(struct embd_client *client, const char *servers, uint64_t deadline_ns);
struct link_config embd__link_config(struct embd_client *client, const char *address);

/* A shard as the answer to `cluster` has it. */
struct map_entry {
    char address[512], admin[512], admin_tcp[512];
};
int embd__map_entry_read(struct reader *r, const msgpack_object *item, struct map_entry *out);

/* Sets address and is_path to the socket of the shard's admin listener where it can be reached from
 * here, else to its port. False: there is neither. */
bool embd__choose_admin(const struct client_shard *shard, struct link_config *config);

/* request.c: embd__request on any link; what embd__request_begin began may have been given
 * fail_fast. */
struct answer;
int embd__request_on(embd_client *client, struct link *link, struct answer **answer_out);

/* call.c: frees all calls; the loop stands still. */
void embd__calls_fini(struct embd_client *client);
/* tables.c */
void embd__tables_fini(struct embd_client *client);

#endif
