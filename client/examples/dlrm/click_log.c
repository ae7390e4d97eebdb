/* click_log.c - writes and reads the example's data sets. */
#include "client/examples/dlrm/click_log.h"

#include "client/examples/dlrm/planted.h"
#include "client/examples/startup.h"

#include <stdio.h>
#include <string.h>

#define FILES 10

static embd_data_shape shape_of(embd_data_format format)
{
    return (embd_data_shape){.format = format,
                             .label_dim = 1,
                             .dense_dim = DENSE,
                             .slots = SLOTS,
                             .checksum = format == EMBD_DATA_FORMAT_NORM};
}

static bool failed(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    return false;
}

/* ---- writing --------------------------------------------------------------------------------- */

static bool add_samples(embd_writer *writer, uint64_t first, uint64_t n)
{
    float label, dense[DENSE];
    uint64_t keys[SLOTS], offsets[SLOTS + 1];
    for (uint32_t s = 0; s <= SLOTS; s++)
        offsets[s] = s; /* one key in each slot */
    for (uint64_t i = first; i < first + n; i++) {
        planted_sample(i, &label, dense, keys);
        if (embd_writer_add(writer, 1, &label, dense, offsets, keys) != EMBD_OK)
            return failed("writing samples", embd_writer_last_error(writer));
    }
    return true;
}

static bool write_set(const char *folder, const char *name, uint64_t first, uint64_t n)
{
    embd_data_shape shape = shape_of(EMBD_DATA_FORMAT_NORM);
    embd_writer *writer;
    char path[4096], why[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (embd_writer_open(path, &shape, n / FILES + 1, &writer, why, sizeof why) != EMBD_OK)
        return failed("writing samples", why);
    bool ok = add_samples(writer, first, n);
    if (embd_writer_close(writer, why, sizeof why) != EMBD_OK)
        return failed("writing samples", why);
    if (ok)
        printf("%s: %llu samples\n", path, (unsigned long long)n);
    return ok;
}

bool click_log_write(const char *folder, uint64_t n)
{
    return startup_make_folder(folder) && write_set(folder, "train", 0, n) &&
           write_set(folder, "held-out", n, n / 4);
}

/* ---- reading --------------------------------------------------------------------------------- */

embd_reader *click_log_open(const char *name, uint32_t batch_samples, uint32_t threads)
{
    embd_reader_options options;
    embd_reader_options_init(&options);
    options.batch_samples = batch_samples;
    options.threads = threads;
    options.slot_sizes = planted_slot_sizes;
    return startup_open_data(
        name, shape_of(strncmp(name, "norm:", 5) ? EMBD_DATA_FORMAT_RAW : EMBD_DATA_FORMAT_NORM),
        &options);
}
