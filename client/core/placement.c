/* placement.c - which shard has which keys is asked again, once a shard has answered that it is not
 * as the client believes. A shard that has no newer map is behind: it is asked until a deadline, as
 * is one that does not answer, or new shards that do not, or that another server is in the place of
 * or that lack something yet. One that stays behind was promoted without the move that the client
 * has seen: its map holds. */
#include <stdlib.h>
#include <unistd.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "proto/placement_wire.h"

#define PAUSE_US      10000u
#define PAUSE_MOST_US 200000u
#define STAYS_NS      UINT64_C(1000000000) /* so long a shard with an older map is behind */

/* A map, and where the shards are that the client does not have. */
struct learnt {
    struct placement placement;
    uint64_t version;          /* of the map of addresses */
    struct shard_entry *added; /* [n - client->n_shards] malloc'd */
    uint32_t n;
};

static int read_map(embd_client *client, struct reader *r, struct learnt *out)
{
    struct fields f;
    const msgpack_object *items;
    uint32_t own = client->n_shards;
    embd__read_fields(&f, r, "cluster");
    uint32_t n = out->n = embd__field_list(&f, "shards", LIMIT_SHARDS, &items);
    if (r->error->status == EMBD_OK && n == 0)
        embd__error_set(r->error, EMBD_PROTOCOL, "the answer to cluster has 0 shards");
    out->version = embd__field_uint(&f, "version", 0, UINT64_MAX - 1, 0);
    client->next_placement = embd__field_uint(&f, "next_placement", 0, UINT64_MAX - 1, 0);
    if (embd__placement_read(&f, n, &out->placement) != EMBD_OK || n <= own)
        return r->error->status;
    out->added = calloc(n - own, sizeof *out->added);
    if (out->added == NULL)
        return embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for %u shards", n);
    for (uint32_t i = own; i < n && r->error->status == EMBD_OK; i++)
        embd__shard_entry_read(r, &items[i], &out->added[i - own]);
    return r->error->status;
}

static int take(embd_client *client, const struct learnt *learnt)
{
    if (learnt->n > client->n_shards &&
        embd__client_grow(client, learnt->added, learnt->n, learnt->version) != EMBD_OK)
        return client->error.status;
    if (learnt->n < client->n_shards && embd__client_shrink(client, learnt->n) != EMBD_OK)
        return client->error.status;
    client->placement = learnt->placement;
    client->n_placements++;
    client->placement_version = learnt->placement.version;
    return EMBD_OK;
}

/* `takes_older`: also a map before ours. */
static int ask(embd_client *client, uint32_t shard, bool takes_older, bool *is_other_out)
{
    struct answer *answer;
    struct learnt learnt = {.added = NULL};
    struct msg *m = embd__request_begin(client, METHOD_CLUSTER);
    embd__msg_map(m, 0);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = read_map(client, &answer->reader, &learnt);
    embd__answer_free(answer);
    uint64_t own = client->placement.version, theirs = learnt.placement.version;
    *is_other_out = status == EMBD_OK && (theirs > own || (takes_older && theirs < own));
    if (*is_other_out)
        status = take(client, &learnt);
    *is_other_out = *is_other_out && status == EMBD_OK;
    free(learnt.added);
    return status;
}

int embd__placement_learn(embd_client *client, uint32_t shard, uint64_t deadline_ns,
                          bool *is_other_out)
{
    int status;
    uint64_t began_ns = uv_hrtime();
    *is_other_out = false;
    for (uint32_t pause_us = PAUSE_US;; pause_us *= pause_us < PAUSE_MOST_US ? 2 : 1) {
        bool stays = uv_hrtime() - began_ns >= STAYS_NS;
        bool is_there =
            shard < client->n_shards && !embd__link_is_retired(client->shards[shard].link);
        status = ask(client, is_there ? shard : 0, stays, is_other_out);
        uint64_t again_ns = uv_hrtime() + pause_us * UINT64_C(1000);
        bool waits = status == EMBD_OK ? !*is_other_out : status != EMBD_NO_MEMORY;
        if (!waits || again_ns >= deadline_ns)
            return status;
        client->error = (struct embd__error){0};
        usleep(pause_us);
    }
}

bool embd__client_catch_up(embd_client *client)
{
    uint32_t n = client->n_shards;
    bool is_newer;
    if (client->dialer == NULL && client->error.status == EMBD_OK &&
        ask(client, 0, false, &is_newer) != EMBD_OK)
        client->error = (struct embd__error){0};
    return client->n_shards != n;
}

bool embd__client_has_shrunk(embd_client *client)
{
    const struct embd__error before = client->error;
    uint32_t n = client->n_shards;
    if (before.status != EMBD_MOVED)
        return false;
    client->error = (struct embd__error){0};
    if (embd__client_catch_up(client) && client->n_shards < n)
        return true;
    client->error = before;
    return false;
}
