/* shard_retire.c - embd_shard_retire: a server whose shards have no keys leaves the cluster, as
 * shard 0's server does it.
 *
 * The happy path: the newest map is asked for; the shard is the first of the last server, and none
 * of that server's shards has a vshard; the next map lacks them; shard 0's server brings it to all.
 * What can fail: shards of other servers are behind it, or there are keys. */
#include <inttypes.h>

#include "client/core/client.h"
#include "client/formats/coordinate.h"
#include "embd/admin.h"
#include "proto/structs.h"

static int check_number(embd_client *client, uint32_t shard)
{
    struct embd__error *e = &client->error;
    if (shard >= client->n_shards)
        return embd__error_set(e, EMBD_INVALID,
                               "no such shard %" PRIu32 "; the cluster has 0 to %" PRIu32, shard,
                               client->n_shards - 1);
    if (shard > 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           client->n_shards == 1
                               ? "shard 0 is the last one: a cluster has one shard or more"
                               : "shard 0 does not leave: its server keeps the clocks of jobs, and "
                                 "decides for all shards");
}

static int check_empty(embd_client *client, uint32_t shard)
{
    uint32_t n = embd__placement_count(&client->placement, shard);
    if (n == 0)
        return EMBD_OK;
    return embd__error_set(&client->error, EMBD_INVALID,
                           "shard %" PRIu32 " has %" PRIu32 " of 1024 vshards: first move its keys "
                           "to other shards: embctl rebalance --drain %" PRIu32,
                           shard, n, shard);
}

/* The hello of its connection says which process it is of. */
static int find_process(embd_client *client, uint32_t shard, uint64_t *out)
{
    struct answer *answer;
    embd__msg_map(embd__request_begin(client, METHOD_PING), 0);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    embd__answer_free(answer);
    *out = embd__link_process(client->shards[shard].link);
    return EMBD_OK;
}

/* A server leaves as a whole; it has shards that follow each other. */
static int check_last(embd_client *client, uint32_t shard)
{
    uint64_t own, other;
    uint32_t last = client->n_shards - 1;
    if (find_process(client, shard, &own) != EMBD_OK ||
        find_process(client, last, &other) != EMBD_OK)
        return client->error.status;
    if (own != other)
        return embd__error_set(&client->error, EMBD_INVALID,
                               "shard %" PRIu32 " is not of the last server: shards leave from the "
                               "end, so shard %" PRIu32 " is the next: embctl rebalance --drain "
                               "%" PRIu32 ", then retire it",
                               shard, last, last);
    if (find_process(client, shard - 1, &other) != EMBD_OK)
        return client->error.status;
    if (own != other)
        return EMBD_OK;
    return embd__error_set(&client->error, EMBD_INVALID,
                           "shards %" PRIu32 " and %" PRIu32 " are of one server, which leaves "
                           "with all of its shards: retire its first one",
                           shard - 1, shard);
}

static int check(embd_client *client, uint32_t shard)
{
    if (check_number(client, shard) != EMBD_OK || check_last(client, shard) != EMBD_OK)
        return client->error.status;
    for (uint32_t s = shard; s < client->n_shards && client->error.status == EMBD_OK; s++)
        check_empty(client, s);
    return client->error.status;
}

EMBD_API int embd_shard_retire(embd_client *client, uint32_t shard,
                               embd_rebalance_report *report_out)
{
    embd_rebalance_report report = {.struct_bytes = sizeof report};
    struct embd__error *e = &client->error;
    bool is_newer;
    *e = (struct embd__error){0};
    int status = embd__placement_learn(client, 0, 0, &is_newer);
    if (status == EMBD_OK)
        status = check(client, shard);
    if (status == EMBD_OK)
        status = embd__resize(client, "retire", shard, &(struct job_ask){.retires = true}, &report);
    if (status == EMBD_OK && report_out != NULL)
        embd__struct_give(report_out, report_out->struct_bytes, &report, sizeof report);
    return embd__error_keep(e, status);
}
