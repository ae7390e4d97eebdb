/* foreignfiles.c - what the readers of foreign folders share: names, sizes, memory. */
#include "client/embctl/foreignfiles.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- memory and faults ---- */

int foreign_fail(struct foreign_folder *f, int status, const char *format, ...)
{
    char text[800];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (f->status == EMBD_OK)
        f->status = job_fail(&f->r, status, "%s", text);
    return f->status;
}

/* Keeps what foreign_folder_fini is to free. */
static void *keep(struct foreign_folder *f, void *memory)
{
    void **grown = memory ? reallocarray(f->memory, f->n_memory + 1, sizeof *grown) : NULL;
    if (grown) {
        f->memory = grown;
        f->memory[f->n_memory++] = memory;
        return memory;
    }
    free(memory);
    foreign_fail(f, EMBD_NO_MEMORY, "no memory");
    return NULL;
}

void *foreign_memory(struct foreign_folder *f, size_t bytes)
{
    return keep(f, calloc(1, bytes + 1));
}

char *foreign_text(struct foreign_folder *f, const char *format, ...)
{
    char *text;
    va_list list;
    va_start(list, format);
    int n = vasprintf(&text, format, list);
    va_end(list);
    return keep(f, n < 0 ? NULL : text);
}

char *foreign_path(struct foreign_folder *f, const char *name)
{
    return foreign_text(f, "%s/%s", f->a->folder, name);
}

const char **foreign_one(struct foreign_folder *f, const char *name)
{
    const char **list = foreign_memory(f, sizeof *list);
    if (list)
        list[0] = foreign_path(f, name);
    return list;
}

void foreign_ignore(struct foreign_folder *f, const char *format, ...)
{
    char text[600];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    if (job_ignore(&f->r, "", text) != EMBD_OK)
        foreign_fail(f, EMBD_NO_MEMORY, "no memory");
}

/* ---- names ---- */

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void add_name(struct foreign_folder *f, const char *name)
{
    char **grown = reallocarray(f->names, f->n_names + 1, sizeof *grown);
    if (grown)
        f->names = grown;
    char *copy = foreign_text(f, "%s", name);
    if (grown && copy)
        f->names[f->n_names++] = copy;
    else
        foreign_fail(f, EMBD_NO_MEMORY, "no memory");
}

void foreign_list(struct foreign_folder *f)
{
    DIR *list = opendir(f->a->folder);
    if (!list) {
        foreign_fail(f, EMBD_IO, "cannot open the directory: %s", strerror(errno));
        return;
    }
    for (struct dirent *entry; f->status == EMBD_OK && (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.')
            add_name(f, entry->d_name);
    closedir(list);
    if (f->n_names)
        qsort(f->names, f->n_names, sizeof *f->names, compare_names);
}

bool foreign_has(const struct foreign_folder *f, const char *name)
{
    return f->n_names && bsearch(&name, f->names, f->n_names, sizeof *f->names, compare_names);
}

void foreign_beside(struct foreign_folder *f, const char *name, const char *other)
{
    if (name && !foreign_has(f, name))
        foreign_fail(f, EMBD_CORRUPT, "%s: is missing, %s is there", name, other);
}

char *foreign_stem(struct foreign_folder *f, const char *name, const char *end)
{
    size_t n = strlen(name), n_end = strlen(end);
    if (n <= n_end || strcmp(name + n - n_end, end) != 0)
        return NULL;
    return foreign_text(f, "%.*s", (int)(n - n_end), name);
}

/* ---- tables ---- */

bool foreign_wants(const struct foreign_folder *f, const char *name)
{
    return !f->a->only || !strcmp(f->a->only, name);
}

struct foreign_table *foreign_add(struct foreign_folder *f, const char *name)
{
    size_t n = f->job.n_tables;
    const char *here = f->a->table ? f->a->table : name;
    struct foreign_table *grown;
    int status = EMBD_NO_MEMORY;
    if (n > 0 && f->a->table) {
        foreign_fail(f, EMBD_INVALID,
                     "has several tables, and --table names one: choose it with --only NAME");
        return NULL;
    }
    grown = reallocarray(f->tables, n + 1, sizeof *grown);
    if (grown) {
        f->tables = grown;
        grown[n] = (struct foreign_table){.name = name};
    }
    if (!grown || !job_add(&f->r, "", here, &status)) {
        if (f->status == EMBD_OK)
            f->status = status; /* job_add has written the sentence */
        return NULL;
    }
    f->job.n_tables++;
    return &f->tables[n];
}

/* ---- sizes ---- */

bool foreign_size(struct foreign_folder *f, const char *path, uint64_t *bytes_out)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    *bytes_out = 0;
    if (stat(path, &st) != 0)
        foreign_fail(f, errno == ENOENT ? EMBD_CORRUPT : EMBD_IO, "%s: %s", slash + 1,
                     errno == ENOENT ? "is missing" : strerror(errno));
    else if (!S_ISREG(st.st_mode))
        foreign_fail(f, EMBD_CORRUPT, "%s: is not a regular file", slash + 1);
    else
        *bytes_out = (uint64_t)st.st_size;
    return f->status == EMBD_OK;
}

/* Bytes of n files without their heads. */
static uint64_t size_of_all(struct foreign_folder *f, const char *const *paths, uint32_t n,
                            uint32_t head_bytes)
{
    uint64_t sum = 0, bytes;
    for (uint32_t i = 0; i < n && foreign_size(f, paths[i], &bytes); i++) {
        if (bytes < head_bytes)
            foreign_fail(f, EMBD_CORRUPT, "%s: has %" PRIu64 " bytes, expected a head of %" PRIu32,
                         strrchr(paths[i], '/') + 1, bytes, head_bytes);
        sum += bytes < head_bytes ? 0 : bytes - head_bytes;
    }
    return sum;
}

/* Numbers of `element` bytes in a row, at most `most`, where the files have whole rows; 0: no rows.
 */
static uint32_t numbers_a_row(struct foreign_folder *f, const struct foreign_table *t,
                              const char *const *paths, uint32_t most, uint32_t element)
{
    uint64_t n_rows = t->n_rows;
    uint64_t bytes = size_of_all(f, paths, t->n_files, t->head_bytes);
    uint64_t numbers = n_rows ? bytes / element / n_rows : 0;
    if (f->status != EMBD_OK || (n_rows == 0 && bytes == 0))
        return 0;
    if (numbers >= 1 && numbers <= most && numbers * n_rows * element == bytes)
        return (uint32_t)numbers;
    foreign_fail(f, EMBD_CORRUPT,
                 "%s%s: %" PRIu64 " bytes for %" PRIu64 " keys, expected 1 to %" PRIu32
                 " numbers of %" PRIu32 " bytes for each",
                 strrchr(paths[0], '/') + 1, t->n_files > 1 ? " and those beside it" : "", bytes,
                 n_rows, most, element);
    return 0;
}

static uint32_t dtype_bytes(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F32 ? 4 : 2;
}

void foreign_measure(struct foreign_folder *f, struct foreign_table *t)
{
    uint32_t key = t->key == EMBD_ARRAYS_64 ? 8 : 4;
    if (f->status == EMBD_OK)
        t->n_rows = size_of_all(f, t->keys, t->n_files, t->head_bytes) / key;
    if (f->status == EMBD_OK)
        t->dim = numbers_a_row(f, t, t->values, EMBD_DIM_MAX, dtype_bytes(t->dtype));
    if (f->status == EMBD_OK && t->dim)
        foreign_set(f, t, "dim", "%" PRIu32, t->dim);
}

uint32_t foreign_width(struct foreign_folder *f, const struct foreign_table *t,
                       const struct foreign_slot *slot)
{
    return numbers_a_row(f, t, slot->values, 4 * EMBD_DIM_MAX, dtype_bytes(slot->dtype));
}

void foreign_folder_fini(struct foreign_folder *f)
{
    for (size_t i = 0; i < f->n_memory; i++)
        free(f->memory[i]);
    free(f->memory);
    free(f->names);
    free(f->tables);
    job_fini(&f->job);
}
