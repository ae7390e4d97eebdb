/* psjson.c - the tables that a ps.json of HugeCTR's parameter server names.
 *
 * Of each model we take the folders of its sparse embeddings with the table's name, vector size and
 * default value, four arrays of one length. Everything else configures their caches and databases;
 * it is listed by name, so that nothing is ignored in silence. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/embctl/psjson.h"

struct reading {
    struct ps_file *ps;
    const char *path;
    char *why;
    size_t why_bytes;
};

static int fail(const struct reading *r, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(const struct reading *r, int status, const char *format, ...)
{
    int n = snprintf(r->why, r->why_bytes, "%s: ", r->path);
    va_list list;
    va_start(list, format);
    if (n >= 0 && (size_t)n < r->why_bytes)
        vsnprintf(r->why + n, r->why_bytes - (size_t)n, format, list);
    va_end(list);
    return status;
}

/* ---- what is ignored ---- */

static int ignore(struct reading *r, const char *prefix, const char *key)
{
    char **grown = reallocarray(r->ps->ignored, r->ps->n_ignored + 1, sizeof *grown);
    if (!grown)
        return fail(r, EMBD_NO_MEMORY, "no memory");
    r->ps->ignored = grown;
    if (asprintf(&grown[r->ps->n_ignored], "%s%s", prefix, key) < 0)
        return fail(r, EMBD_NO_MEMORY, "no memory");
    r->ps->n_ignored++;
    return EMBD_OK;
}

/* Members of an object that are not among `known`, which ends with NULL. */
static int ignore_others(struct reading *r, const char *prefix, json_t *object,
                         const char *const *known)
{
    const char *key;
    json_t *value;
    int status = EMBD_OK;
    json_object_foreach(object, key, value)
    {
        size_t i = 0;
        while (known[i] && strcmp(known[i], key))
            i++;
        if (!known[i] && (status = ignore(r, prefix, key)) != EMBD_OK)
            return status;
    }
    return EMBD_OK;
}

/* ---- models ---- */

static const char *const model_members[] = {"model",
                                            "sparse_files",
                                            "embedding_table_names",
                                            "embedding_vecsize_per_table",
                                            "default_value_for_each_table",
                                            NULL};

/* A name of ours: lower case, and '_' for what a name cannot have. */
static int make_name(const struct reading *r, const char *model, const char *table, char *to)
{
    char name[2 * EMBD_NAME_MAX];
    int n = snprintf(name, sizeof name, "%s-%s", model, table);
    if (n < 0 || n > EMBD_NAME_MAX)
        return fail(r, EMBD_INVALID, "'%s-%s' has %d characters; a table name has at most %d",
                    model, table, n, EMBD_NAME_MAX);
    for (char *at = name; *at; at++)
        *at = isalnum((unsigned char)*at) || *at == '-' ? (char)tolower((unsigned char)*at) : '_';
    memcpy(to, name, (size_t)n + 1);
    for (size_t i = 0; i < r->ps->n_tables; i++)
        if (!strcmp(r->ps->tables[i].name, to))
            return fail(r, EMBD_INVALID, "two tables would be called '%s'", to);
    return EMBD_OK;
}

/* An array of the model; NULL, with the reason in *status, if it has not `n` elements. */
static json_t *array_of(const struct reading *r, size_t model, json_t *object, const char *name,
                        size_t n, int *status)
{
    json_t *array = json_object_get(object, name);
    if (!json_is_array(array))
        *status = fail(r, EMBD_INVALID, "models[%zu].%s is %s", model, name,
                       array ? "not an array" : "missing");
    else if (json_array_size(array) != n)
        *status = fail(r, EMBD_INVALID, "models[%zu].%s has %zu elements, sparse_files %zu", model,
                       name, json_array_size(array), n);
    else
        return array;
    return NULL;
}

struct model {
    size_t number;
    const char *name;
    json_t *files, *names, *sizes, *defaults; /* [n] each; defaults may be NULL: zeros */
};

static int add_table(struct reading *r, const struct model *m, size_t i)
{
    json_t *file = json_array_get(m->files, i), *name = json_array_get(m->names, i),
           *size = json_array_get(m->sizes, i),
           *value = m->defaults ? json_array_get(m->defaults, i) : NULL;
    if (!json_is_string(file) || !json_is_string(name))
        return fail(
            r, EMBD_INVALID,
            "models[%zu]: element %zu of sparse_files or embedding_table_names is not a string",
            m->number, i);
    json_int_t dim = json_is_integer(size) ? json_integer_value(size) : 0;
    if (dim < 1 || dim > EMBD_DIM_MAX)
        return fail(r, EMBD_INVALID,
                    "models[%zu].embedding_vecsize_per_table[%zu] is not an integer from 1 to %d",
                    m->number, i, EMBD_DIM_MAX);
    if (value && (!json_is_number(value) || !isfinite((float)json_number_value(value))))
        return fail(r, EMBD_INVALID,
                    "models[%zu].default_value_for_each_table[%zu] is not a finite 32-bit number",
                    m->number, i);
    struct ps_table *grown = reallocarray(r->ps->tables, r->ps->n_tables + 1, sizeof *grown);
    if (!grown)
        return fail(r, EMBD_NO_MEMORY, "no memory");
    r->ps->tables = grown;
    struct ps_table *table = &grown[r->ps->n_tables];
    *table =
        (struct ps_table){.dim = (uint32_t)dim, .default_value = (float)json_number_value(value)};
    int status = make_name(r, m->name, json_string_value(name), table->name);
    if (status == EMBD_OK && !(table->folder = strdup(json_string_value(file))))
        status = fail(r, EMBD_NO_MEMORY, "no memory");
    r->ps->n_tables += status == EMBD_OK;
    return status;
}

static int read_model(struct reading *r, size_t number, json_t *object)
{
    char prefix[40];
    int status = EMBD_OK;
    struct model m = {.number = number,
                      .name = json_string_value(json_object_get(object, "model")),
                      .files = json_object_get(object, "sparse_files")};
    if (!m.name || !json_is_array(m.files))
        return fail(r, EMBD_INVALID,
                    "models[%zu] lacks the string 'model' or the array 'sparse_files'", number);
    size_t n = json_array_size(m.files);
    m.names = array_of(r, number, object, "embedding_table_names", n, &status);
    if (status == EMBD_OK)
        m.sizes = array_of(r, number, object, "embedding_vecsize_per_table", n, &status);
    if (status == EMBD_OK && json_object_get(object, "default_value_for_each_table"))
        m.defaults = array_of(r, number, object, "default_value_for_each_table", n, &status);
    for (size_t i = 0; i < n && status == EMBD_OK; i++)
        status = add_table(r, &m, i);
    snprintf(prefix, sizeof prefix, "models[%zu].", number);
    return status ? status : ignore_others(r, prefix, object, model_members);
}

/* ---- the file ---- */

static int read_root(struct reading *r, json_t *root)
{
    static const char *const members[] = {"models", "supportlonglong", NULL};
    json_t *models = json_object_get(root, "models"),
           *wide = json_object_get(root, "supportlonglong");
    if (!json_is_array(models))
        return fail(r, EMBD_INVALID, "models is %s", models ? "not an array" : "missing");
    if (wide && !json_is_boolean(wide))
        return fail(r, EMBD_INVALID, "supportlonglong is neither true nor false");
    r->ps->u32_keys = json_is_false(wide);
    int status = ignore_others(r, "", root, members);
    for (size_t i = 0; i < json_array_size(models) && status == EMBD_OK; i++)
        status = read_model(r, i, json_array_get(models, i));
    return status;
}

/* NULL: the reason is printed, and the status set. Not blocking: opening a FIFO would wait for its
 * writer. */
static json_t *load(struct reading *r, int *status_out)
{
    json_error_t error;
    struct stat st;
    json_t *root = NULL;
    int fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        *status_out = fail(r, EMBD_IO, "cannot open: %s", strerror(errno));
        return NULL;
    }
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        *status_out = fail(r, EMBD_IO, "is not a regular file");
    else if (!(root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error)))
        *status_out =
            fail(r, EMBD_CORRUPT, "line %d, column %d: %s", error.line, error.column, error.text);
    close(fd);
    return root;
}

int ps_read(const char *path, struct ps_file *out, char *why, size_t why_bytes)
{
    struct reading r = {out, path, why, why_bytes};
    int status = EMBD_OK;
    *out = (struct ps_file){0};
    json_t *root = load(&r, &status);
    if (!root)
        return status;
    status = read_root(&r, root);
    json_decref(root);
    return status;
}

void ps_fini(struct ps_file *ps)
{
    for (size_t i = 0; i < ps->n_tables; i++)
        free(ps->tables[i].folder);
    for (size_t i = 0; i < ps->n_ignored; i++)
        free(ps->ignored[i]);
    free(ps->tables);
    free(ps->ignored);
    *ps = (struct ps_file){0};
}
