/* shard.c - embctl shard list, add, retire, drain, and wait: the shards as an orchestrator sees
 * them. */
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "client/embctl/listing.h"
#include "embd/admin.h"

/* ---- shard list ---- */

int command_shard_list(int argc, char **argv)
{
    static const struct column columns[] = {{"shard", CELL_NUMBER}, {"address", CELL_TEXT},
                                            {"state", CELL_STATE},  {"uptime_us", CELL_MICROS},
                                            {"tables", CELL_COUNT}, {"connections", CELL_COUNT}};
    struct listing l;
    struct figures f;
    embd_client *client;
    parse_no_arguments("Lists the shards and their state: ready, loading (its journal or a "
                       "snapshot), refused (its server does not serve its data directory; /readyz "
                       "says why), draining (finishes its work and takes no more) or silent (does "
                       "not answer).\v"
                       "Exit code 3 when a shard is silent.\n"
                       "\n"
                       "Examples:\n"
                       "  embctl shard list\n"
                       "  embctl shard list -o json |\n"
                       "      jq -r '.shards[] | select(.state == \"silent\").address'",
                       argc, argv);
    int code = connect_servers_partly(&client);
    if (code)
        return code;
    listing_init(&l, "shards", columns, 6);
    int status = figures_open(client, NULL, &f);
    for (uint32_t i = 0; i < f.n_shards && status != EMBD_NO_MEMORY; i++) {
        status = figures_read_shard(client, i, &f);
        listing_row(&l);
        listing_uint(&l, 0, i);
        listing_text(&l, 1, embd_shard_address(client, i));
        listing_text(&l, 2, figures_state(&f, i));
        if (status) {
            code = end_with(EMBD_UNREACHABLE, "");
            continue;
        }
        listing_uint(&l, 3, figures_get(&f, i, "uptime_us"));
        listing_uint(&l, 4, figures_get(&f, i, "tables"));
        listing_uint(&l, 5, figures_get(&f, i, "connections"));
    }
    figures_free(&f);
    listing_print(&l);
    listing_fini(&l);
    embd_close(client);
    return code;
}

/* ---- shard add ---- */

static void print_shards(embd_client *client, const char *what, const embd_rebalance_report *r)
{
    static const struct column columns[] = {{"shards", CELL_COUNT},
                                            {"placement", CELL_NUMBER},
                                            {"elapsed", CELL_MICROS},
                                            {"pushes_waited", CELL_MICROS}};
    struct listing l;
    listing_init(&l, what, columns, sizeof columns / sizeof *columns);
    listing_row(&l);
    listing_uint(&l, 0, embd_shard_count(client));
    listing_uint(&l, 1, r->version);
    listing_uint(&l, 2, r->elapsed_us);
    listing_uint(&l, 3, r->pause_us);
    listing_print_fields(&l);
    listing_fini(&l);
}

int command_shard_add(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "HOST:PORT",
        .doc = "Makes a new server a member of the cluster while trainers pull and push. The "
               "server was started with --join, an empty data_dir, and a configuration that lists "
               "it behind the cluster's servers; HOST:PORT is its data listener. Its shards get "
               "all tables, and no keys: embctl rebalance moves keys there. Pushes wait for a "
               "moment. Clients find the new shards by themselves.\v"
               "If it fails, or servers die, all of them count with the new shards or none does. "
               "Afterwards give all servers the new configuration; until they are started again, "
               "and then without it, identity.json has the new shards. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embd --config embd.yaml --server c --join &\n"
               "  embctl shard add 10.0.0.3:7700\n"
               "  embctl rebalance                       # it gets its share of the keys"};
    struct words words = {.min = 1, .max = 1, .wanted = "name the new server's HOST:PORT"};
    embd_rebalance_report report = {.struct_bytes = sizeof report};
    embd_client *client;
    parse_command(&argp, argc, argv, &words);
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = embd_shard_add(client, words.list[0], &report);
    if (status == EMBD_OK)
        print_shards(client, "added", &report);
    return end_client(client, status);
}

/* ---- shard retire ---- */

int command_shard_retire(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "SHARD",
        .doc = "Has a server leave the cluster for good while trainers pull and push. Shards leave "
               "from the end, and a server with all of its own: SHARD is the first shard of the "
               "last server. None of them may have keys: embctl rebalance --drain moves these to "
               "the other shards. Pushes wait for a moment. Clients forget the shards by "
               "themselves; then the server can be ended. It does not start on its data_dir again, "
               "where its parts of older snapshots are.\v"
               "If it fails, or servers die, all of them count without the shards or none does. "
               "Afterwards take the server out of the configuration of the others; until they are "
               "started again, and then with it, identity.json says that it is no "
               "member. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl rebalance --drain 2             # shard 2 has no keys any more\n"
               "  embctl shard retire 2\n"
               "  systemctl disable --now embd           # on its host"};
    struct words words = {.min = 1, .max = 1, .wanted = "name the number of a shard"};
    embd_rebalance_report report = {.struct_bytes = sizeof report};
    uint64_t shard;
    embd_client *client;
    parse_command(&argp, argc, argv, &words);
    if (!read_uint(words.list[0], UINT32_MAX, &shard)) {
        fprintf(stderr, "embctl shard retire: '%s' is not the number of a shard\n", words.list[0]);
        return EXIT_USAGE;
    }
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = embd_shard_retire(client, (uint32_t)shard, &report);
    if (status == EMBD_OK)
        print_shards(client, "retired", &report);
    return end_client(client, status);
}

/* ---- shard drain ---- */

int command_shard_drain(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "SHARD",
        .doc = "Tells the server process of a shard to finish its work and exit; its other shards "
               "stop with it. Journaled tables come back at the next start; of other tables take "
               "a snapshot or dump first.\v"
               "Uses the shard's admin listener: run it on that host, or set admin_listen there.\n"
               "\n"
               "Examples:\n"
               "  embctl shard drain 2"};
    struct words words = {.min = 1, .max = 1, .wanted = "name the number of a shard"};
    uint64_t shard;
    embd_client *client;
    parse_command(&argp, argc, argv, &words);
    if (!read_uint(words.list[0], UINT32_MAX, &shard)) {
        fprintf(stderr, "embctl shard drain: '%s' is not the number of a shard\n", words.list[0]);
        return EXIT_USAGE;
    }
    int code = connect_servers_partly(&client);
    if (code)
        return code;
    if (shard >= embd_shard_count(client)) {
        fprintf(stderr, "embctl: no such shard %" PRIu64 "; the cluster has 0 to %" PRIu32 "\n",
                shard, embd_shard_count(client) - 1);
        embd_close(client);
        return EXIT_USAGE;
    }
    return end_client(client, embd_drain_shard(client, (uint32_t)shard));
}

/* ---- wait ---- */

struct wait {
    bool ready;
    uint64_t timeout_s;
};

static const struct argp_option wait_options[] = {
    {"ready", 'r', NULL, 0,
     "Until every shard answers and none is loading or draining (the default)", 0},
    {"timeout", 't', "SECONDS", 0, "Give up after this (default: 60)", 0},
    {0},
};

static int parse_wait(int key, char *arg, struct argp_state *state)
{
    struct wait *wait = state->input;
    switch (key) {
    case 'r':
        return 0;
    case 't':
        wait->timeout_s = parse_uint(state, "--timeout", arg, 0, 86400);
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

/* EMBD_OK: all are ready. `why` gets a sentence otherwise. */
static int look(const embd_options *options, char *why, size_t why_bytes)
{
    embd_client *client;
    int status = embd_connect(globals.servers, options, &client);
    snprintf(why, why_bytes, "%s", status != EMBD_OK ? embd_error_text() : "");
    if (status != EMBD_OK)
        return status;
    struct figures f;
    status = figures_read(client, NULL, &f);
    if (status != EMBD_OK)
        snprintf(why, why_bytes, "%s", embd_error_text());
    for (uint32_t i = 0; i < f.n_shards && status == EMBD_OK; i++) {
        const char *address = embd_shard_address(client, i);
        if (figures_get(&f, i, "draining")) {
            snprintf(why, why_bytes, "%s: shard %" PRIu32 " is draining", address, i);
            status = EMBD_DRAINING;
        } else if (figures_get(&f, i, "directory_refused")) {
            snprintf(why, why_bytes,
                     "%s: shard %" PRIu32 " is refused: its data directory is not the one that the "
                     "other servers know; /readyz and its log say why",
                     address, i);
            status = EMBD_LOADING;
        } else if (figures_get(&f, i, "follows") || figures_get(&f, i, "deposed")) {
            snprintf(why, why_bytes, "%s: shard %" PRIu32 " %s", address, i,
                     figures_get(&f, i, "follows")
                         ? "follows another server, and serves once it is promoted"
                         : "serves nothing: another server was promoted in its place");
            status = EMBD_LOADING;
        } else if (figures_get(&f, i, "loading")) {
            snprintf(why, why_bytes,
                     "%s: shard %" PRIu32 " is loading, %" PRIu64 " of %" PRIu64 " bytes", address,
                     i, figures_get(&f, i, "loading_bytes"),
                     figures_get(&f, i, "loading_total_bytes"));
            status = EMBD_LOADING;
        }
    }
    figures_free(&f);
    embd_close(client);
    return status;
}

int command_wait(int argc, char **argv)
{
    static const struct argp argp = {
        .options = wait_options,
        .parser = parse_wait,
        .doc = "Waits until every shard of the cluster answers and none is loading or draining.\v"
               "Exit code 0 when they are ready, 3 after the timeout; stderr then names the shard "
               "that was not.\n"
               "\n"
               "Examples:\n"
               "  embctl wait --ready --timeout 120 && python3 train.py"};
    struct wait wait = {.timeout_s = 60};
    struct timespec now;
    char why[512] = "";
    embd_options options;
    parse_command(&argp, argc, argv, &wait);
    default_servers();
    embd_options_init(&options);
    options.deadline_ms = globals.deadline_ms ? globals.deadline_ms : 1000;
    clock_gettime(CLOCK_MONOTONIC, &now);
    time_t end = now.tv_sec + (time_t)wait.timeout_s;
    int status;
    while ((status = look(&options, why, sizeof why)) != EMBD_OK && status != EMBD_INVALID) {
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec >= end)
            break;
        wait_seconds(0.2);
    }
    if (status == EMBD_INVALID)
        return end_with(status, why), EXIT_USAGE;
    return status == EMBD_OK ? EXIT_DONE : (end_with(status, why), EXIT_UNREACHABLE);
}
