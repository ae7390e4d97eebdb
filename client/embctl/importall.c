/* importall.c - all tables or none. What can fail: a check, and then nothing has changed; or an
 * import, and then the tables that were made here are dropped again. */
#include "client/embctl/importall.h"

#include <stdio.h>

static const struct column columns[] = {
    {"table", CELL_TEXT},     {"directory", CELL_TEXT},    {"rows", CELL_COUNT},
    {"bytes", CELL_BYTES},    {"elapsed_us", CELL_MICROS}, {"state_file", CELL_TEXT},
    {"dim", CELL_NUMBER},     {"slots", CELL_NUMBER},      {"partition", CELL_TEXT},
    {"optimizer", CELL_TEXT}, {"gpus", CELL_NUMBER},       {"capacity", CELL_COUNT},
    {"is_new", CELL_FLAG},
};

/* Lists the members of the file that have no meaning here, also on stderr. */
static void tell_ignored(const struct import_all *a, struct listing *ignored)
{
    static const struct column ignored_columns[] = {{"key", CELL_TEXT}};
    listing_init(ignored, "ignored", ignored_columns, 1);
    for (size_t i = 0; i < a->file->n_ignored; i++) {
        fprintf(stderr, "embctl: %s: ignoring %s\n", a->path, a->file->ignored[i]);
        listing_row(ignored);
        listing_text(ignored, 0, a->file->ignored[i]);
    }
}

static void add_row(struct listing *l, const struct import_table *t, const embd_dump_report *report,
                    uint64_t elapsed_us)
{
    listing_row(l);
    listing_text(l, 0, t->schema.name);
    if (t->place)
        listing_text(l, 1, t->place);
    listing_uint(l, 2, report->rows);
    listing_uint(l, 3, report->bytes);
    listing_uint(l, 4, elapsed_us);
    if (t->state_file)
        listing_text(l, 5, t->state_file);
    listing_uint(l, 6, t->schema.dim);
    listing_uint(l, 7, t->schema.slots);
    listing_text(l, 8, embd_partition_name(t->schema.partition));
    listing_text(l, 9, embd_optimizer_name(t->schema.optimizer.kind));
    listing_uint(l, 10, t->n_gpus);
    listing_uint(l, 11, t->schema.capacity);
    listing_flag(l, 12, t->is_new);
}

static int refuse(const struct import_all *a, int status, const char *why)
{
    snprintf(a->why, a->why_bytes, "%s", why);
    return status;
}

/* Checks the table's files; or imports them, or creates an empty table. */
static int run_one(const struct import_all *a, size_t i, bool checks, struct listing *done)
{
    const struct import_table *t = a->table(a->arg, i);
    embd_dump_report report = {0};
    uint64_t elapsed_us = 0;
    int status = EMBD_OK;
    if (t->place)
        status = a->run(a->arg, i, checks, &report, &elapsed_us);
    else if (!checks)
        status = embd_table_create(a->client, &t->schema);
    if (status != EMBD_OK)
        return refuse(a, status, embd_error_text());
    if (done)
        add_row(done, t, &report, elapsed_us);
    return EMBD_OK;
}

/* Whether the table is there, and if so whether it may be filled. */
static int look(const struct import_all *a, struct import_table *t)
{
    embd_table *table;
    char why[EMBD_NAME_MAX + 32];
    int status = embd_table_open(a->client, t->schema.name, &table);
    t->is_new = status == EMBD_UNKNOWN_TABLE;
    if (t->is_new || (status == EMBD_OK && !a->is_empty))
        return EMBD_OK;
    snprintf(why, sizeof why, "table '%s' exists", t->schema.name);
    return status == EMBD_OK ? refuse(a, EMBD_EXISTS, why) : refuse(a, status, embd_error_text());
}

static int import_tables(const struct import_all *a, struct listing *done)
{
    size_t n = a->file->n_tables, i;
    int status = EMBD_OK;
    for (i = 0; i < n && status == EMBD_OK; i++) {
        status = look(a, a->table(a->arg, i));
        if (status == EMBD_OK)
            status = run_one(a, i, true, a->is_dry ? done : NULL);
    }
    if (status != EMBD_OK || a->is_dry)
        return status;
    for (i = 0; i < n && status == EMBD_OK; i++)
        status = run_one(a, i, false, done);
    for (size_t k = 0; status && k + 1 < i; k++)
        if (a->table(a->arg, k)->is_new)
            embd_table_drop(a->client, a->table(a->arg, k)->schema.name);
    return status;
}

int import_all(const struct import_all *a)
{
    struct listing done, ignored;
    int status = a->prepare(a->arg);
    listing_init(&done, a->is_dry ? "would_import" : "import", columns,
                 sizeof columns / sizeof *columns);
    tell_ignored(a, &ignored);
    if (status == EMBD_OK)
        status = import_tables(a, &done);
    if (status == EMBD_OK)
        listing_print_pair(&done, &ignored);
    listing_fini(&done);
    listing_fini(&ignored);
    return status;
}
