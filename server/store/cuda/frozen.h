/* frozen.h - a table as it was at one moment, for as long as that is being read (cut.c).
 *
 * A row that is about to change is copied first, into a log, unless it is there already or was
 * read; so is one whose place another row is about to take. What was copied or read, or is not in
 * the cut, is known by a bit of the row's number, not of the row: numbers keep their bits when rows
 * move, because both the row that goes and the one that comes are copied before. Rows that come
 * later get numbers that the cut does not have, or that are done with.
 *
 * The table's one stream puts all of this in order: a copy stands before the change, and the host
 * never waits for it. So that it need not, room in the log is reserved for as many rows as a call
 * may change; how many were copied the device tells with the next one, and the rest of the room is
 * there again.
 *
 * The log is in chunks of the device's memory, else of pinned memory. Where there is none of either
 * the call goes on and the cut is given up, which its next scan says. Owner: the shard's thread. */
#ifndef EMBD_CUDA_FROZEN_H
#define EMBD_CUDA_FROZEN_H

#include "server/store/cuda/device.h"
#include "server/store/cuda/kernels/kernels.h"
#include "server/store/store.h"

struct store;
struct arena;

#define FETCHES 4u /* blocks on their way to the host, or there */

/* Bytes of a chunk, but that a call may need more. Tests make it small. */
extern uint64_t frozen_chunk_bytes;

/* Rows of the log. */
struct frozen_chunk {
    struct frozen_chunk *next;
    struct kept_view view;
    void *memory;
    uint64_t bytes;
    bool is_pinned;
    bool has_room_for_all;  /* rows of the cut that were not read */
    struct kept_head *told; /* pinned: the head after the last launch that is done */
    uint32_t asked;         /* rows that launches may have added, in all */
    uint32_t read;          /* rows that are fetched */
};

/* Rows or candidates, in pinned memory when the flag is there. */
struct fetch {
    struct device_flag *flag;
    uint8_t *memory;
    uint64_t bytes;
    struct kept_head *told; /* NULL: n is known */
    uint32_t n, at;         /* rows or candidates; read */
    struct kept_view rows;
    struct entry *candidates; /* NULL: these are rows */
};

struct frozen {
    bool is_on;
    bool is_broken;           /* there was no memory for a copy */
    uint64_t n_rows;          /* numbers of rows there were */
    uint64_t cursor;          /* numbers before it are read, or on their way */
    void *memory;             /* done, then heads */
    uint32_t *done;           /* [n_rows / 32 + 1] bits */
    uint32_t *done_at_freeze; /* the same, pinned; NULL: none was */
    struct kept_head *heads;  /* [FETCHES], and the last chunk's */
    struct frozen_chunk *first, *last;
    struct entry *candidates; /* [n_candidates] of the device or pinned, */
    bool is_pinned;
    uint64_t n_candidates, candidate; /* of which so many are fetched */
    /* Keys that are gone: in the noted sets from first_set on. */
    uint32_t first_set, end_set;
    uint64_t gone_at;              /* read of first_set's */
    uint64_t gone_end;             /* of the last set, which may grow: as many as it had */
    struct fetch fetches[FETCHES]; /* a ring */
    uint32_t first_fetch, n_fetches;
};

/* Of a cut with all rows, or of those whose set is `oldest` or later. EMBD_NO_MEMORY: nothing is
 * frozen. */
int frozen_begin(struct store *store, bool has_all, uint8_t oldest, struct embd__error *e);
void frozen_end(struct store *store);
/* Whether the device may still write where frozen_end frees. */
bool frozen_is_under_way(const struct store *store);
uint64_t frozen_bytes(const struct store *store);

/* These rows may be about to change: those of refs [n], 0: none; those with numbers `rows` [n];
 * those from `first` on. 0 or a device's status; nothing where there is no cut. */
int frozen_keep_refs(struct store *store, const uint32_t *refs, uint32_t n);
int frozen_keep_rows(struct store *store, const uint32_t *rows, uint32_t n);
int frozen_keep_range(struct store *store, uint64_t first, uint64_t n);

/* The end of the numbers from `begin` on that have at most `most` rows of the cut, as far as known;
 * *n_out: how many. */
uint64_t frozen_range_end(const struct frozen *f, uint64_t begin, uint64_t end, uint64_t most,
                          uint64_t *n_out);
/* Nothing is added to it any more, and all it has was fetched. */
bool frozen_chunk_is_over(const struct frozen *f, const struct frozen_chunk *chunk);
void frozen_drop_first(struct store *store);
struct kept_head frozen_told(const struct kept_head *told);

/* Arrays for n rows; the arena's bytes. */
uint64_t kept_lay_out(struct kept_view *view, const struct table_view *t, uint64_t n,
                      struct arena *arena);

#endif
