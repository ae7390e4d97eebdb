/* reached.c - see reached.h. "embdrch1", the position u64, and XXH3 of both u64, little-endian: so
 * few bytes are in one sector, and are written whole. */
#include "server/journal/reached.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/little.h"
#include "server/files/below.h"
#include "server/log/log.h"

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

static uint64_t take(const uint8_t bytes[REACHED_BYTES], ssize_t n, const char *name)
{
    if (n == REACHED_BYTES && memcmp(bytes, MAGIC, AT_POSITION) == 0 &&
        embd__get_u64(bytes + AT_CHECKSUM) == XXH3_64bits(bytes, AT_CHECKSUM))
        return embd__get_u64(bytes + AT_POSITION);
    log_event(LOG_WARN, "journal_reached_damaged",
              "file=%s why=\"it does not verify: a journal that was cut off at its end is taken "
              "for whole; check the disk\"",
              name);
    return 0;
}

int reached_read(int data_dir, uint32_t shard, uint64_t *position_out, struct embd__error *e)
{
    char name[64];
    uint8_t bytes[REACHED_BYTES];
    name_file(name, shard);
    *position_out = 0;
    int fd = below_open(data_dir, name, O_RDONLY, 0);
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
        *fd = below_open(data_dir, name, O_WRONLY | O_CREAT, 0600);
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
