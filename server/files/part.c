/* part.c - one table's rows as one file: header, blocks of about PARTFILE_BLOCK_BYTES, an
 * empty block at the end. Hashed while it is written, synced before it is called written. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "proto/xxh3.h"
#include "server/files/safe_open.h"
#include "server/files/part.h"

struct part_writer {
    int fd;
    const char *file;
    XXH3_state_t *hash;
    uint64_t bytes;
    struct embd__error *e;
};

static int fail(struct part_writer *w, const char *what)
{
    return embd__error_set(w->e, EMBD_IO, "snapshot '%s': cannot %s after %llu bytes: %s", w->file,
                           what, (unsigned long long)w->bytes, strerror(errno));
}

/* Drops `written` bytes from the front of a list. */
static uint32_t drop(struct iovec *list, uint32_t first, size_t written)
{
    while (written > 0 && written >= list[first].iov_len)
        written -= list[first++].iov_len;
    if (written > 0) {
        list[first].iov_base = (uint8_t *)list[first].iov_base + written;
        list[first].iov_len -= written;
    }
    return first;
}

static int write_pieces(struct part_writer *w, const struct msg_piece *pieces, uint32_t n)
{
    struct iovec list[PARTFILE_BLOCK_PIECES];
    uint32_t n_list = 0, first = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (pieces[i].bytes == 0)
            continue;
        list[n_list++] = (struct iovec){(void *)(uintptr_t)pieces[i].data, (size_t)pieces[i].bytes};
        XXH3_64bits_update_dispatch(w->hash, pieces[i].data, (size_t)pieces[i].bytes);
    }
    while (first < n_list) {
        ssize_t written = writev(w->fd, list + first, (int)(n_list - first));
        if (written < 0 && errno == EINTR)
            continue;
        if (written < 0)
            return fail(w, "write");
        w->bytes += (uint64_t)written;
        first = drop(list, first, (size_t)written);
    }
    return EMBD_OK;
}

static int write_block(struct part_writer *w, const embd_schema *schema,
                       const struct row_block *block)
{
    uint8_t header[PARTFILE_BLOCK_HEADER_BYTES];
    struct msg_piece pieces[PARTFILE_BLOCK_PIECES];
    return write_pieces(w, pieces, embd__partfile_block(schema, block, header, pieces));
}

static int write_rows(struct part_writer *w, const embd_schema *schema, struct part_rows *rows,
                      struct manifest_part *out)
{
    struct row_block block;
    while (w->e->status == EMBD_OK && rows->next(rows, &block, w->e) > 0) {
        out->rows += block.n_rows;
        out->candidates += block.n_candidates;
        if (block.n_rows + block.n_candidates > 0)
            write_block(w, schema, &block);
    }
    return w->e->status;
}

static int write_all(struct part_writer *w, const embd_schema *schema, uint32_t shard,
                     struct part_rows *rows, struct manifest_part *out)
{
    static const struct row_block end;
    uint8_t header[PARTFILE_HEADER_BYTES];
    embd__partfile_header(header, schema, shard);
    struct msg_piece piece = {header, sizeof header};
    if (write_pieces(w, &piece, 1) != EMBD_OK || write_rows(w, schema, rows, out) != EMBD_OK ||
        write_block(w, schema, &end) != EMBD_OK)
        return w->e->status;
    out->bytes = w->bytes;
    out->xxh3 = XXH3_64bits_digest(w->hash);
    return fsync(w->fd) == 0 ? EMBD_OK : fail(w, "sync");
}

void part_name(char out[96], const char *table, uint32_t shard)
{
    snprintf(out, 96, "%s.%u.part", table, shard);
}

int part_write(int dir, const embd_schema *schema, uint32_t shard, struct part_rows *rows,
               struct manifest_part *out, struct embd__error *e)
{
    *out = (struct manifest_part){.shard = shard};
    part_name(out->file, schema->name, shard);
    struct part_writer w = {.file = out->file, .hash = XXH3_createState(), .e = e};
    if (w.hash == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to write '%s'", w.file);
    XXH3_64bits_reset(w.hash);
    w.fd = safe_open(dir, w.file, O_WRONLY | O_CREAT | O_EXCL, 0644);
    if (w.fd < 0) {
        fail(&w, "create");
    } else {
        write_all(&w, schema, shard, rows, out);
        if (close(w.fd) != 0)
            fail(&w, "close");
    }
    XXH3_freeState(w.hash);
    return e->status;
}
