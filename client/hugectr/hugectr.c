/* hugectr.c - HugeCTR's model folders: options, optimizers that have a counterpart there, and
 * opening a folder. No file of theirs says what it is, so that sizes are compared with each other,
 * and every file that is missing or does not belong there is an error: nothing is taken for granted
 * that can be checked. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/hugectr/hugectr.h"
#include "embd/hugectr.h"
#include "proto/schema.h"
#include "proto/structs.h"

EMBD_API void embd_hugectr_options_init_sized(embd_hugectr_options *options, uint32_t struct_bytes)
{
    const embd_hugectr_options own = {.n_gpus = 1};
    embd__struct_give(options, struct_bytes, &own, sizeof own);
}

int embd__hugectr_take(embd_hugectr_options *own, const embd_hugectr_options *given,
                       struct embd__error *e)
{
    embd_hugectr_options_init(own);
    return given ? embd__take(embd_hugectr_options, own, given, e) : EMBD_OK;
}

int embd__hugectr_check(const embd_hugectr_options *options, struct embd__error *e)
{
    if (options->n_gpus < 1 || options->n_gpus > HUGECTR_GPUS_MAX)
        return embd__error_set(e, EMBD_INVALID, "n_gpus is %" PRIu32 ", it can be 1 to %u",
                               options->n_gpus, HUGECTR_GPUS_MAX);
    if (options->gpu_rows > LIMIT_CAPACITY)
        return embd__error_set(e, EMBD_INVALID, "gpu_rows is %" PRIu64 ", it can be at most %u",
                               options->gpu_rows, LIMIT_CAPACITY);
    if (options->state_dtype != EMBD_DTYPE_F32 && options->state_dtype != EMBD_DTYPE_F16)
        return embd__error_set(e, EMBD_INVALID, "state_dtype is %d, it can be f32 or f16",
                               (int)options->state_dtype);
    if (options->step > LIMIT_STEP)
        return embd__error_set(e, EMBD_INVALID, "step is %" PRIu64 ", it can be at most %llu",
                               options->step, LIMIT_STEP);
    if (options->state_file && !options->state_file[0])
        return embd__error_set(e, EMBD_INVALID, "the name of the state file is empty");
    return EMBD_OK;
}

int embd__hugectr_tensors(const embd_schema *schema, uint32_t *n_out, struct embd__error *e)
{
    embd_optimizer_kind kind = schema->optimizer.kind;
    if (kind == EMBD_OPTIMIZER_SGD)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "table '%s': sgd has no state, and HugeCTR no state file for it",
                               schema->name);
    if (kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD || kind == EMBD_OPTIMIZER_RMSPROP ||
        kind > EMBD_OPTIMIZER_FTRL)
        return embd__error_set(
            e, EMBD_UNSUPPORTED,
            "table '%s': HugeCTR has no state files for %s; it has them for momentum, "
            "nesterov, adagrad, adam and ftrl",
            schema->name, embd_optimizer_name(kind));
    *n_out = kind == EMBD_OPTIMIZER_ADAM || kind == EMBD_OPTIMIZER_FTRL ? 2 : 1;
    uint32_t floats = embd__schema_state_floats(schema) - embd__schema_master_floats(schema);
    if (floats == *n_out * schema->dim)
        return EMBD_OK;
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "table '%s': the state of %s with update = %s is %" PRIu32
                           " floats a row, HugeCTR's files have %" PRIu32,
                           schema->name, embd_optimizer_name(kind),
                           embd_update_name(schema->optimizer.update), floats,
                           *n_out * schema->dim);
}

/* ---- a GPU's workspace ---- */

/* Floats of state that HugeCTR reserves for each column. */
static int state_copies(const embd_schema *schema, uint64_t *n_out, struct embd__error *e)
{
    switch ((int)schema->optimizer.kind) {
    case EMBD_OPTIMIZER_SGD:
        *n_out = 0;
        return EMBD_OK;
    case EMBD_OPTIMIZER_MOMENTUM:
    case EMBD_OPTIMIZER_NESTEROV:
    case EMBD_OPTIMIZER_ADAGRAD:
        *n_out = 1;
        return EMBD_OK;
    case EMBD_OPTIMIZER_ADAM:
        *n_out = schema->optimizer.update == EMBD_UPDATE_LAZY_GLOBAL ? 3 : 2;
        return EMBD_OK;
    case EMBD_OPTIMIZER_FTRL:
        *n_out = 2;
        return EMBD_OK;
    default:
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "table '%s': HugeCTR has no workspace for %s; it has it for sgd, "
                               "momentum, nesterov, adagrad, adam and ftrl",
                               schema->name, embd_optimizer_name(schema->optimizer.kind));
    }
}

int embd_hugectr_gpu_rows(const embd_schema *schema, uint64_t workspace_mb, uint64_t *rows_out)
{
    struct embd__error e = {0};
    uint64_t n = 0;
    if (schema->dim == 0 || schema->dim > EMBD_DIM_MAX || workspace_mb > UINT32_MAX)
        embd__error_set(&e, EMBD_INVALID,
                        "dim is %" PRIu32 " and workspace_mb %" PRIu64
                        "; they can be 1 to %d and 0 to 4294967295",
                        schema->dim, workspace_mb, EMBD_DIM_MAX);
    else if (state_copies(schema, &n, &e) == EMBD_OK)
        *rows_out = (workspace_mb << 20) / ((1 + n) * sizeof(float) * schema->dim);
    return embd__error_keep(&e, e.status);
}

/* ---- opening a folder ---- */

static int check_name(const char *path, const char *name, const struct hugectr_wanted *wanted,
                      struct embd__error *e)
{
    if (!strcmp(name, ".") || !strcmp(name, "..") || !strcmp(name, HUGECTR_KEY) ||
        !strcmp(name, HUGECTR_VECTOR))
        return EMBD_OK;
    if (strcmp(name, HUGECTR_SLOT))
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s/%s: does not belong in a model folder, which holds key, "
                               "emb_vector and, if localized, slot_id",
                               path, name);
    if (wanted->has_slots || wanted->ignore_slots)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "%s/%s: exists, but %s", path, name,
                           wanted->why_no_slots);
}

static int check_names(const char *path, const struct hugectr_wanted *wanted, struct embd__error *e)
{
    DIR *list = opendir(path);
    if (!list)
        return embd__error_set(e, EMBD_IO, "%s: cannot open the directory: %s", path,
                               strerror(errno));
    errno = 0;
    for (struct dirent *entry; !e->status && (entry = readdir(list)) != NULL; errno = 0)
        check_name(path, entry->d_name, wanted, e);
    if (!e->status && errno)
        embd__error_set(e, EMBD_IO, "%s: cannot read the directory: %s", path, strerror(errno));
    closedir(list);
    return e->status;
}

/* Rows from the size of `key`; then what the others must have. */
static int check_sizes(struct hugectr_folder *f, uint32_t dim, bool has_slots,
                       struct embd__error *e)
{
    if (f->key.bytes % 8)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: has %" PRIu64 " bytes, expected a multiple of 8", f->key.path,
                               f->key.bytes);
    f->n_rows = f->key.bytes / 8;
    if (has_slots && f->slot.bytes != f->key.bytes)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: key has %" PRIu64 " rows, slot_id %" PRIu64
                               " bytes, expected %" PRIu64,
                               f->slot.path, f->n_rows, f->slot.bytes, f->key.bytes);
    uint64_t row = dim ? 4 * (uint64_t)dim : f->n_rows ? f->vector.bytes / f->n_rows : 0;
    bool fits = f->n_rows ? row && row % 4 == 0 && f->vector.bytes % row == 0 &&
                                f->vector.bytes / row == f->n_rows
                          : f->vector.bytes == 0;
    if (fits)
        return EMBD_OK;
    if (dim == 0)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: key has %" PRIu64 " rows, emb_vector %" PRIu64
                               " bytes, expected that many rows of floats",
                               f->vector.path, f->n_rows, f->vector.bytes);
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s: key has %" PRIu64 " rows, emb_vector %" PRIu64
                           " bytes, expected %" PRIu64 " for dim %" PRIu32,
                           f->vector.path, f->n_rows, f->vector.bytes, f->n_rows * row, dim);
}

int embd__hugectr_open(struct hugectr_folder *folder, const char *path,
                       const struct hugectr_wanted *wanted, struct embd__error *e)
{
    *folder = (struct hugectr_folder){.key = {.fd = -1}, .slot = {.fd = -1}, .vector = {.fd = -1}};
    if (check_names(path, wanted, e) || embd__plain_open(&folder->key, path, HUGECTR_KEY, e) ||
        embd__plain_open(&folder->vector, path, HUGECTR_VECTOR, e) ||
        (wanted->has_slots && embd__plain_open(&folder->slot, path, HUGECTR_SLOT, e)) ||
        check_sizes(folder, wanted->dim, wanted->has_slots, e))
        embd__hugectr_close(folder);
    return e->status;
}

void embd__hugectr_close(struct hugectr_folder *folder)
{
    embd__plain_close(&folder->key);
    embd__plain_close(&folder->slot);
    embd__plain_close(&folder->vector);
}
