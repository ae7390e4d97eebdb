/* token_use.h - what the tables that a token is for take on this shard, and may take: tables and
 * row_bytes of the list of tokens.
 *
 * A table counts for each token with a prefix of its name, whoever created it: so the count is the
 * same after a restart, and tokens with the same prefixes share what there is. Of rows counts what
 * counts for row_memory (row_memory.h), as of the last push. Requests are asked, never a journal:
 * what it has was accepted. Asking looks at each table of the token, so only those pay whose token
 * has a limit. */
#ifndef EMBD_SERVICE_TOKEN_USE_H
#define EMBD_SERVICE_TOKEN_USE_H

#include "server/engine/op.h"

struct access;
struct call;
struct grant;
struct shard;
struct shard_session;

struct token_use {
    char name[64]; /* of the token */
    uint64_t tables, row_bytes;
    uint64_t most_tables, most_row_bytes; /* UINT64_MAX: no limit */
    /* In the data directory; only the first shard of its process tells them. UINT64_MAX: not told,
     * or no limit. */
    uint64_t snapshots, snapshot_bytes, most_snapshots, most_snapshot_bytes;
};

struct token_use token_use_of(const struct tables *tables, const struct grant *grant);

/* Of tokens with a limit, in the order of the list, up to `most`: all, or `only` that one (NULL:
 * all). Returns how many. */
uint32_t token_use_list(const struct shard *shard, const struct grant *only, struct token_use *out,
                        uint32_t most);

/* Whether the peer may create the table, or stage it: EMBD_FULL if it would be one too many. */
int token_use_check_new(struct call *call, const char *table);

/* Bounds what a push or pull of the session may add, where `op` is not bounded closer already. */
void token_use_bound(struct op *op, const struct shard_session *session);

/* The same of rows for a staged table: tables of the token that staged ones will replace do
 * not count. */
void token_use_bound_staged(struct op *op, const struct shard_session *session);

#endif
