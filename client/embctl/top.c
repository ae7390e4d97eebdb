/* top.c - embctl top: what every shard and table does now, again and again.
 *
 * Two readings of the shards' figures a period apart make the rates. A shard that does not answer
 * is shown as silent, and the others go on. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

enum { TABLES_MAX = 256, SHARD_DEADLINE_MS = 2000 };

struct arguments {
    double interval;
    uint64_t count; /* 0: until interrupted */
};

struct table_now {
    char name[EMBD_NAME_MAX + 1];
    uint64_t rows, bytes, steps;
};

/* One shard, or the sum of all. */
struct shard_now {
    bool is_up;
    uint64_t requests, keys_pulled, keys_pushed, bytes_in, bytes_out;
    uint64_t pull_p50_us, pull_p99_us, push_p99_us, connections, draining, loading, rows;
};

struct reading {
    double at;
    struct shard_now *shards; /* [n_shards] */
    uint32_t shard;           /* being read */
    struct table_now tables[TABLES_MAX];
    size_t n_tables;
};

/* ---- reading ---- */

static const struct named {
    const char *name;
    size_t offset;
} shard_figures[] = {
    {"keys_pulled", offsetof(struct shard_now, keys_pulled)},
    {"keys_pushed", offsetof(struct shard_now, keys_pushed)},
    {"bytes_in", offsetof(struct shard_now, bytes_in)},
    {"bytes_out", offsetof(struct shard_now, bytes_out)},
    {"pull_p50_us", offsetof(struct shard_now, pull_p50_us)},
    {"pull_p99_us", offsetof(struct shard_now, pull_p99_us)},
    {"push_p99_us", offsetof(struct shard_now, push_p99_us)},
    {"connections", offsetof(struct shard_now, connections)},
    {"draining", offsetof(struct shard_now, draining)},
    {"loading", offsetof(struct shard_now, loading)},
};

static struct table_now *table_of(struct reading *r, const char *name)
{
    for (size_t i = 0; i < r->n_tables; i++)
        if (!strcmp(r->tables[i].name, name))
            return &r->tables[i];
    if (r->n_tables == TABLES_MAX)
        return NULL;
    struct table_now *table = &r->tables[r->n_tables++];
    snprintf(table->name, sizeof table->name, "%s", name);
    return table;
}

static void add_to_table(struct reading *r, const char *name, const char *figure, uint64_t value)
{
    struct table_now *table = table_of(r, name);
    if (!table)
        return;
    if (!strcmp(figure, "rows")) {
        table->rows += value;
        r->shards[r->shard].rows += value;
    } else if (!strcmp(figure, "row_bytes") || !strcmp(figure, "index_bytes")) {
        table->bytes += value;
    } else if (!strcmp(figure, "steps") && value > table->steps) {
        table->steps = value;
    }
}

static int on_figure(void *arg, const char *table, const char *name, uint64_t value)
{
    struct reading *r = arg;
    struct shard_now *shard = &r->shards[r->shard];
    if (table) {
        add_to_table(r, table, name, value);
        return 0;
    }
    if (!strncmp(name, "requests_", 9) && strcmp(name, "requests_parked") &&
        strcmp(name, "requests_in_flight"))
        shard->requests += value;
    for (size_t i = 0; i < sizeof shard_figures / sizeof *shard_figures; i++)
        if (!strcmp(name, shard_figures[i].name))
            *(uint64_t *)((char *)shard + shard_figures[i].offset) = value;
    return 0;
}

static double now_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* False when no shard answers: then the client's error says why of one. */
static bool read_all(embd_client *client, struct reading *r)
{
    uint32_t n = embd_shard_count(client);
    bool any = false;
    memset(r->shards, 0, n * sizeof *r->shards);
    r->n_tables = 0;
    memset(r->tables, 0, sizeof r->tables);
    r->at = now_seconds();
    for (r->shard = 0; r->shard < n; r->shard++) {
        r->shards[r->shard].is_up = embd_stats(client, r->shard, on_figure, r) == EMBD_OK;
        any = any || r->shards[r->shard].is_up;
    }
    return any;
}

/* ---- showing ---- */

static uint64_t rate(uint64_t now, uint64_t before, double seconds)
{
    return now > before && seconds > 0 ? (uint64_t)((double)(now - before) / seconds + 0.5) : 0;
}

static const struct column shard_columns[] = {
    {"shard", CELL_TEXT},         {"address", CELL_TEXT},        {"state", CELL_STATE},
    {"requests_s", CELL_COUNT},   {"keys_pulled_s", CELL_COUNT}, {"keys_pushed_s", CELL_COUNT},
    {"in_s_bytes", CELL_BYTES},   {"out_s_bytes", CELL_BYTES},   {"pull_p50_us", CELL_MICROS},
    {"pull_p99_us", CELL_MICROS}, {"push_p99_us", CELL_MICROS},  {"connections", CELL_COUNT},
    {"rows", CELL_COUNT}};
#define N_SHARD_COLUMNS (sizeof shard_columns / sizeof *shard_columns)

static void add_shard(struct listing *l, const struct shard_now *now,
                      const struct shard_now *before, double seconds)
{
    const uint64_t cells[] = {rate(now->requests, before->requests, seconds),
                              rate(now->keys_pulled, before->keys_pulled, seconds),
                              rate(now->keys_pushed, before->keys_pushed, seconds),
                              rate(now->bytes_in, before->bytes_in, seconds),
                              rate(now->bytes_out, before->bytes_out, seconds),
                              now->pull_p50_us,
                              now->pull_p99_us,
                              now->push_p99_us,
                              now->connections,
                              now->rows};
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        listing_uint(l, 3 + i, cells[i]);
}

static void add_up(struct shard_now *sum, const struct shard_now *one)
{
    sum->requests += one->requests;
    sum->keys_pulled += one->keys_pulled;
    sum->keys_pushed += one->keys_pushed;
    sum->bytes_in += one->bytes_in;
    sum->bytes_out += one->bytes_out;
    sum->connections += one->connections;
    sum->rows += one->rows;
    sum->pull_p50_us = one->pull_p50_us > sum->pull_p50_us ? one->pull_p50_us : sum->pull_p50_us;
    sum->pull_p99_us = one->pull_p99_us > sum->pull_p99_us ? one->pull_p99_us : sum->pull_p99_us;
    sum->push_p99_us = one->push_p99_us > sum->push_p99_us ? one->push_p99_us : sum->push_p99_us;
}

/* Quantiles of the last line are the worst shard's. */
static void list_shards(struct listing *l, const embd_client *client, const struct reading *now,
                        const struct reading *before)
{
    struct shard_now sum = {0}, sum_before = {0};
    double seconds = now->at - before->at;
    for (uint32_t i = 0; i < embd_shard_count(client); i++) {
        const struct shard_now *shard = &now->shards[i], *old = &before->shards[i];
        char number[16];
        snprintf(number, sizeof number, "%" PRIu32, i);
        listing_row(l);
        listing_text(l, 0, number);
        listing_text(l, 1, embd_shard_address(client, i));
        listing_text(l, 2,
                     !shard->is_up     ? "silent"
                     : shard->loading  ? "loading"
                     : shard->draining ? "draining"
                                       : "ready");
        if (!shard->is_up || !old->is_up)
            continue;
        add_shard(l, shard, old, seconds);
        add_up(&sum, shard);
        add_up(&sum_before, old);
    }
    if (globals.json)
        return;
    listing_row(l);
    listing_text(l, 0, "all");
    add_shard(l, &sum, &sum_before, seconds);
}

static const struct table_now *find_table(const struct reading *r, const char *name)
{
    for (size_t i = 0; i < r->n_tables; i++)
        if (!strcmp(r->tables[i].name, name))
            return &r->tables[i];
    return NULL;
}

static void list_tables(struct listing *l, const struct reading *now, const struct reading *before)
{
    for (size_t i = 0; i < now->n_tables; i++) {
        const struct table_now *table = &now->tables[i], *old = find_table(before, table->name);
        double seconds = now->at - before->at;
        listing_row(l);
        listing_text(l, 0, table->name);
        listing_uint(l, 1, table->rows);
        listing_uint(l, 2, table->bytes);
        listing_uint(l, 3, old ? rate(table->rows, old->rows, seconds) : 0);
        listing_uint(l, 4, old ? rate(table->steps, old->steps, seconds) : 0);
    }
}

static void show(const embd_client *client, const struct reading *now, const struct reading *before,
                 bool first)
{
    static const struct column table_columns[] = {{"table", CELL_TEXT},
                                                  {"rows", CELL_COUNT},
                                                  {"memory_bytes", CELL_BYTES},
                                                  {"new_rows_s", CELL_COUNT},
                                                  {"pushes_s", CELL_COUNT}};
    struct listing shards, tables;
    listing_init(&shards, "shards", shard_columns, N_SHARD_COLUMNS);
    listing_init(&tables, "tables", table_columns, 5);
    list_shards(&shards, client, now, before);
    list_tables(&tables, now, before);
    if (!globals.json && isatty(STDOUT_FILENO))
        fputs("\033[H\033[2J", stdout);
    else if (!globals.json && !first)
        putchar('\n');
    listing_print_pair(&shards, &tables);
    fflush(stdout);
    listing_fini(&shards);
    listing_fini(&tables);
}

/* ---- the command ---- */

static const struct argp_option options[] = {
    {"interval", 'i', "SECONDS", 0, "From one view to the next (default: 2)", 0},
    {"count", 'c', "N", 0, "End after N views (default: until interrupted)", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct arguments *a = state->input;
    switch (key) {
    case 'i':
        a->interval = parse_seconds(state, "--interval", arg, SHORTEST_INTERVAL);
        return 0;
    case 'c':
        if (!read_uint(arg, UINT64_MAX, &a->count) || a->count == 0)
            argp_error(state, "--count is '%s'; it can be 1 or more", arg);
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

static int run(embd_client *client, const struct arguments *a)
{
    static struct reading readings[2];
    uint32_t n = embd_shard_count(client);
    int code = EXIT_DONE;
    for (int i = 0; i < 2; i++)
        readings[i].shards = calloc(n, sizeof *readings[i].shards);
    if (!readings[0].shards || !readings[1].shards)
        code = end_with(EMBD_NO_MEMORY, "");
    bool any = code == EXIT_DONE && read_all(client, &readings[0]);
    for (uint64_t i = 0; any && (a->count == 0 || i < a->count); i++) {
        struct reading *before = &readings[i % 2], *now = &readings[(i + 1) % 2];
        wait_seconds(a->interval);
        any = read_all(client, now);
        if (any)
            show(client, now, before, i == 0);
    }
    if (code == EXIT_DONE && !any)
        code = end_with(EMBD_UNREACHABLE, embd_last_error(client));
    free(readings[0].shards);
    free(readings[1].shards);
    return code;
}

int command_top(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc = "What shards and tables do now: requests, keys and bytes a second, p50 and p99 of "
               "the last 10 to 20 seconds, connections, rows. On a terminal each view replaces "
               "the one before; end it with Ctrl-C.\v"
               "Quantiles of the line 'all' are those of the worst shard.\n"
               "\n"
               "Examples:\n"
               "  embctl top\n"
               "  embctl top --interval 10\n"
               "  embctl top -c 1 -o json | jq '.shards[] | select(.state != \"ready\")'"};
    struct arguments a = {.interval = 2.0};
    embd_client *client;
    parse_command(&argp, argc, argv, &a);
    if (!globals.deadline_ms)
        globals.deadline_ms = SHARD_DEADLINE_MS;
    int code = connect_servers(&client);
    if (code)
        return code;
    code = run(client, &a);
    embd_close(client);
    return code;
}
