/* shard_add.c - embd_shard_add: servers that began with --join become members, as shard 0's server
 * does it.
 *
 * The happy path: the new server is asked where its shards are, and those before it that are no
 * members yet either; the next map has them, without keys; shard 0's server brings it to all. What
 * can fail: the server is a member, or is one of another list of shards. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/formats/coordinate.h"
#include "embd/admin.h"
#include "proto/structs.h"

/* The members are the first of the new server's list: their addresses are the same, or were set
 * elsewhere since. */
static int check_list(embd_client *client, const char *address, uint32_t n)
{
    if (n > client->n_shards)
        return EMBD_OK;
    return embd__error_set(&client->error, EMBD_INVALID,
                           "%.200s: its configuration has %" PRIu32 " shards with its own, and the "
                           "cluster has %" PRIu32 " already: list it behind all of its servers",
                           address, n, client->n_shards);
}

static int grow(embd_client *client, const struct shard_entry *list, uint32_t n,
                embd_rebalance_report *out)
{
    uint32_t own = client->n_shards;
    struct job_ask ask = {.added = list + own, .n_added = n - own};
    return embd__resize(client, "add", n, &ask, out);
}

static int find_and_add(embd_client *client, const char *address, embd_rebalance_report *out)
{
    struct shard_entry *list = NULL;
    uint32_t n = 0;
    bool is_newer;
    int status = embd__placement_learn(client, 0, 0, &is_newer);
    if (status == EMBD_OK)
        status = embd__map_of_joining(client, address, &list, &n);
    if (status == EMBD_OK)
        status = check_list(client, address, n);
    if (status == EMBD_OK)
        status = grow(client, list, n, out);
    free(list);
    return status;
}

EMBD_API int embd_shard_add(embd_client *client, const char *address,
                            embd_rebalance_report *report_out)
{
    embd_rebalance_report report = {.struct_bytes = sizeof report};
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    int status = find_and_add(client, address, &report);
    if (status == EMBD_OK && report_out != NULL)
        embd__struct_give(report_out, report_out->struct_bytes, &report, sizeof report);
    return embd__error_keep(e, status);
}
