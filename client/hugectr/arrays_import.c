/* arrays_import.c - embd_arrays_import: fills a table from plain arrays in files.
 *
 * The happy path: open all files and compare their sizes; read the keys once, into an index, which
 * shows keys that are there twice; the same for states that have keys of their own; then fill the
 * table (filling.h). What can fail: what embd/arrays.h lists, before anything has changed; then the
 * values, a table in the way, or a shard. */
#include <inttypes.h>

#include "client/formats/table_copy.h"
#include "client/hugectr/arrays_source.h"
#include "client/hugectr/filling.h"
#include "embd/arrays.h"
#include "proto/schema_fields.h"
#include "proto/structs.h"

struct importing {
    struct filling filling;
    const embd_arrays *arrays;
    embd_arrays_state states[EMBD_ARRAYS_STATES_MAX];
    struct arrays_source source;
    struct keyindex index; /* of the table's keys, until rows are sent */
};

/* ---- what was asked ---- */

/* Rows with a scale have no files. */
static bool is_of_files(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F32 || dtype == EMBD_DTYPE_F16 || dtype == EMBD_DTYPE_BF16;
}

static int check_numbers(const embd_arrays *a, struct embd__error *e)
{
    if (a->n_files < 1 || a->n_files > EMBD_ARRAYS_FILES_MAX)
        return embd__error_set(e, EMBD_INVALID, "n_files is %" PRIu32 ", it can be 1 to %d",
                               a->n_files, EMBD_ARRAYS_FILES_MAX);
    if (a->n_states > EMBD_ARRAYS_STATES_MAX)
        return embd__error_set(e, EMBD_INVALID, "n_states is %" PRIu32 ", it can be at most %d",
                               a->n_states, EMBD_ARRAYS_STATES_MAX);
    if (!a->keys || !a->values || (a->n_states && !a->states))
        return embd__error_set(e, EMBD_INVALID, "%s is NULL",
                               !a->keys     ? "keys"
                               : !a->values ? "values"
                                            : "states");
    if (a->key < EMBD_ARRAYS_64 || a->key > EMBD_ARRAYS_U32 || a->score < EMBD_ARRAYS_STEP ||
        a->score > EMBD_ARRAYS_COUNT || !is_of_files(a->dtype))
        return embd__error_set(e, EMBD_INVALID,
                               "key is %d, score %d and dtype %d; they can be 0 to 2, 0 to 1, and "
                               "f32, f16 or bf16",
                               (int)a->key, (int)a->score, (int)a->dtype);
    if (a->step > LIMIT_STEP)
        return embd__error_set(e, EMBD_INVALID, "step is %" PRIu64 ", it can be at most %llu",
                               a->step, LIMIT_STEP);
    return EMBD_OK;
}

/* Whether the states together are the optimizer's. */
static int check_states(const embd_arrays *a, const embd_schema *schema, struct embd__error *e)
{
    uint64_t width = 0, own = embd__schema_optimizer_floats(schema);
    for (uint32_t i = 0; i < a->n_states; i++) {
        if (a->states[i].width == 0 || !is_of_files(a->states[i].dtype) || !a->states[i].values)
            return embd__error_set(e, EMBD_INVALID,
                                   "states[%" PRIu32 "]: width %" PRIu32
                                   ", dtype %d; they need a width, f32, f16 or bf16, and files",
                                   i, a->states[i].width, (int)a->states[i].dtype);
        width += a->states[i].width;
    }
    if (a->n_states == 0 || width == own)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "table '%s': the state of %s is %" PRIu64
                           " floats a row, the files have "
                           "%" PRIu64,
                           schema->name, embd_optimizer_name(schema->optimizer.kind), own, width);
}

static int check_asked(const embd_arrays *a, const embd_schema *schema, struct embd__error *e)
{
    if (check_numbers(a, e) || embd__schema_check(schema, e) || check_states(a, schema, e))
        return e->status;
    if (schema->partition != EMBD_PARTITION_SLOT)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_INVALID,
        "table '%s': partition is slot, but the files have no slots; use hash or "
        "modulo",
        schema->name);
}

/* ---- checks of the files ---- */

static int add_block(struct filling *f, const struct block *block, void *arg)
{
    struct importing *m = arg;
    return embd__arrays_add_keys(&m->index, &m->source.keys, block->first, block->keys, block->n,
                                 f->e);
}

static int open_all(struct importing *m)
{
    struct filling *f = &m->filling;
    if (embd__arrays_open(&m->source, m->arrays, f->schema, f->e))
        return f->e->status;
    m->source.blocks = &f->blocks;
    f->path = f->keys_path = m->arrays->keys[0];
    f->step = m->arrays->step;
    f->key_bytes = (uint32_t)m->source.keys.row_bytes;
    f->blocks.source = embd__arrays_source(&m->source);
    f->blocks.n_rows = embd__array_rows(&m->source.keys);
    if (!m->arrays->is_checked && embd__keyindex_open(&m->index, f->blocks.n_rows, f->path, f->e))
        return f->e->status;
    return embd__filling_open(f);
}

static int nothing(struct filling *f, const struct block *block, void *arg)
{
    (void)f, (void)block, (void)arg;
    return EMBD_OK;
}

static int check(struct importing *m, embd_progress *progress, void *arg)
{
    struct filling *f = &m->filling;
    if (check_asked(m->arrays, f->schema, f->e) || open_all(m) ||
        (!m->arrays->is_checked && embd__filling_check(f, false, add_block, m, progress, arg)))
        return f->e->status;
    embd__arrays_index_states(&m->source, &m->index, f->e);
    embd__keyindex_close(&m->index);
    if (f->e->status == EMBD_OK && m->arrays->check_only && m->arrays->check_values)
        embd__filling_check(f, true, nothing, NULL, progress, arg);
    return f->e->status;
}

/* ---- the call ---- */

/* The caller's states lie as far apart as the first one is long. */
static int take_states(embd_arrays *own, embd_arrays_state *states, struct embd__error *e)
{
    const char *at = (const char *)own->states;
    struct embd__error why = {0};
    if (at == NULL || own->n_states > EMBD_ARRAYS_STATES_MAX)
        return EMBD_OK; /* check_numbers refuses it */
    for (uint32_t i = 0; i < own->n_states; i++, at += own->states->struct_bytes) {
        states[i] = (embd_arrays_state){0};
        if (embd__take(embd_arrays_state, &states[i], at, &why) != EMBD_OK)
            return embd__error_set(e, why.status, "states[%" PRIu32 "]: %s", i, why.text);
        if (((const embd_arrays_state *)(const void *)at)->struct_bytes !=
            own->states->struct_bytes)
            return embd__error_set(e, EMBD_INVALID,
                                   "states[%" PRIu32 "]: its struct_bytes differs from that of "
                                   "states[0], %" PRIu32,
                                   i, own->states->struct_bytes);
    }
    own->states = states;
    return EMBD_OK;
}

static int take(embd_arrays *own, embd_arrays_state *states, const embd_arrays *arrays,
                embd_schema *own_schema, const embd_schema *schema, struct embd__error *e)
{
    *own = (embd_arrays){.struct_bytes = sizeof *own};
    if (embd__take(embd_arrays, own, arrays, e) != EMBD_OK ||
        take_states(own, states, e) != EMBD_OK)
        return e->status;
    return embd__schema_take(own_schema, schema, e);
}

EMBD_API int embd_arrays_import(embd_client *client, const embd_schema *schema,
                                const embd_arrays *arrays, embd_progress *progress, void *arg,
                                embd_dump_report *report_out)
{
    embd_arrays own;
    embd_schema own_schema;
    struct embd__error *e = embd__copy_error(client);
    struct importing m = {.filling = {.client = client, .e = e, .schema = &own_schema},
                          .arrays = &own};
    *e = (struct embd__error){0};
    int status = take(&own, m.states, arrays, &own_schema, schema, e);
    if (status != EMBD_OK)
        return embd__error_keep(e, status);
    status = check(&m, progress, arg);
    if (status == EMBD_OK)
        status = embd__filling_run(&m.filling, own.check_only, progress, arg);
    if (status == EMBD_OK && report_out)
        *report_out = (embd_dump_report){.rows = m.filling.blocks.n_rows, .bytes = m.source.bytes};
    embd__filling_close(&m.filling);
    embd__arrays_close(&m.source);
    embd__keyindex_close(&m.index);
    return embd__error_keep(e, status);
}
