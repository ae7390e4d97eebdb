/* cluster.c - embctl ping, cluster, drain and version: the servers themselves. */
#include <inttypes.h>
#include <stdio.h>

#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "client/embctl/listing.h"
#include "embd/admin.h"

/* ---- ping ---- */

struct ping {
    uint64_t count;
};

static const struct argp_option ping_options[] = {
    {"count", 'c', "N", 0, "Round trips to each shard; the best and worst are shown (default: 5)",
     0},
    {0},
};

static int parse_ping(int key, char *arg, struct argp_state *state)
{
    struct ping *ping = state->input;
    if (key != 'c')
        return parse_no_argument(key, arg, state);
    ping->count = parse_uint(state, "--count", arg, 1, 1000000);
    return 0;
}

static int ping_shard(embd_client *client, uint32_t shard, uint64_t count, uint64_t *best,
                      uint64_t *worst)
{
    *best = UINT64_MAX;
    *worst = 0;
    for (uint64_t i = 0; i < count; i++) {
        uint64_t us;
        int status = embd_ping(client, shard, &us);
        if (status)
            return status;
        *best = us < *best ? us : *best;
        *worst = us > *worst ? us : *worst;
    }
    return EMBD_OK;
}

int command_ping(int argc, char **argv)
{
    static const struct argp argp = {
        .options = ping_options,
        .parser = parse_ping,
        .doc = "Measures the round trip to every shard.\v"
               "Examples:\n"
               "  embctl ping\n"
               "  embctl ping -c 1000 --servers 10.0.0.1:7700\n"
               "\n"
               "Exit code 3 when a shard does not answer: a liveness check for scripts."};
    static const struct column columns[] = {{"shard", CELL_NUMBER},
                                            {"address", CELL_TEXT},
                                            {"best_us", CELL_MICROS},
                                            {"worst_us", CELL_MICROS}};
    struct ping ping = {5};
    struct listing l;
    embd_client *client;
    parse_command(&argp, argc, argv, &ping);
    int status = connect_servers(&client);
    if (status)
        return status;
    listing_init(&l, "shards", columns, 4);
    for (uint32_t shard = 0; shard < embd_shard_count(client) && !status; shard++) {
        uint64_t best, worst;
        status = ping_shard(client, shard, ping.count, &best, &worst);
        listing_row(&l);
        listing_uint(&l, 0, shard);
        listing_text(&l, 1, embd_shard_address(client, shard));
        if (status == EMBD_OK) {
            listing_uint(&l, 2, best);
            listing_uint(&l, 3, worst);
        }
    }
    listing_print(&l);
    listing_fini(&l);
    return end_client(client, status);
}

/* ---- cluster ---- */

static void add_shard(struct listing *l, embd_client *client, uint32_t shard,
                      const struct figures *f)
{
    uint64_t us;
    bool answers = f->is_up[shard] && embd_ping(client, shard, &us) == EMBD_OK;
    listing_row(l);
    listing_uint(l, 0, shard);
    listing_text(l, 1, embd_shard_address(client, shard));
    listing_text(l, 2, figures_state(f, shard));
    if (!answers)
        return;
    listing_uint(l, 3, us);
    listing_uint(l, 4, figures_of_tables(f, shard, "rows"));
    listing_uint(l, 5, figures_shard_memory(f, shard));
}

int command_cluster(int argc, char **argv)
{
    static const struct column columns[] = {{"shard", CELL_NUMBER}, {"address", CELL_TEXT},
                                            {"state", CELL_STATE},  {"ping_us", CELL_MICROS},
                                            {"rows", CELL_COUNT},   {"memory_bytes", CELL_BYTES}};
    struct listing l;
    struct figures f;
    embd_client *client;
    parse_no_arguments(
        "Lists the shards of the cluster: address, state, round trip, rows of all tables, and "
        "the memory they take.\v"
        "A shard that does not answer within --deadline (default here: 5) is listed as silent; "
        "stderr says why, and the exit code is 3.\n"
        "\n"
        "Examples:\n"
        "  embctl cluster\n"
        "  embctl cluster -o json | jq -r '.shards[].address'",
        argc, argv);
    int status = connect_servers_partly(&client);
    if (status)
        return status;
    listing_init(&l, "shards", columns, 6);
    status = figures_read_some(client, NULL, &f);
    for (uint32_t shard = 0; shard < f.n_shards && status != EMBD_NO_MEMORY; shard++)
        add_shard(&l, client, shard, &f);
    figures_free(&f);
    listing_print(&l);
    listing_fini(&l);
    return end_told(client, status);
}

/* ---- drain, version ---- */

int command_drain(int argc, char **argv)
{
    embd_client *client;
    parse_no_arguments(
        "Tells every server process to finish its work and exit. Journaled tables come back at "
        "the next start; of other tables take a snapshot or dump first.\v" NEEDS_ADMINS "\n"
        "Exit code 3 when a shard does not answer; the others have got the request then.\n"
        "\n"
        "Examples:\n"
        "  embctl snapshot before-upgrade && embctl drain",
        argc, argv);
    int status = connect_servers_partly(&client);
    return status ? status : end_client(client, embd_drain(client));
}

int command_version(int argc, char **argv)
{
    static const struct column columns[] = {{"version", CELL_TEXT}};
    struct listing l;
    parse_no_arguments("Prints the version of this program. Needs no server.\v"
                       "Examples:\n"
                       "  embctl version",
                       argc, argv);
    if (!globals.json) {
        printf("embctl %s\n", embd_version());
        return EXIT_DONE;
    }
    listing_init(&l, "embctl", columns, 1);
    listing_row(&l);
    listing_text(&l, 0, embd_version());
    listing_print(&l);
    listing_fini(&l);
    return EXIT_DONE;
}
