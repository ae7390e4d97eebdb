/* fuzz_partfile.c - any bytes as the blocks of a part file, and as a list of pushers. Checksums
 * would stop nearly every input, so the first byte chooses the table, the header is written by the
 * code under test, and block checksums are put right. */
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "tests/unit/part_files.h"
#include "proto/streamsfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void choose(embd_schema *s, uint8_t choice)
{
    embd_schema_init(s);
    s->dim = 1u + choice % 5;
    s->dtype = choice & 8 ? EMBD_DTYPE_F16 : EMBD_DTYPE_F32;
    s->partition = choice & 16 ? EMBD_PARTITION_SLOT : EMBD_PARTITION_HASH;
    embd_optimizer_init(&s->optimizer, (embd_optimizer_kind)(choice >> 5), 0.1f);
}

/* Makes the checksum of each block fit what stands after it, as far as its length can be true. */
static void mend_checksums(uint8_t *file, size_t n)
{
    size_t at = PARTFILE_HEADER_BYTES;
    while (n - at >= PARTFILE_BLOCK_HEADER_BYTES) {
        uint64_t bytes, xxh3;
        memcpy(&bytes, file + at + 8, sizeof bytes);
        if (bytes > n - at - PARTFILE_BLOCK_HEADER_BYTES)
            return;
        xxh3 = XXH3_64bits(file + at + PARTFILE_BLOCK_HEADER_BYTES, (size_t)bytes);
        memcpy(file + at + 16, &xxh3, sizeof xxh3);
        at += PARTFILE_BLOCK_HEADER_BYTES + (size_t)bytes;
    }
}

static void touch(volatile uint64_t *sum, const void *data, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        *sum += ((const uint8_t *)data)[i];
}

static void on_block(void *arg, const struct row_block *b)
{
    const embd_schema *s = arg;
    volatile uint64_t sum = 0;
    touch(&sum, b->keys, 8ull * b->n_rows);
    touch(&sum, b->rows, (uint64_t)b->n_rows * s->dim * (s->dtype == EMBD_DTYPE_F32 ? 4 : 2));
    touch(&sum, b->states, 4ull * b->n_rows * embd__schema_state_floats(s));
    touch(&sum, b->candidate_keys, 8ull * b->n_candidates);
    touch(&sum, b->candidate_counts, 4ull * b->n_candidates);
    if (s->partition == EMBD_PARTITION_SLOT) {
        touch(&sum, b->slots, 2ull * b->n_rows);
        touch(&sum, b->candidate_slots, 2ull * b->n_candidates);
    }
}

/* What is believed is written again with the same header. */
static void read_streams(const uint8_t *data, size_t n)
{
    struct streamsfile file;
    struct embd__error e = {0};
    uint8_t header[STREAMSFILE_HEADER_BYTES];
    if (embd__streamsfile_read(data, n, &file, &e) != EMBD_OK)
        return;
    embd__streamsfile_header(header, &file);
    if (embd__streamsfile_bytes(&file) != n || memcmp(header, data, 20) != 0)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    embd_schema schema;
    struct embd__error e = {0};
    read_streams(data, n);
    if (n == 0)
        return 0;
    choose(&schema, data[0]);
    size_t bytes = PARTFILE_HEADER_BYTES + n - 1;
    uint8_t *file = malloc(bytes);
    embd__partfile_header(file, &schema, 0);
    memcpy(file + PARTFILE_HEADER_BYTES, data + 1, n - 1);
    mend_checksums(file, bytes);
    read_part_file(file, bytes, &schema, on_block, &schema, &e);
    embd__partfile_check_header(file + (bytes - PARTFILE_HEADER_BYTES), &schema, &e);
    free(file);
    return 0;
}
