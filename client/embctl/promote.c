/* promote.c - embctl promote: a follower takes the place of the server that it follows. */
#include <inttypes.h>
#include <stdio.h>

#include "client/embctl/embctl.h"
#include "embd/admin.h"

static const struct argp_option options[] = {
    {"force", 'f', NULL, 0, "Also without records that the server had", 0},
    {"max-behind", 'b', "RECORDS", 0,
     "Records that each shard may lack of those that the server had when it answered last "
     "(default: 0)",
     0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    uint64_t *max_behind = state->input;
    switch (key) {
    case 'f':
        *max_behind = EMBD_PROMOTE_FORCE;
        return 0;
    case 'b':
        if (*max_behind != EMBD_PROMOTE_FORCE)
            *max_behind = parse_uint(state, "--max-behind", arg, 0, INT64_MAX);
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

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
               "\n"
               "Give --servers the admin socket, or admin_listen, of the follower.\n"
               "\n"
               "Examples:\n"
               "  embctl --servers /run/embd/7700.sock promote\n"
               "  embctl --servers /run/embd/7700.sock promote --max-behind 1000"};
    uint64_t max_behind = 0;
    embd_promote_report report;
    embd_client *client;
    parse_command(&argp, argc, argv, &max_behind);
    int status = connect_servers(&client);
    if (status)
        return status;
    status = embd_promote(client, max_behind, &report);
    if (status == EMBD_OK)
        fprintf(stderr, "promoted in epoch %" PRIu64 " after %.1f ms\n", report.epoch,
                (double)report.us / 1e3);
    return end_client(client, status);
}
