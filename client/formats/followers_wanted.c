/* followers_wanted.c - see followers_wanted.h. */
#include "client/formats/followers_wanted.h"

#include <string.h>
#include <time.h>

#include "embd/admin.h"

#define PATIENCE_NS UINT64_C(10000000000) /* as the servers' */
#define LOOK_NS     UINT64_C(100000000)

static int note_missing(void *arg, const char *table, const char *name, uint64_t value)
{
    uint64_t *missing = arg;
    if (table == NULL && strcmp(name, "replicas_missing") == 0)
        *missing = value;
    return 0;
}

/* The first shard that lacks followers; n_shards: none does. A server of an earlier version does
 * not say, nor does one to a client that may not ask. */
static uint32_t find_lacking(embd_client *client, uint64_t *missing_out)
{
    uint32_t shard = 0, n = embd_shard_count(client);
    *missing_out = 0;
    for (; shard < n && *missing_out == 0; shard++)
        embd_stats(client, shard, note_missing, missing_out);
    embd__client_clear_error(client);
    return *missing_out > 0 ? shard - 1 : n;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int embd__followers_await(embd_client *client, const char *table)
{
    static const struct timespec pause = {.tv_nsec = (long)LOOK_NS};
    uint64_t missing, end_ns = now_ns() + PATIENCE_NS;
    uint32_t shard = find_lacking(client, &missing);
    while (shard < embd_shard_count(client) && now_ns() < end_ns) {
        nanosleep(&pause, NULL);
        shard = find_lacking(client, &missing);
    }
    if (shard >= embd_shard_count(client))
        return EMBD_OK;
    return embd__error_set(embd__client_error(client), EMBD_BUSY,
                           "%s: table '%s' is replicated, and shard %u lacks %u of the followers "
                           "that it waits for (replicas): start followers, or set replicas lower; "
                           "nothing was changed",
                           embd_shard_address(client, shard), table, shard, (unsigned)missing);
}
