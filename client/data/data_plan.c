/* data_plan.c - checks what a user asks of a reader and finds out which pieces there are.
 *
 * Nothing is read here but the list of norm files, or the size of a raw file: what is wrong with a
 * file shows when its turn comes, in the order of the data. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/data/data_plan.h"
#include "client/data/inputs.h"
#include "embd/data.h"
#include "proto/structs.h"

#define LIMIT_BATCH_SAMPLES (1u << 20)
#define LIMIT_READERS       64u
#define LIMIT_AHEAD         1024u
#define LIMIT_LISTS         65536u
#define PIECE_BATCHES       16u /* of a raw file: enough that finding its place costs nothing */

void embd_reader_options_init_sized(embd_reader_options *options, uint32_t struct_bytes)
{
    const embd_reader_options own = {
        .batch_samples = 1024,
        .threads = 1,
        .batches_ahead = 4,
        .sample_keys = 65536,
        .max_bad_samples = UINT64_MAX,
        .max_bad_files = 10,
        .workers = 1,
    };
    embd__struct_give(options, struct_bytes, &own, sizeof own);
}

static int check_range(const char *name, uint64_t value, uint64_t low, uint64_t high,
                       struct embd__error *e)
{
    if (value >= low && value <= high)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "%s is %" PRIu64 "; it can be %" PRIu64 " to %" PRIu64,
                           name, value, low, high);
}

int embd__data_shape_take(embd_data_shape *own, const embd_data_shape *given, struct embd__error *e)
{
    *own = (embd_data_shape){0};
    return embd__take(embd_data_shape, own, given, e);
}

int embd__data_shape_check(const embd_data_shape *shape, struct embd__error *e)
{
    if (shape->format != EMBD_DATA_FORMAT_NORM && shape->format != EMBD_DATA_FORMAT_RAW)
        return embd__error_set(e, EMBD_INVALID, "format is %d; it can be norm or raw",
                               (int)shape->format);
    if (shape->format == EMBD_DATA_FORMAT_RAW && (shape->checksum || shape->i64_keys))
        return embd__error_set(e, EMBD_INVALID, "%s is for norm files; a raw file has none",
                               shape->checksum ? "checksum" : "i64_keys");
    if (shape->format == EMBD_DATA_FORMAT_NORM && shape->integers)
        return embd__error_set(e, EMBD_INVALID, "'integers' is for raw files");
    int status = check_range("label_dim", shape->label_dim, 0, EMBD_DATA_DIM_MAX, e);
    if (status == EMBD_OK)
        status = check_range("dense_dim", shape->dense_dim, 0, EMBD_DATA_DIM_MAX, e);
    if (status == EMBD_OK)
        status = check_range("slots", shape->slots, 1, EMBD_SLOTS_MAX, e);
    return status;
}

static int check_share(const embd_data_shape *shape, const embd_reader_options *o,
                       struct embd__error *e)
{
    if (o->workers == 0 || o->worker >= o->workers)
        return embd__error_set(e, EMBD_INVALID, "worker is %" PRIu32 " of %" PRIu32 " workers",
                               o->worker, o->workers);
    if (o->share != EMBD_DATA_SHARE_FILES && o->share != EMBD_DATA_SHARE_BATCHES)
        return embd__error_set(e, EMBD_INVALID, "share is %d; it can be files or batches",
                               (int)o->share);
    if (shape->format == EMBD_DATA_FORMAT_RAW && o->workers > 1 &&
        o->share == EMBD_DATA_SHARE_FILES)
        return embd__error_set(e, EMBD_INVALID,
                               "a raw file is one file: %" PRIu32
                               " workers can share its batches, not files",
                               o->workers);
    return EMBD_OK;
}

static int check_options(const embd_data_shape *shape, const embd_reader_options *o,
                         struct embd__error *e)
{
    int status = embd__data_shape_check(shape, e);
    if (status == EMBD_OK)
        status = check_range("batch_samples", o->batch_samples, 1, LIMIT_BATCH_SAMPLES, e);
    if (status == EMBD_OK)
        status = check_range("threads", o->threads, 1, LIMIT_READERS, e);
    if (status == EMBD_OK)
        status = check_range("batches_ahead", o->batches_ahead, 1, LIMIT_AHEAD, e);
    if (status == EMBD_OK)
        status = check_range("sample_keys", o->sample_keys, 1, LIMIT_KEYS, e);
    if (status == EMBD_OK)
        status = check_share(shape, o, e);
    if (status == EMBD_OK)
        status = check_range("paths", o->paths, 0, EMBD_DATA_PATHS_WORKING_DIRECTORY, e);
    if (status == EMBD_OK)
        status = embd__inputs_check(shape, o, e);
    if (status == EMBD_OK && o->slot_sizes != NULL && o->refuse_overlap)
        status = embd__error_set(e, EMBD_INVALID,
                                 "refuse_overlap together with slot_sizes: there every slot counts "
                                 "its keys from 0");
    return status;
}

/* The plan gets its own copies of the arrays that the options point to. */
static int copy_arrays(struct data_plan *plan, struct embd__error *e)
{
    embd_reader_options *o = &plan->options;
    const embd_sparse_input *inputs = o->n_inputs > 0 ? o->inputs : NULL;
    const uint64_t *sizes = o->slot_sizes;
    size_t sizes_bytes = plan->shape.slots * sizeof *sizes;
    size_t inputs_bytes = o->n_inputs * sizeof *inputs;
    o->slot_sizes = sizes != NULL ? malloc(sizes_bytes) : NULL;
    o->inputs = inputs != NULL ? malloc(inputs_bytes) : NULL;
    if ((sizes != NULL && o->slot_sizes == NULL) || (inputs != NULL && o->inputs == NULL))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the sizes of %" PRIu32 " slots",
                               plan->shape.slots);
    if (sizes != NULL)
        memcpy((void *)o->slot_sizes, sizes, sizes_bytes);
    if (inputs != NULL)
        memcpy((void *)o->inputs, inputs, inputs_bytes);
    return inputs != NULL ? embd__inputs_of_slots(plan, e) : EMBD_OK;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

static int find_norm_pieces(struct data_plan *plan, const char *const *paths, uint32_t n_paths,
                            struct embd__error *e)
{
    const embd_reader_options *o = &plan->options;
    int status = check_range("n_paths", n_paths, 1, LIMIT_LISTS, e);
    for (uint32_t i = 0; i < n_paths && status == EMBD_OK; i++)
        status = embd__file_list_read(&plan->files, paths[i], o->paths, e);
    if (status == EMBD_OK && o->share == EMBD_DATA_SHARE_FILES)
        embd__file_list_keep(&plan->files, o->worker, o->workers);
    plan->n_pieces = plan->files.n;
    return status;
}

static int find_raw_pieces(struct data_plan *plan, const char *const *paths, uint32_t n_paths,
                           struct embd__error *e)
{
    struct stat st;
    if (check_range("n_paths", n_paths, 1, 1, e) != EMBD_OK)
        return e->status;
    const char *path = paths[0];
    if (stat(path, &st) != 0)
        return embd__error_set(e, EMBD_IO, "%s: %s", path, strerror(errno));
    uint64_t bytes = (uint64_t)st.st_size;
    if (!S_ISREG(st.st_mode))
        return embd__error_set(e, EMBD_IO, "%s: is not a regular file", path);
    if (bytes % plan->sample_max != 0)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: its %" PRIu64
                               " bytes are not a whole number of samples of %" PRIu64 " bytes",
                               path, bytes, plan->sample_max);
    plan->n_samples = bytes / plan->sample_max;
    plan->piece_samples = (uint64_t)PIECE_BATCHES * plan->options.batch_samples;
    plan->n_pieces = (plan->n_samples + plan->piece_samples - 1) / plan->piece_samples;
    return embd__file_list_add(&plan->files, path, e);
}

int embd__data_plan_open(struct data_plan *plan, const char *const *paths, uint32_t n_paths,
                         const embd_data_shape *given_shape,
                         const embd_reader_options *given_options, struct embd__error *e)
{
    *plan = (struct data_plan){0};
    embd_reader_options_init(&plan->options);
    int status = embd__data_shape_take(&plan->shape, given_shape, e);
    if (status == EMBD_OK)
        status = embd__take(embd_reader_options, &plan->options, given_options, e);
    const embd_data_shape *shape = &plan->shape;
    const embd_reader_options *options = &plan->options;
    if (status == EMBD_OK)
        status = check_options(shape, options, e);
    if (status != EMBD_OK) {
        plan->options.slot_sizes = NULL;
        plan->options.inputs = NULL;
        return status;
    }
    bool is_raw = shape->format == EMBD_DATA_FORMAT_RAW;
    plan->fixed_bytes = ((uint64_t)shape->label_dim + shape->dense_dim) * sizeof(float);
    plan->key_bytes = shape->i64_keys ? 8 : 4;
    plan->sample_min = plan->fixed_bytes + shape->slots * sizeof(int32_t);
    plan->sample_max =
        is_raw ? plan->sample_min : plan->sample_min + options->sample_keys * plan->key_bytes;
    status = copy_arrays(plan, e);
    if (status != EMBD_OK)
        return status;
    return is_raw ? find_raw_pieces(plan, paths, n_paths, e)
                  : find_norm_pieces(plan, paths, n_paths, e);
}

void embd__data_plan_close(struct data_plan *plan)
{
    embd__file_list_free(&plan->files);
    free((void *)plan->options.slot_sizes);
    free((void *)plan->options.inputs);
    free(plan->slot_keys);
    *plan = (struct data_plan){0};
}
