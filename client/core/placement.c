/* placement.c - which shard has which keys is asked again, once a shard has answered that it is not
 * as the client believes. A shard that has no newer map is behind: it is asked until a deadline.
 * One that stays behind was promoted without the move that the client has seen: its map holds. */
#include <unistd.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "proto/placement_wire.h"

#define PAUSE_US      10000u
#define PAUSE_MOST_US 200000u
#define STAYS_NS      UINT64_C(1000000000) /* so long a shard with an older map is behind */

static int read_placement(embd_client *client, struct reader *r, struct placement *out)
{
    struct fields f;
    const msgpack_object *items;
    embd__read_fields(&f, r, "cluster");
    uint32_t n = embd__field_list(&f, "shards", LIMIT_SHARDS, &items);
    if (r->error->status == EMBD_OK && n != client->n_shards)
        return embd__error_set(r->error, EMBD_MOVED,
                               "the cluster has %u shards now, the handle has %u: connect again", n,
                               client->n_shards);
    client->next_placement = embd__field_uint(&f, "next_placement", 0, UINT64_MAX - 1, 0);
    return embd__placement_read(&f, client->n_shards, out);
}

/* `takes_older`: also a map before ours. */
static int ask(embd_client *client, uint32_t shard, bool takes_older, bool *is_other_out)
{
    struct answer *answer;
    struct placement next;
    struct msg *m = embd__request_begin(client, METHOD_CLUSTER);
    embd__msg_map(m, 0);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = read_placement(client, &answer->reader, &next);
    embd__answer_free(answer);
    uint64_t own = client->placement.version;
    *is_other_out =
        status == EMBD_OK && (next.version > own || (takes_older && next.version < own));
    if (*is_other_out)
        client->placement = next;
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
        status = ask(client, shard, stays, is_other_out);
        uint64_t again_ns = uv_hrtime() + pause_us * UINT64_C(1000);
        if (status != EMBD_OK || *is_other_out || again_ns >= deadline_ns)
            return status;
        usleep(pause_us);
    }
}
