/* authorize.h - whether the peer of a request may ask for it: by the role of its token, and table
 * by table. Where the shard has no list of tokens, everybody may do everything that the listener
 * offers. All return EMBD_OK, or EMBD_DENIED naming method, role and table. */
#ifndef EMBD_SERVICE_AUTHORIZE_H
#define EMBD_SERVICE_AUTHORIZE_H

#include "server/service/state.h"

/* Takes the token of a hello, "" where it shows none. `acts_for`: the name of the trainer's token
 * that a server makes a snapshot for; "": for nobody. */
int authorize_hello(struct call *call, const char *token, const char *acts_for);

/* Trainers and readers have so many of the admin listener's 64 connections: admins, and servers,
 * get in beside them, and no token keeps others out. */
#define ADMIN_CONNECTIONS_OF_TOKEN    24u
#define ADMIN_CONNECTIONS_OF_TRAINERS 48u
/* The connection is closed. */
void authorize_leave(struct shard *shard, const struct shard_session *session);

/* The method that call->reader found. The shard has a list of tokens. */
int authorize_method(struct call *call);

/* The token whose prefixes bound what the request may name: a trainer's. NULL: it may name all. */
const struct grant *authorize_bound(const struct call *call);
/* Whether a bound token may name something; NULL: it is not bound. EMBD_DENIED says what, as
 * "snapshot 'x'". */
int authorize_name(struct call *call, const char *what, const char *name);
/* The peer coordinates: it is a server that acts for a token, or an admin. EMBD_DENIED. */
int authorize_coordinator(struct call *call, const char *what);

/* The table of that name; NULL: there is none that the peer may know of, EMBD_UNKNOWN_TABLE. */
struct table *authorized_table(struct call *call, const char *name);
/* Whether the peer may know of a table. */
bool authorizes_table(const struct call *call, const char *table);
int authorize_table(struct call *call, const char *table);
/* Whether the peer may know of all staged tables of that set. */
bool authorizes_staged(const struct call *call, uint64_t id);
/* Whether it may know what tokens of others take. */
bool authorizes_tokens(const struct call *call);
/* Rows of part `i`, whose table is NULL where there is none; a pull that creates rows is for those
 * who may push. EMBD_UNKNOWN_TABLE: the peer may not know of the table, and gets the same
 * answer as if there were none. */
int authorize_part(struct call *call, const struct op_part *part, uint32_t i, bool is_push);

/* A job is named like a table: under a prefix of the token. EMBD_FULL: a token that is not for all
 * tables has JOBS_PER_TOKEN others under way. */
#define JOBS_PER_TOKEN 16u
int authorize_job(struct call *call, const char *job);

/* Whether the list `access` (struct access; NULL: tokens are not required) no longer has a token of
 * this principal: a principal_is_gone of pushers.h. */
bool authorize_is_gone(const void *access, uint64_t principal);

#endif
