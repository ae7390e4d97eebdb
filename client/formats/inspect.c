/* inspect.c - embd_inspect: the tables of a dump or snapshot, from its own files.
 *
 * What can fail: what loading them would find in the parts of the files that are looked at. */
#include <stdio.h>
#include <stdlib.h>

#include "proto/convert.h"
#include "embd/admin.h"
#include "proto/stored/dumpdir.h"
#include "proto/stored/partread.h"

typedef int visit_table(void *arg, const embd_stored_table *table);
typedef int visit_row(void *arg, const embd_stored_table *table, uint32_t slot, uint64_t key,
                      const float *values);

struct inspection {
    const char *path;
    uint64_t n_first;
    visit_table *visit_table;
    visit_row *visit_row;
    void *arg;
    struct embd__error *e;
    const struct dump_dir *dir;
};

/* The rows of a block, until `left` were shown. */
static int show_block(const struct inspection *n, const embd_stored_table *table,
                      const struct row_block *block, float *values, uint64_t *left)
{
    const embd_schema *s = table->schema;
    size_t row_bytes = embd__value_bytes(s->dtype, s->dim);
    int stop = 0;
    for (uint32_t i = 0; i < block->n_rows && *left && !stop; i++, --*left) {
        embd__row_to_f32(values, (const uint8_t *)block->rows + i * row_bytes, s->dtype, s->dim);
        stop =
            n->visit_row(n->arg, table, block->slots ? block->slots[i] : 0, block->keys[i], values);
    }
    return stop;
}

static int show_part(const struct inspection *n, const embd_stored_table *table,
                     const struct dump_share *share, const struct manifest_part *part,
                     uint64_t *left)
{
    struct part_reader reader;
    struct row_block block;
    float *values = malloc(table->dim * sizeof *values);
    if (!values)
        return embd__error_set(n->e, EMBD_NO_MEMORY, "no memory for a row of %s", table->name);
    int stop = embd__partread_open(&reader, share->path, part, table->schema, n->e);
    if (stop == EMBD_OK) {
        while (!stop && *left && (stop = embd__partread_next(&reader, &block, n->e)) > 0)
            stop = show_block(n, table, &block, values, left);
        embd__partread_close(&reader);
    }
    free(values);
    return stop;
}

static int show_rows(const struct inspection *n, const embd_stored_table *table)
{
    uint64_t left = n->n_first;
    int stop = 0;
    for (uint32_t i = 0; i < n->dir->n_shares && !stop; i++) {
        const struct dump_share *share = &n->dir->shares[i];
        const struct manifest_table *here = embd__dumpdir_table(share, table->name);
        for (uint32_t j = 0; here && j < here->n_parts && left && !stop; j++)
            stop = show_part(n, table, share, &here->parts[j], &left);
    }
    return stop;
}

static int show_table(void *arg, const struct manifest_table *found)
{
    const struct inspection *n = arg;
    embd_dump_report totals;
    const struct manifest *manifest = &n->dir->shares[0].manifest;
    embd_stored_table table = {.kind = manifest->base.id ? "changes" : manifest->kind,
                               .name = found->schema.s.name,
                               .schema = &found->schema.s,
                               .dim = found->schema.s.dim,
                               .has_slots = found->schema.s.partition == EMBD_PARTITION_SLOT,
                               .step = found->step,
                               .job = manifest->scope.job};
    embd__dumpdir_totals(n->dir, table.name, &totals);
    table.rows = totals.rows;
    table.bytes = totals.bytes;
    for (uint32_t i = 0; i < n->dir->n_shares; i++) {
        const struct manifest_table *here = embd__dumpdir_table(&n->dir->shares[i], table.name);
        table.n_files += here ? here->n_parts : 0;
        table.step = here && here->step > table.step ? here->step : table.step;
    }
    int stop = n->visit_table(n->arg, &table);
    return stop ? stop : show_rows(n, &table);
}

static int inspect_dump(struct inspection *n)
{
    struct dump_dir dir;
    if (embd__dumpdir_open(n->path, &dir, n->e))
        return n->e->status;
    n->dir = &dir;
    int stop = embd__dumpdir_each(&dir, NULL, show_table, n);
    embd__dumpdir_fini(&dir);
    return stop;
}

EMBD_API int embd_inspect(const char *dir, uint64_t n_first, visit_table *tables, visit_row *rows,
                          void *arg)
{
    struct embd__error e = {0};
    struct inspection n = {.path = dir,
                           .n_first = n_first,
                           .visit_table = tables,
                           .visit_row = rows,
                           .arg = arg,
                           .e = &e};
    int stop = inspect_dump(&n);
    return embd__error_keep(&e, stop);
}
