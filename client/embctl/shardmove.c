/* shardmove.c - embctl shard vshards and shard move: which shard has which vshards, and some of
 * them that go to a shard. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/embctl/listing.h"
#include "client/embctl/moves.h"

/* ---- shard vshards ---- */

static void print_runs(const uint32_t *shards)
{
    static const struct column columns[] = {
        {"first", CELL_NUMBER}, {"last", CELL_NUMBER}, {"shard", CELL_NUMBER}};
    struct listing l;
    listing_init(&l, "vshards", columns, sizeof columns / sizeof *columns);
    for (uint32_t first = 0, end = 0; first < EMBD_VSHARDS; first = end) {
        while (end < EMBD_VSHARDS && shards[end] == shards[first])
            end++;
        listing_row(&l);
        listing_uint(&l, 0, first);
        listing_uint(&l, 1, end - 1);
        listing_uint(&l, 2, shards[first]);
    }
    listing_print(&l);
    listing_fini(&l);
}

int command_shard_vshards(int argc, char **argv)
{
    uint32_t shards[EMBD_VSHARDS];
    embd_client *client;
    parse_no_arguments("Lists the 1024 vshards of the cluster, in runs, with the shards that have "
                       "their keys. embctl digest names vshards too.\n"
                       "\n"
                       "Examples:\n"
                       "  embctl shard vshards",
                       argc, argv);
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = embd_vshard_shards(client, shards);
    if (status == EMBD_OK)
        print_runs(shards);
    return end_client(client, status);
}

/* ---- shard move ---- */

struct move_arguments {
    embd_rebalance_options options;
    bool has_vshards, has_shard;
};

static const struct argp_option options[] = {
    {"vshards", 'v', "FIRST[-LAST]", 0, "The vshards that move, of 0 to 1023", 0},
    {"to", 't', "SHARD", 0, "The shard that gets them", 0},
    {"rate", 'r', "BYTES", 0,
     "Copy rows at so many bytes a second at most, as 50M, 2G; 0: no limit (default: 0)", 0},
    {"plan", 'p', NULL, 0, "Show how many would move, and move none", 0},
    {0},
};

static void parse_vshards(struct argp_state *state, const char *arg, embd_rebalance_options *out)
{
    char *end;
    unsigned long first = strtoul(arg, &end, 10), last = first;
    bool is_range = *arg >= '0' && *arg <= '9';
    if (is_range && *end == '-') {
        const char *second = end + 1;
        is_range = *second >= '0' && *second <= '9';
        last = strtoul(second, &end, 10);
    }
    if (!is_range || *end != '\0' || last < first || last >= EMBD_VSHARDS)
        argp_error(state, "--vshards is '%s'; it can be FIRST or FIRST-LAST, of 0 to %d", arg,
                   EMBD_VSHARDS - 1);
    out->first_vshard = (uint32_t)first;
    out->n_vshards = (uint32_t)(last - first + 1);
}

static int parse(int key, char *arg, struct argp_state *state)
{
    struct move_arguments *a = state->input;
    switch (key) {
    case 'v':
        parse_vshards(state, arg, &a->options);
        a->has_vshards = true;
        return 0;
    case 't':
        a->options.to_shard = (uint32_t)parse_uint(state, "--to", arg, 0, UINT16_MAX);
        a->has_shard = true;
        return 0;
    case 'r':
        a->options.rate = parse_rate(state, arg);
        return 0;
    case 'p':
        a->options.is_plan = true;
        return 0;
    case ARGP_KEY_END:
        if (!a->has_vshards || !a->has_shard)
            argp_error(state, "--vshards and --to are needed");
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

int command_shard_move(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Moves the keys of some vshards to a shard while trainers pull and push, as embctl "
               "rebalance does, and leaves all others where they are. embctl shard vshards lists "
               "them.\v" NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl shard move --vshards 512-575 --to 3\n"
               "  embctl shard move --vshards 17 --to 0 --rate 50M"};
    struct move_arguments a = {.options = EMBD_REBALANCE_OPTIONS()};
    embd_rebalance_report report = {.struct_bytes = sizeof report};
    embd_client *client;
    parse_command(&argp, argc, argv, &a);
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = rebalance_watched(client, &a.options, &report);
    if (status == EMBD_OK)
        rebalance_print(&report, a.options.is_plan);
    return end_client(client, status);
}
