/* cluster_replace.c - see cluster_replace.h.
 *
 * The happy path: `check` on every shard, behind which nothing there can be in the way; `prepare`
 * on all but shard 0, which write a record that they wait for shard 0; `apply` on shard 0, whose
 * record decides for all; `apply` on the others. Pulls go on: a shard answers from the old tables
 * or from the new ones.
 *
 * What can fail before shard 0's record changes nothing. Behind it the others come to have the new
 * tables, whatever dies: a shard that is prepared and hears no more from this coordinator asks
 * shard 0 (service/doubt.c). So nothing is undone here; the end of the hold is enough. A shard may
 * have answers on their way that it must keep first: it is asked again. */
#include "server/coordinator/cluster_replace.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "server/coordinator/cluster_hold.h"

/* While a hold lasts. */
#define TRIES    300u
#define PAUSE_NS 10000000u

/* A phase on the shards from `first` to below `end`. */
struct replacing {
    struct peers *peers;
    const struct cluster_replace *replace;
    const char *phase;
    uint32_t first, end, n_done;
    bool *is_done, *is_asked; /* [n_shards] */
};

static struct msg *add(struct peers *peers, uint32_t shard, const struct cluster_replace *replace,
                       const char *phase, bool has_tables)
{
    struct msg *m = peers_add(peers, shard, METHOD_TABLE_REPLACE, CLUSTER_ASK_MS);
    embd__msg_map(m, 2u + (replace->decision != 0) + has_tables + replace->is_place);
    embd__msg_field_uint(m, "id", replace->id);
    embd__msg_field_str(m, "phase", phase);
    if (replace->decision != 0)
        embd__msg_field_uint(m, "decision", replace->decision);
    if (replace->is_place)
        embd__msg_field_bool(m, "placement", true);
    return m;
}

int cluster_check_replace(struct peers *peers, const struct cluster_replace *replace,
                          struct embd__error *e)
{
    for (uint32_t shard = 0; shard < replace->n_shards; shard++) {
        bool is_added = replace->first_added > 0 && shard >= replace->first_added;
        struct msg *m = add(peers, shard, replace, "check", !replace->is_place || is_added);
        if (!replace->is_place || is_added)
            embd__msg_field_uint(m, "tables", replace->n_tables);
    }
    return peers_run(peers, NULL, NULL, e);
}

/* Behind the phase before, or refused for now. */
static bool is_asked(const struct replacing *r, uint32_t shard)
{
    int status = peers_error(r->peers, shard)->status;
    return !r->is_done[shard] &&
           (status == EMBD_OK || status == EMBD_BUSY || status == EMBD_NO_MEMORY);
}

/* False: no shard is left to be asked. */
static bool ask_rest(struct replacing *r)
{
    struct embd__error ignored = {.status = EMBD_OK};
    uint32_t n = 0;
    for (uint32_t shard = r->first; shard < r->end; shard++) {
        r->is_asked[shard] = is_asked(r, shard);
        n += r->is_asked[shard];
        if (r->is_asked[shard])
            add(r->peers, shard, r->replace, r->phase, false);
    }
    if (n > 0)
        peers_run(r->peers, NULL, NULL, &ignored);
    for (uint32_t shard = r->first; shard < r->end; shard++)
        if (r->is_asked[shard] && peers_error(r->peers, shard)->status == EMBD_OK) {
            r->is_done[shard] = true;
            r->n_done++;
        }
    return n > 0;
}

/* Of the first shard that has not done it; with as much of the reason as an error has room for. */
static int name_failure(const struct replacing *r, const char *so, struct embd__error *e)
{
    uint32_t shard = r->first;
    while (shard < r->end && r->is_done[shard])
        shard++;
    if (shard == r->end)
        return EMBD_OK;
    const struct embd__error *why = peers_error(r->peers, shard);
    const char *name = peers_name(r->peers, shard);
    size_t others = strlen(name) + strlen(so) + sizeof ": ; ";
    int room = others < LIMIT_ERROR_TEXT ? (int)(LIMIT_ERROR_TEXT - others) : 0;
    return embd__error_set(e, why->status, "%s: %.*s; %s", name, room, why->text, so);
}

/* `so`: what follows where a shard has not done it. */
static int run_phase(struct replacing *r, const char *phase, uint32_t first, uint32_t end,
                     const char *so, struct embd__error *e)
{
    r->phase = phase;
    r->first = first;
    r->end = end;
    r->n_done = 0;
    for (uint32_t shard = first; shard < end; shard++)
        r->is_done[shard] = false;
    for (uint32_t tries = 0; tries < TRIES && ask_rest(r); tries++)
        if (r->n_done < end - first)
            nanosleep(&(struct timespec){0, PAUSE_NS}, NULL);
    return name_failure(r, so, e);
}

/* What is so where a shard did not prepare, where shard 0 did not answer, and where another one did
 * not: of tables, of a map, and of shards that are added or leave. */
static const char *const so_of[4][3] = {
    {"no shard has changed its tables: load again",
     "it decides for all shards, which have the new tables or the old ones, as it has: look at a "
     "table, and load again if it is the old one",
     "the tables are replaced; shards that did not answer follow as soon as they can ask shard 0"},
    {"no keys have moved: move them again",
     "it decides for all shards, which have the new map or the old one, as it has: embctl cluster "
     "shows it, and if that is the old one, move the keys again",
     "the keys have moved; shards that did not answer follow as soon as they can ask shard 0"},
    {"no shard was added: add it again",
     "it decides for all shards, which count with the new ones or do not, as it does: embctl "
     "cluster "
     "shows it, and if they are not there, add them again",
     "the shards were added; those that did not answer follow as soon as they can ask shard 0"},
    {"no shard has left: retire it again",
     "it decides for all shards, which count without those that leave or with them, as it does: "
     "embctl cluster shows it, and if they are there, retire them again",
     "the shards have left; those that did not answer follow as soon as they can ask shard 0"},
};

static const char *const *so_for(const struct cluster_replace *replace)
{
    if (replace->retires)
        return so_of[3];
    return so_of[replace->first_added > 0 ? 2 : replace->is_place];
}

int cluster_apply_replace(struct peers *peers, const struct cluster_replace *replace,
                          struct embd__error *e)
{
    uint32_t n = replace->n_shards;
    struct replacing r = {.peers = peers, .replace = replace};
    r.is_done = calloc(2 * n, sizeof *r.is_done);
    if (r.is_done == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to replace tables");
    r.is_asked = r.is_done + n;
    const char *const *so = so_for(replace);
    if (run_phase(&r, "prepare", 1, n, so[0], e) == EMBD_OK &&
        run_phase(&r, "apply", 0, 1, so[1], e) == EMBD_OK)
        run_phase(&r, "apply", 1, n, so[2], e);
    free(r.is_done);
    return e->status;
}
