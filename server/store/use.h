/* use.h - what a table that evicts remembers of each row, and which rows go first: written once for
 * host and device.
 *
 * A row's use stands last in its state: the table's step at its last push (stamp.h), and with
 * evict_lfu how often it was pushed, with evict_score the score that a push gave it. Which rows go
 * depends on steps, counts, scores and keys only, never on where rows lie: a journal that is
 * replayed, or a dump that is loaded, evicts the same.
 *
 * With ttl_seconds the second of the last push stands where the step does, by the table's clock.
 * Stores read no clock either: a push brings its time (store_change.seconds), and a record has it.
 * The clock is the latest time that any brought, so the stamps of rows never fall.
 *
 * A half-life makes counts decay. Steps are divided into epochs of half_life steps; a count is
 * halved, and rounded down, when a push finds that epochs have begun since the last one. Compared
 * is count * 2^epoch with the count and epoch of the last push: in that order two rows stay until
 * one is pushed, however many epochs pass, which is what lets eviction_queue.c look ahead.
 *
 * A score stays until a push gives the key another one, the largest of its occurrences. Only that
 * makes a row's rank fall. -inf is no score.
 *
 * Also compiled as CUDA C++. */
#ifndef EMBD_STORE_USE_H
#define EMBD_STORE_USE_H

#include <stdbool.h>

#include "embd/schema.h"
#include "proto/dtype.h"
#include "proto/route.h"
#include "proto/stamp.h"

#define USE_COUNT_MAX  16777215.0f /* the last whole number that f32 counts to */
#define USE_COUNT_BITS 24u
#define USE_SCORE_BITS 32u

/* A pass takes at least this part of the capacity away, which keeps the next one far off. */
#define USE_PASS_PART 16u

/* A new row's, whose count or score is 0. */
EMBD_INLINE void use_begin(float *use, uint64_t step)
{
    embd__stamp_put(use, step);
}

/* The inputs of a table's ranks, besides steps and keys. */
struct use_rule {
    bool counts, occurrences; /* pushes, or each occurrence of a key */
    bool scores;              /* pushes give them; they stand where counts do */
    uint64_t half_life;       /* of counts, in steps; 0: they do not decay */
};

EMBD_INLINE struct use_rule use_rule_of(const embd_schema *s)
{
    struct use_rule rule;
    rule.counts = s->on_full == EMBD_ON_FULL_EVICT_LFU;
    rule.occurrences = rule.counts && s->lfu_occurrences;
    rule.scores = s->on_full == EMBD_ON_FULL_EVICT_SCORE;
    rule.half_life = rule.counts ? s->lfu_half_life : 0;
    return rule;
}

/* Epochs are counted as far as count * 2^epoch can be compared in 64 bits. */
#define USE_EPOCH_MAX ((1ull << 40) - 32)

EMBD_INLINE uint64_t use_epoch(uint64_t step, uint64_t half_life)
{
    uint64_t epoch = step / half_life;
    return epoch < USE_EPOCH_MAX ? epoch : USE_EPOCH_MAX;
}

/* A count of the step `last` at a later one. */
EMBD_INLINE uint64_t use_decayed(uint64_t count, uint64_t last, uint64_t step, uint64_t half_life)
{
    uint64_t begun = use_epoch(step, half_life) - use_epoch(last, half_life);
    return begun < 24 ? count >> begun : 0;
}

/* The count after a push that named the key n times, n > 0. */
EMBD_INLINE float use_counted(const float *use, uint64_t step, const struct use_rule *rule,
                              uint32_t n)
{
    uint64_t count = embd__stamp_half(use[2]), added = rule->occurrences ? n : 1;
    if (rule->half_life != 0)
        count = use_decayed(count, embd__stamp_get(use), step, rule->half_life);
    return count + added < (uint64_t)USE_COUNT_MAX ? (float)(count + added) : USE_COUNT_MAX;
}

EMBD_INLINE void use_note(float *use, uint64_t step, const struct use_rule *rule, uint32_t n)
{
    if (rule->counts)
        use[2] = use_counted(use, step, rule, n);
    embd__stamp_put(use, step);
}

/* Numbers in the order of scores; -0 is 0. */
EMBD_INLINE uint32_t use_score_order(float score)
{
    uint32_t bits = embd__f32_bits(score);
    if (bits == 0x80000000u)
        bits = 0;
    return bits >> 31 ? ~bits : bits | 0x80000000u;
}

#define USE_NO_SCORE 0x007fffffu /* the order of -inf */

/* Of a push: the highest order of the key's scores. */
EMBD_INLINE void use_note_score(float *use, uint32_t order)
{
    if (order > USE_NO_SCORE)
        use[2] = embd__f32_from_bits(order >> 31 ? order & 0x7fffffffu : ~order);
}

/* Ordered as count * 2^epoch: the exponent, then the 23 bits behind the count's first. */
EMBD_INLINE uint64_t use_scaled(uint64_t count, uint64_t epoch)
{
    uint64_t bits = 0;
    if (count == 0)
        return 0;
    while (count >> bits > 1)
        bits++;
    return (epoch + bits + 1) << 23 | (count << (23 - bits) & 0x7fffff);
}

/* The first word of a row's rank, which has USE_COUNT_BITS, USE_SCORE_BITS or, if counts decay, 64
 * bits. */
EMBD_INLINE uint64_t use_count(const float *use, const struct use_rule *rule)
{
    if (rule->scores)
        return use_score_order(use[2]);
    if (!rule->counts)
        return 0;
    uint64_t count = embd__stamp_half(use[2]);
    return rule->half_life == 0
               ? count
               : use_scaled(count, use_epoch(embd__stamp_get(use), rule->half_life));
}

/* The lowest go first, compared in this order. */
struct use_rank {
    uint64_t count, stamp, mixed;
    uint32_t slot;
};

EMBD_INLINE struct use_rank use_rank_of(const float *use, const struct use_rule *rule, uint64_t key,
                                        uint32_t slot)
{
    struct use_rank rank;
    rank.count = use_count(use, rule);
    rank.stamp = embd__stamp_get(use);
    rank.mixed = embd__mix64(key);
    rank.slot = slot;
    return rank;
}

EMBD_INLINE bool use_goes_first(const struct use_rank *a, const struct use_rank *b)
{
    if (a->count != b->count)
        return a->count < b->count;
    if (a->stamp != b->stamp)
        return a->stamp < b->stamp;
    if (a->mixed != b->mixed)
        return a->mixed < b->mixed;
    return a->slot < b->slot;
}

/* A clock, or the time of a row's use if that is later. */
EMBD_INLINE uint64_t use_later(uint64_t clock, const float *use)
{
    uint64_t stamp = embd__stamp_get(use);
    return stamp > clock ? stamp : clock;
}

/* evict_ttl: the first step or second at which a row has expired; UINT64_MAX: never. */
EMBD_INLINE uint64_t use_expiry(uint64_t stamp, uint64_t ttl)
{
    return stamp <= UINT64_MAX - ttl ? stamp + ttl : UINT64_MAX;
}

#endif
