/* psjson.c - the tables that a ps.json of HugeCTR's parameter server names.
 *
 * Of each model we take the folders of its sparse embeddings with the table's name, vector size and
 * default value, four arrays of one length. Everything else configures their caches and databases;
 * it is listed by name, so that nothing is ignored in silence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/embctl/jobreading.h"

/* ---- models ---- */

static const char *const model_members[] = {"model",
                                            "sparse_files",
                                            "embedding_table_names",
                                            "embedding_vecsize_per_table",
                                            "default_value_for_each_table",
                                            NULL};

/* An array of the model; NULL, with the reason in *status, if it has not `n` elements. */
static json_t *array_of(const struct job_reading *r, size_t model, json_t *object, const char *name,
                        size_t n, int *status)
{
    json_t *array = json_object_get(object, name);
    if (!json_is_array(array))
        *status = job_fail(r, EMBD_INVALID, "models[%zu].%s is %s", model, name,
                           array ? "not an array" : "missing");
    else if (json_array_size(array) != n)
        *status = job_fail(r, EMBD_INVALID, "models[%zu].%s has %zu elements, sparse_files %zu",
                           model, name, json_array_size(array), n);
    else
        return array;
    return NULL;
}

struct model {
    size_t number;
    const char *name;
    json_t *files, *names, *sizes, *defaults; /* [n] each; defaults may be NULL: zeros */
};

static int add_table(struct job_reading *r, const struct model *m, size_t i)
{
    json_t *file = json_array_get(m->files, i), *name = json_array_get(m->names, i),
           *size = json_array_get(m->sizes, i),
           *value = m->defaults ? json_array_get(m->defaults, i) : NULL;
    if (!json_is_string(file) || !json_is_string(name))
        return job_fail(
            r, EMBD_INVALID,
            "models[%zu]: element %zu of sparse_files or embedding_table_names is not a string",
            m->number, i);
    json_int_t dim = json_is_integer(size) ? json_integer_value(size) : 0;
    if (dim < 1 || dim > EMBD_DIM_MAX)
        return job_fail(
            r, EMBD_INVALID,
            "models[%zu].embedding_vecsize_per_table[%zu] is not an integer from 1 to %d",
            m->number, i, EMBD_DIM_MAX);
    if (value && (!json_is_number(value) || !isfinite((float)json_number_value(value))))
        return job_fail(
            r, EMBD_INVALID,
            "models[%zu].default_value_for_each_table[%zu] is not a finite 32-bit number",
            m->number, i);
    int status;
    struct job_table *table = job_add(r, m->name, json_string_value(name), &status);
    if (!table)
        return status;
    job_set(table, "dim", "%lld", (long long)dim);
    job_set(table, "combiner", "concat");
    job_set(table, "initializer", "constant");
    job_set(table, "initializer.a", "%.9g", value ? json_number_value(value) : 0.0);
    if (!(table->folder = strdup(json_string_value(file))))
        return job_fail(r, EMBD_NO_MEMORY, "no memory");
    r->job->n_tables++;
    return EMBD_OK;
}

static int read_model(struct job_reading *r, size_t number, json_t *object)
{
    char prefix[40];
    int status = EMBD_OK;
    struct model m = {.number = number,
                      .name = json_string_value(json_object_get(object, "model")),
                      .files = json_object_get(object, "sparse_files")};
    if (!m.name || !json_is_array(m.files))
        return job_fail(r, EMBD_INVALID,
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
    return status ? status : job_ignore_others(r, prefix, object, model_members);
}

/* ---- the file ---- */

int job_read_ps(struct job_reading *r, json_t *root)
{
    static const char *const members[] = {"models", "supportlonglong", NULL};
    json_t *models = json_object_get(root, "models"),
           *wide = json_object_get(root, "supportlonglong");
    if (!models)
        return job_fail(r, EMBD_INVALID,
                        "has neither 'layers', as a graph, nor 'models', as a ps.json");
    if (!json_is_array(models))
        return job_fail(r, EMBD_INVALID, "models is not an array");
    if (wide && !json_is_boolean(wide))
        return job_fail(r, EMBD_INVALID, "supportlonglong is neither true nor false");
    r->job->u32_keys = json_is_false(wide);
    int status = job_ignore_others(r, "", root, members);
    for (size_t i = 0; i < json_array_size(models) && status == EMBD_OK; i++)
        status = read_model(r, i, json_array_get(models, i));
    return status;
}
