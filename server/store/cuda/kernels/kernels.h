/* kernels.h - what C files and kernels share: the table as a kernel sees it, and one launcher for
 * each operation. A launcher only enqueues on `stream` and returns 0 or a CUDA error number.
 * Pointers are to memory that the device can reach: its own, or pinned memory of the host.
 *
 * Entry: 16 bytes. Four of them are a bucket of 64 bytes, one memory transaction. A find reads the
 * bucket that the hash of (key, slot) names, and the next one only if the bucket is marked as
 * overflowed. An entry whose `ref` is 0 is empty, so every key value is legal.
 *
 * Rows: value number r of a table lies at values + r * stride, its state at states + r *
 * state_stride, its key at row_keys[r]. Rows are numbered without gaps: when one is removed, the
 * last row takes its place (launch_move_rows). The arrays grow at their end and never move
 * (device.h, ranges). */
#ifndef EMBD_CUDA_KERNELS_H
#define EMBD_CUDA_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/initializer.h"
#include "proto/key_set.h"
#include "server/store/secret.h"
#include "server/store/use.h"
#include "server/store/wholerow.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Values of `ref`: 0 (the entry is empty), row + 1, or REF_CANDIDATE + the number of times that a
 * key without a row was seen. */
#define REF_CANDIDATE  0x80000000u
#define REF_SIGHTS_MAX 0x3fffffffu /* as on the host */
#define REF_ROWS_MAX   0x7fffffffu
/* No entry has it. Of keys outside keys_view.own, in the refs of pulls; elsewhere these have 0. */
#define REF_OUTSIDE 0xffffffffu

#define ENTRY_BUCKET 4u
#define ENTRY_OVERFLOW                                                                             \
    0x80000000u /* in tail of a bucket's first entry: the search continues in the next bucket */
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
    uint8_t *row_sets;   /* change set of each row (change_sets.c), or NULL */
    uint32_t dim, stride;
    uint32_t state_floats, state_stride; /* floats of a row's state; distance of two rows' states */
    uint32_t optimizer_floats; /* the optimizer's part of these, which starts as first_state */
    embd_dtype dtype;
    bool is_stochastic; /* steps' results are rounded by chance (rounding.h) */
    bool has_master;    /* rows are rounded from master values in their state, */
    uint32_t master_at; /* which begin there */
    struct initializer initializer;
    const float *slot_bounds;    /* uniform_slot, else NULL */
    const uint64_t *slot_starts; /* [n_slots + 1] or NULL */
    uint32_t n_slots;
    float first_state;
    uint32_t admit_after;
    bool forgets; /* a search finds rows only: all candidates are about to be forgotten */
    struct store_secret secret; /* of the key table */
};

/* Keys begin .. begin + n of a request; arrays start at these. */
struct keys_view {
    uint32_t n, n_rows;
    uint32_t first;          /* first key: offsets[r] - first is an index here */
    const uint64_t *keys;    /* [n] */
    const uint32_t *offsets; /* [n_rows + 1] or NULL: row r is key r */
    const uint16_t *slots;   /* [n_rows], slot tables only */
    const float *weights;    /* [n] or NULL */
    uint32_t *row_of;        /* [n] row of each key, where a push or slots need it; else NULL */
    /* Only these keys take part; NULL: all. Memory of the host: launchers read it, and kernels get
     * it by value. Not with offsets or slots. */
    const struct key_set *own;
};

/* row_of of every key, from the offsets. */
int launch_expand(struct keys_view in, void *stream);

/* Keys and gradients of `dtype`, all aligned to 16 bytes, in memory that others may write to. */
struct taken {
    const uint64_t *keys;
    uint64_t *keys_to; /* [n_keys] */
    uint32_t n_keys;
    uint32_t row_bytes;        /* of a gradient, with `own` */
    const struct key_set *own; /* as of keys_view: gradients of other keys are not read */
    const void *from;
    void *to; /* [bytes] */
    uint64_t bytes;
    embd_dtype dtype;
    uint32_t *bad;  /* starts at 0; one more than which 16 bytes have a value that is not finite */
    uint32_t *stop; /* set to 1 then; or NULL */
};
/* Copies them, each byte read once. Without `own`. */
int launch_checked_copy(struct taken taken, void *stream);
/* The same with `own`, in which `from`, and `bad`, may be NULL: there are no gradients, or they may
 * be anything. */
int launch_own_copy(struct taken taken, void *stream);

/* What a push sorts: a ref, row + 1 or 0: dropped, and the position of its key. */
EMBD_INLINE uint64_t item_of(uint32_t ref, uint32_t position)
{
    return (uint64_t)ref << 32 | position;
}

EMBD_INLINE uint32_t item_ref(uint64_t item)
{
    return (uint32_t)(item >> 32);
}

/* items[i]: that of refs[i], whose key is at position i. launch_refs: refs[i], that of items[i]. */
int launch_items(const uint32_t *refs, uint32_t n, uint64_t *items, void *stream);
int launch_refs(const uint64_t *items, uint32_t n, uint32_t *refs, void *stream);

/* refs[i]: the ref in the entry of key i; statuses (or NULL): hit or missing. */
int launch_find(struct table_view t, struct keys_view in, uint32_t *refs, uint8_t *statuses,
                void *stream);

/* What a pull found, kept for a push of the same keys: lookup.h. */
struct found_view {
    uint64_t *keys;  /* [n]; NULL: it is not kept. With keys_view.own [n + 1]: the last starts at 0
                      * and is 1 where a key that takes part has no row */
    uint64_t *items; /* [n] */
    uint16_t *slots; /* [n], slot tables only */
};
/* Sets them, after launch_find. */
int launch_note_found(struct table_view t, struct keys_view in, const uint32_t *refs,
                      struct found_view found, void *stream);
/* Sets *differs, which starts at 0, and *stop, if it is not NULL, unless the lookup, its items
 * sorted, has these keys, and each has a row. */
int launch_compare(struct table_view t, struct keys_view in, struct found_view found,
                   uint32_t *differs, uint32_t *stop, void *stream);

struct pull_view {
    struct keys_view in;
    embd_dtype dtype;
    bool zero_missing;
    bool is_aligned;         /* four columns at a time may be stored at once */
    embd_combiner divide;    /* mean or sqrtn: divide; concat: leave the sum */
    uint32_t first_row;      /* launch_gather and launch_pool make rows from here on */
    void *values;            /* [n_rows][dim] of dtype */
    uint8_t *statuses;       /* [n] or NULL */
    struct found_view found; /* set by launch_gather */
};

/* Whether launch_gather supports this pull: one key a row, the table's dtype, 16-byte pieces a
 * power of two. */
bool gather_fits(const struct table_view *t, const struct pull_view *pull);
/* Find and copy in one kernel. */
int launch_gather(struct table_view t, struct pull_view pull, void *stream);

/* Several small pulls that launch_gather supports, in one launch. */
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

/* The same for tables too large for the device's address translation: after launch_find, copies
 * only rows first .. end. Consecutive windows of the table are much faster than rows anywhere
 * (gather.cu). */
int launch_gather_window(struct table_view t, struct pull_view pull, const uint32_t *refs,
                         uint64_t first, uint64_t end, void *stream);
/* Any other pull, after launch_find. */
int launch_pool(struct table_view t, struct pull_view pull, const uint32_t *refs, void *stream);

/* Counts of a request that may create rows: made on the device, read by the host. */
struct plan_report {
    uint32_t misses;         /* 1: there are keys without a row */
    uint32_t n_leaders;      /* distinct keys that get a row if there is room */
    uint32_t n_filtered;     /* distinct keys that are not admitted yet */
    uint32_t n_filtered_new; /* of these, without an entry */
    uint32_t n_promoted;     /* leaders with room that already have an entry */
    uint32_t is_wrong;       /* 1: not all of the keys that were expected to be new are */
    uint32_t has_own;        /* 1: with keys_view.own: a key takes part */
};

/* The distinct keys without a row. A group is a place in a hash table of n_groups places, a power
 * of two of at least twice the keys; `claims`, and `marks` if given, start at 0. A key that is
 * alone at its mark is a leader and has no group. */
#define GROUP_OUTSIDE 0xffffffffu /* with keys_view.own: the key takes no part */
#define PLAN_MARKS    4u          /* marks of each group; two bits each: seen once, seen again */
struct plan_view {
    uint32_t *refs;      /* [n] of the keys' entries, or 0 */
    uint32_t *positions; /* [n] 0, 1, 2, ... */
    uint32_t *group;     /* [n] the group of each key without a row, or GROUP_OUTSIDE */
    uint32_t n_groups;
    uint32_t *claims;           /* [n_groups] first position of the group + 1, or 0 */
    uint32_t *marks;            /* [n_groups * PLAN_MARKS / 16], or NULL: every key gets a group */
    uint8_t *is_leader;         /* [n] 1: the first key of a group, and admitted */
    uint32_t *leaders;          /* [n] positions of leaders, rising */
    struct plan_report *report; /* device memory, starts at 0 */
};

/* Sets refs, positions, is_leader and the counts of the report. */
int launch_search(struct table_view t, struct keys_view in, struct plan_view p, void *stream);
/* For a push whose keys probably all have rows: sets refs, items, *misses and, if it is not NULL,
 * *stop alone. *misses starts at 0. */
int launch_look(struct table_view t, struct keys_view in, struct plan_view p, uint64_t *items,
                uint32_t *misses, uint32_t *stop, void *stream);
int launch_group(struct table_view t, struct keys_view in, struct plan_view p, void *stream);
/* Sets n_promoted, for the first `room` leaders; after the selection of leaders. */
int launch_count(struct keys_view in, struct plan_view p, uint64_t room, void *stream);
/* The first n_insert leaders become rows first_row, first_row + 1, ... With `sights`, other keys
 * count one more sight, and some leaders have entries. launch_resolve then sets refs and statuses
 * (or NULL) to their values after the request. Existing entries change in one launch and new ones
 * in another, so that no search meets a half-written entry. */
int launch_create(struct table_view t, struct keys_view in, struct plan_view p, uint32_t n_insert,
                  uint64_t first_row, bool sights, void *stream);
int launch_resolve(struct table_view t, struct keys_view in, struct plan_view p, uint8_t *statuses,
                   void *stream);

/* Keys that are expected to be new, each once, are not looked up before they get their rows: key i
 * gets first_row + i. launch_expect sets is_wrong of the report if a key occurs twice. Behind it
 * launch_place_expected, or launch_first, gives the keys entries and rows, and sets is_wrong if one
 * has an entry. Then launch_unexpect takes the entries away again. No candidates may be left. */
int launch_expect(struct table_view t, struct keys_view in, struct plan_view p, void *stream);
int launch_place_expected(struct table_view t, struct keys_view in, struct plan_view p,
                          uint64_t first_row, void *stream);
int launch_unexpect(struct table_view t, struct keys_view in, uint64_t first_row, void *stream);

/* Inserts every entry of `from` into `to`, which is empty and large enough. */
int launch_rebuild(struct table_view from, struct table_view to, void *stream);

/* A run of more than EMBD_SUM_RUN occurrences; it is summed in pieces. */
struct long_run {
    uint32_t at, n_chunks, first_chunk;
};
struct run_chunk {
    uint32_t begin, end;
};
struct run_counts {
    uint32_t n_long, n_chunks;
    uint32_t stop; /* not 0: launch_apply does nothing */
};

struct push_view {
    struct keys_view in;
    embd_dtype dtype;
    const void *grads;         /* [n_rows][dim] of dtype */
    bool is_aligned;           /* four columns at a time may be loaded at once */
    const uint64_t *items;     /* [n] rising */
    struct run_counts *counts; /* starts at 0 */
    struct long_run *longs;    /* [n / EMBD_SUM_RUN + 1] */
    struct run_chunk *chunks;  /* [2 * n / EMBD_SUM_RUN + 2] */
    float *partials;           /* [as chunks][dim rounded up to 4] */
    float *sums;               /* [n][dim], launch_wholerow only */
};

/* A push of distinct keys that all get a new row. */
struct first_push {
    struct push_view push; /* items and the fields after it are unused */
    embd_optimizer_kind kind;
    struct optimizer_step step;
    bool is_expected; /* the keys are expected to be new: launch_expect was called */
};
/* Whether launch_first supports the push: not every optimizer and type. */
bool first_fits(const struct table_view *t, const struct push_view *push);
/* Replaces launch_create and launch_apply: key i gets row first_row + i, initialized and stepped at
 * once. No key has an entry. */
int launch_first(struct table_view t, struct plan_view p, struct first_push first,
                 uint64_t first_row, void *stream);

/* One optimizer step of every row that the push names. */
int launch_apply(struct table_view t, struct push_view push, embd_optimizer_kind kind,
                 struct optimizer_step step, void *stream);

/* The same of a table whose steps need the whole row (wholerow.h). counts, longs, chunks and
 * partials are unused. */
int launch_wholerow(struct table_view t, struct push_view push, struct wholerow_step step,
                    void *stream);

/* update = global: steps the first n_rows rows with gradient 0, except rows whose bit is set in
 * marks, [n_rows / 32 + 1]; NULL: all rows. */
int launch_sweep(struct table_view t, uint64_t n_rows, const uint32_t *marks,
                 embd_optimizer_kind kind, struct optimizer_step step, void *stream);
/* Sets the bits of the rows that refs [n] name. */
int launch_mark(const uint32_t *refs, uint32_t n, uint32_t *marks, void *stream);

/* Writes values [n][dim] and states [n][state_floats] of a block into the rows that refs name; of
 * equal refs the last position wins. */
int launch_store_rows(struct table_view t, const uint32_t *refs, const uint32_t *positions,
                      uint32_t n, const void *values, const float *states, void *stream);
/* Copies the rows that refs [n] name to values [n][dim], and their states to [n][state_floats] if
 * `states` is not NULL: zeros where a ref names none. */
int launch_read_rows(struct table_view t, const uint32_t *refs, uint32_t n, void *values,
                     float *states, void *stream);
/* Sets the counts of candidates with distinct keys, except keys with a row; *n_new: how many had no
 * entry. */
int launch_store_candidates(struct table_view t, struct keys_view in, const uint32_t *counts,
                            uint32_t *refs, uint32_t *n_new, void *stream);

/* Result of launch_forget: removed rows [n] in any order, and counts that start at 0. */
struct loss_view {
    uint32_t *rows;
    uint32_t *n_rows, *n_candidates;
};
/* Removes the entries of keys, which may repeat; refs [n] as launch_find sets them. */
int launch_forget(struct table_view t, struct keys_view in, const uint32_t *refs,
                  struct loss_view loss, void *stream);
/* Removes the entries of all candidates. */
int launch_forget_candidates(struct table_view t, void *stream);
/* Sets numbers[i] to n_after + i, and clears is_mover [n], which starts at 1, for numbers that are
 * among rows [n]. */
int launch_list_movers(const uint32_t *rows, uint32_t n, uint64_t n_after, uint8_t *is_mover,
                       uint32_t *numbers, void *stream);
/* Moves row movers[i] to the place of rows[i], for i < *n_movers, which is at most n. */
int launch_move_rows(struct table_view t, const uint32_t *rows, const uint32_t *movers,
                     const uint32_t *n_movers, uint32_t n, void *stream);

/* Puts the rows of refs [n], 0: none, into this change set. */
int launch_note_rows(struct table_view t, const uint32_t *refs, uint32_t n, uint8_t set,
                     void *stream);
/* Drops a set: set numbers of the first n_rows rows that are `from`, at least 1, or more are one
 * less. */
int launch_age_rows(struct table_view t, uint64_t n_rows, uint8_t from, void *stream);
/* Copies keys and, in slot tables, slots of rows [n]. */
int launch_list_keys(struct table_view t, const uint32_t *rows, uint32_t n, uint64_t *keys,
                     uint16_t *slots, void *stream);
/* The destination of a cut's rows, and the rows that are still to be copied (frozen.h). */
struct kept_head {
    uint32_t n;     /* rows copied; more than capacity: some found no place */
    uint32_t asked; /* `asked` of the last finished launch */
};
struct kept_view {
    uint32_t *done; /* [n_rows / 32 + 1] bits: rows that were copied or are not in the cut */
    uint64_t n_rows;
    struct kept_head *head; /* device memory */
    uint64_t *keys;         /* [capacity] device or pinned memory, as are slots, values, states */
    uint16_t *slots;        /* slot tables only */
    uint8_t *values;        /* strides are the table's */
    float *states;
    uint32_t capacity, asked;
};
/* Copies rows list[i] + first, of a list [n], or first + i without one, unless they are done; marks
 * them done. */
int launch_keep(struct table_view t, struct kept_view k, const uint32_t *list, uint64_t first,
                uint64_t n, void *stream);
/* Sets the bits of rows whose set is older than `oldest`. */
int launch_mark_unchanged(const uint8_t *sets, uint64_t n_rows, uint8_t oldest, uint32_t *done,
                          void *stream);
/* Copies all candidates; *n_out starts at 0. */
int launch_pick_candidates(struct table_view t, struct entry *out, uint32_t *n_out,
                           uint64_t capacity, void *stream);

/* How an evicting table records use; the rules are in use.h. */
struct use_view {
    uint32_t at; /* index in a row's state */
    struct use_rule rule;
    uint64_t time, lifetime; /* steps or seconds; lifetime 0: rows of any age may go */
};
/* Begins the use record of new rows first_row .. first_row + n. */
int launch_begin_use(struct table_view t, struct use_view use, uint64_t first_row, uint64_t n,
                     void *stream);
/* Records a push of the rows of items [n], rising. */
int launch_note_use(struct table_view t, struct use_view use, const uint64_t *items, uint32_t n,
                    void *stream);
/* Gives the rows of items [n], rising, the highest of their keys' scores. */
int launch_note_scores(struct table_view t, struct use_view use, const uint64_t *items,
                       const float *scores, uint32_t n, void *stream);

/* Counts of rows that may go. Starts at 0, first_expiry at UINT64_MAX. */
struct use_survey {
    unsigned long long n_may_go;     /* rows that are unmarked and old enough */
    unsigned long long first_expiry; /* least expiry of any row; with a ttl */
};
/* The rows to evict: those whose rank, cut behind bit `shift` of word `word`, is at most `bound`.
 * The words of a rank are count, stamp, mixed and slot. Launches narrow the bound down, digit by
 * digit. */
struct use_choice {
    uint64_t bound[4], left; /* rows to evict among those with the rank `bound` so far */
    uint32_t word, shift, is_done;
};
#define USE_DIGIT_BITS 12u
#define USE_BINS       (1u << USE_DIGIT_BITS)
#define USE_DIGITS_MAX 18u
struct use_digit {
    uint32_t word, shift, bits;
};
/* Fills in the digits of ranks, from the top; returns their number. */
EMBD_INLINE uint32_t use_digits(const struct use_rule *rule, bool has_slots, struct use_digit *out)
{
    const uint32_t count_bits = rule->scores ? USE_SCORE_BITS : USE_COUNT_BITS;
    const uint32_t word_bits[4] = {rule->half_life ? 64 : count_bits, 48, 64, 16};
    uint32_t n = 0;
    for (uint32_t word = rule->counts || rule->scores ? 0 : 1; word < (has_slots ? 4u : 3u); word++)
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
    const uint32_t *marks; /* as for launch_sweep; marked rows stay */
    struct use_survey *survey;
    struct use_choice *choice;
    uint32_t *bins;         /* [USE_BINS], start at 0 */
    uint32_t *rows, *n_out; /* [n] the rows to evict, in any order; *n_out starts at 0 */
};
int launch_survey(struct table_view t, struct use_view use, struct evict_view v, void *stream);
/* Chooses n of the n_may_go rows. */
int launch_choose(struct table_view t, struct use_view use, struct evict_view v, uint64_t n,
                  uint64_t n_may_go, void *stream);
/* Counts one digit: the bins of rows whose rank matches so far. The caller picks the bin. */
int launch_count_digit(struct table_view t, struct use_view use, struct evict_view v,
                       struct use_digit digit, void *stream);
/* Lists the chosen rows and removes their entries. */
int launch_take(struct table_view t, struct use_view use, struct evict_view v, void *stream);

/* CUB. `temp` has at least the bytes that the function beside it returns. */
size_t sort_bytes(uint32_t n);
int launch_sort(void *temp, size_t temp_bytes, const uint32_t *keys, uint32_t *keys_out,
                const uint32_t *values, uint32_t *values_out, uint32_t n, int key_bits,
                void *stream);
size_t sort_items_bytes(uint32_t n);
/* By refs of so many bits; equal refs stay in their order. */
int launch_sort_items(void *temp, size_t temp_bytes, const uint64_t *items, uint64_t *items_out,
                      uint32_t n, int ref_bits, void *stream);
size_t select_bytes(uint32_t n);
int launch_select(void *temp, size_t temp_bytes, const uint32_t *values, const uint8_t *flags,
                  uint32_t *out, uint32_t *n_out, uint32_t n, void *stream);

#ifdef __cplusplus
}
#endif
#endif
