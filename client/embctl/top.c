/* top.c - embctl top: what every shard and table does now, again and again.
 *
 * Two readings of the shards' figures a period apart make the rates. A shard that does not answer
 * is shown as silent, and the others go on. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "client/embctl/listing.h"

enum { SHARD_DEADLINE_MS = 2000 };

/* ---- shards ---- */

static const struct column shard_columns[] = {
    {"shard", CELL_TEXT},         {"address", CELL_TEXT},        {"state", CELL_STATE},
    {"requests_s", CELL_COUNT},   {"keys_pulled_s", CELL_COUNT}, {"keys_pushed_s", CELL_COUNT},
    {"in_s_bytes", CELL_BYTES},   {"out_s_bytes", CELL_BYTES},   {"pull_p50_us", CELL_MICROS},
    {"pull_p99_us", CELL_MICROS}, {"push_p99_us", CELL_MICROS},  {"late_us", CELL_MICROS},
    {"connections", CELL_COUNT},  {"rows", CELL_COUNT}};
enum { FIRST_RATE = 3, N_RATES = 5, FIRST_VALUE = 8, N_VALUES = 6 };

/* Their figures; "rows" are those of the shard's tables. */
static const char *const rates[N_RATES] = {"requests", "keys_pulled", "keys_pushed", "bytes_in",
                                           "bytes_out"};
static const char *const values[N_VALUES] = {"pull_p50_us",     "pull_p99_us", "push_p99_us",
                                             "late_longest_us", "connections", "rows"};

static uint64_t requests(const struct figures *f, uint32_t shard)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < f->n; i++) {
        const struct figure *figure = f->list[i];
        if (!figure->table && !strncmp(figure->name, "requests_", 9) &&
            strcmp(figure->name, "requests_parked") && strcmp(figure->name, "requests_in_flight"))
            sum += figure->values[shard];
    }
    return sum;
}

static uint64_t value_of(const struct figures *f, uint32_t shard, const char *name)
{
    if (!strcmp(name, "requests"))
        return requests(f, shard);
    return strcmp(name, "rows") ? figures_get(f, shard, name) : figures_of_tables(f, shard, name);
}

/* The cells of one shard, added to those of all; quantiles of all are the worst shard's. */
static void add_shard(struct listing *l, uint32_t shard, const struct figures *now,
                      const struct figures *before, uint64_t all[N_RATES + N_VALUES])
{
    for (size_t i = 0; i < N_RATES; i++) {
        uint64_t rate = figures_rate(value_of(now, shard, rates[i]),
                                     value_of(before, shard, rates[i]), now->at - before->at);
        listing_uint(l, FIRST_RATE + i, rate);
        all[i] += rate;
    }
    for (size_t i = 0; i < N_VALUES; i++) {
        uint64_t value = value_of(now, shard, values[i]), *sum = &all[N_RATES + i];
        listing_uint(l, FIRST_VALUE + i, value);
        if (figures_is_momentary(values[i]))
            *sum = value > *sum ? value : *sum;
        else
            *sum += value;
    }
}

static void list_shards(struct listing *l, const embd_client *client, const struct figures *now,
                        const struct figures *before)
{
    uint64_t all[N_RATES + N_VALUES] = {0};
    for (uint32_t i = 0; i < now->n_shards; i++) {
        char number[16];
        snprintf(number, sizeof number, "%" PRIu32, i);
        listing_row(l);
        listing_text(l, 0, number);
        listing_text(l, 1, embd_shard_address(client, i));
        listing_text(l, 2, figures_state(now, i));
        if (now->is_up[i] && before->is_up[i])
            add_shard(l, i, now, before, all);
    }
    if (globals.json)
        return;
    listing_row(l);
    listing_text(l, 0, "all");
    for (size_t i = 0; i < N_RATES + N_VALUES; i++)
        listing_uint(l, FIRST_RATE + i, all[i]);
}

/* ---- tables ---- */

static const struct column table_columns[] = {{"table", CELL_TEXT},
                                              {"rows", CELL_COUNT},
                                              {"memory_bytes", CELL_BYTES},
                                              {"new_rows_s", CELL_COUNT},
                                              {"pushes_s", CELL_COUNT}};

static void set_table_rate(struct listing *l, size_t column, const char *table, const char *name,
                           const struct figures *now, const struct figures *before)
{
    const struct figure *old = figures_find(before, table, name);
    uint64_t value = figures_sum(now, figures_find(now, table, name)).total;
    listing_uint(l, column,
                 old ? figures_rate(value, figures_sum(before, old).total, now->at - before->at)
                     : 0);
}

static void list_tables(struct listing *l, const struct figures *now, const struct figures *before)
{
    const char *table;
    for (size_t at = 0; (table = figures_next_table(now, &at)) != NULL;) {
        listing_row(l);
        listing_text(l, 0, table);
        listing_uint(l, 1, figures_sum(now, figures_find(now, table, "rows")).total);
        listing_uint(l, 2, figures_table_memory(now, table));
        set_table_rate(l, 3, table, "rows", now, before);
        set_table_rate(l, 4, table, "steps", now, before);
    }
}

/* ---- the command ---- */

static void show(const embd_client *client, const struct figures *now, const struct figures *before)
{
    struct listing shards, tables;
    listing_init(&shards, "shards", shard_columns, sizeof shard_columns / sizeof *shard_columns);
    listing_init(&tables, "tables", table_columns, sizeof table_columns / sizeof *table_columns);
    list_shards(&shards, client, now, before);
    list_tables(&tables, now, before);
    listing_print_pair(&shards, &tables);
    listing_fini(&shards);
    listing_fini(&tables);
}

/* EMBD_UNREACHABLE: no shard answers; the client's error says why of one. */
static int read_all(embd_client *client, struct figures *f)
{
    bool any = false;
    int status = figures_open(client, NULL, f);
    if (status)
        return status;
    for (uint32_t shard = 0; shard < f->n_shards; shard++)
        any = figures_read_shard(client, shard, f) == EMBD_OK || any;
    return any ? EMBD_OK : EMBD_UNREACHABLE;
}

static int run(embd_client *client, struct views *views)
{
    struct figures before, now;
    int status = read_all(client, &before);
    while (status == EMBD_OK && views_next(views)) {
        status = read_all(client, &now);
        if (status == EMBD_OK) {
            views_begin(views);
            show(client, &now, &before);
        }
        figures_free(&before);
        before = now;
    }
    figures_free(&before);
    return status;
}

static const struct argp_option options[] = {
    {"interval", 'i', "SECONDS", 0, "From one view to the next (default: 2)", 0},
    {"count", 'c', "N", 0, "End after N views (default: until interrupted)", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct views *views = state->input;
    switch (key) {
    case 'i':
        views->interval = parse_seconds(state, "--interval", arg, SHORTEST_INTERVAL);
        return 0;
    case 'c':
        views->count = parse_uint(state, "--count", arg, 1, UINT64_MAX);
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

int command_top(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "Shows what shards and tables do now: requests, keys and bytes a second, p50 and "
               "p99 of the last 10 to 20 seconds, connections, rows. On a terminal each view "
               "replaces the one before; end it with Ctrl-C.\v"
               "LATE is the longest time of the last minute or two that the shard's thread did "
               "not look at its sockets: its process was stopped, had no processor, or was busy "
               "with one request. Requests wait unread meanwhile, which the quantiles do not "
               "contain. In the line 'all', LATE and quantiles are those of the worst shard.\n"
               "\n"
               "Examples:\n"
               "  embctl top\n"
               "  embctl top --interval 10\n"
               "  embctl top -c 1 -o json | jq '.shards[] | select(.state != \"ready\")'"};
    struct views views = {.interval = 2.0};
    embd_client *client;
    parse_command(&argp, argc, argv, &views);
    if (!globals.deadline_ms)
        globals.deadline_ms = SHARD_DEADLINE_MS;
    int code = connect_servers(&client);
    return code ? code : end_client(client, run(client, &views));
}
