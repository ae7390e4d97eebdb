/* kernels.h - what the C files of this folder and the kernels share: the table as a kernel sees it,
 * and one launcher for each operation. A launcher only enqueues on `stream` and returns 0 or a CUDA
 * error number. Pointers are to memory that the device can reach: its own, or pinned memory of the
 * host.
 *
 * Entry: 16 bytes. Four of them are a bucket, 64 bytes, which is what memory gives at once: a find
 * reads the bucket that the hash of (key, slot) names, and the next one only where the bucket says
 * that it overflowed. An entry without a `ref` is empty, so every key value is legal.
 *
 * Rows: value number r of a table lies at values + r * stride, its state at states + r *
 * state_stride, its key at row_keys[r]. All rows before the table's number of rows are some key's:
 * one that goes leaves its place to the last (launch_move_rows). The arrays grow at their end and
 * never move (device.h, ranges). */
#ifndef EMBD_CUDA_KERNELS_H
#define EMBD_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "server/store/initializer.h"
#include "server/store/optimizer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an entry says of its key: 0 nothing (it is empty), row + 1, or how often a key without a row
 * was seen. */
#define REF_CANDIDATE  0x80000000u
#define REF_SIGHTS_MAX 0x7fffffffu
#define REF_ROWS_MAX   0x7fffffffu

#define ENTRY_BUCKET 4u
#define ENTRY_OVERFLOW                                                                             \
    0x80000000u            /* in tail of a bucket's first entry: a search goes on in the next */
#define ENTRY_SLOT 0xffffu /* in tail: the key's slot, in slot tables */

struct entry {
    uint64_t key;
    uint32_t ref, tail;
};

struct table_view {
    struct entry *entries; /* [n_buckets][ENTRY_BUCKET] */
    uint64_t n_buckets;
    uint8_t *values; /* rows of `stride` bytes, a multiple of 16 */
    float *states;
    uint64_t *row_keys;
    uint16_t *row_slots; /* slot tables, else NULL */
    uint8_t *row_sets;   /* numbers of the rows' change sets (change_sets.c), or NULL */
    uint32_t dim, stride;
    uint32_t state_floats, state_stride; /* of a row's state, and from one to the next */
    uint32_t optimizer_floats; /* of a row's state: the first, which start at first_state */
    embd_dtype dtype;
    struct initializer initializer;
    const float *slot_bounds;    /* uniform_slot, else NULL */
    const uint64_t *slot_starts; /* [n_slots + 1] or NULL */
    uint32_t n_slots;
    float first_state;
    uint32_t admit_after;
};

/* Keys begin .. begin + n of a request; arrays start at these. */
struct keys_view {
    uint32_t n, n_rows;
    uint32_t first;          /* key that offsets count from: offsets[r] - first is an index here */
    const uint64_t *keys;    /* [n] */
    const uint32_t *offsets; /* [n_rows + 1] or NULL: row r is key r */
    const uint16_t *slots;   /* [n_rows], slot tables only */
    const float *weights;    /* [n] or NULL */
    uint32_t *row_of;        /* [n] with offsets, where push or slots need it; else NULL */
};

/* row_of of every key, from the offsets. */
int launch_expand(struct keys_view in, void *stream);

/* refs[i] of key i as its entry has it; statuses (or NULL): hit or missing. */
int launch_find(struct table_view t, struct keys_view in, uint32_t *refs, uint8_t *statuses,
                void *stream);

struct pull_view {
    struct keys_view in;
    embd_dtype dtype;
    bool zero_missing;
    embd_combiner divide; /* mean or sqrtn: finish it; concat: leave the sum */
    void *values;         /* [n_rows][dim] of dtype */
    bool is_aligned;      /* four columns at a time may be stored at once */
    uint8_t *statuses;    /* [n] or NULL */
};

/* Whether launch_gather can do this pull: one key a row, the table's dtype, rows of a power of two
 * of 16 bytes. */
bool gather_fits(const struct table_view *t, const struct pull_view *pull);
/* Find and copy in one kernel. */
int launch_gather(struct table_view t, struct pull_view pull, void *stream);

/* Several small pulls that launch_gather could do, in one launch. */
#define GATHER_MOST 16u
struct gather_piece {
    const uint64_t *keys; /* [n] */
    const uint16_t *slots;
    void *values;
    uint8_t *statuses;
    uint32_t n, first_warp;
    bool zero_missing;
};
struct gather_pieces {
    struct gather_piece at[GATHER_MOST];
    uint32_t n, n_warps;
};
void gather_add(struct gather_pieces *pieces, const struct table_view *t,
                const struct pull_view *pull);
int launch_gather_pieces(struct table_view t, struct gather_pieces pieces, void *stream);

/* The same of a table so large that the device is slow to find out where its rows are: after
 * launch_find, the rows that lie in rows first .. end only. Windows of the table one after the
 * other are much faster than rows anywhere (gather.cu). */
int launch_gather_window(struct table_view t, struct pull_view pull, const uint32_t *refs,
                         uint64_t first, uint64_t end, void *stream);
/* Any other pull, after launch_find. */
int launch_pool(struct table_view t, struct pull_view pull, const uint32_t *refs, void *stream);

/* What a request that may create rows finds: counted on the device, read by the host. */
struct plan_report {
    uint32_t misses;         /* 1: there are keys without a row */
    uint32_t n_leaders;      /* distinct keys that get a row if there is room */
    uint32_t n_filtered;     /* distinct keys that were not seen often enough */
    uint32_t n_filtered_new; /* of these, without an entry */
    uint32_t n_promoted;     /* of the leaders with room, those with an entry */
};

/* The distinct keys without a row. Every group is a place of a hash table of n_groups places, a
 * power of two of at least twice the keys; `claims`, and `marks` if there are any, start at 0. A
 * key that is alone at its mark is a leader, and has no group. */
#define PLAN_MARKS 4u /* for each group, two bits each: met once, met again */
struct plan_view {
    uint32_t *refs;      /* [n] of the keys' entries, or 0 */
    uint32_t *positions; /* [n] 0, 1, 2, ... */
    uint32_t *group;     /* [n] of keys without a row */
    uint32_t n_groups;
    uint32_t *claims;   /* [n_groups] the group's first position + 1, or 0: there is none */
    uint32_t *marks;    /* [n_groups * PLAN_MARKS / 16], or NULL: all such keys are grouped */
    uint8_t *is_leader; /* [n] first of a group that is admitted */
    uint32_t *leaders;  /* [n] positions of leaders, rising */
    struct plan_report *report; /* device memory, starts at 0 */
};

/* refs, positions, leaders' flags and what of the report they tell. */
int launch_search(struct table_view t, struct keys_view in, struct plan_view p, void *stream);
int launch_group(struct table_view t, struct keys_view in, struct plan_view p, void *stream);
/* n_promoted, of `room` leaders at most; after the selection of leaders. */
int launch_count(struct keys_view in, struct plan_view p, uint64_t room, void *stream);
/* The first n_insert leaders become rows first_row, first_row + 1, ...; with `sights` other keys
 * count one more sight, and some leaders have entries; then refs and statuses (or NULL) are what
 * they are after the request. Two launches of entries: first those there are, then new ones, so
 * that no search meets an entry half written. */
int launch_create(struct table_view t, struct keys_view in, struct plan_view p, uint32_t n_insert,
                  uint64_t first_row, bool sights, void *stream);
int launch_resolve(struct table_view t, struct keys_view in, struct plan_view p, uint8_t *statuses,
                   void *stream);

/* Every entry of `from` into `to`, which is empty and large enough. */
int launch_rebuild(struct table_view from, struct table_view to, void *stream);

/* A run of more than EMBD_SUM_RUN occurrences, summed in pieces. */
struct long_run {
    uint32_t at, n_chunks, first_chunk;
};
struct run_chunk {
    uint32_t begin, end;
};
struct run_counts {
    uint32_t n_long, n_chunks;
};

struct push_view {
    struct keys_view in;
    embd_dtype dtype;
    const void *grads;         /* [n_rows][dim] of dtype */
    bool is_aligned;           /* four columns at a time may be loaded at once */
    const uint32_t *refs;      /* [n] rising: row + 1, or 0: dropped */
    const uint32_t *positions; /* [n] keys of the refs, rising within one ref */
    struct run_counts *counts; /* starts at 0 */
    struct long_run *longs;    /* [n / EMBD_SUM_RUN + 1] */
    struct run_chunk *chunks;  /* [2 * n / EMBD_SUM_RUN + 2] */
    float *partials;           /* likewise, [..][dim rounded up to 4] */
};

/* A push whose keys all get a row, each of them once. */
struct first_push {
    struct push_view push; /* without refs and what follows them */
    embd_optimizer_kind kind;
    struct optimizer_step step;
};
/* Whether launch_first can do it: not every rule and type. */
bool first_fits(const struct table_view *t, const struct push_view *push);
/* In the place of launch_create and launch_apply: key i gets row first_row + i, a first value and a
 * step of it at once. No key has an entry. */
int launch_first(struct table_view t, struct plan_view p, struct first_push first,
                 uint64_t first_row, void *stream);

/* One optimizer step of every row that the push names. */
int launch_apply(struct table_view t, struct push_view push, embd_optimizer_kind kind,
                 struct optimizer_step step, void *stream);

/* update = global: a step with gradient 0 of the first n_rows rows, but those whose bit is set in
 * marks, [n_rows / 32 + 1], or NULL: of all. */
int launch_sweep(struct table_view t, uint64_t n_rows, const uint32_t *marks,
                 embd_optimizer_kind kind, struct optimizer_step step, void *stream);
/* Sets the bits of the rows that refs [n] name. */
int launch_mark(const uint32_t *refs, uint32_t n, uint32_t *marks, void *stream);

/* Values [n][dim] and states [n][state_floats] of a block into the rows that refs name; of equal
 * refs the last position wins. */
int launch_store_rows(struct table_view t, const uint32_t *refs, const uint32_t *positions,
                      uint32_t n, const void *values, const float *states, void *stream);
/* Candidates of distinct keys: counts of those with no row are set; *n_new: how many had no entry.
 */
int launch_store_candidates(struct table_view t, struct keys_view in, const uint32_t *counts,
                            uint32_t *refs, uint32_t *n_new, void *stream);

/* What keys lost: rows [n] in any order, and counts that start at 0. */
struct loss_view {
    uint32_t *rows;
    uint32_t *n_rows, *n_candidates;
};
/* The entries of keys go, repeated ones too; refs [n] as launch_find tells. */
int launch_forget(struct table_view t, struct keys_view in, const uint32_t *refs,
                  struct loss_view loss, void *stream);
/* Rows n_after .. n_after + n are `numbers`; is_mover [n], which starts at 1, stays so for those
 * that are not among rows [n]. */
int launch_list_movers(const uint32_t *rows, uint32_t n, uint64_t n_after, uint8_t *is_mover,
                       uint32_t *numbers, void *stream);
/* Row movers[i] goes to the place of rows[i], for i < *n_movers, which is at most n. */
int launch_move_rows(struct table_view t, const uint32_t *rows, const uint32_t *movers,
                     const uint32_t *n_movers, uint32_t n, void *stream);

/* The rows of refs [n], rising, 0: none, are in this change set now. */
int launch_note_rows(struct table_view t, const uint32_t *refs, uint32_t n, uint8_t set,
                     void *stream);
/* The oldest set is forgotten: numbers of the first n_rows rows are one less, but 0 stays. */
int launch_age_rows(struct table_view t, uint64_t n_rows, void *stream);
/* Keys and slots (of slot tables) of rows [n]. */
int launch_list_keys(struct table_view t, const uint32_t *rows, uint32_t n, uint64_t *keys,
                     uint16_t *slots, void *stream);
/* Where rows of a cut are put, and which are still to be (frozen.h). */
struct kept_head {
    uint32_t n;     /* rows; more than capacity: some found no place */
    uint32_t asked; /* the view's of the last launch */
};
struct kept_view {
    uint32_t *done; /* [n_rows / 32 + 1] bits: rows that are not to be had any more */
    uint64_t n_rows;
    struct kept_head *head; /* device memory */
    uint64_t *keys;         /* [capacity] in memory of the device or pinned, as are */
    uint16_t *slots;        /* slot tables only */
    uint8_t *values;        /* strides are the table's */
    float *states;
    uint32_t capacity, asked;
};
/* Rows list[i] + first, of a list [n], or first + i, that are not done are then, and copied. */
int launch_keep(struct table_view t, struct kept_view k, const uint32_t *list, uint64_t first,
                uint64_t n, void *stream);
/* The bits of rows whose set is older. */
int launch_mark_unchanged(const uint8_t *sets, uint64_t n_rows, uint8_t oldest, uint32_t *done,
                          void *stream);
/* All candidates there are; *n_out starts at 0. */
int launch_pick_candidates(struct table_view t, struct entry *out, uint32_t *n_out,
                           uint64_t capacity, void *stream);

/* What an evicting table does: the rules are use.h's. */
struct use_view {
    uint32_t at; /* of a row's state */
    bool counts;
    uint64_t step, ttl; /* ttl 0: rows of any age may go */
};
/* New rows first_row .. first_row + n are used now. */
int launch_begin_use(struct table_view t, struct use_view use, uint64_t first_row, uint64_t n,
                     void *stream);
/* The rows of refs [n], rising, 0: none, have been pushed. */
int launch_note_use(struct table_view t, struct use_view use, const uint32_t *refs, uint32_t n,
                    void *stream);

/* Which rows may go. Starts at 0, first_expiry at UINT64_MAX. */
struct use_survey {
    unsigned long long n_may_go;     /* rows that are not marked and old enough */
    unsigned long long first_expiry; /* of any row; with a ttl */
};
/* The rows that go are those whose rank, cut behind bit `shift` of word `word`, is at most `bound`;
 * words are a rank's count, stamp, mixed and slot. Launches narrow it down, digit by digit. */
struct use_choice {
    uint64_t bound[4], left; /* of rows with the rank `bound` so far: how many of them go */
    uint32_t word, shift, is_done;
};
#define USE_DIGIT_BITS 12u
#define USE_BINS       (1u << USE_DIGIT_BITS)
#define USE_DIGITS_MAX 14u
struct use_digit {
    uint32_t word, shift, bits;
};
/* The digits of ranks, from the top, and how many they are. */
EMBD_INLINE uint32_t use_digits(bool counts, bool has_slots, struct use_digit *out)
{
    const uint32_t word_bits[4] = {24, 48, 64, 16};
    uint32_t n = 0;
    for (uint32_t word = counts ? 0 : 1; word < (has_slots ? 4u : 3u); word++)
        for (uint32_t left = word_bits[word]; left;) {
            out[n].word = word;
            out[n].bits = left < USE_DIGIT_BITS ? left : USE_DIGIT_BITS;
            left -= out[n].bits;
            out[n++].shift = left;
        }
    return n;
}
struct evict_view {
    uint64_t n_rows;
    const uint32_t *marks; /* as for launch_sweep; these rows stay */
    struct use_survey *survey;
    struct use_choice *choice;
    uint32_t *bins;         /* [USE_BINS], start at 0 */
    uint32_t *rows, *n_out; /* [n] the rows that go, in any order; *n_out starts at 0 */
};
int launch_survey(struct table_view t, struct use_view use, struct evict_view v, void *stream);
/* n of the n_may_go. */
int launch_choose(struct table_view t, struct use_view use, struct evict_view v, uint64_t n,
                  uint64_t n_may_go, void *stream);
/* One step of that: bins, of the rows whose rank agrees so far. The rest of the step is whoever's
 * launches it. */
int launch_count_digit(struct table_view t, struct use_view use, struct evict_view v,
                       struct use_digit digit, void *stream);
/* The rows of the choice: their numbers; their entries go. */
int launch_take(struct table_view t, struct use_view use, struct evict_view v, void *stream);

/* CUB. `temp` of at least the bytes that the function beside it says. */
size_t sort_bytes(uint32_t n);
int launch_sort(void *temp, size_t temp_bytes, const uint32_t *keys, uint32_t *keys_out,
                const uint32_t *values, uint32_t *values_out, uint32_t n, int key_bits,
                void *stream);
size_t select_bytes(uint32_t n);
int launch_select(void *temp, size_t temp_bytes, const uint32_t *values, const uint8_t *flags,
                  uint32_t *out, uint32_t *n_out, uint32_t n, void *stream);

#ifdef __cplusplus
}
#endif
#endif
