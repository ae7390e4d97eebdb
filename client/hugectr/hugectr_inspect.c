/* hugectr_inspect.c - embd_hugectr_inspect: what a model folder holds, from the sizes of its files
 * and its first rows. What can fail: what an import would find in what is looked at. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/hugectr/hugectr.h"
#include "embd/admin.h"
#include "embd/hugectr.h"

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
};

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

static int inspect(const struct inspection *n)
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

EMBD_API bool embd_hugectr_is_folder(const char *dir)
{
    struct embd__error e = {0};
    return has_file(dir, HUGECTR_KEY, &e) && !has_file(dir, "manifest.json", &e);
}

EMBD_API int embd_hugectr_inspect(const char *dir, uint64_t n_first, visit_table *tables,
                                  visit_row *rows, void *arg)
{
    struct embd__error e = {0};
    struct inspection n = {.path = dir,
                           .n_first = n_first,
                           .visit_table = tables,
                           .visit_row = rows,
                           .arg = arg,
                           .e = &e};
    int stop = inspect(&n);
    return embd__error_keep(&e, stop);
}
