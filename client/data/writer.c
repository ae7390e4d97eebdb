/* writer.c - writes norm and raw data sets.
 *
 * The happy path: samples are encoded one by one into a buffer and appended to the file. A norm
 * file that is full gets its number of samples into its header, and the next file begins. The list
 * of the files comes last, so that an existing list names complete files. What can fail: the disk.
 * Then nothing more is written, and closing removes the files of the data set. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/data/sample.h"
#include "embd/data.h"

struct embd_writer {
    embd_data_shape shape;
    char *path;
    uint64_t file_samples; /* of a norm file; 0: no limit */
    FILE *file;
    uint64_t n_in_file;
    struct file_list files; /* all data files so far, the open one last */
    bool has_list;
    uint8_t *bytes; /* [room] one sample with its frame */
    size_t room;
    struct embd__error broken; /* nothing is written any more */
    struct embd__error error;  /* of the last call */
};

static int fail(embd_writer *w, int status, const char *what)
{
    return embd__error_set(&w->error, status, "%s", what);
}

static int broken(embd_writer *w, const char *what, const char *path)
{
    int status = errno == EEXIST ? EMBD_EXISTS : EMBD_IO;
    embd__error_set(&w->broken, status, "%s: %s: %s", path, what, strerror(errno));
    w->error = w->broken;
    return status;
}

static const char *open_path(const embd_writer *w)
{
    return w->files.paths[w->files.n - 1];
}

static int put(embd_writer *w, const void *bytes, size_t n)
{
    if (fwrite(bytes, 1, n, w->file) != n)
        return broken(w, "cannot write", open_path(w));
    return EMBD_OK;
}

/* ---- files ----------------------------------------------------------------------------------- */

static int put_header(embd_writer *w)
{
    const embd_data_shape *s = &w->shape;
    const int64_t fields[NORM_HEADER_BYTES / sizeof(int64_t)] = {
        s->checksum, (int64_t)w->n_in_file, s->label_dim, s->dense_dim, s->slots};
    int32_t length = sizeof fields;
    uint8_t sum = embd__norm_sum((const uint8_t *)fields, sizeof fields);
    int status = s->checksum ? put(w, &length, sizeof length) : EMBD_OK;
    if (status == EMBD_OK)
        status = put(w, fields, sizeof fields);
    if (status == EMBD_OK && s->checksum)
        status = put(w, &sum, sizeof sum);
    return status;
}

/* The file is the writer's to remove only once it has been made. */
static int create(embd_writer *w, const char *path)
{
    w->file = fopen(path, "wxe");
    if (w->file == NULL)
        return broken(w, "cannot create", path);
    w->n_in_file = 0;
    if (embd__file_list_add(&w->files, path, &w->error) != EMBD_OK) {
        w->broken = w->error;
        unlink(path);
        return w->error.status;
    }
    return w->shape.format == EMBD_DATA_FORMAT_NORM ? put_header(w) : EMBD_OK;
}

static int begin_file(embd_writer *w)
{
    char *path;
    if (w->shape.format == EMBD_DATA_FORMAT_RAW)
        return create(w, w->path);
    if (asprintf(&path, "%s.%04" PRIu64, w->path, w->files.n) < 0)
        return fail(w, EMBD_NO_MEMORY, "no memory for a path");
    int status = create(w, path);
    free(path);
    return status;
}

/* Writes the header again, now that the number of samples is known. */
static int finish_file(embd_writer *w)
{
    int status = EMBD_OK;
    if (w->file == NULL)
        return EMBD_OK;
    if (w->shape.format == EMBD_DATA_FORMAT_NORM && w->broken.status == EMBD_OK) {
        rewind(w->file);
        status = put_header(w);
    }
    int closed = fclose(w->file);
    w->file = NULL;
    return status == EMBD_OK && closed != 0 ? broken(w, "cannot write", open_path(w)) : status;
}

static int write_list(embd_writer *w)
{
    FILE *list = fopen(w->path, "wxe");
    if (list == NULL)
        return broken(w, "cannot create", w->path);
    w->has_list = true;
    fprintf(list, "%" PRIu64 "\n", w->files.n);
    for (uint64_t i = 0; i < w->files.n; i++) {
        const char *slash = strrchr(w->files.paths[i], '/');
        fprintf(list, "%s\n", slash != NULL ? slash + 1 : w->files.paths[i]);
    }
    bool failed = ferror(list) != 0;
    failed = fclose(list) != 0 || failed;
    return failed ? broken(w, "cannot write", w->path) : EMBD_OK;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Copies n keys as int32, u32 or i64. False: one does not fit. */
static bool encode_keys(const embd_data_shape *shape, uint8_t *to, const uint64_t *keys, uint64_t n)
{
    uint64_t beyond = 0, largest = shape->format == EMBD_DATA_FORMAT_RAW ? INT32_MAX : UINT32_MAX;
    if (shape->i64_keys) {
        memcpy(to, keys, n * sizeof *keys);
        return true;
    }
    for (uint64_t i = 0; i < n; i++) {
        uint32_t key = (uint32_t)keys[i];
        beyond |= keys[i] > largest;
        memcpy(to + i * sizeof key, &key, sizeof key);
    }
    return !beyond;
}

/* A raw file of integers holds x; readers give log(x + 1). Only what they would give can be
 * written. */
static bool encode_integers(const embd_data_shape *shape, uint8_t *to, const float *labels,
                            const float *dense)
{
    bool fits = true;
    for (uint32_t i = 0; i < shape->label_dim; i++, to += sizeof(int32_t)) {
        bool can = fabsf(labels[i]) < 2147483648.0f;
        int32_t value = can ? (int32_t)labels[i] : 0;
        fits = fits && can && (float)value == labels[i];
        memcpy(to, &value, sizeof value);
    }
    for (uint32_t i = 0; i < shape->dense_dim; i++, to += sizeof(int32_t)) {
        double count = round(expm1((double)dense[i]));
        bool can = count >= 0 && count <= INT32_MAX;
        int32_t value = can ? (int32_t)count : 0;
        fits = fits && can && logf((float)value + 1) == dense[i];
        memcpy(to, &value, sizeof value);
    }
    return fits;
}

static void encode_floats(const embd_data_shape *shape, uint8_t *to, const float *labels,
                          const float *dense)
{
    if (shape->label_dim > 0)
        memcpy(to, labels, shape->label_dim * sizeof *labels);
    to += shape->label_dim * sizeof *labels;
    if (shape->dense_dim > 0)
        memcpy(to, dense, shape->dense_dim * sizeof *dense);
}

/* Slots with their counts, or for raw files their single keys. Returns the end; NULL: wrong keys.
 */
static uint8_t *encode_slots(embd_writer *w, uint8_t *to, const uint64_t *offsets,
                             const uint64_t *keys)
{
    const embd_data_shape *shape = &w->shape;
    for (uint32_t slot = 0; slot < shape->slots; slot++) {
        uint64_t n = offsets[slot + 1] - offsets[slot];
        int32_t count = (int32_t)n;
        if (shape->format == EMBD_DATA_FORMAT_RAW && n != 1) {
            embd__error_set(&w->error, EMBD_INVALID,
                            "slot %" PRIu32 " has %" PRIu64 " keys; in raw files it has one", slot,
                            n);
            return NULL;
        }
        if (shape->format == EMBD_DATA_FORMAT_NORM) {
            memcpy(to, &count, sizeof count);
            to += sizeof count;
        }
        if (!encode_keys(shape, to, keys + offsets[slot], n)) {
            embd__error_set(&w->error, EMBD_INVALID,
                            "slot %" PRIu32 " has a key that does not fit into the %s of the file",
                            slot, shape->format == EMBD_DATA_FORMAT_RAW ? "int32" : "u32");
            return NULL;
        }
        to += n * (shape->i64_keys ? 8u : 4u);
    }
    return to;
}

static int check_offsets(embd_writer *w, const uint64_t *offsets)
{
    uint32_t slots = w->shape.slots;
    for (uint32_t slot = 0; slot < slots; slot++)
        if (offsets[slot + 1] < offsets[slot])
            return embd__error_set(&w->error, EMBD_INVALID, "the offsets decrease at slot %" PRIu32,
                                   slot);
    if (offsets[slots] - offsets[0] > LIMIT_KEYS)
        return embd__error_set(&w->error, EMBD_INVALID,
                               "a sample of %" PRIu64 " keys; the limit is %u",
                               offsets[slots] - offsets[0], LIMIT_KEYS);
    return EMBD_OK;
}

static int make_room(embd_writer *w, uint64_t n_keys)
{
    size_t wanted = NORM_LENGTH_BYTES + NORM_CHECK_BYTES + w->shape.slots * sizeof(int32_t) +
                    ((size_t)w->shape.label_dim + w->shape.dense_dim) * sizeof(float) +
                    n_keys * sizeof(uint64_t);
    if (wanted <= w->room)
        return EMBD_OK;
    uint8_t *bytes = realloc(w->bytes, wanted);
    if (bytes == NULL)
        return fail(w, EMBD_NO_MEMORY, "no memory for a sample");
    w->bytes = bytes;
    w->room = wanted;
    return EMBD_OK;
}

static int put_sample(embd_writer *w, const float *labels, const float *dense,
                      const uint64_t *offsets, const uint64_t *keys)
{
    const embd_data_shape *shape = &w->shape;
    uint8_t *payload = w->bytes + NORM_LENGTH_BYTES, *end;
    size_t fixed = ((size_t)shape->label_dim + shape->dense_dim) * sizeof(float);
    if (!shape->integers)
        encode_floats(shape, payload, labels, dense);
    else if (!encode_integers(shape, payload, labels, dense))
        return fail(w, EMBD_INVALID,
                    "a label is not an integer, or a dense value no log(x + 1) of one");
    end = encode_slots(w, payload + fixed, offsets, keys);
    if (end == NULL)
        return w->error.status;
    size_t length = (size_t)(end - payload);
    int32_t framed = (int32_t)length;
    if (!shape->checksum)
        return put(w, payload, length);
    memcpy(w->bytes, &framed, sizeof framed);
    *end = embd__norm_sum(payload, length);
    return put(w, w->bytes, NORM_LENGTH_BYTES + length + NORM_CHECK_BYTES);
}

static int add_sample(embd_writer *w, const float *labels, const float *dense,
                      const uint64_t *offsets, const uint64_t *keys)
{
    int status = check_offsets(w, offsets);
    if (status == EMBD_OK)
        status = make_room(w, offsets[w->shape.slots] - offsets[0]);
    if (status == EMBD_OK && w->file == NULL)
        status = begin_file(w);
    if (status == EMBD_OK)
        status = put_sample(w, labels, dense, offsets, keys);
    if (status == EMBD_OK && ++w->n_in_file == w->file_samples)
        status = finish_file(w);
    return status;
}

static void remove_files(const embd_writer *w)
{
    for (uint64_t i = 0; i < w->files.n; i++)
        unlink(w->files.paths[i]);
    if (w->has_list)
        unlink(w->path);
}

/* Completes the data set, or removes what there is of it. */
static int finish(embd_writer *w)
{
    finish_file(w);
    if (w->broken.status == EMBD_OK && w->shape.format == EMBD_DATA_FORMAT_NORM)
        write_list(w);
    if (w->broken.status != EMBD_OK)
        remove_files(w);
    return w->broken.status;
}

static void free_writer(embd_writer *w)
{
    embd__file_list_free(&w->files);
    free(w->path);
    free(w->bytes);
    free(w);
}

/* ---- the public functions -------------------------------------------------------------------- */

/* The first file begins at once, so that a wrong path fails at once, and a data set without samples
 * is one too. */
int embd_writer_open(const char *path, const embd_data_shape *shape, uint64_t file_samples,
                     embd_writer **writer_out)
{
    embd_writer *w = calloc(1, sizeof *w);
    struct embd__error none = {0}, *e = w != NULL ? &w->error : &none;
    *writer_out = NULL;
    if (w == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a writer");
    if (e->status == EMBD_OK && embd__data_shape_take(&w->shape, shape, e) == EMBD_OK &&
        embd__data_shape_check(&w->shape, e) == EMBD_OK) {
        w->file_samples = w->shape.format == EMBD_DATA_FORMAT_NORM ? file_samples : 0;
        w->path = strdup(path);
        if (w->path == NULL)
            embd__error_set(e, EMBD_NO_MEMORY, "no memory for a path");
        else if (access(path, F_OK) == 0)
            embd__error_set(e, EMBD_EXISTS, "%s: exists", path);
        else
            begin_file(w);
    }
    int status = embd__error_keep(e, e->status);
    if (status == EMBD_OK) {
        *writer_out = w;
        return EMBD_OK;
    }
    if (w != NULL) {
        embd__error_set(&w->broken, status, "never begun");
        finish(w);
        free_writer(w);
    }
    return status;
}

int embd_writer_add(embd_writer *writer, uint32_t n_samples, const float *labels,
                    const float *dense, const uint64_t *offsets, const uint64_t *keys)
{
    const embd_data_shape *shape = &writer->shape;
    writer->error = writer->broken;
    for (uint32_t i = 0; i < n_samples && writer->error.status == EMBD_OK; i++) {
        add_sample(writer, labels, dense, offsets, keys);
        labels = shape->label_dim > 0 ? labels + shape->label_dim : labels;
        dense = shape->dense_dim > 0 ? dense + shape->dense_dim : dense;
        offsets += shape->slots;
    }
    return embd__error_keep(&writer->error, writer->error.status);
}

int embd_writer_close(embd_writer *writer)
{
    if (writer == NULL)
        return EMBD_OK;
    int status = embd__error_keep(&writer->broken, finish(writer));
    free_writer(writer);
    return status;
}
