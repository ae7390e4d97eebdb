/* recordfile.c - see recordfile.h. */
#include "server/journal/recordfile.h"

#include <errno.h>
#include <stdio.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/files/below.h"

#define DIRECT_BYTES (256u << 10) /* a disk takes so much about as fast as less */

void recordfile_open_direct(struct recordfile *file, int dir, const char *name)
{
    file->direct_fd = below_open(dir, name, O_WRONLY | O_DIRECT, 0);
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
