/* tablestats.c - embctl table stats: figures of one table or all, added up over the shards, and how
 * evenly they are spread. */
#include "client/embctl/embctl.h"
#include "client/embctl/figures.h"
#include "client/embctl/listing.h"
#include "embd/admin.h"

static const struct column columns[] = {{"name", CELL_TEXT},
                                        {"rows", CELL_COUNT},
                                        {"capacity", CELL_COUNT},
                                        {"candidates", CELL_COUNT},
                                        {"row_bytes", CELL_BYTES},
                                        {"index_bytes", CELL_BYTES},
                                        {"bytes_per_row", CELL_NUMBER},
                                        {"steps", CELL_COUNT},
                                        {"steps_apart", CELL_COUNT},
                                        {"imbalance", CELL_FLOAT},
                                        {"table_capacity", CELL_COUNT}};

/* Left empty where the table has gone meanwhile, or shards differ. */
static void add_capacity(struct listing *l, embd_client *client, const char *name)
{
    embd_table *table;
    if (embd_table_open(client, name, &table) == EMBD_OK)
        listing_uint(l, 10,
                     embd_table_capacity(embd_table_schema(table), embd_shard_count(client)));
}

static void add_table(struct listing *l, const struct figures *f, const char *table)
{
    struct sums rows = figures_sum(f, figures_find(f, table, "rows"));
    struct sums steps = figures_sum(f, figures_find(f, table, "steps"));
    listing_row(l);
    listing_text(l, 0, table);
    for (size_t i = 1; i <= 5; i++) /* named as their columns */
        listing_uint(l, i, figures_sum(f, figures_find(f, table, columns[i].name)).total);
    if (rows.total > 0) {
        listing_uint(l, 6, figures_table_memory(f, table) / rows.total);
        listing_float(l, 9, (float)((double)rows.most * f->n_shards / (double)rows.total));
    }
    listing_uint(l, 7, steps.most);
    listing_uint(l, 8, steps.most - steps.least);
}

static void print(embd_client *client, const struct figures *f)
{
    struct listing l;
    const char *table;
    listing_init(&l, "tables", columns, sizeof columns / sizeof *columns);
    for (size_t at = 0; (table = figures_next_table(f, &at)) != NULL;) {
        add_table(&l, f, table);
        add_capacity(&l, client, table);
    }
    listing_print(&l);
    listing_fini(&l);
}

int command_table_stats(int argc, char **argv)
{
    static const struct argp argp = {
        .parser = parse_words,
        .args_doc = "[TABLE]",
        .doc =
            "Shows figures of one table or all: rows, rows there is memory for, keys that wait "
            "for a row, memory, pushes seen, how evenly the shards are filled, and the capacity "
            "of the table, all shards together.\v"
            "STEPS is the greatest of the shards. STEPS APART is the difference to the least: 0, "
            "unless some shards refused a push that others applied. IMBALANCE is the fullest "
            "shard's rows over the average's: 1 is even. 'embctl stats --table TABLE' has the "
            "figures of each shard.\n"
            "\n"
            "Examples:\n"
            "  embctl table stats\n"
            "  embctl table stats items -o json | jq '.tables[0].rows'"};
    struct words words = {.max = 1};
    struct figures f;
    embd_client *client;
    parse_command(&argp, argc, argv, &words);
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = figures_read(client, words.list[0], &f);
    bool is_missing = status == EMBD_OK && words.n && f.n == 0;
    if (status == EMBD_OK && !is_missing)
        print(client, &f);
    figures_free(&f);
    return is_missing ? end_unknown_table(client, words.list[0]) : end_client(client, status);
}
