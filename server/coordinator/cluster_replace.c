/* cluster_replace.c - see cluster_replace.h.
 *
 * The happy path: `check` on every shard, behind which nothing there can be in the way; `apply` on
 * every shard, which writes one record. Pulls go on: a shard answers from the old tables or from
 * the new ones.
 *
 * What can fail before the first `apply` changes nothing. Behind it a shard may have answers on
 * their way that it must keep first: it is asked again. A shard whose server dies then, or whose
 * disk takes no record, keeps its old tables whole: the error says so, and the same command, given
 * again, replaces them on all shards. */
#include "server/coordinator/cluster_replace.h"

#include <stdlib.h>
#include <time.h>

#include "server/coordinator/cluster_hold.h"

/* While a hold lasts. */
#define TRIES    300u
#define PAUSE_NS 10000000u

struct replacing {
    struct peers *peers;
    uint32_t n_shards;
    uint64_t id;
    bool *has_applied, *is_asked; /* [n_shards] */
    uint32_t n_applied;
};

int cluster_check_replace(struct peers *peers, uint32_t n_shards, uint64_t id, uint32_t n,
                          struct embd__error *e)
{
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        struct msg *m = peers_add(peers, shard, METHOD_TABLE_REPLACE, CLUSTER_ASK_MS);
        embd__msg_map(m, 3);
        embd__msg_field_uint(m, "id", id);
        embd__msg_field_str(m, "phase", "check");
        embd__msg_field_uint(m, "tables", n);
    }
    return peers_run(peers, NULL, NULL, e);
}

/* Behind the check, or refused for now. */
static bool is_asked(const struct replacing *r, uint32_t shard)
{
    int status = peers_error(r->peers, shard)->status;
    return !r->has_applied[shard] &&
           (status == EMBD_OK || status == EMBD_BUSY || status == EMBD_NO_MEMORY);
}

static void add_apply(const struct replacing *r, uint32_t shard)
{
    struct msg *m = peers_add(r->peers, shard, METHOD_TABLE_REPLACE, CLUSTER_ASK_MS);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", r->id);
    embd__msg_field_str(m, "phase", "apply");
}

/* False: no shard is left to be asked. */
static bool ask_rest(struct replacing *r)
{
    struct embd__error ignored = {.status = EMBD_OK};
    uint32_t n = 0;
    for (uint32_t shard = 0; shard < r->n_shards; shard++) {
        r->is_asked[shard] = is_asked(r, shard);
        n += r->is_asked[shard];
        if (r->is_asked[shard])
            add_apply(r, shard);
    }
    if (n > 0)
        peers_run(r->peers, NULL, NULL, &ignored);
    for (uint32_t shard = 0; shard < r->n_shards; shard++)
        if (r->is_asked[shard] && peers_error(r->peers, shard)->status == EMBD_OK) {
            r->has_applied[shard] = true;
            r->n_applied++;
        }
    return n > 0;
}

/* Of the first shard that has not applied it; says which state the others are in. */
static int name_failure(const struct replacing *r, struct embd__error *e)
{
    uint32_t shard = 0;
    while (shard < r->n_shards && r->has_applied[shard])
        shard++;
    if (shard == r->n_shards)
        return EMBD_OK;
    const struct embd__error *why = peers_error(r->peers, shard);
    return embd__error_set(
        e, why->status,
        "%s: %.200s; %u of %u shards have the new tables, the others have the old ones "
        "or did not answer, each table whole: load again to replace them on all",
        peers_name(r->peers, shard), why->text, r->n_applied, r->n_shards);
}

int cluster_apply_replace(struct peers *peers, uint32_t n_shards, uint64_t id,
                          struct embd__error *e)
{
    struct replacing r = {.peers = peers, .n_shards = n_shards, .id = id};
    r.has_applied = calloc(2 * n_shards, sizeof *r.has_applied);
    if (r.has_applied == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to replace tables");
    r.is_asked = r.has_applied + n_shards;
    for (uint32_t tries = 0; tries < TRIES && ask_rest(&r); tries++)
        if (r.n_applied < n_shards)
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    name_failure(&r, e);
    free(r.has_applied);
    return e->status;
}
