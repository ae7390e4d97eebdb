/* partread.c - reads a part file block by block and believes nothing that was not checked.
 *
 * The happy path: open compares the size with the manifest and reads the header; next reads a block
 * header, then its arrays in one go into a buffer that is kept; the block of no rows ends it, and
 * the counts and the checksum of the whole file are compared with the manifest. What can fail: the
 * file is missing, shorter or longer than promised, or a byte of it differs. Every such error is
 * EMBD_CORRUPT and says which file, at which byte, and what was found. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/stored/plainfile.h"
#include "proto/stored/partread.h"
#include "proto/xxh3.h"

static int corrupt(const struct part_reader *r, struct embd__error *e, const char *what,
                   uint64_t found, uint64_t promised)
{
    return embd__error_set(e, EMBD_CORRUPT, "%s: %s %" PRIu64 ", but manifest.json says %" PRIu64,
                           r->path, what, found, promised);
}

/* Exactly `bytes`; running into the end is damage, because the size was checked. */
static int read_bytes(struct part_reader *r, void *to, uint64_t bytes, struct embd__error *e)
{
    for (uint64_t done = 0; done < bytes;) {
        ssize_t n = read(r->fd, (uint8_t *)to + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return embd__error_set(e, EMBD_IO, "%s: cannot read: %s", r->path, strerror(errno));
        if (n == 0)
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s: ends at byte %" PRIu64 " in the middle of a block", r->path,
                                   r->at + done);
        done += (uint64_t)n;
    }
    XXH3_64bits_update_dispatch(r->hash, to, bytes);
    r->at += bytes;
    return EMBD_OK;
}

static int open_file(struct part_reader *r, struct embd__error *e)
{
    struct stat st;
    r->fd = open(r->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO would wait for its writer */
    if (r->fd < 0 && errno == ENOENT)
        return embd__error_set(e, EMBD_CORRUPT, "%s: is missing, though manifest.json names it",
                               r->path);
    if (r->fd < 0)
        return embd__error_set(e, EMBD_IO, "%s: cannot open: %s", r->path, strerror(errno));
    if (fstat(r->fd, &st))
        return embd__error_set(e, EMBD_IO, "%s: cannot stat: %s", r->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return embd__error_set(e, EMBD_CORRUPT, "%s: is not a regular file", r->path);
    if ((uint64_t)st.st_size != r->part->bytes)
        return corrupt(r, e, "size in bytes is", (uint64_t)st.st_size, r->part->bytes);
    (void)posix_fadvise(r->fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    return EMBD_OK;
}

static int read_header(struct part_reader *r, struct embd__error *e)
{
    uint8_t header[PARTFILE_HEADER_BYTES];
    struct embd__error inner = {0};
    if (read_bytes(r, header, sizeof header, e))
        return e->status;
    if (embd__partfile_check_header(header, r->schema, &inner))
        return embd__error_set(e, EMBD_CORRUPT, "%s: %s", r->path, inner.text);
    return EMBD_OK;
}

int embd__partread_open(struct part_reader *reader, const char *directory,
                        const struct manifest_part *part, const embd_schema *schema,
                        struct embd__error *e)
{
    *reader = (struct part_reader){.part = part, .schema = schema, .fd = -1};
    reader->path = embd__plain_path(directory, part->file, e);
    reader->hash = XXH3_createState();
    if (!reader->hash)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to read %s", part->file);
    else
        XXH3_64bits_reset(reader->hash);
    if (e->status || open_file(reader, e) || read_header(reader, e)) {
        embd__partread_close(reader);
        return e->status;
    }
    return EMBD_OK;
}

static int check_end(struct part_reader *r, struct embd__error *e)
{
    uint64_t xxh3 = XXH3_64bits_digest(r->hash);
    if (r->at != r->part->bytes)
        return corrupt(r, e, "its last block ends at byte", r->at, r->part->bytes);
    if (r->rows != r->part->rows)
        return corrupt(r, e, "number of rows is", r->rows, r->part->rows);
    if (r->candidates != r->part->candidates)
        return corrupt(r, e, "number of candidates is", r->candidates, r->part->candidates);
    if (xxh3 != r->part->xxh3)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: checksum is %016" PRIx64 ", but manifest.json says %016" PRIx64,
                               r->path, xxh3, r->part->xxh3);
    return EMBD_OK;
}

static int reserve(struct part_reader *r, uint64_t bytes, struct embd__error *e)
{
    if (bytes <= r->arrays_capacity)
        return EMBD_OK;
    free(r->arrays);
    r->arrays_capacity = 0;
    r->arrays = malloc(bytes);
    if (!r->arrays)
        return embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory for a block of %" PRIu64 " bytes",
                               r->path, bytes);
    r->arrays_capacity = bytes;
    return EMBD_OK;
}

static int check_slots(const struct part_reader *r, const uint16_t *slots, uint32_t n, uint64_t at,
                       struct embd__error *e)
{
    for (uint32_t i = 0; slots && i < n; i++)
        if (slots[i] >= r->schema->slots)
            return embd__error_set(e, EMBD_CORRUPT,
                                   "%s: block at byte %" PRIu64 ": entry %" PRIu32
                                   " has slot %u, the table has %" PRIu32,
                                   r->path, at, i, slots[i], r->schema->slots);
    return EMBD_OK;
}

static int read_arrays(struct part_reader *r, uint32_t n_rows, uint32_t n_candidates,
                       uint64_t bytes, uint64_t xxh3, struct row_block *out, struct embd__error *e)
{
    uint64_t at = r->at;
    struct embd__error inner = {0};
    if (reserve(r, bytes, e) || read_bytes(r, r->arrays, bytes, e))
        return e->status;
    if (embd__partfile_block_arrays(r->arrays, r->schema, n_rows, n_candidates, bytes, xxh3, out,
                                    &inner))
        return embd__error_set(e, EMBD_CORRUPT, "%s: block at byte %" PRIu64 ": %s", r->path, at,
                               inner.text);
    if (check_slots(r, out->slots, n_rows, at, e) ||
        check_slots(r, out->candidate_slots, n_candidates, at, e))
        return e->status;
    r->rows += n_rows;
    r->candidates += n_candidates;
    return EMBD_OK;
}

int embd__partread_next(struct part_reader *r, struct row_block *block_out, struct embd__error *e)
{
    uint8_t header[PARTFILE_BLOCK_HEADER_BYTES];
    uint32_t n_rows, n_candidates;
    uint64_t bytes, xxh3, at = r->at;
    struct embd__error inner = {0};
    if (read_bytes(r, header, sizeof header, e))
        return e->status;
    if (embd__partfile_block_header(header, r->schema, &n_rows, &n_candidates, &bytes, &xxh3,
                                    &inner))
        return embd__error_set(e, EMBD_CORRUPT, "%s: block at byte %" PRIu64 ": %s", r->path, at,
                               inner.text);
    if (n_rows == 0 && n_candidates == 0)
        return check_end(r, e);
    if (bytes > r->part->bytes - r->at)
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: block at byte %" PRIu64 " claims %" PRIu64
                               " bytes, the file has %" PRIu64 " more",
                               r->path, at, bytes, r->part->bytes - r->at);
    return read_arrays(r, n_rows, n_candidates, bytes, xxh3, block_out, e) ? e->status : 1;
}

void embd__partread_close(struct part_reader *reader)
{
    if (reader->fd >= 0)
        close(reader->fd);
    free(reader->path);
    free(reader->arrays);
    XXH3_freeState(reader->hash);
    *reader = (struct part_reader){.fd = -1};
}
