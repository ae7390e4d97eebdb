/* move.h - the kernels of this folder: which device owns a key, and moving items between devices.
 * As in kernels.h, a launcher only enqueues, and returns 0 or a CUDA error number. */
#ifndef EMBD_NCCL_MOVE_H
#define EMBD_NCCL_MOVE_H

#include "server/store/cuda/kernels/kernels.h"
#include "server/store/nccl/wire.h"

/* The device, of n, that has the row of (key, slot). Host and device share this rule. Its hash is
 * independent of the one that routes keys to shards and of the one that picks a bucket. */
EMBD_INLINE uint32_t owner_of(embd_partition partition, uint32_t n, uint64_t key, uint32_t slot)
{
    if (partition == EMBD_PARTITION_SLOT)
        return slot % n;
    if (partition == EMBD_PARTITION_MODULO)
        return (uint32_t)(key % n);
    uint64_t x = (key ^ 0x2545f4914f6cdd1dULL) * 0x9fb21c651e98df25ULL;
    x = (x ^ (x >> 32)) * 0xd6e8feb86659fd93ULL;
    return (uint32_t)(((x ^ (x >> 32)) >> 32) * n >> 32);
}

#ifdef __cplusplus
extern "C" {
#endif

/* Where elements grouped by device begin: those for device d are at[d] .. at[d + 1]. */
struct starts {
    uint32_t at[WIRE_MAX + 1];
};
struct route_report {
    struct starts items, keys;
};

/* The items of one device, and their owners. An item is a key; or, in slot tables, a row with all
 * of its keys; or a part: the keys of a row that one owner has. Parts of all rows, also empty ones,
 * lie grouped from the beginning: those for device 0 first. */
struct route_view {
    embd_partition partition;
    uint32_t n_devices, n_items, n_keys;
    uint32_t n_rows;         /* rows of parts, else 0 */
    uint32_t first;          /* first key: offsets count from it */
    const uint64_t *keys;    /* [n_keys] */
    const uint32_t *offsets; /* [n_items + 1] (parts: [n_rows + 1]), or NULL: item i is key i */
    const uint16_t *slots;   /* [n_items], slot tables only */
    uint32_t *owners;        /* [n_items] */
    uint32_t *sorted;        /* [n_items] owners, rising */
    uint32_t *numbers;       /* [n_items] 0, 1, 2, ... */
    uint32_t *order;         /* [n_items] items by owner, stable; for a part its row */
    uint32_t
        *lengths; /* [n_items + 1] number of keys of the items of `order`, with offsets; then 0 */
    uint32_t *grouped;   /* [n_items + 1] prefix sums of lengths */
    uint32_t *key_order; /* [n_keys] keys of the items of `order`; without offsets, `order` */
    struct route_report *report;
};
/* Sets owners and numbers. */
int launch_route(struct route_view r, void *stream);
/* Sets lengths, from `order`. */
int launch_lengths(struct route_view r, void *stream);
/* Sets key_order, from `order` and `grouped`. */
int launch_key_order(struct route_view r, void *stream);
/* The same for parts: sets order and lengths; then, from `grouped`, key_order. */
int launch_parts(struct route_view r, void *stream);
int launch_part_keys(struct route_view r, void *stream);
/* Sets the report, from `sorted` and `grouped`. */
int launch_report(struct route_view r, void *stream);
/* item_of[k] = j for the keys offsets[j] .. offsets[j + 1] of each item j. */
int launch_spread(const uint32_t *offsets, uint32_t n_items, uint32_t *item_of, void *stream);
/* out[i] = map[order[i]] */
int launch_compose(const uint32_t *map, const uint32_t *order, uint32_t *out, uint32_t n,
                   void *stream);
/* out[i] = first + i */
int launch_numbers(uint32_t *out, uint32_t first, uint32_t n, void *stream);

/* A place on each of several devices, one for each piece of grouped elements. */
struct device_places {
    uint32_t n, first; /* piece that the first blocks take */
    struct starts starts;
    uint8_t *at[WIRE_MAX]; /* NULL: the piece is skipped */
};
/* Several arrays that one launch moves. Element j of `starts`, `bytes` long, is at place j - starts
 * of its piece; at home it is element order[j] (NULL: j) of `home`. */
#define MOVES_MAX 8u
/* Block limit of launches that store to peers: two for each of 132 multiprocessors, so that lookups
 * of other calls keep theirs. Measured on four GPUs: with a quarter of it pulls of 10 keys a row
 * take 2 % less, but those of one key 20 % more, because their keys wait for rows on the same
 * links. */
#define PEER_BLOCKS 264u
struct moved_lane {
    struct device_places places;
    const uint32_t *order;
    uint8_t *home;
    uint32_t bytes;
    uint32_t unit, begin, end; /* set by launch_move: the widest word; blocks */
};
struct moves {
    uint32_t n;
    uint32_t most_blocks; /* 0: no limit */
    struct moved_lane lanes[MOVES_MAX];
};
static inline void moves_add(struct moves *c, const struct device_places *places,
                             const uint32_t *order, uint8_t *home, uint32_t bytes)
{
    struct moved_lane *lane = &c->lanes[c->n++];
    lane->places = *places;
    lane->order = order;
    lane->home = home;
    lane->bytes = bytes;
}
/* Outward: copies from home to the places; else from the places to home. All lanes of one direction
 * share a launch: a launch costs a few us, and so does the end of one that stores to peers. */
int launch_move(struct moves *moves, bool is_outward, void *stream);

/* Offsets of an owner that got the pieces `starts` of the homes' `grouped`: out[j] = from[j] +
 * shift of j's piece; after the last, `end`. */
struct rebase_view {
    uint32_t n_pieces;
    struct starts starts;
    uint32_t shift[WIRE_MAX], end;
    const uint32_t *from;
    uint32_t *out;
};
int launch_rebase(struct rebase_view r, void *stream);

/* Where an owner stores rows: row j of the piece of home h becomes row places[h][j] of to.at[h], or
 * row j without places. */
struct delivery {
    struct device_places to;
    const uint32_t *places[WIRE_MAX];
    bool skips_empty; /* rows without keys are not stored */
};

/* The lookup of an owner with direct stores: copies the row of each key, t.stride bytes as stored,
 * or its initial values. */
int launch_deliver(struct table_view t, struct keys_view in, struct delivery d, bool zero_missing,
                   uint8_t *statuses, void *stream);

/* launch_pool with the same destinations; view.values is not used. */
int launch_pool_to(struct table_view t, struct pull_view view, const uint32_t *refs,
                   struct delivery d, void *stream);

/* Computes rows of `view` at home from their partial sums, parts[n_devices][n_rows][dim] of f32.
 * Only sums with keys count, whose lengths are differences of `grouped`; they are added in the
 * order of the devices. */
struct parts_view {
    uint32_t n_devices;
    const uint32_t *grouped; /* [n_devices * n_rows + 1] */
    const float *parts;
};
int launch_add_parts(uint32_t dim, struct pull_view view, struct parts_view p, void *stream);

/* Prefix sums of n lengths, followed by a 0: out[i] = lengths[0] + ... + lengths[i - 1], up to
 * out[n]. CUB. */
size_t sum_bytes(uint32_t n);
int launch_sums(void *temp, size_t temp_bytes, const uint32_t *lengths, uint32_t *out, uint32_t n,
                void *stream);

#ifdef __cplusplus
}
#endif
#endif
