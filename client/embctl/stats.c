/* stats.c - embctl stats: the figures of all shards side by side, once or repeatedly.
 *
 * For people, one line per figure: the shards' values and their total (with --watch, also its
 * rate). For programs, one entry per shard, table and figure. Names and units are those of
 * proto/PROTOCOL.md; the end of a name is its unit. */
#include <stdio.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "client/embctl/listing.h"
#include "client/embctl/tokenstats.h"
#include "embd/admin.h"

#define SHARDS_SHOWN 6 /* more shards than this: only the sum, the least and the most */

struct stats_arguments {
    const char *table;
    struct views views;
    bool all, tokens;
};

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
    static const struct column silent[] = {{"shard", CELL_NUMBER}};
    struct listing l, s;
    listing_init(&s, "silent", silent, 1);
    listing_init(&l, "stats", columns, 4);
    for (uint32_t shard = 0; shard < f->n_shards; shard++) {
        if (!f->is_up[shard]) {
            listing_row(&s);
            listing_uint(&s, 0, shard);
        }
        for (size_t i = 0; i < f->n; i++) {
            if (!f->list[i]->known[shard])
                continue;
            listing_row(&l);
            listing_uint(&l, 0, shard);
            if (f->list[i]->table)
                listing_text(&l, 1, f->list[i]->table);
            listing_text(&l, 2, f->list[i]->name);
            listing_uint(&l, 3, f->list[i]->values[shard]);
        }
    }
    listing_print_pair(&l, &s);
    listing_fini(&l);
    listing_fini(&s);
}

static void set_formatted(struct listing *l, size_t column, enum cell_kind kind, uint64_t value)
{
    char text[64];
    listing_format(text, sizeof text, kind, value);
    listing_text(l, column, text);
}

/* The unit stands beside each time: "uptime", 3 min 39 s. */
static void set_name(struct listing *l, size_t column, const char *name)
{
    char text[128];
    size_t n = strlen(name) - (kind_of(name) == CELL_MICROS ? strlen("_us") : 0);
    snprintf(text, sizeof text, "%.*s", (int)n, name);
    listing_text(l, column, text);
}

/* How much the sum grew per second since `before`; nothing where it did not. */
static void set_rate(struct listing *l, size_t column, const struct figures *now,
                     const struct figures *before, const struct figure *figure)
{
    const struct figure *old = figures_find(before, figure->table, figure->name);
    if (!old || before->n_shards != now->n_shards || figures_is_momentary(figure->name))
        return;
    uint64_t rate = figures_rate(figures_sum(now, figure).total, figures_sum(before, old).total,
                                 now->at - before->at);
    if (rate)
        set_formatted(l, column, kind_of(figure->name), rate);
}

/* Values are formatted here, each figure by its own unit; so the columns are text. */
static void add_line(struct listing *l, const struct figures *f, const struct figures *before,
                     const struct figure *figure)
{
    enum cell_kind kind = kind_of(figure->name);
    struct sums s = figures_sum(f, figure);
    size_t column = 0;
    listing_row(l);
    listing_text(l, column++, figure->table ? figure->table : "(shard)");
    set_name(l, column++, figure->name);
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

/* Figures that are 0 everywhere say little; they are left out unless requested. */
static void print_table(const struct figures *f, const struct figures *before, bool all)
{
    struct column columns[SHARDS_SHOWN + 4];
    struct listing l;
    listing_init(&l, "stats", columns, make_columns(columns, f->n_shards, before != NULL));
    for (size_t i = 0; i < f->n; i++)
        if (all || f->list[i]->table || figures_sum(f, f->list[i]).most > 0)
            add_line(&l, f, before, f->list[i]);
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
}

/* ---- the command ---- */

/* A shard that does not answer is named in each view, and ends nothing. */
static int watch(embd_client *client, struct stats_arguments *a)
{
    struct figures before, now;
    int status = figures_read_some(client, a->table, &before);
    while (status != EMBD_NO_MEMORY && views_next(&a->views)) {
        status = figures_read_some(client, a->table, &now);
        if (status != EMBD_NO_MEMORY) {
            views_begin(&a->views);
            print_figures(&now, &before, a);
        }
        figures_free(&before);
        before = now;
    }
    figures_free(&before);
    return status;
}

static int show_once(embd_client *client, const struct stats_arguments *a)
{
    struct figures f;
    int status = figures_read_some(client, a->table, &f);
    bool is_missing = status == EMBD_OK && a->table && f.n == 0;
    if (status != EMBD_NO_MEMORY && !is_missing)
        print_figures(&f, NULL, a);
    figures_free(&f);
    return is_missing ? EMBD_UNKNOWN_TABLE : status;
}

enum { OPTION_TOKENS = 256 };

static const struct argp_option options[] = {
    {"table", 't', "NAME", 0, "Figures of this table only", 0},
    {"watch", 'w', "SECONDS", OPTION_ARG_OPTIONAL, "Repeat, with rates (default: every 2 seconds)",
     0},
    {"count", 'c', "N", 0, "With --watch: end after N views (default: until interrupted)", 0},
    {"tokens", OPTION_TOKENS, NULL, 0,
     "What the tables of each token take on each shard, and may take", 0},
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
    case OPTION_TOKENS:
        a->tokens = true;
        return 0;
    case 'w':
        a->views.interval = arg ? parse_seconds(state, "--watch", arg, SHORTEST_INTERVAL) : 2.0;
        return 0;
    case 'c':
        a->views.count = parse_uint(state, "--count", arg, 1, UINT64_MAX);
        return 0;
    case ARGP_KEY_END:
        if (a->views.count && a->views.interval == 0)
            argp_error(state, "--count needs --watch");
        if (a->tokens && (a->table || a->all || a->views.interval > 0))
            argp_error(state, "--tokens goes with no other option of stats");
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
            "Shows the figures of shards and tables: requests, keys, bytes, rows, memory. Counts "
            "begin with the server; rows, connections and the like are the current number.\v"
            "Values are shown with their units. In JSON the end of a name is the unit: _us for "
            "microseconds, _bytes for bytes. TOTAL of quantiles (_p50, _p99) and ages is that "
            "of the worst shard. JSON has one exact entry per shard, table (null: the shard "
            "itself) and figure; with --watch one document per view.\n"
            "Shards that do not answer within --deadline (default here: 5) are named on stderr and "
            "in JSON's list 'silent', and the exit code is 3.\n"
            "A token that is not for all tables sees its own tables, and of a shard what a client "
            "needs. --tokens shows tokens with limits: an admin sees all, others see their own.\n"
            "\n"
            "Examples:\n"
            "  embctl stats\n"
            "  embctl stats --table items --watch=1\n"
            "  embctl stats --tokens\n"
            "  embctl stats -o json | jq '.stats[] | select(.name==\"rows\")'"};
    struct stats_arguments a = {0};
    embd_client *client;
    parse_command(&argp, argc, argv, &a);
    int code = connect_servers_partly(&client);
    if (code)
        return code;
    int status = a.tokens               ? show_token_stats(client)
                 : a.views.interval > 0 ? watch(client, &a)
                                        : show_once(client, &a);
    if (status == EMBD_UNKNOWN_TABLE)
        return end_unknown_table(client, a.table);
    return end_told(client, status);
}
