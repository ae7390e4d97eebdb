/* change_sets.h - which rows changed since the last cuts, and which keys lost their row. Functions
 * that return a number return 0 or a device's status. Owner: the shard's thread. */
#ifndef EMBD_CUDA_CHANGE_SETS_H
#define EMBD_CUDA_CHANGE_SETS_H

#include "server/store/cuda/device.h"
#include "server/store/gone.h"
#include "server/store/store.h"

/* Changes between one cut and the next. */
struct change_set {
    uint64_t cut; /* id of the cut that the set begins at */
    struct gone gone;
};
#define CHANGE_SETS_MAX           16u
#define CHANGE_SETS_EVICTED_BYTES (sizeof(uint64_t) + sizeof(uint16_t))

/* Zeroed: changes are not recorded. */
struct change_sets {
    struct change_set sets[CHANGE_SETS_MAX]; /* [n], the newest last */
    uint32_t n;
    struct device_range rows; /* view.row_sets, while n > 0 */
    uint8_t *evicted;         /* pinned: evicted keys, then slots, from the device; or NULL */
    uint64_t n_evicted;
};

/* Records changes of rows; nothing to do while there is no set. refs: as launch_note_rows. */
int change_sets_note_refs(struct store *store, const uint32_t *refs, uint32_t n);
int change_sets_note_rows(struct store *store, uint64_t first, uint64_t n);
/* Records erased keys: those whose refs, on the host, are not 0. Only where changes.n > 0. */
void change_sets_note_erased(struct store *store, const struct store_keys *in,
                             const uint32_t *refs);
/* Enqueues the list of keys of `rows`, on the device, which are about to be evicted. Only after
 * change_sets_take_evicted. */
int change_sets_note_evicted(struct store *store, const uint32_t *rows, uint32_t n);
/* Takes over the listed keys of the last eviction. The stream was waited for since. */
void change_sets_take_evicted(struct store *store);
/* Follows the table's growth: there is memory for more rows. */
void change_sets_grow(struct store *store);

/* Drops the oldest set if there is no place for one more. */
int change_sets_make_room(struct store *store);
/* The cut's changes become those of the cut before it. The device is at rest; where it fails, all
 * sets go. */
void change_sets_drop(struct store *store, uint64_t cut);
/* Begins the set of changes since this cut. After change_sets_make_room. Without memory for it
 * changes are not recorded. */
int change_sets_begin(struct store *store, uint64_t cut);
/* The first set since the cut; changes.n: the changes since then are not known. */
uint32_t change_sets_find(const struct store *store, uint64_t cut);
/* What has changed until now is not known any more: a cut since an earlier one has all rows. */
void change_sets_forget(struct store *store);
void change_sets_fini(struct store *store);
uint64_t change_sets_bytes(const struct store *store);

#endif
