/* frozen.h - a table as it was at one moment, while cut.c reads it: copy on write.
 *
 * A row that is about to change is first copied into a log, unless it was copied or read before; so
 * is a row that another row is about to replace. A bit of each row number says that the row was
 * copied or read, or is not in the cut. The bit belongs to the number, not to the row: when a row
 * moves, both the moved row and the replaced one are copied before. Later rows get numbers beyond
 * the cut, or numbers whose bit is set.
 *
 * The table's one stream orders all of this: a copy stands before the change, and the host never
 * waits. To make that possible, each call reserves room in the log for all rows it may change. The
 * device reports how many were copied, and the unused room is free again.
 *
 * The log consists of chunks of device memory, or else of pinned memory. Without either the call
 * goes on and the cut is broken, which its next scan reports. Owner: the shard's thread. */
#ifndef EMBD_CUDA_FROZEN_H
#define EMBD_CUDA_FROZEN_H

#include "server/store/cuda/device.h"
#include "server/store/cuda/kernels/kernels.h"
#include "server/store/store.h"

struct store;
struct arena;

#define FETCHES 4u /* blocks in transit to the host, or arrived */

/* Bytes of a chunk; a call may need more. Tests make it small. */
extern uint64_t frozen_chunk_bytes;

/* A chunk of the log. */
struct frozen_chunk {
    struct frozen_chunk *next;
    struct kept_view view;
    void *memory;
    uint64_t bytes;
    bool is_pinned;
    bool has_room_for_all;       /* room for all rows of the cut that are not read */
    struct kept_head *head_copy; /* pinned: the head after the last finished launch */
    uint32_t asked;              /* rows that launches may have added in all */
    uint32_t read;               /* rows fetched */
};

/* A block: rows or candidates, in pinned memory once the flag is raised. */
struct fetch {
    struct device_flag *flag;
    uint8_t *memory;
    uint64_t bytes;
    struct kept_head *head_copy; /* rows: the count from the device; NULL: n is known */
    uint32_t n, at;              /* rows or candidates in all; already read */
    struct kept_view rows;
    struct entry *candidates; /* NULL: the block has rows */
};

struct frozen {
    bool is_on;
    bool is_broken;           /* no memory for a copy: the cut is lost */
    uint64_t n_rows;          /* rows of the cut */
    uint64_t cursor;          /* rows before it are read or in transit */
    void *memory;             /* device memory of done and heads */
    uint32_t *done;           /* [n_rows / 32 + 1] bits: copied, read, or not in the cut */
    uint32_t *done_at_freeze; /* pinned copy of `done` at the freeze; NULL: no bit was set */
    struct kept_head *heads;  /* [FETCHES + 1]; the last one is the last chunk's */
    struct frozen_chunk *first, *last;
    struct entry *candidates; /* [n_candidates] device or pinned memory */
    bool is_pinned;
    uint64_t n_candidates, candidate; /* candidates in all; already fetched */
    /* Removed keys: in the change sets first_set .. end_set. */
    uint32_t first_set, end_set;
    uint64_t gone_at;              /* keys of first_set already read */
    uint64_t gone_end;             /* keys of the last set at the freeze; it may grow */
    struct fetch fetches[FETCHES]; /* a ring */
    uint32_t first_fetch, n_fetches;
};

/* Freezes all rows, or those of change set `oldest` and later. EMBD_NO_MEMORY: nothing is frozen.
 */
int frozen_begin(struct store *store, bool has_all, uint8_t oldest, struct embd__error *e);
void frozen_end(struct store *store);
/* Whether the device may still write to memory that frozen_end frees. */
bool frozen_is_under_way(const struct store *store);
uint64_t frozen_bytes(const struct store *store);

/* Copies rows that may be about to change: those of refs [n], 0: none; those with numbers `rows`
 * [n]; those from `first` on. 0 or a device's status; does nothing without a cut. */
int frozen_keep_refs(struct store *store, const uint32_t *refs, uint32_t n);
int frozen_keep_rows(struct store *store, const uint32_t *rows, uint32_t n);
int frozen_keep_range(struct store *store, uint64_t first, uint64_t n);

/* The end of the range from `begin` on that has at most `most` rows of the cut, by the bits at the
 * freeze; *n_out: how many it has. */
uint64_t frozen_range_end(const struct frozen *f, uint64_t begin, uint64_t end, uint64_t most,
                          uint64_t *n_out);
/* Whether the chunk is complete and was fetched. */
bool frozen_chunk_is_over(const struct frozen *f, const struct frozen_chunk *chunk);
void frozen_drop_first(struct store *store);
struct kept_head frozen_read_head(const struct kept_head *head_copy);

/* Lays out arrays for n rows; returns the arena's bytes. */
uint64_t kept_lay_out(struct kept_view *view, const struct table_view *t, uint64_t n,
                      struct arena *arena);

#endif
