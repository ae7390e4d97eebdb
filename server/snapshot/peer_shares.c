/* peer_shares.c - see peer_shares.h.
 *
 * A snapshot gets its name in one process after the other, so an interrupted one may be complete
 * here and have left NAME.tmp there. A path does not say which host a directory is on: if the
 * servers' addresses differ, a directory without any trace of the snapshot may be another
 * machine's, and says nothing. */
#include "server/snapshot/peer_shares.h"
#include "server/snapshot/snapshot_verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "proto/stored/plainfile.h"
#include "server/snapshot/snapshot.h"

static bool is_own(const char *own_dir, const char *data_dir)
{
    struct stat own, other;
    return stat(own_dir, &own) == 0 && stat(data_dir, &other) == 0 && own.st_dev == other.st_dev &&
           own.st_ino == other.st_ino;
}

static bool is_there(const char *data_dir, const char *name)
{
    struct stat st;
    struct embd__error ignored = {.status = EMBD_OK};
    char *path = embd__plain_path(data_dir, name, &ignored);
    bool found = path != NULL && lstat(path, &st) == 0;
    free(path);
    return found;
}

static int refuse(const struct peer_share *peer, const char *why, struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID, "server '%s' cannot start from it: %.350s", peer->name,
                           why);
}

static int check(const struct peer_share *peer, const char *name, uint64_t id,
                 const struct snapshot_verify_watch *watch, struct embd__error *e)
{
    char staged[SNAPSHOT_NAME_MAX + sizeof ".tmp"], why[128];
    struct dump_chain chain;
    struct embd__error own = {.status = EMBD_OK};
    snprintf(staged, sizeof staged, "%s.tmp", name);
    if (!is_there(peer->data_dir, name)) {
        bool has_part = is_there(peer->data_dir, staged);
        if (!has_part && !(peer->is_here && is_there(peer->data_dir, ".")))
            return EMBD_OK;
        return refuse(peer, has_part ? "its share is incomplete" : "its share is missing", e);
    }
    if (snapshot_verify_open(peer->data_dir, name, watch, &chain, &own) != EMBD_OK)
        return own.status == EMBD_NO_MEMORY ? embd__error_set(e, own.status, "%s", own.text)
                                            : refuse(peer, own.text, e);
    uint64_t found = snapshot_verify_share(&chain)->manifest.id;
    embd__chain_fini(&chain);
    if (found == id)
        return EMBD_OK;
    snprintf(why, sizeof why, "its share is of the cut %016" PRIx64 ", this one of %016" PRIx64,
             found, id);
    return refuse(peer, why, e);
}

int peer_shares_check(const struct peer_share *peers, uint32_t n, const char *own_dir,
                      const char *name, uint64_t id, const struct snapshot_verify_watch *watch,
                      struct embd__error *e)
{
    for (uint32_t i = 0; i < n && e->status == EMBD_OK; i++)
        if (!is_own(own_dir, peers[i].data_dir))
            check(&peers[i], name, id, watch, e);
    return e->status;
}
