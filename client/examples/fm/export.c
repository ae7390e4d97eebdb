/* export.c - batch after batch of a sampler into embd's writer. */
#include "client/examples/fm/export.h"

#include <embd/embd.h>
#include <stdio.h>

#define EXPORT_BATCH 4096

static bool failed(const char *path, const char *why)
{
    fprintf(stderr, "exporting to %s: %s\n", path, why);
    return false;
}

static bool write_batches(embd_writer *writer, const char *path, sampler *samples, uint64_t *n_out)
{
    batch b;
    bool ok = true;
    if (!batch_alloc(&b, EXPORT_BATCH))
        return failed(path, "out of memory");
    while (ok && sampler_fill(samples, &b)) {
        if (embd_writer_add(writer, b.n_samples, b.labels, NULL, b.offsets, b.keys) != EMBD_OK)
            ok = failed(path, embd_writer_last_error(writer));
        *n_out += b.n_samples;
    }
    batch_free(&b);
    return ok;
}

bool export_samples(const char *path, sampler *samples)
{
    const embd_data_shape shape = {
        .format = EMBD_DATA_FORMAT_NORM, .label_dim = 1, .slots = SLOTS, .i64_keys = true};
    embd_writer *writer;
    uint64_t n = 0;
    char why[512];
    if (embd_writer_open(path, &shape, 0, &writer, why, sizeof why) != EMBD_OK)
        return failed(path, why);
    bool ok = write_batches(writer, path, samples, &n);
    if (embd_writer_close(writer, why, sizeof why) != EMBD_OK)
        return failed(path, why);
    if (ok)
        printf("%s: %llu samples\n", path, (unsigned long long)n);
    return ok;
}
