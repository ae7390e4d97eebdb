/* stats.c - embctl stats: the figures of all shards side by side, once or again and again.
 *
 * For people, one line per figure: the shards' values and what they add up to (with --watch, also
 * how fast it grows). For programs, one entry per shard, table and figure. Names and units are
 * those of proto/PROTOCOL.md; a name's end tells its unit. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

#define SHARDS_SHOWN 6 /* more shards than this: only the sum, the least and the most */

struct stats_arguments {
    const char *table;
    double interval; /* seconds; 0: once */
    uint64_t count;  /* 0: until interrupted */
    bool all;
};

/* One figure of one table (or of the shards) over all shards. */
struct figure {
    char *table; /* NULL: of the shard itself */
    char *name;
    uint64_t *values; /* [n_shards]; */
    bool *known;      /* [n_shards] */
};

struct figures {
    struct figure *list;
    size_t n;
    uint32_t n_shards, shard; /* shard being read */
    const char *only_table;
    struct timespec at;
};

/* ---- reading ---- */

static bool same_table(const char *a, const char *b)
{
    return a && b ? !strcmp(a, b) : a == b;
}

static struct figure *find(const struct figures *f, const char *table, const char *name)
{
    for (size_t i = 0; i < f->n; i++)
        if (same_table(f->list[i].table, table) && !strcmp(f->list[i].name, name))
            return &f->list[i];
    return NULL;
}

static struct figure *add(struct figures *f, const char *table, const char *name)
{
    struct figure *grown = reallocarray(f->list, f->n + 1, sizeof *grown);
    if (!grown)
        return NULL;
    f->list = grown;
    struct figure *figure = &grown[f->n++];
    *figure = (struct figure){.table = table ? strdup(table) : NULL,
                              .name = strdup(name),
                              .values = calloc(f->n_shards, sizeof(uint64_t)),
                              .known = calloc(f->n_shards, sizeof(bool))};
    bool failed = (table && !figure->table) || !figure->name || !figure->values || !figure->known;
    return failed ? NULL : figure;
}

static int on_figure(void *arg, const char *table, const char *name, uint64_t value)
{
    struct figures *f = arg;
    if (f->only_table && !same_table(table, f->only_table))
        return 0;
    struct figure *figure = find(f, table, name);
    if (!figure)
        figure = add(f, table, name);
    if (!figure)
        return EMBD_NO_MEMORY;
    figure->values[f->shard] = value;
    figure->known[f->shard] = true;
    return 0;
}

static int read_figures(embd_client *client, const char *only_table, struct figures *f)
{
    *f = (struct figures){.n_shards = embd_shard_count(client), .only_table = only_table};
    clock_gettime(CLOCK_MONOTONIC, &f->at);
    int status = EMBD_OK;
    for (f->shard = 0; f->shard < f->n_shards && !status; f->shard++)
        status = embd_stats(client, f->shard, on_figure, f);
    return status;
}

static void free_figures(struct figures *f)
{
    for (size_t i = 0; i < f->n; i++) {
        free(f->list[i].table);
        free(f->list[i].name);
        free(f->list[i].values);
        free(f->list[i].known);
    }
    free(f->list);
    *f = (struct figures){0};
}

/* ---- showing ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static enum cell_kind kind_of(const char *name)
{
    if (ends_with(name, "_us"))
        return CELL_MICROS;
    return ends_with(name, "_bytes") || !strncmp(name, "bytes_", 6) ? CELL_BYTES : CELL_COUNT;
}

static void print_json(const struct figures *f)
{
    static const struct column columns[] = {
        {"shard", CELL_NUMBER}, {"table", CELL_TEXT}, {"name", CELL_TEXT}, {"value", CELL_NUMBER}};
    struct listing l;
    listing_init(&l, "stats", columns, 4);
    for (uint32_t shard = 0; shard < f->n_shards; shard++)
        for (size_t i = 0; i < f->n; i++) {
            if (!f->list[i].known[shard])
                continue;
            listing_row(&l);
            listing_uint(&l, 0, shard);
            if (f->list[i].table)
                listing_text(&l, 1, f->list[i].table);
            listing_text(&l, 2, f->list[i].name);
            listing_uint(&l, 3, f->list[i].values[shard]);
        }
    listing_print(&l);
    listing_fini(&l);
}

struct sums {
    uint64_t total, least, most;
};

/* Of one shard alone, and now: quantiles and ages. */
static bool is_momentary(const char *name)
{
    return ends_with(name, "_p50_us") || ends_with(name, "_p99_us") || ends_with(name, "_age_us");
}

/* Figures that do not add up over shards: their total is the most. */
static bool is_common(const char *name)
{
    if (is_momentary(name))
        return true;
    static const char *const names[] = {"uptime_us", "draining", "loading",
                                        "tables",    "steps",    "index_bytes_per_key"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (!strcmp(names[i], name))
            return true;
    return false;
}

static struct sums sum(const struct figure *figure, uint32_t n_shards)
{
    struct sums s = {.least = UINT64_MAX};
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        if (!figure->known[shard])
            continue;
        uint64_t value = figure->values[shard];
        s.total += value;
        s.least = value < s.least ? value : s.least;
        s.most = value > s.most ? value : s.most;
    }
    if (is_common(figure->name))
        s.total = s.most;
    return s;
}

static void set_formatted(struct listing *l, size_t column, enum cell_kind kind, uint64_t value)
{
    char text[64];
    listing_format(text, sizeof text, kind, value);
    listing_text(l, column, text);
}

static double seconds_between(const struct timespec *a, const struct timespec *b)
{
    return (double)(b->tv_sec - a->tv_sec) + (double)(b->tv_nsec - a->tv_nsec) / 1e9;
}

/* How much the sum grew per second since `before`; nothing where it did not. */
static void set_rate(struct listing *l, size_t column, const struct figures *now,
                     const struct figures *before, const struct figure *figure)
{
    const struct figure *old = find(before, figure->table, figure->name);
    if (!old || before->n_shards != now->n_shards || is_momentary(figure->name))
        return;
    uint64_t a = sum(old, now->n_shards).total, b = sum(figure, now->n_shards).total;
    double seconds = seconds_between(&before->at, &now->at);
    if (b > a && seconds > 0)
        set_formatted(l, column, kind_of(figure->name),
                      (uint64_t)((double)(b - a) / seconds + 0.5));
}

/* Values are formatted here, each figure by its own unit; so the columns are text. */
static void add_line(struct listing *l, const struct figures *f, const struct figures *before,
                     const struct figure *figure)
{
    enum cell_kind kind = kind_of(figure->name);
    struct sums s = sum(figure, f->n_shards);
    size_t column = 0;
    listing_row(l);
    listing_text(l, column++, figure->table ? figure->table : "(shard)");
    listing_text(l, column++, figure->name);
    if (f->n_shards > SHARDS_SHOWN) {
        set_formatted(l, column++, kind, s.least);
        set_formatted(l, column++, kind, s.most);
    } else {
        for (uint32_t shard = 0; shard < f->n_shards; shard++, column++)
            if (figure->known[shard])
                set_formatted(l, column, kind, figure->values[shard]);
    }
    set_formatted(l, column++, kind, s.total);
    if (before)
        set_rate(l, column, f, before, figure);
}

static size_t make_columns(struct column *columns, uint32_t n_shards, bool has_rate)
{
    static const char *const shards[SHARDS_SHOWN] = {"shard_0", "shard_1", "shard_2",
                                                     "shard_3", "shard_4", "shard_5"};
    size_t n = 0;
    columns[n++] = (struct column){"table", CELL_TEXT};
    columns[n++] = (struct column){"figure", CELL_TEXT};
    for (uint32_t shard = 0; n_shards <= SHARDS_SHOWN && shard < n_shards; shard++)
        columns[n++] = (struct column){shards[shard], CELL_RIGHT};
    if (n_shards > SHARDS_SHOWN) {
        columns[n++] = (struct column){"least", CELL_RIGHT};
        columns[n++] = (struct column){"most", CELL_RIGHT};
    }
    columns[n++] = (struct column){"total", CELL_RIGHT};
    if (has_rate)
        columns[n++] = (struct column){"per_second", CELL_RIGHT};
    return n;
}

/* Figures that are 0 everywhere say little; they are left out unless asked for. */
static void print_table(const struct figures *f, const struct figures *before, bool all)
{
    struct column columns[SHARDS_SHOWN + 4];
    struct listing l;
    listing_init(&l, "stats", columns, make_columns(columns, f->n_shards, before != NULL));
    for (size_t i = 0; i < f->n; i++)
        if (all || f->list[i].table || sum(&f->list[i], f->n_shards).most > 0)
            add_line(&l, f, before, &f->list[i]);
    listing_print(&l);
    listing_fini(&l);
}

static void print_figures(const struct figures *f, const struct figures *before,
                          const struct stats_arguments *a)
{
    if (globals.json)
        print_json(f);
    else
        print_table(f, before, a->all);
    fflush(stdout);
}

/* ---- again and again ---- */

/* On a terminal each view replaces the one before; elsewhere a blank line stands between. */
static void begin_view(bool first)
{
    if (globals.json)
        return;
    if (isatty(STDOUT_FILENO))
        fputs("\033[H\033[2J", stdout);
    else if (!first)
        putchar('\n');
}

static int watch(embd_client *client, const struct stats_arguments *a)
{
    struct figures before, now;
    int status = read_figures(client, a->table, &before);
    for (uint64_t i = 0; status == EMBD_OK && (a->count == 0 || i < a->count); i++) {
        wait_seconds(a->interval);
        status = read_figures(client, a->table, &now);
        if (status == EMBD_OK) {
            begin_view(i == 0);
            print_figures(&now, &before, a);
        }
        free_figures(&before);
        before = now;
    }
    free_figures(&before);
    return status;
}

static int show_once(embd_client *client, const struct stats_arguments *a)
{
    struct figures f;
    int status = read_figures(client, a->table, &f);
    if (status == EMBD_OK && a->table && f.n == 0) {
        fprintf(stderr, "embctl: there is no table '%s'\n", a->table);
        free_figures(&f);
        return EMBD_UNKNOWN_TABLE;
    }
    if (status == EMBD_OK)
        print_figures(&f, NULL, a);
    free_figures(&f);
    return status;
}

/* ---- the command ---- */

static const struct argp_option options[] = {
    {"table", 't', "NAME", 0, "Figures of this table only", 0},
    {"watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL,
     "Again and again, with rates (default: every 2 seconds)", 0},
    {"count", 'c', "N", 0, "With --watch: end after N views (default: until interrupted)", 0},
    {"all", 'a', NULL, 0, "Also figures that are 0 on every shard", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct stats_arguments *a = state->input;
    switch (key) {
    case 't':
        a->table = arg;
        return 0;
    case 'a':
        a->all = true;
        return 0;
    case 'w':
        a->interval = arg ? parse_seconds(state, "--watch", arg, SHORTEST_INTERVAL) : 2.0;
        return 0;
    case 'c':
        if (!read_uint(arg, UINT64_MAX, &a->count) || a->count == 0)
            argp_error(state, "--count is '%s'; it can be 1 or more", arg);
        return 0;
    case ARGP_KEY_END:
        if (a->count && a->interval == 0)
            argp_error(state, "--count belongs to --watch");
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

int command_stats(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .doc =
            "Figures of shards and tables: requests, keys, bytes, rows, memory. All count from "
            "the start of the "
            "server, except those of a state (rows, connections).\v"
            "Values are shown with their units. In JSON a name's end tells it: _us microseconds, "
            "_bytes bytes. TOTAL of quantiles (_p50_us, "
            "_p99_us) and ages is that of the worst shard. JSON has one entry "
            "per shard, table "
            "(null: the shard itself) and figure, exact; with --watch one document per view.\n"
            "\n"
            "Examples:\n"
            "  embctl stats\n"
            "  embctl stats --table items --watch=1\n"
            "  embctl stats -o json | jq '.stats[] | select(.name==\"rows\")'"};
    struct stats_arguments a = {0};
    embd_client *client;
    parse_command(&argp, argc, argv, &a);
    int code = connect_servers(&client);
    if (code)
        return code;
    if (a.interval > 0)
        return end_client(client, watch(client, &a));
    int status = show_once(client, &a);
    if (status == EMBD_UNKNOWN_TABLE) {
        embd_close(client);
        return EXIT_NOT_FOUND;
    }
    return end_client(client, status);
}
