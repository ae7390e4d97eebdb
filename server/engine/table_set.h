/* table_set.h - a set of a shard's tables, by their numbers. */
#ifndef EMBD_ENGINE_TABLE_SET_H
#define EMBD_ENGINE_TABLE_SET_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/limit.h"

#define TABLE_SET_WORDS (LIMIT_TABLES / 64)

/* As records have it. */
struct table_set {
    uint64_t words[TABLE_SET_WORDS];
    uint64_t may_have_others; /* TABLES_..., else 0 */
};

#define TABLES_UNKNOWN 1u /* it was not noted which: all there are may belong to it */
#define TABLES_BEYOND  2u /* tables of the other kind belong to it too: foreign.h */

static inline void table_set_add(struct table_set *set, uint32_t number)
{
    set->words[number / 64] |= UINT64_C(1) << number % 64;
}

static inline void table_set_remove(struct table_set *set, uint32_t number)
{
    set->words[number / 64] &= ~(UINT64_C(1) << number % 64);
}

static inline bool table_set_has(const struct table_set *set, uint32_t number)
{
    return (set->words[number / 64] >> number % 64 & 1) != 0;
}

/* Of the tables that are noted. */
static inline bool table_set_meets(const struct table_set *a, const struct table_set *b)
{
    uint64_t common = 0;
    for (uint32_t i = 0; i < TABLE_SET_WORDS; i++)
        common |= a->words[i] & b->words[i];
    return common != 0;
}

static inline struct table_set table_set_both(const struct table_set *a, const struct table_set *b)
{
    struct table_set both = {.may_have_others = a->may_have_others | b->may_have_others};
    for (uint32_t i = 0; i < TABLE_SET_WORDS; i++)
        both.words[i] = a->words[i] | b->words[i];
    return both;
}

static inline bool table_set_is_within(const struct table_set *part, const struct table_set *all)
{
    uint64_t beyond = 0;
    for (uint32_t i = 0; i < TABLE_SET_WORDS; i++)
        beyond |= part->words[i] & ~all->words[i];
    return beyond == 0;
}

#endif
