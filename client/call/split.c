/* split.c - a part becomes one share for each shard.
 *
 * With one shard the share is the caller's arrays as they stand; only offsets change from u64 to
 * u32. With more, two passes: the first finds each key's shard and counts, the second places keys
 * into arrays that hold one share after another. Within a share keys and rows keep their order. A
 * pooled share has only the rows that have keys on its shard, and remembers which rows those are.
 */
#include "client/call/call.h"
#include "proto/placement.h"

/* ---- slots ---- */

/* Goes through the batch rows: the slot of each and its keys' range. */
struct row_walk {
    const struct work *work;
    uint64_t r, begin, end;
    uint32_t slot;
};

static struct row_walk walk_rows(const struct work *work)
{
    return (struct row_walk){.work = work, .r = UINT64_MAX, .slot = work->schema->slots - 1};
}

static bool next_row(struct row_walk *walk)
{
    const struct work *work = walk->work;
    if (++walk->r == work->n_batch_rows)
        return false;
    walk->begin = work->offsets == NULL ? walk->r : work->offsets[walk->r];
    walk->end = work->offsets == NULL ? walk->r + 1 : work->offsets[walk->r + 1];
    walk->slot = walk->slot + 1 == work->schema->slots ? 0 : walk->slot + 1;
    return true;
}

const uint16_t *embd__key_slots(struct embd_call *call, const struct work *work, int *status_out)
{
    *status_out = EMBD_OK;
    if (work->schema->partition != EMBD_PARTITION_SLOT)
        return NULL;
    uint16_t *slots = embd__arena_array(&call->arena, work->n_keys, sizeof *slots);
    if (slots == NULL) {
        *status_out = embd__call_no_memory(call);
        return NULL;
    }
    for (struct row_walk walk = walk_rows(work); next_row(&walk);)
        for (uint64_t i = walk.begin; i < walk.end; i++)
            slots[i] = (uint16_t)walk.slot;
    return slots;
}

static struct share *new_shares(struct embd_call *call, struct work *work)
{
    uint32_t n = call->n_shards;
    work->shares = embd__arena_array(&call->arena, n, sizeof *work->shares);
    for (uint32_t s = 0; s < n && work->shares != NULL; s++)
        work->shares[s] = (struct share){0};
    return work->shares;
}

/* ---- one shard ---- */

static const uint16_t *row_slots(struct embd_call *call, const struct work *work)
{
    uint16_t *slots = embd__arena_array(&call->arena, work->n_rows, sizeof *slots);
    if (slots != NULL)
        for (struct row_walk walk = walk_rows(work); next_row(&walk);)
            slots[walk.r] = (uint16_t)walk.slot;
    return slots;
}

static int split_for_one(struct embd_call *call, struct work *work)
{
    struct share *share = work->shares;
    int status = EMBD_OK;
    *share = (struct share){.n_keys = work->n_keys,
                            .n_rows = work->n_rows,
                            .keys = work->keys,
                            .weights = work->weights,
                            .scores = work->scores};
    if (!work->is_pooled) {
        share->slots = embd__key_slots(call, work, &status);
        return status;
    }
    uint32_t *offsets =
        embd__arena_array(&call->arena, (uint64_t)work->n_rows + 1, sizeof *offsets);
    if (offsets == NULL)
        return embd__call_no_memory(call);
    for (uint32_t r = 0; r <= work->n_rows; r++)
        offsets[r] = (uint32_t)work->offsets[r];
    share->offsets = offsets;
    if (work->schema->partition != EMBD_PARTITION_SLOT)
        return EMBD_OK;
    share->slots = row_slots(call, work);
    return share->slots == NULL ? embd__call_no_memory(call) : EMBD_OK;
}

/* ---- several shards ---- */

/* Where a shard's share is being filled. */
struct filling {
    uint32_t n_keys, n_rows; /* counted, then counted again while placing */
    uint32_t last_row;       /* last batch row that had a key there */
    uint64_t *keys;
    uint32_t *from, *rows, *offsets;
    uint16_t *slots;
    float *weights, *scores;
};

struct split {
    struct work *work;
    uint32_t n_shards;
    const struct placement *placement;
    uint16_t *shard_of; /* [n_keys] */
    struct filling *fillings;
    uint32_t *counts; /* [n_shards] of keys; of rows of one key each, without slots */
};

#define PLACES_AHEAD 12u /* keys ahead, whose places in the shares are asked for */

static void count(const struct split *split)
{
    const struct work *work = split->work;
    embd_partition partition = work->schema->partition;
    for (struct row_walk walk = walk_rows(work); next_row(&walk);)
        for (uint64_t i = walk.begin; i < walk.end; i++) {
            uint32_t shard =
                embd__placement_shard(split->placement, partition, walk.slot, work->keys[i]);
            struct filling *f = &split->fillings[shard];
            split->shard_of[i] = (uint16_t)shard;
            f->n_keys++;
            f->n_rows += f->last_row != (uint32_t)walk.r;
            f->last_row = (uint32_t)walk.r;
        }
}

/* Room for all shares, one after another; sets where each begins. Pooled shares have rows and
 * offsets. */
static bool allot(struct embd_call *call, const struct split *split)
{
    const struct work *work = split->work;
    uint64_t total_rows = 0;
    for (uint32_t s = 0; s < split->n_shards; s++)
        total_rows += split->fillings[s].n_rows;
    struct arena *arena = &call->arena;
    bool has_slots = work->schema->partition == EMBD_PARTITION_SLOT;
    uint64_t *keys = embd__arena_array(arena, work->n_keys, sizeof *keys);
    uint32_t *from = embd__arena_array(arena, work->n_keys, sizeof *from);
    uint32_t *rows = embd__arena_array(arena, total_rows, sizeof *rows);
    uint32_t *offsets = embd__arena_array(arena, total_rows + split->n_shards, sizeof *offsets);
    uint16_t *slots =
        has_slots ? embd__arena_array(arena, work->is_pooled ? total_rows : work->n_keys, 2) : NULL;
    float *weights =
        work->weights != NULL ? embd__arena_array(arena, work->n_keys, sizeof *weights) : NULL;
    float *scores =
        work->scores != NULL ? embd__arena_array(arena, work->n_keys, sizeof *scores) : NULL;
    if (keys == NULL || from == NULL || rows == NULL || offsets == NULL ||
        (has_slots && slots == NULL) || (work->weights != NULL && weights == NULL) ||
        (work->scores != NULL && scores == NULL))
        return false;
    for (uint32_t s = 0; s < split->n_shards; s++) {
        struct filling *f = &split->fillings[s];
        uint32_t n_keys = f->n_keys, n_rows = f->n_rows;
        *f = (struct filling){.last_row = UINT32_MAX,
                              .keys = keys,
                              .from = from,
                              .rows = rows,
                              .offsets = offsets,
                              .slots = slots,
                              .weights = weights,
                              .scores = scores};
        keys += n_keys;
        from += n_keys;
        rows += n_rows;
        offsets += n_rows + 1;
        slots = slots == NULL ? NULL : slots + (work->is_pooled ? n_rows : n_keys);
        weights = weights == NULL ? NULL : weights + n_keys;
        scores = scores == NULL ? NULL : scores + n_keys;
    }
    return true;
}

/* Rows of one key each, without slots: the same in tight loops, since the first message can only go
 * when the last key has its shard. What they write for each key are counts that lie together: with
 * many shards the fillings would not stay in the nearest cache. */
static void count_single(const struct split *split)
{
    const uint64_t *keys = split->work->keys;
    embd_partition partition = split->work->schema->partition;
    for (uint32_t i = 0, n = split->work->n_keys; i < n; i++)
        split->shard_of[i] =
            (uint16_t)embd__placement_shard(split->placement, partition, 0, keys[i]);
    for (uint32_t s = 0; s < split->n_shards; s++)
        split->counts[s] = 0;
    for (uint32_t i = 0, n = split->work->n_keys; i < n; i++)
        split->counts[split->shard_of[i]]++;
    for (uint32_t s = 0; s < split->n_shards; s++)
        split->fillings[s].n_keys = split->counts[s];
}

/* With many shards the ends of their shares, which are written to, do not stay in the nearest
 * cache. */
static void place_single(const struct split *split)
{
    const uint64_t *keys = split->work->keys;
    uint64_t *placed = split->fillings[0].keys;
    uint32_t *from = split->fillings[0].from, *next = split->counts;
    for (uint32_t s = 0, at = 0; s < split->n_shards; s++) {
        uint32_t n_keys = next[s];
        split->fillings[s].n_keys = n_keys;
        next[s] = at;
        at += n_keys;
    }
    for (uint32_t i = 0, n = split->work->n_keys; i < n; i++) {
        if (i + PLACES_AHEAD < n) {
            uint32_t ahead = next[split->shard_of[i + PLACES_AHEAD]];
            __builtin_prefetch(from + ahead, 1);
            __builtin_prefetch(placed + ahead, 1);
        }
        uint32_t at = next[split->shard_of[i]]++;
        from[at] = i;
        placed[at] = keys[i];
    }
}

static void place(const struct split *split)
{
    const struct work *work = split->work;
    for (struct row_walk walk = walk_rows(work); next_row(&walk);)
        for (uint64_t i = walk.begin; i < walk.end; i++) {
            struct filling *f = &split->fillings[split->shard_of[i]];
            if (work->is_pooled && f->last_row != (uint32_t)walk.r) {
                f->last_row = (uint32_t)walk.r;
                if (f->slots != NULL)
                    f->slots[f->n_rows] = (uint16_t)walk.slot;
                f->rows[f->n_rows] = (uint32_t)walk.r;
                f->offsets[f->n_rows++] = f->n_keys;
            } else if (!work->is_pooled && f->slots != NULL) {
                f->slots[f->n_keys] = (uint16_t)walk.slot;
            }
            if (f->weights != NULL)
                f->weights[f->n_keys] = work->weights[i];
            f->from[f->n_keys] = (uint32_t)i;
            f->keys[f->n_keys++] = work->keys[i];
        }
}

static void make_share(const struct work *work, struct filling *f, struct share *share)
{
    for (uint32_t k = 0; k < f->n_keys && f->scores != NULL; k++)
        f->scores[k] = work->scores[f->from[k]];
    *share = (struct share){.n_keys = f->n_keys,
                            .n_rows = f->n_keys,
                            .keys = f->keys,
                            .slots = f->slots,
                            .weights = f->weights,
                            .scores = f->scores,
                            .from = f->from};
    if (!work->is_pooled)
        return;
    f->offsets[f->n_rows] = f->n_keys;
    share->n_rows = f->n_rows;
    share->offsets = f->offsets;
    share->rows = f->rows;
}

static int split_for_many(struct embd_call *call, struct work *work)
{
    uint32_t n = call->n_shards;
    struct split split = {.work = work, .n_shards = n, .placement = &call->client->placement};
    split.shard_of = embd__arena_array(&call->arena, work->n_keys, sizeof *split.shard_of);
    split.fillings = embd__arena_array(&call->arena, n, sizeof *split.fillings);
    split.counts = embd__arena_array(&call->arena, n, sizeof *split.counts);
    if (split.shard_of == NULL || split.fillings == NULL || split.counts == NULL)
        return embd__call_no_memory(call);
    for (uint32_t s = 0; s < n; s++)
        split.fillings[s] = (struct filling){.last_row = UINT32_MAX};
    bool is_single = !work->is_pooled && work->schema->partition != EMBD_PARTITION_SLOT;
    (is_single ? count_single : count)(&split);
    if (!allot(call, &split))
        return embd__call_no_memory(call);
    (is_single ? place_single : place)(&split);
    work->shard_of = work->is_pooled ? NULL : split.shard_of;
    for (uint32_t s = 0; s < n; s++)
        make_share(work, &split.fillings[s], &work->shares[s]);
    return EMBD_OK;
}

int embd__split(struct embd_call *call, struct work *work)
{
    if (new_shares(call, work) == NULL)
        return embd__call_no_memory(call);
    return call->n_shards == 1 ? split_for_one(call, work) : split_for_many(call, work);
}

/* ---- distinct keys ---- */

/* Sorts distinct keys by shard, stably; occurrences follow. */
static int group_by_shard(struct embd_call *call, struct work *work, const uint64_t *keys,
                          const uint16_t *slots)
{
    uint32_t n_shards = call->n_shards, n = work->n_distinct;
    embd_partition partition = work->schema->partition;
    uint64_t *grouped = embd__arena_array(&call->arena, n, sizeof *grouped);
    uint16_t *grouped_slots = embd__arena_array(&call->arena, n, sizeof *grouped_slots);
    uint16_t *shard_of = embd__arena_array(&call->arena, n, sizeof *shard_of);
    uint32_t *place_of = embd__arena_array(&call->arena, n, sizeof *place_of);
    uint32_t *next = embd__arena_array(&call->arena, n_shards, sizeof *next);
    if (grouped == NULL || grouped_slots == NULL || shard_of == NULL || place_of == NULL ||
        next == NULL)
        return embd__call_no_memory(call);
    for (uint32_t d = 0; d < n; d++) {
        shard_of[d] = (uint16_t)embd__placement_shard(&call->client->placement, partition,
                                                      slots == NULL ? 0 : slots[d], keys[d]);
        work->shares[shard_of[d]].n_keys++;
    }
    for (uint32_t s = 0, base = 0; s < n_shards; base += work->shares[s++].n_keys) {
        struct share *share = &work->shares[s];
        next[s] = base;
        share->n_rows = share->n_keys;
        share->keys = grouped + base;
        share->slots = slots == NULL ? NULL : grouped_slots + base;
    }
    for (uint32_t d = 0; d < n; d++) {
        place_of[d] = next[shard_of[d]]++;
        grouped[place_of[d]] = keys[d];
        if (slots != NULL)
            grouped_slots[place_of[d]] = slots[d];
    }
    for (uint32_t i = 0; i < work->n_keys; i++)
        work->numbers[i] = place_of[work->numbers[i]];
    return EMBD_OK;
}

int embd__split_distinct(struct embd_call *call, struct work *work)
{
    int status;
    const uint16_t *key_slots = embd__key_slots(call, work, &status);
    if (status != EMBD_OK)
        return status;
    uint64_t *keys = embd__arena_array(&call->arena, work->n_keys, sizeof *keys);
    uint16_t *slots =
        key_slots == NULL ? NULL : embd__arena_array(&call->arena, work->n_keys, sizeof *slots);
    work->numbers = embd__arena_array(&call->arena, work->n_keys, sizeof *work->numbers);
    if (new_shares(call, work) == NULL || keys == NULL || work->numbers == NULL ||
        (key_slots != NULL && slots == NULL))
        return embd__call_no_memory(call);
    int64_t n = embd__distinct(&call->client->distinct, work->keys, key_slots, work->n_keys,
                               work->numbers, keys, slots);
    if (n < 0)
        return embd__call_no_memory(call);
    work->n_distinct = (uint32_t)n;
    if (call->n_shards > 1)
        return group_by_shard(call, work, keys, slots);
    work->shares[0].n_keys = work->shares[0].n_rows = work->n_distinct;
    work->shares[0].keys = keys;
    work->shares[0].slots = slots;
    return EMBD_OK;
}

/* ---- statuses ---- */

int embd__place_statuses(struct embd_call *call, struct work *work)
{
    uint8_t *out = work->part->statuses;
    uint32_t n_shards = call->n_shards;
    uint32_t n = work->by_rows ? work->n_distinct : work->n_keys;
    if (work->by_rows || n_shards > 1) {
        out = embd__arena_take(&call->arena, n);
        if (out == NULL)
            return embd__call_no_memory(call);
    }
    work->row_statuses = out;
    for (uint32_t s = 0; s < n_shards; s++) {
        work->shares[s].statuses = out;
        out += work->shares[s].n_keys;
    }
    return EMBD_OK;
}

void embd__scatter_statuses(const struct embd_call *call, const struct work *work)
{
    uint8_t *out = work->part->statuses;
    if (work->by_rows)
        for (uint32_t i = 0; i < work->n_keys; i++)
            out[i] = work->row_statuses[work->numbers[i]];
    else if (call->n_shards > 1)
        for (uint32_t s = 0; s < call->n_shards; s++)
            for (uint32_t i = 0; i < work->shares[s].n_keys; i++)
                out[work->shares[s].from[i]] = work->shares[s].statuses[i];
}
