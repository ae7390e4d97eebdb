/* inspect.c - embctl inspect: what a directory of tables holds, without a server. */
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "embd/hugectr.h"
#include "embd/admin.h"

#define FLOATS_SHOWN 8

struct inspect {
    struct words words; /* the directory */
    uint64_t n_first;
    bool full;
    struct listing tables, rows;
};

static const struct argp_option options[] = {
    {"rows", 'n', "N", 0, "Show the first N rows of each table as well (default: 0)", 0},
    {"full", 'f', NULL, 0, "Show all columns of a row, not the first 8 only", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct inspect *in = state->input;
    switch (key) {
    case 'n':
        in->n_first = parse_uint(state, "--rows", arg, 0, 1000000);
        return 0;
    case 'f':
        in->full = true;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int add_table(void *arg, const embd_stored_table *t)
{
    struct listing *l = &((struct inspect *)arg)->tables;
    listing_row(l);
    listing_text(l, 0, t->kind);
    if (t->name)
        listing_text(l, 1, t->name);
    listing_uint(l, 2, t->rows);
    listing_uint(l, 3, t->dim);
    listing_flag(l, 4, t->has_slots);
    listing_uint(l, 7, t->n_files);
    listing_uint(l, 8, t->bytes);
    if (!t->schema)
        return 0;
    listing_text(l, 5, embd_dtype_name(t->schema->dtype));
    listing_text(l, 6, embd_optimizer_name(t->schema->optimizer.kind));
    listing_uint(l, 9, t->step);
    if (t->job && t->job[0])
        listing_text(l, 10, t->job);
    return 0;
}

static int add_row(void *arg, const embd_stored_table *t, uint32_t slot, uint64_t key,
                   const float *values)
{
    struct listing *l = &((struct inspect *)arg)->rows;
    listing_row(l);
    if (t->name)
        listing_text(l, 0, t->name);
    if (t->has_slots)
        listing_uint(l, 1, slot);
    listing_uint(l, 2, key);
    listing_floats(l, 3, values, t->dim);
    return 0;
}

static int inspect(struct inspect *in)
{
    static const struct column tables[] = {
        {"kind", CELL_TEXT},      {"table", CELL_TEXT},     {"rows", CELL_COUNT},
        {"dim", CELL_NUMBER},     {"has_slots", CELL_FLAG}, {"dtype", CELL_TEXT},
        {"optimizer", CELL_TEXT}, {"files", CELL_NUMBER},   {"bytes", CELL_BYTES},
        {"steps", CELL_COUNT},    {"job", CELL_TEXT}};
    static const struct column rows[] = {
        {"table", CELL_TEXT}, {"slot", CELL_NUMBER}, {"key", CELL_NUMBER}, {"values", CELL_FLOATS}};
    listing_init(&in->tables, "tables", tables, sizeof tables / sizeof tables[0]);
    listing_init(&in->rows, "rows", rows, sizeof rows / sizeof rows[0]);
    in->rows.floats_shown = in->full ? 0 : FLOATS_SHOWN;
    int status = embd_hugectr_is_folder(in->words.list[0])
                     ? embd_hugectr_inspect(in->words.list[0], in->n_first, add_table, add_row, in)
                     : embd_inspect(in->words.list[0], in->n_first, add_table, add_row, in);
    if (status == EMBD_OK)
        listing_print_pair(&in->tables, &in->rows);
    listing_fini(&in->tables);
    listing_fini(&in->rows);
    return end_with(status, "");
}

int command_inspect(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "DIR",
        .doc = "Shows the tables of a dump, a snapshot or a HugeCTR model folder: rows, columns, "
               "sizes, and with -n the first rows. Needs no server.\v"
               "Reads only what it shows; 'embctl verify' checks a whole dump or snapshot. In "
               "JSON keys are as stored, unsigned.\n"
               "\n"
               "Examples:\n"
               "  embctl inspect ./everything\n"
               "  embctl inspect -n 5 wdl0_sparse_2000.model\n"
               "  embctl inspect -n 1 -o json ./everything | jq '.rows[0].values'"};
    struct inspect in = {.words = {.min = 1, .max = 1, .wanted = "name a directory"}};
    parse_command(&argp, argc, argv, &in);
    return inspect(&in);
}
