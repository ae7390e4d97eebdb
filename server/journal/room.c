/* room.c - see room.h.
 *
 * Where a file system cannot reserve bytes for a file, nothing is reserved; then records are
 * refused where less is free than the next base needs. */
#include "server/journal/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "server/files/safe_open.h"

#define STEP_BYTES  (16u << 10)
#define WORTH_PARTS 16u          /* of a base, */
#define WORTH_BYTES (16u << 10)  /* and so much */
#define SHORT_PARTS 16u          /* of the disk, */
#define SHORT_BYTES (256u << 20) /* at most, */
#define AMPLE_BASES 4u           /* of the size of the next one have room */
#define SHORT_BASES 8u           /* and of the next base: what is written while that is */

void room_init(struct room *room, int data_dir, uint32_t shard)
{
    *room = (struct room){.data_dir = data_dir, .shard = shard, .fd = -1};
}

void room_name(char out[64], uint32_t shard)
{
    snprintf(out, 64, "journal.%u.reserve", shard);
}

static void drop(struct room *room)
{
    char name[64];
    room_name(name, room->shard);
    if (room->fd < 0)
        return;
    unlinkat(room->data_dir, name, 0);
    close(room->fd);
    room->fd = -1;
    room->reserved = 0;
    atomic_store(&room->told, 0);
}

void room_close(struct room *room)
{
    if (room->fd >= 0)
        close(room->fd);
    room->fd = -1;
}

/* ---- what is free ---- */

bool room_is_worth(const struct room *room, uint64_t bytes)
{
    uint64_t need = atomic_load_explicit(&room->need, memory_order_relaxed);
    return bytes >= need / WORTH_PARTS + WORTH_BYTES;
}

static uint64_t free_bytes(const struct room *room, uint64_t *total_out)
{
    struct statvfs disk;
    if (fstatvfs(room->data_dir, &disk) != 0) {
        *total_out = 0;
        return UINT64_MAX; /* not known */
    }
    *total_out = (uint64_t)disk.f_blocks * disk.f_frsize;
    return (uint64_t)disk.f_bavail * disk.f_frsize;
}

/* With less, there is little. */
static uint64_t little(uint64_t total, uint64_t need)
{
    uint64_t most = SHORT_BYTES + need / SHORT_BASES, part = total / SHORT_PARTS;
    return part < most ? part : most;
}

void room_look(struct room *room, int error)
{
    uint64_t total, need = atomic_load(&room->need);
    uint64_t missing = room->is_lent || need < room->reserved ? 0 : need - room->reserved;
    room->unlooked = 0;
    uint64_t is_free = free_bytes(room, &total);
    bool is_short = error == ENOSPC || is_free < little(total, need) + missing;
    atomic_store(&room->is_short, is_short && is_free >= missing);
}

/* ---- reserving ---- */

/* 0 or errno. */
static int open_reserve(struct room *room)
{
    char name[64];
    room_name(name, room->shard);
    if (room->fd < 0)
        room->fd = safe_open(room->data_dir, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    return room->fd < 0 ? errno : 0;
}

/* Beyond what is there. 0 or errno; then what it took is given back. */
static int extend(struct room *room, uint64_t bytes)
{
    int error;
    do
        error = fallocate(room->fd, 0, (off_t)room->reserved, (off_t)(bytes - room->reserved)) == 0
                    ? 0
                    : errno;
    while (error == EINTR);
    if (error != 0 && ftruncate(room->fd, (off_t)room->reserved) != 0)
        drop(room);
    return error;
}

/* A little more than is needed, so that few writes have to wait for this. */
static uint64_t with_spare(uint64_t need)
{
    uint64_t bytes = need + need / 32;
    return bytes + STEP_BYTES - bytes % STEP_BYTES;
}

/* 0 or errno. */
static int reserve(struct room *room, uint64_t bytes)
{
    int error = open_reserve(room);
    if (error == 0)
        error = extend(room, bytes);
    if (error != 0)
        return error;
    room->reserved = bytes;
    room->unlooked = ROOM_LOOK_BYTES; /* and so much less is free */
    atomic_store(&room->told, bytes);
    return 0;
}

/* The base after the one that is being written has its room when that is over, and records some. */
static int look_ahead(const struct room *room, uint64_t need, uint64_t bytes)
{
    uint64_t total, is_free = free_bytes(room, &total);
    uint64_t takes = with_spare(need) + room->takes + bytes + little(total, need) / 2;
    return takes > room->returns && is_free < takes - room->returns ? ENOSPC : 0;
}

/* Where nothing can be reserved. */
static int look_instead(const struct room *room, uint64_t need)
{
    uint64_t total;
    return free_bytes(room, &total) < need ? ENOSPC : 0;
}

bool room_is_ample(const struct room *room)
{
    uint64_t total, need = atomic_load_explicit(&room->need, memory_order_relaxed);
    uint64_t is_free = free_bytes(room, &total);
    return is_free >= AMPLE_BASES * need + little(total, need);
}

int room_make(struct room *room, uint64_t bytes)
{
    uint64_t need = atomic_load_explicit(&room->need, memory_order_relaxed);
    if (room->is_lent)
        return look_ahead(room, need, bytes);
    int error = reserve(room, with_spare(need));
    if (error == ENOSPC)
        error = reserve(room, need);
    return error == EOPNOTSUPP ? look_instead(room, need + bytes) : error;
}

int room_lend(struct room *room, uint64_t returns)
{
    int fd = room->fd;
    uint64_t need = atomic_load_explicit(&room->need, memory_order_relaxed);
    room->takes = need > room->reserved ? need - room->reserved : 0;
    room->is_lent = true;
    room->returns = returns;
    room->fd = -1;
    room->reserved = 0;
    atomic_store(&room->told, 0);
    return fd;
}

void room_take_back(struct room *room)
{
    room->is_lent = false;
}
