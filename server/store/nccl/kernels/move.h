/* move.h - the kernels of this folder: which device a key belongs to, and moving what belongs
 * elsewhere. As in kernels.h, a launcher only enqueues, and returns 0 or a CUDA error number. */
#ifndef EMBD_NCCL_MOVE_H
#define EMBD_NCCL_MOVE_H

#include "server/store/cuda/kernels/kernels.h"
#include "server/store/nccl/wire.h"

/* The device that has the row of (key, slot): of n. One rule for the host and the device. The hash
 * shares no bits with the one that routes keys to shards, nor with the one that picks a bucket. */
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

/* Where things that are grouped by device begin: those for device d are at[d] .. at[d + 1]. */
struct starts {
    uint32_t at[WIRE_MAX + 1];
};
struct route_report {
    struct starts items, keys;
};

/* What one device has, and to which devices it goes. An item is a key, or in slot tables a row with
 * all of its keys, or a part: of the keys of a row those of one owner. Parts of all rows, also
 * empty ones, are grouped from the beginning: those for device 0 first. */
struct route_view {
    embd_partition partition;
    uint32_t n_devices, n_items, n_keys;
    uint32_t n_rows;         /* of parts, else 0 */
    uint32_t first;          /* key that offsets count from */
    const uint64_t *keys;    /* [n_keys] */
    const uint32_t *offsets; /* [n_items + 1] (parts: [n_rows + 1]), or NULL: item i is key i */
    const uint16_t *slots;   /* [n_items], slot tables only */
    uint32_t *owners;        /* [n_items] */
    uint32_t *sorted;        /* [n_items] owners, rising */
    uint32_t *numbers;       /* [n_items] 0, 1, 2, ... */
    uint32_t *order;     /* [n_items] items by owner, of one in their order; of a part its row */
    uint32_t *lengths;   /* [n_items + 1] keys of the items of `order`, with offsets; then 0 */
    uint32_t *grouped;   /* [n_items + 1] sums of lengths: where each begins */
    uint32_t *key_order; /* [n_keys] keys of the items of `order`; without offsets, `order` */
    struct route_report *report;
};
/* owners and numbers. */
int launch_route(struct route_view r, void *stream);
/* lengths, from `order`. */
int launch_lengths(struct route_view r, void *stream);
/* key_order, from `order` and `grouped`. */
int launch_key_order(struct route_view r, void *stream);
/* The same of parts: order and lengths; then, from `grouped`, key_order. */
int launch_parts(struct route_view r, void *stream);
int launch_part_keys(struct route_view r, void *stream);
/* The report, from `sorted` and `grouped`. */
int launch_report(struct route_view r, void *stream);
/* item_of[k] = j for the keys offsets[j] .. offsets[j + 1] of each item. */
int launch_spread(const uint32_t *offsets, uint32_t n_items, uint32_t *item_of, void *stream);
/* out[i] = map[order[i]] */
int launch_compose(const uint32_t *map, const uint32_t *order, uint32_t *out, uint32_t n,
                   void *stream);
/* out[i] = first + i */
int launch_numbers(uint32_t *out, uint32_t first, uint32_t n, void *stream);

/* Places on several devices, one for each piece of what is grouped. */
struct parcels {
    uint32_t n, first; /* the piece to begin with */
    struct starts starts;
    uint8_t *at[WIRE_MAX]; /* NULL: the piece is passed over */
};
/* Several arrays that are moved in one launch. Thing number j of `starts`, `bytes` long, is at
 * place j - starts of its piece; the same thing at home is number order[j] (NULL: j) of `home`. */
#define CARGO_MAX 8u
/* For what is stored to peers, two for each of 132 multiprocessors, so that lookups of other calls
 * keep theirs. Measured on four GPUs: with a quarter of it pulls of 10 keys a row take 2 % less,
 * but those of one key 20 % more, because their keys wait for rows on the same links. */
#define PEER_BLOCKS 264u
struct cargo_lane {
    struct parcels parcels;
    const uint32_t *order;
    uint8_t *home;
    uint32_t bytes;
    uint32_t unit, begin, end; /* launch_move's: the widest word, blocks */
};
struct cargo {
    uint32_t n;
    uint32_t most_blocks; /* 0: as many as there is work for */
    struct cargo_lane lanes[CARGO_MAX];
};
static inline void cargo_add(struct cargo *c, const struct parcels *parcels, const uint32_t *order,
                             uint8_t *home, uint32_t bytes)
{
    struct cargo_lane *lane = &c->lanes[c->n++];
    lane->parcels = *parcels;
    lane->order = order;
    lane->home = home;
    lane->bytes = bytes;
}
/* Outward copies from home, else to home. All that goes the same way is one launch: a launch costs
 * a few us, and so does the end of one that stores to peers. */
int launch_move(struct cargo *cargo, bool is_outward, void *stream);

/* Offsets of an owner, who got the pieces `starts` of what homes have as `grouped`: out[j] =
 * from[j] + shift of j's piece; after the last, `end`. */
struct rebase_view {
    uint32_t n_pieces;
    struct starts starts;
    uint32_t shift[WIRE_MAX], end;
    const uint32_t *from;
    uint32_t *out;
};
int launch_rebase(struct rebase_view r, void *stream);

/* Where an owner stores rows: number j of the piece of home h becomes row places[h][j] of to.at[h],
 * or its row j where there are no places. */
struct delivery {
    struct parcels to;
    const uint32_t *places[WIRE_MAX];
    bool skips_empty; /* rows without keys are not stored */
};

/* The lookup of an owner that stores right there: of each key the whole row of t.stride bytes as it
 * is stored, or its first values. */
int launch_deliver(struct table_view t, struct keys_view in, struct delivery d, bool zero_missing,
                   uint8_t *statuses, void *stream);

/* launch_pool, whose rows go the same way; view.values is not used. */
int launch_pool_to(struct table_view t, struct pull_view view, const uint32_t *refs,
                   struct delivery d, void *stream);

/* Rows of `view` at home from their partial sums, parts[n_devices][n_rows][dim] of f32: those that
 * have keys, whose lengths are differences of `grouped`, added in the order of the devices. */
struct parts_view {
    uint32_t n_devices;
    const uint32_t *grouped; /* [n_devices * n_rows + 1] */
    const float *parts;
};
int launch_add_parts(uint32_t dim, struct pull_view view, struct parts_view p, void *stream);

/* Sums of n lengths, behind which a 0 stands: out[i] = lengths[0] + ... + lengths[i - 1], up to
 * out[n]. CUB. */
size_t sum_bytes(uint32_t n);
int launch_sums(void *temp, size_t temp_bytes, const uint32_t *lengths, uint32_t *out, uint32_t n,
                void *stream);

#ifdef __cplusplus
}
#endif
#endif
