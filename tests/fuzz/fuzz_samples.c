/* fuzz_samples.c - any bytes as a file of samples: what batches hold belongs to the shape that was
 * asked for, and what is counted adds up.
 *
 * The first byte chooses: format, checksums, width of keys, integers, slot sizes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "embd/embd.h"
#include "embd/data.h"

enum { SLOTS = 3, LABELS = 1, DENSE = 2, BATCH = 4, SIZE = 100 };

static char dir[] = "/dev/shm/embd-fuzz-XXXXXX", list[64], file[64];

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(fd >= 0 && write(fd, bytes, n) == (ssize_t)n && close(fd) == 0);
}

static void remove_all(void)
{
    unlink(list);
    unlink(file);
    rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char text[] = "1\nfile\n";
    (void)argc;
    (void)argv;
    must(mkdtemp(dir) != NULL);
    snprintf(list, sizeof list, "%s/list", dir);
    snprintf(file, sizeof file, "%s/file", dir);
    write_file(list, text, sizeof text - 1);
    atexit(remove_all);
    return 0;
}

static void check(const embd_batch *batch, bool has_sizes)
{
    must(batch->n_samples >= 1 && batch->n_samples <= BATCH);
    must(batch->n_rows == (uint64_t)batch->n_samples * SLOTS && batch->offsets[0] == 0);
    must(batch->offsets[batch->n_rows] == batch->n_keys);
    for (uint64_t r = 0; r < batch->n_rows; r++) {
        must(batch->offsets[r] <= batch->offsets[r + 1]);
        for (uint64_t i = batch->offsets[r]; has_sizes && i < batch->offsets[r + 1]; i++)
            must(batch->keys[i] < SIZE);
    }
}

static void read_all(embd_reader *reader, bool has_sizes)
{
    embd_batch *batch = NULL;
    embd_reader_counts counts;
    uint64_t n_samples = 0;
    int status;
    while ((status = embd_reader_next(reader, &batch)) == EMBD_OK && batch != NULL) {
        check(batch, has_sizes);
        n_samples += batch->n_samples;
        embd_reader_release(reader, batch);
    }
    must(status == EMBD_OK || strlen(embd_reader_fault(reader)) > 5);
    embd_reader_count(reader, &counts);
    must(counts.samples == n_samples);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const uint64_t sizes[SLOTS] = {SIZE, SIZE, SIZE};
    uint8_t choice = n > 0 ? data[0] : 0;
    embd_data_shape shape =
        EMBD_DATA_SHAPE(.format = (choice & 1) != 0 ? EMBD_DATA_FORMAT_RAW : EMBD_DATA_FORMAT_NORM,
                        .label_dim = LABELS, .dense_dim = DENSE, .slots = SLOTS,
                        .checksum = (choice & 2) != 0, .i64_keys = (choice & 4) != 0,
                        .integers = (choice & 8) != 0);
    embd_reader_options options;
    embd_reader *reader = NULL;
    embd_reader_options_init(&options);
    options.batch_samples = BATCH;
    options.slot_sizes = (choice & 16) != 0 ? sizes : NULL;
    write_file(file, data + (n > 0), n - (n > 0));
    int status = embd_reader_open(shape.format == EMBD_DATA_FORMAT_RAW ? file : list, &shape,
                                  &options, &reader);
    must((status == EMBD_OK) == (reader != NULL) &&
         (status == EMBD_OK || embd_error_text()[0] != '\0'));
    if (reader != NULL)
        read_all(reader, options.slot_sizes != NULL);
    embd_reader_close(reader);
    return 0;
}
