/* graphjson.c - the tables of a model's graph, as HugeCTR's model.graph_to_json writes it.
 *
 * Of the layers we take the data layer's sparse inputs, which say how many slots a table has, and
 * the sparse embeddings: a table each. The dense network is the trainer's. A sparse embedding's
 * learning rate is in no file. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/jobreading.h"

#define WORKSPACE_MB_MAX (1u << 24)

struct graph {
    struct job_reading *r;
    json_t *layers, *sparse; /* sparse: of the data layer */
};

/* A member's place in the file, for sentences: "layers[1].optimizer". */
struct place {
    char text[96];
};

static struct place below(const char *where, const char *name)
{
    struct place p;
    snprintf(p.text, sizeof p.text, "%.60s.%.32s", where, name);
    return p;
}

/* ---- members ---- */

static int get_object(const struct graph *g, const char *where, json_t *parent, const char *name,
                      json_t **out)
{
    *out = json_object_get(parent, name);
    if (json_is_object(*out))
        return EMBD_OK;
    return job_fail(g->r, EMBD_INVALID, "%s is %s", below(where, name).text,
                    *out ? "not an object" : "missing");
}

static int get_text(const struct graph *g, const char *where, json_t *parent, const char *name,
                    const char **out)
{
    json_t *value = json_object_get(parent, name);
    *out = json_string_value(value);
    if (*out)
        return EMBD_OK;
    return job_fail(g->r, EMBD_INVALID, "%s is %s", below(where, name).text,
                    value ? "not a string" : "missing");
}

static int get_uint(const struct graph *g, const char *where, json_t *parent, const char *name,
                    uint64_t least, uint64_t most, uint64_t *out)
{
    json_t *value = json_object_get(parent, name);
    json_int_t number = json_is_integer(value) ? json_integer_value(value) : -1;
    if (number >= 0 && (uint64_t)number >= least && (uint64_t)number <= most) {
        *out = (uint64_t)number;
        return EMBD_OK;
    }
    char *is = value ? json_dumps(value, JSON_ENCODE_ANY) : NULL;
    int status = job_fail(g->r, EMBD_INVALID, "%s is %s; it can be %" PRIu64 " to %" PRIu64,
                          below(where, name).text, is ? is : "missing", least, most);
    free(is);
    return status;
}

/* ---- the optimizer ---- */

struct hyper {
    const char *there, *field; /* field NULL: has no meaning here */
};

static const struct optimizer {
    const char *there, *here, *member;
    struct hyper hypers[4];
} optimizers[] = {
    {"SGD", "sgd", "sgd_hparam", {{"atomic_update", NULL}}},
    {"MomentumSGD", "momentum", "momentum_sgd_hparam", {{"momentum_factor", "optimizer.momentum"}}},
    {"Nesterov", "nesterov", "nesterov_hparam", {{"momentum_factor", "optimizer.momentum"}}},
    {"AdaGrad",
     "adagrad",
     "adagrad_hparam",
     {{"initial_accu_value", "optimizer.initial_accumulator"}, {"epsilon", "optimizer.eps"}}},
    {"Adam",
     "adam",
     "adam_hparam",
     {{"beta1", "optimizer.beta1"}, {"beta2", "optimizer.beta2"}, {"epsilon", "optimizer.eps"}}},
    {"Ftrl",
     "ftrl",
     "ftrl_hparam",
     {{"beta", "optimizer.beta"}, {"lambda1", "optimizer.l1"}, {"lambda2", "optimizer.l2"}}},
};
static const char *const updates[][2] = {
    {"Local", "local"}, {"Global", "global"}, {"LazyGlobal", "lazy_global"}};

static int set_hypers(const struct graph *g, const char *where, json_t *object,
                      const struct optimizer *kind, struct job_table *table)
{
    const char *known[5] = {NULL};
    for (size_t i = 0; i < 4 && kind->hypers[i].there; i++) {
        const struct hyper *h = &kind->hypers[i];
        json_t *value = json_object_get(object, h->there);
        known[i] = h->there;
        if (h->field && (!json_is_number(value) || !isfinite((float)json_number_value(value))))
            return job_fail(g->r, EMBD_INVALID, "%s is not a finite 32-bit number",
                            below(where, h->there).text);
        if (h->field)
            job_set(table, h->field, "%.9g", json_number_value(value));
    }
    char prefix[100];
    snprintf(prefix, sizeof prefix, "%s.", where);
    return job_ignore_others(g->r, prefix, object, known);
}

static int set_update(const struct graph *g, const char *where, json_t *object,
                      struct job_table *table)
{
    const char *name;
    if (get_text(g, where, object, "update_type", &name))
        return EMBD_INVALID;
    for (size_t i = 0; i < 3; i++)
        if (!strcmp(updates[i][0], name)) {
            job_set(table, "optimizer.update", "%s", updates[i][1]);
            return EMBD_OK;
        }
    return job_fail(g->r, EMBD_INVALID,
                    "%s.update_type is '%s'; it can be Local, Global or LazyGlobal", where, name);
}

static int set_optimizer(const struct graph *g, const char *layer, json_t *object,
                         struct job_table *table)
{
    const char *name;
    json_t *hparam;
    struct place where = below(layer, "optimizer");
    if (get_text(g, where.text, object, "type", &name) || set_update(g, where.text, object, table))
        return EMBD_INVALID;
    for (size_t i = 0; i < sizeof optimizers / sizeof *optimizers; i++) {
        const struct optimizer *kind = &optimizers[i];
        if (strcmp(kind->there, name) != 0)
            continue;
        job_set(table, "optimizer", "%s", kind->here);
        if (get_object(g, where.text, object, kind->member, &hparam))
            return EMBD_INVALID;
        return set_hypers(g, below(where.text, kind->member).text, hparam, kind, table);
    }
    return job_fail(g->r, EMBD_INVALID,
                    "%s.type is '%s'; it can be SGD, MomentumSGD, Nesterov, AdaGrad, Adam or Ftrl",
                    where.text, name);
}

/* ---- a sparse embedding ---- */

/* Slots of the sparse input that the embedding reads. */
static int set_slots(const struct graph *g, const char *where, const char *bottom,
                     struct job_table *table, uint64_t *slots)
{
    json_t *input;
    size_t i;
    json_array_foreach(g->sparse, i, input)
    {
        const char *top = json_string_value(json_object_get(input, "top"));
        if (!top || strcmp(top, bottom) != 0)
            continue;
        char place[64];
        snprintf(place, sizeof place, "layers[0].sparse[%zu]", i);
        if (get_uint(g, place, input, "slot_num", 1, EMBD_SLOTS_MAX, slots))
            return EMBD_INVALID;
        job_set(table, "slots", "%" PRIu64, *slots);
        return EMBD_OK;
    }
    return job_fail(g->r, EMBD_INVALID, "%s.bottom is '%s', which no sparse input is called", where,
                    bottom);
}

/* Only localized embeddings use it. */
static int set_slot_sizes(const struct graph *g, const char *where, json_t *sizes, uint64_t slots,
                          struct job_table *table)
{
    if (!json_is_array(sizes) || json_array_size(sizes) != slots)
        return job_fail(g->r, EMBD_INVALID,
                        "%s.slot_size_array has %zu elements; its input has %" PRIu64 " slots",
                        where, json_array_size(sizes), slots);
    table->slot_sizes = calloc(slots, sizeof *table->slot_sizes);
    if (!table->slot_sizes)
        return job_fail(g->r, EMBD_NO_MEMORY, "no memory");
    table->n_slot_sizes = slots;
    for (size_t i = 0; i < slots; i++) {
        json_t *size = json_array_get(sizes, i);
        if (!json_is_integer(size) || json_integer_value(size) < 0 ||
            json_integer_value(size) > UINT32_MAX)
            return job_fail(g->r, EMBD_INVALID,
                            "%s.slot_size_array[%zu] is not an integer from 0 to 4294967295", where,
                            i);
        table->slot_sizes[i] = (uint64_t)json_integer_value(size);
    }
    return EMBD_OK;
}

static int set_bounds(const struct graph *g, const char *where, json_t *hparam, bool is_localized,
                      uint64_t slots, struct job_table *table)
{
    json_t *sizes = json_object_get(hparam, "slot_size_array");
    if (json_object_get(hparam, "workspace_size_per_gpu_in_mb") &&
        get_uint(g, where, hparam, "workspace_size_per_gpu_in_mb", 0, WORKSPACE_MB_MAX,
                 &table->workspace_mb))
        return EMBD_INVALID;
    if (json_object_get(hparam, "max_vocabulary_size_global") &&
        get_uint(g, where, hparam, "max_vocabulary_size_global", 0, INT64_MAX, &table->global_rows))
        return EMBD_INVALID;
    return sizes && is_localized ? set_slot_sizes(g, where, sizes, slots, table) : EMBD_OK;
}

static int set_hparam(const struct graph *g, const char *where, json_t *hparam, bool is_localized,
                      uint64_t slots, struct job_table *table)
{
    static const char *const known[] = {"workspace_size_per_gpu_in_mb",
                                        "max_vocabulary_size_global",
                                        "embedding_vec_size",
                                        "combiner",
                                        "slot_size_array",
                                        NULL};
    uint64_t dim;
    const char *combiner;
    char prefix[100];
    if (get_uint(g, where, hparam, "embedding_vec_size", 1, EMBD_DIM_MAX, &dim) ||
        get_text(g, where, hparam, "combiner", &combiner))
        return EMBD_INVALID;
    if (strcmp(combiner, "sum") != 0 && strcmp(combiner, "mean") != 0)
        return job_fail(g->r, EMBD_INVALID, "%s.combiner is '%s'; it can be sum or mean", where,
                        combiner);
    job_set(table, "dim", "%" PRIu64, dim);
    job_set(table, "combiner", "%s", combiner);
    snprintf(prefix, sizeof prefix, "%s.", where);
    int status = set_bounds(g, where, hparam, is_localized, slots, table);
    return status ? status : job_ignore_others(g->r, prefix, hparam, known);
}

static int set_table(const struct graph *g, const char *where, json_t *layer, bool is_localized,
                     struct job_table *table)
{
    static const char *const known[] = {
        "type", "name", "bottom", "top", "sparse_embedding_hparam", "optimizer", NULL};
    const char *bottom;
    json_t *hparam, *optimizer = json_object_get(layer, "optimizer");
    uint64_t slots = 0;
    char prefix[100];
    if (get_text(g, where, layer, "bottom", &bottom) ||
        get_object(g, where, layer, "sparse_embedding_hparam", &hparam))
        return EMBD_INVALID;
    job_set(table, "partition", "%s", is_localized ? "slot" : "modulo");
    int status = set_slots(g, where, bottom, table, &slots);
    if (status == EMBD_OK)
        status = set_hparam(g, below(where, "sparse_embedding_hparam").text, hparam, is_localized,
                            slots, table);
    if (status == EMBD_OK && optimizer)
        status = set_optimizer(g, where, optimizer, table);
    snprintf(prefix, sizeof prefix, "%s.", where);
    return status ? status : job_ignore_others(g->r, prefix, layer, known);
}

static int add_embedding(const struct graph *g, size_t number, json_t *layer, bool is_localized)
{
    char where[40];
    const char *top;
    int status;
    snprintf(where, sizeof where, "layers[%zu]", number);
    if (get_text(g, where, layer, "top", &top))
        return EMBD_INVALID;
    struct job_table *table = job_add(g->r, g->r->model, top, &status);
    if (!table)
        return status;
    g->r->job->n_tables++; /* from here on job_fini frees what it has */
    return set_table(g, where, layer, is_localized, table);
}

/* ---- layers ---- */

static int read_data(struct graph *g, json_t *layer)
{
    static const char *const known[] = {"type", "name", "label", "dense", "sparse", NULL};
    const char *type = json_string_value(json_object_get(layer, "type"));
    if (!type || strcmp(type, "Data") != 0)
        return job_fail(g->r, EMBD_INVALID, "layers[0].type is '%s'; the first layer is Data",
                        type ? type : "");
    g->sparse = json_object_get(layer, "sparse");
    if (!json_is_array(g->sparse))
        return job_fail(g->r, EMBD_INVALID, "layers[0].sparse is %s",
                        g->sparse ? "not an array" : "missing");
    return job_ignore_others(g->r, "layers[0].", layer, known);
}

static int read_layer(struct graph *g, size_t number, json_t *layer, size_t *n_dense)
{
    char where[40];
    const char *type;
    snprintf(where, sizeof where, "layers[%zu]", number);
    if (get_text(g, where, layer, "type", &type))
        return EMBD_INVALID;
    if (!strcmp(type, "DistributedSlotSparseEmbeddingHash"))
        return add_embedding(g, number, layer, false);
    if (!strcmp(type, "LocalizedSlotSparseEmbeddingHash") ||
        !strcmp(type, "LocalizedSlotSparseEmbeddingOneHot"))
        return add_embedding(g, number, layer, true);
    if (strstr(type, "Embedding"))
        return job_fail(g->r, EMBD_UNSUPPORTED,
                        "%s.type is '%s'; DistributedSlotSparseEmbeddingHash, "
                        "LocalizedSlotSparseEmbeddingHash and LocalizedSlotSparseEmbeddingOneHot "
                        "can be imported",
                        where, type);
    ++*n_dense;
    return EMBD_OK;
}

int job_read_graph(struct job_reading *r, json_t *root)
{
    struct graph g = {.r = r, .layers = json_object_get(root, "layers")};
    static const char *const known[] = {"layers", NULL};
    size_t n = json_array_size(g.layers), n_dense = 0;
    char dense[64];
    if (!json_is_array(g.layers) || n == 0)
        return job_fail(r, EMBD_INVALID, "layers is not an array of layers");
    int status = read_data(&g, json_array_get(g.layers, 0));
    for (size_t i = 1; i < n && status == EMBD_OK; i++)
        status = read_layer(&g, i, json_array_get(g.layers, i), &n_dense);
    if (status == EMBD_OK && r->job->n_tables == 0)
        status = job_fail(r, EMBD_INVALID, "layers has no sparse embedding");
    snprintf(dense, sizeof dense, "layers of the dense network: %zu", n_dense);
    if (status == EMBD_OK && n_dense > 0)
        status = job_ignore(r, "", dense);
    return status ? status : job_ignore_others(r, "", root, known);
}
