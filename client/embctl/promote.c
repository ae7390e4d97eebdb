/* promote.c - embctl promote: a follower takes the place of the server that it follows, unless
 * another one has more records. */
#include <inttypes.h>
#include <stdio.h>

#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "embd/admin.h"

#define BESIDE_MOST 8 /* followers that a server has */

struct promote_arguments {
    uint64_t max_behind;
    const char *beside[BESIDE_MOST]; /* [n_beside] */
    int n_beside;
};

static const struct argp_option options[] = {
    {"force", 'f', NULL, 0, "Also without records that the server had", 0},
    {"max-behind", 'b', "RECORDS", 0,
     "Records that each shard may lack of those that the server had when it answered last "
     "(default: 0)",
     0},
    {"beside", 'o', "HOST:PORT[,...]", 0,
     "Another follower of that server, once for each: promote none that has fewer records", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct promote_arguments *a = state->input;
    switch (key) {
    case 'f':
        a->max_behind = EMBD_PROMOTE_FORCE;
        return 0;
    case 'b':
        if (a->max_behind != EMBD_PROMOTE_FORCE)
            a->max_behind = parse_uint(state, "--max-behind", arg, 0, INT64_MAX);
        return 0;
    case 'o':
        if (a->n_beside == BESIDE_MOST)
            argp_error(state, "--beside: at most %d followers", BESIDE_MOST);
        a->beside[a->n_beside++] = arg;
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

/* ---- other followers ---- */

/* The figures of each shard of a cluster or follower. */
static int read_figures(const char *servers, struct figures *out)
{
    embd_client *client;
    globals.servers = servers;
    int code = connect_servers(&client);
    return code ? code : end_client(client, figures_read(client, NULL, out));
}

static int refuse(const struct promote_arguments *a, int i, uint32_t shard, uint64_t has,
                  uint64_t there)
{
    char why[512];
    snprintf(why, sizeof why,
             "shard %" PRIu32 " of %s has %" PRIu64 " records, and of the follower to be promoted "
             "%" PRIu64
             ": promote that one, or give up its records by leaving out --beside; nothing "
             "was promoted",
             shard, a->beside[i], there, has);
    return end_with(EMBD_INVALID, why);
}

static int compare(const struct promote_arguments *a, int i, const struct figures *here)
{
    struct figures there = {.n_shards = 0};
    int code = read_figures(a->beside[i], &there);
    if (code == EXIT_DONE && there.n_shards != here->n_shards)
        code = end_with(EMBD_INVALID, "--beside: it has another number of shards");
    for (uint32_t shard = 0; code == EXIT_DONE && shard < there.n_shards; shard++) {
        uint64_t has = figures_get(here, shard, "follow_position");
        uint64_t other = figures_get(&there, shard, "follow_position");
        if (other > has)
            code = refuse(a, i, shard, has, other);
    }
    figures_free(&there);
    return code;
}

/* That none of them has more than the one to be promoted. */
static int compare_all(const struct promote_arguments *a)
{
    struct figures here = {.n_shards = 0};
    default_servers();
    const char *servers = globals.servers;
    int code = a->n_beside > 0 ? read_figures(servers, &here) : EXIT_DONE;
    for (int i = 0; i < a->n_beside && code == EXIT_DONE; i++)
        code = compare(a, i, &here);
    figures_free(&here);
    globals.servers = servers;
    return code;
}

/* ---- the command ---- */

int command_promote(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Promotes a follower while it runs: its journals become its own, in the next epoch, "
               "and it serves. Then it tells the server that it followed, which serves nothing any "
               "more.\v"
               "All shards are promoted, or none. A follower that still takes its base is refused, "
               "and one that is known to lack records, unless --max-behind or --force allows it. "
               "Stop the old server first where it still answers: what it acknowledges meanwhile "
               "is lost.\n"
               "Of several followers, promote the one with the most records: with fewer replicas "
               "than followers, another one may lack what was acknowledged. --beside compares.\n"
               "\n"
               "Give --servers the admin socket, or admin_listen, of the follower.\n"
               "\n"
               "Examples:\n"
               "  embctl --servers /run/embd/7700.sock promote\n"
               "  embctl --servers 10.0.0.9:7800 promote --beside 10.0.0.10:7800\n"
               "  embctl --servers /run/embd/7700.sock promote --max-behind 1000"};
    struct promote_arguments a = {.n_beside = 0};
    embd_promote_report report;
    embd_client *client;
    parse_command(&argp, argc, argv, &a);
    int status = compare_all(&a);
    if (!status)
        status = connect_servers(&client);
    if (status)
        return status;
    status = embd_promote(client, a.max_behind, &report);
    if (status == EMBD_OK)
        fprintf(stderr, "promoted in epoch %" PRIu64 " after %.1f ms\n", report.epoch,
                (double)report.us / 1e3);
    return end_client(client, status);
}
