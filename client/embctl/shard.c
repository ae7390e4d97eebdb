/* shard.c - embctl shard list, shard drain, and wait: the shards as an orchestrator sees them. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

void wait_seconds(double seconds)
{
    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
    nanosleep(&pause, NULL);
}

/* ---- shard list ---- */

struct state {
    uint64_t uptime_us, draining, loading, done_bytes, total_bytes, tables, connections;
};

static int on_figure(void *arg, const char *table, const char *name, uint64_t value)
{
    struct state *s = arg;
    if (table)
        return 0;
    if (!strcmp(name, "uptime_us"))
        s->uptime_us = value;
    else if (!strcmp(name, "draining"))
        s->draining = value;
    else if (!strcmp(name, "loading"))
        s->loading = value;
    else if (!strcmp(name, "loading_bytes"))
        s->done_bytes = value;
    else if (!strcmp(name, "loading_total_bytes"))
        s->total_bytes = value;
    else if (!strcmp(name, "tables"))
        s->tables = value;
    else if (!strcmp(name, "connections"))
        s->connections = value;
    return 0;
}

static const char *state_name(bool is_up, const struct state *s)
{
    if (!is_up)
        return "silent";
    return s->loading ? "loading" : s->draining ? "draining" : "ready";
}

int command_shard_list(int argc, char **argv)
{
    static const struct column columns[] = {{"shard", CELL_NUMBER}, {"address", CELL_TEXT},
                                            {"state", CELL_STATE},  {"uptime_us", CELL_MICROS},
                                            {"tables", CELL_COUNT}, {"connections", CELL_COUNT}};
    struct listing l;
    embd_client *client;
    parse_no_arguments("The shards and their state: ready, loading (its journal, or a snapshot), "
                       "draining (finishes, takes "
                       "no new work) or silent (does not answer).\v"
                       "Exit code 3 when a shard is silent.\n"
                       "\n"
                       "Examples:\n"
                       "  embctl shard list\n"
                       "  embctl shard list -o json |\n"
                       "      jq -r '.shards[] | select(.state == \"silent\").address'",
                       argc, argv);
    int code = connect_servers(&client);
    if (code)
        return code;
    listing_init(&l, "shards", columns, 6);
    for (uint32_t i = 0; i < embd_shard_count(client); i++) {
        struct state s = {0};
        bool is_up = embd_stats(client, i, on_figure, &s) == EMBD_OK;
        listing_row(&l);
        listing_uint(&l, 0, i);
        listing_text(&l, 1, embd_shard_address(client, i));
        listing_text(&l, 2, state_name(is_up, &s));
        if (!is_up) {
            code = end_with(EMBD_UNREACHABLE, embd_last_error(client));
            continue;
        }
        listing_uint(&l, 3, s.uptime_us);
        listing_uint(&l, 4, s.tables);
        listing_uint(&l, 5, s.connections);
    }
    listing_print(&l);
    listing_fini(&l);
    embd_close(client);
    return code;
}

/* ---- shard drain ---- */

static int parse_shard(int key, char *arg, struct argp_state *state)
{
    uint64_t *shard = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (*shard != UINT64_MAX)
            argp_error(state, "takes one shard, but got '%s' too", arg);
        if (!read_uint(arg, UINT32_MAX, shard))
            argp_error(state, "'%s' is not the number of a shard", arg);
        return 0;
    case ARGP_KEY_END:
        if (*shard == UINT64_MAX)
            argp_error(state, "which shard?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int command_shard_drain(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_shard,
        .args_doc = "SHARD",
        .doc = "Asks the server process that a shard belongs to to finish what it has begun and "
               "exit; its other shards end with it. What their tables hold comes back at the next "
               "start where they are journaled; of others take a snapshot or dump first.\v"
               "Asks the shard's admin listener: it runs on its host, or anywhere where it has "
               "admin_listen.\n"
               "\n"
               "Examples:\n"
               "  embctl shard drain 2"};
    uint64_t shard = UINT64_MAX;
    embd_client *client;
    parse_command(&argp, argc, argv, &shard);
    int code = connect_servers(&client);
    if (code)
        return code;
    if (shard >= embd_shard_count(client)) {
        fprintf(stderr, "embctl: there is no shard %" PRIu64 "; the cluster has 0 to %" PRIu32 "\n",
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
        if (!read_uint(arg, 86400, &wait->timeout_s))
            argp_error(state, "--timeout is '%s'; it can be 0 to 86400 seconds", arg);
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

/* EMBD_OK: all are ready. `why` gets a sentence otherwise. */
static int look(const embd_options *options, char *why, size_t why_bytes)
{
    embd_client *client;
    int status = embd_connect(globals.servers, options, &client, why, why_bytes);
    if (status != EMBD_OK)
        return status;
    for (uint32_t i = 0; i < embd_shard_count(client) && status == EMBD_OK; i++) {
        struct state s = {0};
        status = embd_stats(client, i, on_figure, &s);
        if (status != EMBD_OK)
            snprintf(why, why_bytes, "%s", embd_last_error(client));
        if (status == EMBD_OK && s.draining) {
            snprintf(why, why_bytes, "%s: shard %" PRIu32 " is draining",
                     embd_shard_address(client, i), i);
            status = EMBD_DRAINING;
        }
        if (status == EMBD_OK && s.loading) {
            snprintf(why, why_bytes,
                     "%s: shard %" PRIu32 " is loading, %" PRIu64 " of %" PRIu64 " bytes",
                     embd_shard_address(client, i), i, s.done_bytes, s.total_bytes);
            status = EMBD_LOADING;
        }
    }
    embd_close(client);
    return status;
}

int command_wait(int argc, char **argv)
{
    static const struct argp argp = {
        .options = wait_options,
        .parser = parse_wait,
        .doc = "Waits until every shard of the cluster answers and none is loading or draining.\v"
               "Exit code 0 when they are ready, 3 when the time is over; stderr then says which "
               "shard was not.\n"
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
