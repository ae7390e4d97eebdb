/* recordfile.c - see recordfile.h. The note of how far it was on disk: "embdrch1", the position u64,
 * and XXH3 of both u64, little-endian: so few bytes are in one sector, and are written whole. */
#include "server/journal/recordfile.h"

#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/little.h"
#include "server/files/safe_open.h"
#include "server/log/log.h"

#define DIRECT_BYTES (256u << 10) /* a disk takes so much about as fast as less */

void recordfile_open_direct(struct recordfile *file, int dir, const char *name)
{
    file->direct_fd = safe_open(dir, name, O_WRONLY | O_DIRECT, 0);
}

void recordfile_close(struct recordfile *file)
{
    if (file->direct_fd >= 0)
        close(file->direct_fd);
    if (file->fd >= 0)
        close(file->fd);
    file->fd = file->direct_fd = -1;
}

static int write_all(int fd, const uint8_t *bytes, uint64_t n, uint64_t offset)
{
    while (n > 0) {
        ssize_t written = pwrite(fd, bytes, n, (off_t)offset);
        if (written < 0 && errno == EINTR)
            continue;
        if (written <= 0)
            return written < 0 ? errno : EIO;
        bytes += written;
        n -= (uint64_t)written;
        offset += (uint64_t)written;
    }
    return 0;
}

int recordfile_write(const struct recordfile *file, const uint8_t *bytes, uint64_t n,
                     uint64_t offset)
{
    return write_all(file->fd, bytes, n, offset);
}

int recordfile_clear_behind_end(const struct recordfile *file)
{
    static const uint8_t zeros[RECORD_BLOCK_BYTES];
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return errno;
    uint64_t end = (uint64_t)st.st_size, n = record_block_end(end) - end;
    if (n == 0)
        return 0;
    int error = write_all(file->fd, zeros, n, end);
    return error == 0 && fdatasync(file->fd) != 0 ? errno : error;
}

int recordfile_append(struct recordfile *file, uint8_t *bytes, uint64_t n, uint64_t offset,
                      uint64_t *end_out)
{
    uint64_t begin = record_block_end(offset), n_blocks = record_block_end(n);
    if (n < DIRECT_BYTES || file->direct_fd < 0) {
        *end_out = offset + n;
        return write_all(file->fd, bytes, n, offset);
    }
    memset(bytes + n, 0, n_blocks - n);
    *end_out = begin + n_blocks;
    int error = write_all(file->direct_fd, bytes, n_blocks, begin);
    if (error != EINVAL)
        return error;
    close(file->direct_fd); /* this file system has other blocks */
    file->direct_fd = -1;
    return write_all(file->fd, bytes, n_blocks, begin);
}

void journal_file_name(char out[64], uint32_t shard, uint64_t segment)
{
    snprintf(out, 64, "journal.%u.%08llu", shard, (unsigned long long)segment);
}

/* ---- how far it was on disk ---- */

#define MAGIC "embdrch1"
enum { AT_POSITION = 8, AT_CHECKSUM = 16, REACHED_BYTES = 24 };

static void name_file(char out[64], uint32_t shard)
{
    snprintf(out, 64, "journal.%u.reached", shard);
}

static int failed(const char *name, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "'%s': %s", name, strerror(errno));
}

/* The file is not synced: where the power fails, its size may come to disk and its bytes not. A
 * write within one sector is not torn, so other bytes than its own are damage. */
static bool is_blank(const uint8_t bytes[REACHED_BYTES], ssize_t n)
{
    static const uint8_t blank[REACHED_BYTES];
    return n == 0 || memcmp(bytes, blank, (size_t)n) == 0;
}

static uint64_t take(const uint8_t bytes[REACHED_BYTES], ssize_t n, const char *name)
{
    if (n == REACHED_BYTES && memcmp(bytes, MAGIC, AT_POSITION) == 0 &&
        embd__get_u64(bytes + AT_CHECKSUM) == XXH3_64bits(bytes, AT_CHECKSUM))
        return embd__get_u64(bytes + AT_POSITION);
    if (is_blank(bytes, n))
        log_event(LOG_WARN, "journal_reached_blank",
                  "file=%s why=\"its bytes did not come to disk, as is expected after a power cut; "
                  "this start cannot tell whether the journal's end was cut off; the next sync "
                  "writes the file again; without a power cut before, check the disk\"",
                  name);
    else
        log_event(
            LOG_WARN, "journal_reached_damaged",
            "file=%s why=\"its checksum is wrong, which a power cut does not cause; this start "
            "cannot tell whether the journal's end was cut off; the next sync writes the file "
            "again; check the disk\"",
            name);
    return 0;
}

int reached_read(int data_dir, uint32_t shard, uint64_t *position_out, struct embd__error *e)
{
    char name[64];
    uint8_t bytes[REACHED_BYTES];
    name_file(name, shard);
    *position_out = 0;
    int fd = safe_open(data_dir, name, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(name, e);
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < 0)
        failed(name, e);
    else
        *position_out = take(bytes, n, name);
    close(fd);
    return e->status;
}

void reached_note(int *fd, int data_dir, uint32_t shard, uint64_t position)
{
    char name[64];
    uint8_t bytes[REACHED_BYTES];
    name_file(name, shard);
    if (*fd < 0)
        *fd = safe_open(data_dir, name, O_WRONLY | O_CREAT, 0600);
    memcpy(bytes, MAGIC, AT_POSITION);
    embd__put_u64(bytes + AT_POSITION, position);
    embd__put_u64(bytes + AT_CHECKSUM, XXH3_64bits(bytes, AT_CHECKSUM));
    if (*fd >= 0 && pwrite(*fd, bytes, sizeof bytes, 0) != sizeof bytes)
        log_event(LOG_DEBUG, "journal_reached", "file=%s error=\"%s\"", name, strerror(errno));
}

int reached_lower(int data_dir, uint32_t shard, uint64_t position, struct embd__error *e)
{
    int fd = -1;
    uint64_t said;
    char name[64];
    if (reached_read(data_dir, shard, &said, e) != EMBD_OK || said <= position)
        return e->status;
    name_file(name, shard);
    reached_note(&fd, data_dir, shard, position);
    if (fd < 0 || fdatasync(fd) != 0)
        failed(name, e);
    if (fd >= 0)
        close(fd);
    return e->status;
}
