/* inspect.c - embd_inspect: what a directory holds, from its own files.
 *
 * A directory is tried as a HugeCTR folder when it has a file `key` and no manifest.json; otherwise
 * it is a dump or snapshot. What can fail: what loading them would find in the parts of the files
 * that are looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/dtype.h"
#include "proto/stored/plainfile.h"
#include "client/formats/hugectr/hugectr.h"
#include "proto/stored/partread.h"
#include "proto/stored/dumpdir.h"

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

/* ---- dumps and snapshots ---- */

/* The rows of a block, until `left` were shown. */
static int show_block(const struct inspection *n, const embd_stored_table *table,
                      const struct row_block *block, float *values, uint64_t *left)
{
    const embd_schema *s = table->schema;
    size_t row_bytes = s->dim * embd__dtype_bytes(s->dtype);
    int stop = 0;
    for (uint32_t i = 0; i < block->n_rows && *left && !stop; i++, --*left) {
        embd__to_f32(values, (const uint8_t *)block->rows + i * row_bytes, s->dtype, s->dim);
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
                               .step = found->step};
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

/* ---- HugeCTR folders ---- */

static int show_hugectr_row(const struct inspection *n, const struct hugectr_folder *folder,
                            const embd_stored_table *table, uint64_t row, float *values)
{
    uint64_t key, slot = 0, row_bytes = 4 * (uint64_t)table->dim;
    if (embd__plain_read(&folder->key, 8 * row, &key, 8, n->e) ||
        (table->has_slots && embd__plain_read(&folder->slot, 8 * row, &slot, 8, n->e)) ||
        embd__plain_read(&folder->vector, row * row_bytes, values, row_bytes, n->e))
        return n->e->status;
    if (slot > UINT32_MAX)
        return embd__error_set(n->e, EMBD_CORRUPT, "%s: row %llu has slot %llu", folder->slot.path,
                               (unsigned long long)row, (unsigned long long)slot);
    return n->visit_row(n->arg, table, (uint32_t)slot, key, values);
}

static int show_folder(const struct inspection *n, const struct hugectr_folder *folder,
                       const embd_stored_table *table)
{
    uint64_t shown = table->rows < n->n_first ? table->rows : n->n_first;
    int stop = n->visit_table(n->arg, table);
    if (stop || shown == 0)
        return stop;
    float *values = malloc(4 * (size_t)table->dim);
    if (!values)
        return embd__error_set(n->e, EMBD_NO_MEMORY, "%s: no memory for a row", n->path);
    for (uint64_t row = 0; row < shown && !stop; row++)
        stop = show_hugectr_row(n, folder, table, row, values);
    free(values);
    return stop;
}

static int has_file(const char *directory, const char *name, struct embd__error *e)
{
    char *path = embd__plain_path(directory, name, e);
    bool has = path && access(path, F_OK) == 0;
    free(path);
    return has;
}

static int inspect_hugectr(const struct inspection *n)
{
    struct hugectr_folder folder;
    struct hugectr_wanted wanted = {.has_slots = has_file(n->path, HUGECTR_SLOT, n->e)};
    if (n->e->status || embd__hugectr_open(&folder, n->path, &wanted, n->e))
        return n->e->status;
    uint64_t dim = folder.n_rows ? folder.vector.bytes / folder.n_rows / 4 : 0;
    embd_stored_table table = {.kind = "hugectr",
                               .dim = (uint32_t)dim,
                               .n_files = wanted.has_slots ? 3 : 2,
                               .has_slots = wanted.has_slots,
                               .rows = folder.n_rows,
                               .bytes = folder.key.bytes + folder.vector.bytes +
                                        (wanted.has_slots ? folder.slot.bytes : 0)};
    int stop =
        dim > EMBD_DIM_MAX
            ? embd__error_set(n->e, EMBD_CORRUPT, "%s: rows of %llu floats, a table has at most %d",
                              folder.vector.path, (unsigned long long)dim, EMBD_DIM_MAX)
            : show_folder(n, &folder, &table);
    embd__hugectr_close(&folder);
    return stop;
}

EMBD_API int embd_inspect(const char *dir, uint64_t n_first, visit_table *tables, visit_row *rows,
                          void *arg, char *why_out, size_t why_bytes)
{
    struct embd__error e = {0};
    struct inspection n = {.path = dir,
                           .n_first = n_first,
                           .visit_table = tables,
                           .visit_row = rows,
                           .arg = arg,
                           .e = &e};
    bool is_hugectr = has_file(dir, HUGECTR_KEY, &e) && !has_file(dir, "manifest.json", &e);
    int stop = e.status ? e.status : is_hugectr ? inspect_hugectr(&n) : inspect_dump(&n);
    if (e.status && why_out && why_bytes)
        snprintf(why_out, why_bytes, "%s", e.text);
    return stop;
}
