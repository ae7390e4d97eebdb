/* partfile.c - part files: a header that says what rows the file holds, then blocks with their own
 * checksums, so that a reader needs one block of memory and trusts nothing it has not hashed.
 *
 * The lengths in a block header are not under a checksum of their own; they need none: bytes must
 * be what the counts give, exactly, and the arrays' checksum covers that many bytes. */
#include "proto/partfile.h"
#include "proto/assert.h"

#include <string.h>

#define XXH_STATIC_LINKING_ONLY /* for a hash state without malloc */
#include "proto/xxh3.h"

#include "proto/little.h"
#include "proto/rows.h"

static const char magic[8] = "EMBDPART";

/* Offsets in the header. */
enum {
    AT_VERSION = 8,
    AT_DIM = 12,
    AT_DTYPE = 16,
    AT_STATE_FLOATS = 20,
    AT_HAS_SLOTS = 24,
    AT_SHARD = 28,
    AT_XXH3 = 56
};

/* ---- header ---- */

void embd__partfile_header(uint8_t out[PARTFILE_HEADER_BYTES], const embd_schema *schema,
                           uint32_t shard)
{
    memset(out, 0, PARTFILE_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    embd__put_u32(out + AT_VERSION, PARTFILE_VERSION);
    embd__put_u32(out + AT_DIM, schema->dim);
    embd__put_u32(out + AT_DTYPE, (uint32_t)schema->dtype);
    embd__put_u32(out + AT_STATE_FLOATS, embd__schema_state_floats(schema));
    embd__put_u32(out + AT_HAS_SLOTS, schema->partition == EMBD_PARTITION_SLOT);
    embd__put_u32(out + AT_SHARD, shard);
    embd__put_u64(out + AT_XXH3, XXH3_64bits(out, AT_XXH3));
}

static int check_u32(const uint8_t *p, uint32_t at, const char *field, uint32_t expected,
                     struct embd__error *e)
{
    uint32_t value = embd__get_u32(p + at);
    if (value == expected)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT, "part file header field '%s' is %u, expected %u", field,
                           value, expected);
}

int embd__partfile_check_header(const uint8_t *p, const embd_schema *schema, struct embd__error *e)
{
    if (memcmp(p, magic, sizeof magic) != 0)
        return embd__error_set(e, EMBD_CORRUPT,
                               "the file does not begin with EMBDPART: it is not a part file");
    uint64_t found = XXH3_64bits(p, AT_XXH3), written = embd__get_u64(p + AT_XXH3);
    if (found != written)
        return embd__error_set(e, EMBD_CORRUPT,
                               "part file header checksum is %016llx, the header says %016llx",
                               (unsigned long long)found, (unsigned long long)written);
    int status = check_u32(p, AT_VERSION, "version", PARTFILE_VERSION, e);
    if (status == EMBD_OK)
        status = check_u32(p, AT_DIM, "dim", schema->dim, e);
    if (status == EMBD_OK)
        status = check_u32(p, AT_DTYPE, "dtype", (uint32_t)schema->dtype, e);
    if (status == EMBD_OK)
        status =
            check_u32(p, AT_STATE_FLOATS, "state_floats", embd__schema_state_floats(schema), e);
    if (status == EMBD_OK)
        status =
            check_u32(p, AT_HAS_SLOTS, "has_slots", schema->partition == EMBD_PARTITION_SLOT, e);
    return status;
}

/* ---- blocks ---- */

static uint64_t padding(uint64_t bytes)
{
    return -bytes & 7;
}

/* Bytes of all arrays with their padding. Counts are 32 bits and a row has less than 2^17 bytes: no
 * overflow. */
static uint64_t arrays_bytes(const struct row_array *arrays, uint32_t n)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += arrays[i].bytes + padding(arrays[i].bytes);
    return bytes;
}

static uint64_t hash_pieces(const struct msg_piece *pieces, uint32_t n)
{
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (uint32_t i = 0; i < n; i++)
        if (pieces[i].bytes > 0)
            XXH3_64bits_update_dispatch(&state, pieces[i].data, (size_t)pieces[i].bytes);
    return XXH3_64bits_digest(&state);
}

uint32_t embd__partfile_block(const embd_schema *schema, const struct row_block *block,
                              uint8_t header[PARTFILE_BLOCK_HEADER_BYTES],
                              struct msg_piece pieces[PARTFILE_BLOCK_PIECES])
{
    static const uint8_t zeros[8];
    struct row_array arrays[ROW_BLOCK_ARRAYS];
    uint32_t n = embd__row_arrays(schema, block->n_rows, block->n_candidates, arrays), n_pieces = 1;
    pieces[0] = (struct msg_piece){header, PARTFILE_BLOCK_HEADER_BYTES};
    for (uint32_t i = 0; i < n; i++) {
        const void *data = embd__row_array_data(block, &arrays[i]);
        pieces[n_pieces++] = (struct msg_piece){data, arrays[i].bytes};
        pieces[n_pieces++] = (struct msg_piece){zeros, padding(arrays[i].bytes)};
    }
    embd__put_u32(header, block->n_rows);
    embd__put_u32(header + 4, block->n_candidates);
    embd__put_u64(header + 8, arrays_bytes(arrays, n));
    embd__put_u64(header + 16, hash_pieces(pieces + 1, n_pieces - 1));
    return n_pieces;
}

int embd__partfile_block_header(const uint8_t *p, const embd_schema *schema, uint32_t *n_rows_out,
                                uint32_t *n_candidates_out, uint64_t *bytes_out, uint64_t *xxh3_out,
                                struct embd__error *e)
{
    struct row_array arrays[ROW_BLOCK_ARRAYS];
    uint32_t n_rows = embd__get_u32(p), n_candidates = embd__get_u32(p + 4);
    uint64_t bytes = embd__get_u64(p + 8), xxh3 = embd__get_u64(p + 16);
    uint64_t expected =
        arrays_bytes(arrays, embd__row_arrays(schema, n_rows, n_candidates, arrays));
    if (bytes != expected)
        return embd__error_set(
            e, EMBD_CORRUPT, "a block of %u rows and %u candidates has %llu bytes, expected %llu",
            n_rows, n_candidates, (unsigned long long)bytes, (unsigned long long)expected);
    if (bytes > 2ull * PARTFILE_BLOCK_BYTES)
        return embd__error_set(e, EMBD_CORRUPT, "a block has %llu bytes, the limit is %llu",
                               (unsigned long long)bytes, 2ull * PARTFILE_BLOCK_BYTES);
    if (bytes == 0 && xxh3 != XXH3_64bits(NULL, 0))
        return embd__error_set(
            e, EMBD_CORRUPT,
            "the last block's checksum is %016llx, expected %016llx, that of 0 bytes",
            (unsigned long long)xxh3, (unsigned long long)XXH3_64bits(NULL, 0));
    *n_rows_out = n_rows;
    *n_candidates_out = n_candidates;
    *bytes_out = bytes;
    *xxh3_out = xxh3;
    return EMBD_OK;
}

int embd__partfile_block_arrays(const uint8_t *arrays, const embd_schema *schema, uint32_t n_rows,
                                uint32_t n_candidates, uint64_t bytes, uint64_t xxh3,
                                struct row_block *out, struct embd__error *e)
{
    struct row_array list[ROW_BLOCK_ARRAYS];
    EMBD_ASSERT((uintptr_t)arrays % 8 == 0);
    memset(out, 0, sizeof *out);
    uint64_t found = XXH3_64bits_dispatch(arrays, (size_t)bytes);
    if (found != xxh3)
        return embd__error_set(e, EMBD_CORRUPT,
                               "a block's checksum is %016llx, its header says %016llx",
                               (unsigned long long)found, (unsigned long long)xxh3);
    uint32_t n = embd__row_arrays(schema, n_rows, n_candidates, list);
    uint64_t expected = arrays_bytes(list, n);
    if (bytes != expected)
        return embd__error_set(
            e, EMBD_CORRUPT, "a block of %u rows and %u candidates has %llu bytes, expected %llu",
            n_rows, n_candidates, (unsigned long long)bytes, (unsigned long long)expected);
    out->n_rows = n_rows;
    out->n_candidates = n_candidates;
    for (uint32_t i = 0; i < n; i++) {
        embd__row_array_point(out, &list[i], arrays);
        arrays += list[i].bytes + padding(list[i].bytes);
    }
    return EMBD_OK;
}
