/* access.h - who may do what: tokens, each with a role and the tables it is for.
 *
 *     # name    role     tables     hash of the token
 *     ranker    reader   ads_,user_ sha256:2c26b46b68ffc68ff99b453c1d304134...
 *     nightly   trainer  *          sha256:fcde2b2edba56bf408601fb721fe9b5c... row_bytes=64G
 *     operator  admin    *          sha256:baa5a0964d3320fbc0c6a922140453c8...
 *     ps        server   *          sha256:9f86d081884c7d659a2feaa0c55ad015...
 *
 * A table is covered when its name begins with one of the prefixes; * covers all. The file holds
 * hashes, never tokens. A token is 32 random bytes or more in text, so that one round of SHA-256 is
 * enough: there is nothing to guess from.
 *
 * The role server is for the servers of the cluster: one of them shows it to the others to make a
 * snapshot for a trainer, and names that trainer. It may do nothing on its own.
 *
 * Behind the hash may stand what the tables under a trainer's prefixes may take together on each
 * shard, whoever created them: tables=N and row_bytes=SIZE (K, M, G, T); and what the snapshots of
 * jobs under them may take in each data directory: snapshots=N and snapshot_bytes=SIZE. Without
 * tables= and snapshots=, a token that is not for all tables may have TOKEN_TABLES and
 * TOKEN_SNAPSHOTS. */
#ifndef EMBD_ACCESS_H
#define EMBD_ACCESS_H

#include "proto/errors.h"

enum role { ROLE_NONE, ROLE_READER, ROLE_TRAINER, ROLE_ADMIN, ROLE_SERVER };
/* "reader"; ROLE_NONE is "none". */
const char *role_name(enum role role);

#define GRANT_NAME_MAX  63u
#define GRANT_PREFIXES  16u
#define ACCESS_GRANTS   4096u
#define TOKEN_BYTES_MIN 32u
#define TOKEN_BYTES_MAX 256u
#define TOKEN_TABLES    64u
#define TOKEN_SNAPSHOTS 32u
#define GRANT_UNLIMITED UINT64_MAX

/* The permissions of one token. */
struct grant {
    char name[GRANT_NAME_MAX + 1];
    enum role role;
    uint32_t n_prefixes;
    char prefixes[GRANT_PREFIXES][EMBD_NAME_MAX + 1]; /* "": all */
    uint8_t hash[32];
    uint64_t
        principal; /* a number for the name, the same wherever it is; not 0 but for the owner */
    /* GRANT_UNLIMITED: as many as there is room for. These are no rights: two grants may differ in
     * them alone. */
    uint64_t most_tables, most_row_bytes, most_snapshots, most_snapshot_bytes;
};

/* Everything, without a token: for peers that the system has let in. */
extern const struct grant grant_of_owner;

bool grant_covers(const struct grant *grant, const char *table);

/* All grants of a file. Counted, never changed; any thread. */
struct access;

/* EMBD_INVALID names file, line and what is wrong, EMBD_IO, EMBD_NO_MEMORY. A file that others may
 * write is refused. */
int access_open(const char *path, struct access **out, struct embd__error *e);
/* The same from text; `path` is for the sentence. */
int access_read(const char *text, size_t n, const char *path, struct access **out,
                struct embd__error *e);
struct access *access_share(struct access *access);
void access_drop(struct access *access); /* NULL is allowed */

/* The token that servers with this list show each other, terminated: it is made of the list, so
 * that they need no secret more. Its grant reads the map and figures, and no table. */
#define ACCESS_PEER_BYTES 80u
void access_peer_token(const struct access *access, char out[ACCESS_PEER_BYTES]);

uint32_t access_count(const struct access *access);
/* The i-th, in the order of the file. */
const struct grant *access_at(const struct access *access, uint32_t i);
/* The grant of a token, as long as `access` exists; NULL: none. Takes the same time for every token
 * of one length. */
const struct grant *access_find(const struct access *access, const char *token);
/* The grant of that name; NULL: none. */
const struct grant *access_named(const struct access *access, const char *name);
/* Whether there is a grant of this principal. */
bool access_has_principal(const struct access *access, uint64_t principal);
/* The grant of the same token and rights in another file, perhaps with other limits; NULL: it is
 * not there any more. */
const struct grant *access_find_again(const struct access *access, const struct grant *grant);

#endif
