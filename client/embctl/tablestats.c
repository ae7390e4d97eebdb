/* tablestats.c - embctl table stats: one table's figures, or all tables', added up over the shards
 * and how evenly they are spread. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

struct totals {
    char name[EMBD_NAME_MAX + 1];
    uint64_t rows, most_rows, candidates, capacity, row_bytes, index_bytes, steps, least_steps;
};

struct sums {
    const char *only;
    struct totals *list;
    size_t n;
    int status;
};

static struct totals *totals_of(struct sums *sums, const char *name)
{
    for (size_t i = 0; i < sums->n; i++)
        if (!strcmp(sums->list[i].name, name))
            return &sums->list[i];
    struct totals *grown = reallocarray(sums->list, sums->n + 1, sizeof *grown);
    if (!grown)
        return NULL;
    sums->list = grown;
    struct totals *t = &grown[sums->n++];
    *t = (struct totals){.least_steps = UINT64_MAX};
    snprintf(t->name, sizeof t->name, "%s", name);
    return t;
}

static int on_figure(void *arg, const char *table, const char *name, uint64_t value)
{
    struct sums *sums = arg;
    if (!table || (sums->only && strcmp(table, sums->only)))
        return 0;
    struct totals *t = totals_of(sums, table);
    if (!t)
        return EMBD_NO_MEMORY;
    if (!strcmp(name, "rows")) {
        t->rows += value;
        t->most_rows = value > t->most_rows ? value : t->most_rows;
    } else if (!strcmp(name, "candidates")) {
        t->candidates += value;
    } else if (!strcmp(name, "capacity")) {
        t->capacity += value;
    } else if (!strcmp(name, "row_bytes")) {
        t->row_bytes += value;
    } else if (!strcmp(name, "index_bytes")) {
        t->index_bytes += value;
    } else if (!strcmp(name, "steps")) {
        t->steps = value > t->steps ? value : t->steps;
        t->least_steps = value < t->least_steps ? value : t->least_steps;
    }
    return 0;
}

static void print(const struct sums *sums, uint32_t n_shards)
{
    static const struct column columns[] = {{"name", CELL_TEXT},
                                            {"rows", CELL_COUNT},
                                            {"capacity", CELL_COUNT},
                                            {"candidates", CELL_COUNT},
                                            {"row_bytes", CELL_BYTES},
                                            {"index_bytes", CELL_BYTES},
                                            {"bytes_per_row", CELL_NUMBER},
                                            {"steps", CELL_COUNT},
                                            {"steps_apart", CELL_COUNT},
                                            {"imbalance", CELL_FLOAT}};
    struct listing l;
    listing_init(&l, "tables", columns, 10);
    for (size_t i = 0; i < sums->n; i++) {
        const struct totals *t = &sums->list[i];
        listing_row(&l);
        listing_text(&l, 0, t->name);
        listing_uint(&l, 1, t->rows);
        listing_uint(&l, 2, t->capacity);
        listing_uint(&l, 3, t->candidates);
        listing_uint(&l, 4, t->row_bytes);
        listing_uint(&l, 5, t->index_bytes);
        if (t->rows > 0) {
            listing_uint(&l, 6, (t->row_bytes + t->index_bytes) / t->rows);
            listing_float(&l, 9, (float)((double)t->most_rows * n_shards / (double)t->rows));
        }
        listing_uint(&l, 7, t->steps);
        listing_uint(&l, 8, t->least_steps < t->steps ? t->steps - t->least_steps : 0);
    }
    listing_print(&l);
    listing_fini(&l);
}

static int parse(int key, char *arg, struct argp_state *state)
{
    const char **table = state->input;
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    if (*table)
        argp_error(state, "takes one table, but got '%s' too", arg);
    *table = arg;
    return 0;
}

int command_table_stats(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse,
        .args_doc = "[TABLE]",
        .doc = "Figures of a table, or of all: rows, rows there is memory for, keys that wait for "
               "a row, memory, pushes seen, and how evenly the shards are filled.\v"
               "STEPS is the greatest of the shards, STEPS_APART what it has before the least: 0, "
               "unless some shards refused a push that others applied. IMBALANCE is the fullest "
               "shard's rows over the average's: 1 is even. 'embctl stats --table TABLE' has the "
               "figures of each shard.\n"
               "\n"
               "Examples:\n"
               "  embctl table stats\n"
               "  embctl table stats items -o json | jq '.tables[0].rows'"};
    struct sums sums = {0};
    embd_client *client;
    parse_command(&argp, argc, argv, &sums.only);
    int status = connect_servers(&client);
    if (status)
        return status;
    for (uint32_t i = 0; i < embd_shard_count(client) && status == EMBD_OK; i++)
        status = embd_stats(client, i, on_figure, &sums);
    bool is_missing = status == EMBD_OK && sums.only && sums.n == 0;
    if (status == EMBD_OK && !is_missing)
        print(&sums, embd_shard_count(client));
    if (is_missing)
        fprintf(stderr, "embctl: there is no table '%s'\n", sums.only);
    free(sums.list);
    int code = end_client(client, status);
    return is_missing ? EXIT_NOT_FOUND : code;
}
