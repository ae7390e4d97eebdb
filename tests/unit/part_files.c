#include "tests/unit/part_files.h"

#include <stdlib.h>
#include <string.h>

static uint8_t *append_block(uint8_t *end, const embd_schema *schema, const struct row_block *block)
{
    uint8_t header[PARTFILE_BLOCK_HEADER_BYTES];
    struct msg_piece pieces[PARTFILE_BLOCK_PIECES];
    uint32_t n = embd__partfile_block(schema, block, header, pieces);
    for (uint32_t i = 0; i < n; i++)
        if (pieces[i].bytes > 0) {
            memcpy(end, pieces[i].data, pieces[i].bytes);
            end += pieces[i].bytes;
        }
    return end;
}

uint8_t *write_part_file(const embd_schema *schema, const struct row_block *block, uint32_t shard,
                         size_t *bytes_out)
{
    static const struct row_block last;
    uint64_t payload = embd__row_bytes(schema) * block->n_rows +
                       embd__candidate_bytes(schema) * block->n_candidates;
    uint8_t *file = malloc(PARTFILE_HEADER_BYTES + 2 * PARTFILE_BLOCK_HEADER_BYTES + payload + 64);
    embd__partfile_header(file, schema, shard);
    uint8_t *end = append_block(file + PARTFILE_HEADER_BYTES, schema, block);
    end = append_block(end, schema, &last);
    *bytes_out = (size_t)(end - file);
    return file;
}

/* The block at `bytes`, which takes *used_out of them; its arrays lie in *memory_out, malloc'd. */
static int read_block(const uint8_t *bytes, size_t n, const embd_schema *schema,
                      struct row_block *out, uint8_t **memory_out, size_t *used_out,
                      struct embd__error *e)
{
    uint32_t n_rows, n_candidates;
    uint64_t array_bytes, xxh3;
    *memory_out = NULL;
    if (n < PARTFILE_BLOCK_HEADER_BYTES)
        return embd__error_set(e, EMBD_CORRUPT, "the file ends inside a block header");
    if (embd__partfile_block_header(bytes, schema, &n_rows, &n_candidates, &array_bytes, &xxh3,
                                    e) != EMBD_OK)
        return e->status;
    if (n - PARTFILE_BLOCK_HEADER_BYTES < array_bytes)
        return embd__error_set(e, EMBD_CORRUPT, "the file ends inside a block");
    *memory_out = malloc(array_bytes ? array_bytes : 1);
    memcpy(*memory_out, bytes + PARTFILE_BLOCK_HEADER_BYTES, array_bytes);
    *used_out = PARTFILE_BLOCK_HEADER_BYTES + array_bytes;
    return embd__partfile_block_arrays(*memory_out, schema, n_rows, n_candidates, array_bytes, xxh3,
                                       out, e);
}

int read_part_file(const uint8_t *bytes, size_t n, const embd_schema *schema,
                   void (*visit)(void *arg, const struct row_block *block), void *arg,
                   struct embd__error *e)
{
    size_t at = PARTFILE_HEADER_BYTES;
    if (n < at)
        return embd__error_set(e, EMBD_CORRUPT, "the file ends inside its header");
    if (embd__partfile_check_header(bytes, schema, e) != EMBD_OK)
        return e->status;
    for (;;) {
        struct row_block block;
        uint8_t *memory;
        size_t used = 0;
        int status = read_block(bytes + at, n - at, schema, &block, &memory, &used, e);
        if (status == EMBD_OK)
            visit(arg, &block);
        free(memory);
        if (status != EMBD_OK)
            return status;
        at += used;
        if (block.n_rows == 0 && block.n_candidates == 0)
            break;
    }
    return at == n ? EMBD_OK
                   : embd__error_set(e, EMBD_CORRUPT, "the file goes on after its last block");
}
