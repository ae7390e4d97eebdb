/* note.c - see note.h.
 *
 * "embdfol1", state u32, zero u32, epoch u64, cut u64, position u64, chain u64, FNV-1a of all that
 * is before as u64. It is written in place: it fits a sector, and an earlier place is right too. */
#include "server/follow/note.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/little.h"
#include "server/files/below.h"

enum {
    AT_STATE = 8,
    AT_EPOCH = 16,
    AT_CUT = 24,
    AT_POSITION = 32,
    AT_CHAIN = 40,
    AT_SUM = 48,
    NOTE_BYTES = 56,
};
#define MAGIC "embdfol1"

static uint64_t sum(const uint8_t *bytes)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < AT_SUM; i++)
        hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static void name_it(char out[64], uint32_t shard)
{
    snprintf(out, 64, "follow.%u", shard);
}

static int failed(const char *name, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "'%s': %s", name, strerror(errno));
}

static bool take(const uint8_t *bytes, struct note *out)
{
    uint32_t state = embd__get_u32(bytes + AT_STATE);
    if (memcmp(bytes, MAGIC, 8) != 0 || embd__get_u64(bytes + AT_SUM) != sum(bytes) ||
        state == NOTE_NONE || state >= NOTE_STATES)
        return false;
    *out = (struct note){.state = (enum note_state)state,
                         .epoch = embd__get_u64(bytes + AT_EPOCH),
                         .cut = embd__get_u64(bytes + AT_CUT),
                         .position = embd__get_u64(bytes + AT_POSITION),
                         .chain = embd__get_u64(bytes + AT_CHAIN)};
    return true;
}

int note_read(int data_dir, uint32_t shard, struct note *out, struct embd__error *e)
{
    char name[64];
    uint8_t bytes[NOTE_BYTES];
    *out = (struct note){.state = NOTE_NONE, .epoch = 1};
    name_it(name, shard);
    int fd = below_open(data_dir, name, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(name, e);
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < 0)
        failed(name, e);
    close(fd);
    if (e->status != EMBD_OK || (n == NOTE_BYTES && take(bytes, out)))
        return e->status;
    return embd__error_set(e, EMBD_CORRUPT,
                           "'%s' does not verify: it is not known whose journal this is. To follow "
                           "a server, begin with an empty data_dir",
                           name);
}

/* 0 or errno. */
static int put(int fd, const struct note *note)
{
    uint8_t bytes[NOTE_BYTES] = MAGIC;
    embd__put_u32(bytes + AT_STATE, (uint32_t)note->state);
    embd__put_u64(bytes + AT_EPOCH, note->epoch);
    embd__put_u64(bytes + AT_CUT, note->cut);
    embd__put_u64(bytes + AT_POSITION, note->position);
    embd__put_u64(bytes + AT_CHAIN, note->chain);
    embd__put_u64(bytes + AT_SUM, sum(bytes));
    errno = EIO;
    return pwrite(fd, bytes, sizeof bytes, 0) == NOTE_BYTES ? 0 : errno;
}

int note_write(int data_dir, uint32_t shard, const struct note *note, struct embd__error *e)
{
    char name[64];
    name_it(name, shard);
    int fd = below_open(data_dir, name, O_RDWR | O_CREAT, 0600);
    errno = fd < 0 ? errno : put(fd, note);
    bool is_written = fd >= 0 && errno == 0 && fsync(fd) == 0 && fsync(data_dir) == 0;
    if (!is_written)
        failed(name, e);
    if (fd >= 0)
        close(fd);
    return e->status;
}

void note_move(int data_dir, uint32_t shard, const struct note *note)
{
    char name[64];
    name_it(name, shard);
    int fd = below_open(data_dir, name, O_RDWR, 0);
    if (fd < 0)
        return;
    put(fd, note);
    close(fd);
}
