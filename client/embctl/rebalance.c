/* rebalance.c - embctl rebalance: keys move between shards while trainers go on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/costs.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/moves.h"
#include "client/embctl/movewatch.h"
#include "embd/admin.h"

#define WEIGHT_MAX 1000000
#define SHARDS_MAX 1024 /* of a cluster */

enum { OPTION_RUNNING = 0x2000 };

struct rebalance_arguments {
    const char *weights; /* the text; NULL: all are 1 */
    int64_t drained;     /* shard; -1: none */
    const char *by;      /* "rows", "load"; NULL: neither */
    uint64_t seconds;    /* that the load is counted for */
    uint64_t rate;       /* 0: no limit */
    bool is_plan, has_rate, is_running;
};

uint64_t parse_rate(struct argp_state *state, const char *arg)
{
    return strcmp(arg, "0") == 0 ? 0 : parse_bytes(state, "--rate", arg, RATE_LEAST, RATE_MOST);
}

static const struct argp_option options[] = {
    {"weights", 'w', "W,W,...", 0,
     "Each shard's share of the keys, next to the others' (default: 1 for every shard)", 0},
    {"by", 'b', "rows|load", 0,
     "Even out the rows that shards have, or the keys that are pulled and pushed", 0},
    {"seconds", 't', "SECONDS", 0, "Count them for so long (default: 10)", 0},
    {"drain", 'd', "SHARD", 0, "Leave this shard no keys, and the others equal shares", 0},
    {"rate", 'r', "BYTES", 0,
     "Copy rows at so many bytes a second at most, as 50M, 2G; 0: no limit (default: 0)", 0},
    {"running", OPTION_RUNNING, NULL, 0, "Give --rate to the move that runs, and begin none", 0},
    {"plan", 'p', NULL, 0, "Show what would move, and move nothing", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct rebalance_arguments *a = state->input;
    switch (key) {
    case 'w':
        a->weights = arg;
        return 0;
    case 'd':
        a->drained = (int64_t)parse_uint(state, "--drain", arg, 0, UINT16_MAX);
        return 0;
    case 'b':
        if (strcmp(arg, "rows") != 0 && strcmp(arg, "load") != 0)
            argp_error(state, "--by: '%s' is neither rows nor load", arg);
        a->by = arg;
        return 0;
    case 't':
        a->seconds = parse_uint(state, "--seconds", arg, 1, 3600);
        return 0;
    case 'r':
        a->has_rate = true;
        a->rate =
            strcmp(arg, "0") == 0 ? 0 : parse_bytes(state, "--rate", arg, RATE_LEAST, RATE_MOST);
        return 0;
    case OPTION_RUNNING:
        a->is_running = true;
        return 0;
    case 'p':
        a->is_plan = true;
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

static int refuse(const char *why)
{
    fprintf(stderr, "embctl rebalance: %s\n", why);
    return EXIT_USAGE;
}

/* weights [n], all 1 before. */
static int read_weights(const char *text, uint32_t n, uint32_t *weights)
{
    char why[128], *end = NULL;
    uint32_t i = 0;
    for (const char *at = text; i < n; at = end + 1) {
        unsigned long long weight = strtoull(at, &end, 10);
        if (*at < '0' || *at > '9' || weight > WEIGHT_MAX || (*end != ',' && *end != '\0'))
            return refuse("--weights takes numbers up to 1000000, separated by commas");
        weights[i++] = (uint32_t)weight;
        if (*end == '\0')
            break;
    }
    snprintf(why, sizeof why, "--weights needs one number for each of the %" PRIu32 " shards", n);
    return i == n && *end == '\0' ? EXIT_DONE : refuse(why);
}

static int check_arguments(const struct rebalance_arguments *a, uint32_t n)
{
    bool chooses = a->weights != NULL || a->drained >= 0 || a->by != NULL || a->is_plan;
    if (a->is_running && (chooses || !a->has_rate))
        return refuse("--running needs --rate, and takes no other option");
    if (a->weights != NULL && (a->drained >= 0 || a->by != NULL))
        return refuse("--weights goes with neither --drain nor --by");
    if (a->drained >= (int64_t)n)
        return refuse("--drain: the cluster has no such shard; see embctl shard list");
    return EXIT_DONE;
}

/* *status_out: of the client. */
static int choose_weights(embd_client *client, const struct rebalance_arguments *a, uint32_t n,
                          uint32_t *weights, int *status_out)
{
    bool is_nothing = false;
    for (uint32_t i = 0; i < n; i++)
        weights[i] = 1;
    if (a->weights != NULL)
        return read_weights(a->weights, n, weights);
    if (a->by != NULL)
        *status_out = costs_weigh(client, strcmp(a->by, "rows") == 0 ? COST_ROWS : COST_LOAD,
                                  (double)a->seconds, weights, &is_nothing);
    if (is_nothing)
        return refuse(strcmp(a->by, "rows") == 0 ? "--by rows: no shard has rows"
                                                 : "--by load: no key was pulled or pushed");
    if (a->drained >= 0)
        weights[a->drained] = 0;
    return EXIT_DONE;
}

uint64_t move_speed(const embd_snapshot_report *r)
{
    double speed = r->elapsed_us > 0 ? (double)r->bytes * 1e6 / (double)r->elapsed_us : 0;
    return r->rate > 0 && speed > (double)r->rate ? r->rate : (uint64_t)speed;
}

uint64_t move_left_us(const embd_snapshot_report *r)
{
    uint64_t left =
        r->is_running && r->expected_bytes > r->bytes ? r->expected_bytes - r->bytes : 0;
    uint64_t speed = r->rate > 0 ? r->rate : move_speed(r);
    return speed > 0 ? (uint64_t)((double)left * 1e6 / (double)speed) : 0;
}

int rebalance_watched(embd_client *client, const embd_rebalance_options *what,
                      embd_rebalance_report *out)
{
    struct move_watch watch;
    move_watch_begin(&watch);
    int status = embd_rebalance(client, what, out);
    move_watch_end(&watch);
    return status;
}

void rebalance_print(const embd_rebalance_report *r, bool is_plan)
{
    static const struct column columns[] = {
        {"placement", CELL_NUMBER}, {"vshards", CELL_COUNT},  {"rows", CELL_COUNT},
        {"bytes", CELL_BYTES},      {"elapsed", CELL_MICROS}, {"pushes_waited", CELL_MICROS}};
    struct listing l;
    listing_init(&l, is_plan ? "plan" : "rebalance", columns, sizeof columns / sizeof *columns);
    listing_row(&l);
    listing_uint(&l, 0, r->version);
    listing_uint(&l, 1, r->vshards);
    if (!is_plan) {
        listing_uint(&l, 2, r->rows);
        listing_uint(&l, 3, r->bytes);
        listing_uint(&l, 4, r->elapsed_us);
        listing_uint(&l, 5, r->pause_us);
    }
    listing_print_fields(&l);
    listing_fini(&l);
}

int command_rebalance(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Moves keys between shards, so that each has its share, while trainers pull and "
               "push. As few keys move as possible. Rows are copied, then what changed meanwhile; "
               "then all shards take the new map at one moment. Pushes wait only for that. Shard "
               "0's server does it, and goes on if this command ends early.\v"
               "A move that fails, or whose servers die, leaves every key where it was. Progress "
               "is that of a snapshot: embctl snapshot --status; embctl snapshot --cancel "
               "move-VERSION ends it. " NEEDS_ADMINS "\n"
               "With --rate rows are copied slowly, and no pull or push waits for that. Changes "
               "that come faster than the rate are copied at full speed at the end.\n"
               "Examples:\n"
               "  embctl rebalance --plan\n"
               "  embctl rebalance                       # equal shares\n"
               "  embctl rebalance --weights 1,1,2,2     # shards 2 and 3 get twice as many keys\n"
               "  embctl rebalance --by load --seconds 60\n"
               "  embctl rebalance --drain 3             # shard 3 gets none\n"
               "  embctl rebalance --rate 50M            # at 50 MiB a second at most\n"
               "  embctl rebalance --rate 200M --running # the one that runs, faster"};
    struct rebalance_arguments a = {.drained = -1, .seconds = 10};
    embd_rebalance_options own = EMBD_REBALANCE_OPTIONS();
    embd_rebalance_report report = {.struct_bytes = sizeof report};
    embd_client *client;
    parse_command(&argp, argc, argv, &a);
    int code = connect_servers(&client);
    if (code)
        return code;
    uint32_t weights[SHARDS_MAX], n = embd_shard_count(client);
    int status = EMBD_OK;
    code = check_arguments(&a, n);
    if (!code && a.is_running)
        return end_client(client, embd_rebalance_rate(client, a.rate));
    if (!code)
        code = choose_weights(client, &a, n, weights, &status);
    if (code) {
        embd_close(client);
        return code;
    }
    own.weights = weights;
    own.is_plan = a.is_plan;
    own.rate = a.rate;
    if (status == EMBD_OK)
        status = rebalance_watched(client, &own, &report);
    if (status == EMBD_OK)
        rebalance_print(&report, a.is_plan);
    return end_client(client, status);
}
