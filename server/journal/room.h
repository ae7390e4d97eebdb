/* room.h - the room that a journal needs on its disk.
 *
 * Without a base a journal cannot be compacted, and without compaction it never takes less. So room
 * for the next base is reserved before it is needed: `journal.SHARD.reserve`, a file of that size,
 * becomes the base, and can be written whatever else fills the disk. Records are refused where
 * their base would find no room. And where little is free, that is told while there is some: the
 * journal begins anew then, whatever its limit is.
 *
 * Owner: whoever writes the journal's file, but for what is marked. */
#ifndef EMBD_JOURNAL_ROOM_H
#define EMBD_JOURNAL_ROOM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct room {
    int data_dir;
    uint32_t shard;
    int fd;                /* of the reserve; -1: there is none */
    uint64_t reserved;     /* its bytes */
    atomic_bool is_lent;   /* the next base is being written: nothing is reserved meanwhile */
    uint64_t returns;      /* what that gives back to the disk at its end, */
    uint64_t takes;        /* and what it takes until then, beyond what was reserved */
    uint64_t unlooked;     /* bytes that were written since the disk was looked at */
    _Atomic uint64_t need; /* of the next base; the shard's */
    atomic_bool is_short;  /* little is free, but enough for the base; any thread reads */
    _Atomic uint64_t told; /* `reserved`, likewise */
};

void room_init(struct room *room, int data_dir, uint32_t shard);
/* The reserve stays until the next start, so that the disk has room then. */
void room_close(struct room *room);
void room_name(char out[64], uint32_t shard);

#define ROOM_LOOK_BYTES (256u << 10) /* a look at the disk costs as much as a small write */

int room_make(struct room *room, uint64_t bytes);
void room_look(struct room *room, int error);

/* Before records of so many bytes are written: the next base has its room. 0 or errno, ENOSPC. */
static inline int room_hold(struct room *room, uint64_t bytes)
{
    uint64_t need = atomic_load_explicit(&room->need, memory_order_relaxed);
    return !room->is_lent && need <= room->reserved ? 0 : room_make(room, bytes);
}

/* They are: looks at the disk from time to time, and where there was an error. */
static inline void room_wrote(struct room *room, uint64_t bytes, int error)
{
    room->unlooked += bytes;
    if (error != 0 || room->unlooked >= ROOM_LOOK_BYTES || atomic_load(&room->is_short))
        room_look(room, error);
}

/* Whether a base is worth writing for the bytes behind the one before, which it gives back. Any
 * thread. */
bool room_is_worth(const struct room *room, uint64_t bytes);

/* Whether no push is refused soon, though what a base gives back stays on disk. Looks at the disk;
 * any thread. */
bool room_is_ample(const struct room *room);

/* For a base that begins, and gives `returns` bytes back: the reserve is the caller's, to be
 * renamed; -1: there is none. */
int room_lend(struct room *room, uint64_t returns);
/* It is over. */
void room_take_back(struct room *room);

#endif
