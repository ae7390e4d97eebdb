/* note.c - see note.h.
 *
 * "embdfol2", state u32, zero u32, epoch u64, cut u64, position u64, chain u64, lineage u64, who
 * u64, FNV-1a of all that is before as u64; "embdfol1" is the same without lineage and who. It is
 * written in place: it fits a sector, and an earlier place is right too. */
#include "server/follow/note.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "proto/little.h"
#include "server/files/safe_open.h"

enum {
    AT_STATE = 8,
    AT_EPOCH = 16,
    AT_CUT = 24,
    AT_POSITION = 32,
    AT_CHAIN = 40,
    AT_SUM_1 = 48,
    NOTE_1_BYTES = 56,
    AT_LINEAGE = 48,
    AT_WHO = 56,
    AT_SUM = 64,
    NOTE_BYTES = 72,
};
#define MAGIC_1 "embdfol1"
#define MAGIC   "embdfol2"

static uint64_t sum(const uint8_t *bytes, int n)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    for (int i = 0; i < n; i++)
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

static bool take(const uint8_t *bytes, ssize_t n, struct note *out)
{
    bool is_first = n >= NOTE_1_BYTES && memcmp(bytes, MAGIC_1, 8) == 0;
    int at_sum = is_first ? AT_SUM_1 : AT_SUM;
    if (n < at_sum + 8 || (!is_first && memcmp(bytes, MAGIC, 8) != 0) ||
        embd__get_u64(bytes + at_sum) != sum(bytes, at_sum))
        return false;
    uint32_t state = embd__get_u32(bytes + AT_STATE);
    if (state == NOTE_NONE || state >= NOTE_STATES)
        return false;
    *out = (struct note){.state = (enum note_state)state,
                         .epoch = embd__get_u64(bytes + AT_EPOCH),
                         .cut = embd__get_u64(bytes + AT_CUT),
                         .lineage = is_first ? 0 : embd__get_u64(bytes + AT_LINEAGE),
                         .who = is_first ? 0 : embd__get_u64(bytes + AT_WHO),
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
    int fd = safe_open(data_dir, name, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(name, e);
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < 0)
        failed(name, e);
    close(fd);
    if (e->status != EMBD_OK || take(bytes, n, out))
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
    embd__put_u64(bytes + AT_LINEAGE, note->lineage);
    embd__put_u64(bytes + AT_WHO, note->who);
    embd__put_u64(bytes + AT_SUM, sum(bytes, AT_SUM));
    errno = EIO;
    return pwrite(fd, bytes, sizeof bytes, 0) == NOTE_BYTES ? 0 : errno;
}

int note_write(int data_dir, uint32_t shard, const struct note *note, struct embd__error *e)
{
    char name[64];
    name_it(name, shard);
    int fd = safe_open(data_dir, name, O_RDWR | O_CREAT, 0600);
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
    int fd = safe_open(data_dir, name, O_RDWR, 0);
    if (fd < 0)
        return;
    put(fd, note);
    close(fd);
}
