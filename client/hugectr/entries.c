/* entries.c - sorting the rows of an export.
 *
 * A radix sort, least significant digit first: a pass for each 10 bits of the key, of the slot and
 * of the GPU. Counting all digits takes one pass before; a digit that is the same in all entries
 * (as in small keys, or with one GPU) takes none. Between the passes of the key and those behind
 * them the entries of one key stand together, whatever their slots: then twins are looked for. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "client/hugectr/entries.h"

#define DIGIT_BITS 10u /* with 11 a pass takes a sixth longer: too many places to write to */
#define DIGITS     (1u << DIGIT_BITS)
#define KEY_PASSES 7u /* 70 bits */
#define PASSES     (KEY_PASSES + 2u)

#define HUGE_PAGE ((uint64_t)2 << 20)

struct entry *embd__entries_new(uint64_t n)
{
    uint64_t bytes;
    if (__builtin_mul_overflow(n + 1, sizeof(struct entry), &bytes) || bytes > SIZE_MAX - HUGE_PAGE)
        return NULL;
    if (bytes < HUGE_PAGE)
        return malloc(bytes);
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    struct entry *entries = aligned_alloc(HUGE_PAGE, bytes);
    if (entries)
        (void)madvise(entries, bytes, MADV_HUGEPAGE);
    return entries;
}

/* A slot and a GPU have one digit each: there are at most 1024. */
static uint32_t digit(const struct entry *entry, uint32_t pass)
{
    if (pass < KEY_PASSES)
        return (uint32_t)(entry->key >> (pass * DIGIT_BITS)) & (DIGITS - 1);
    return pass == KEY_PASSES ? entry->slot : entry->gpu;
}

/* One stable pass; false: all have the same digit, and nothing was moved. */
static bool move(const struct entry *from, struct entry *to, uint64_t n, uint32_t pass,
                 const uint64_t *counts)
{
    uint64_t next[DIGITS], at = 0;
    for (uint32_t d = 0; d < DIGITS; d++) {
        if (counts[d] == n)
            return false;
        next[d] = at;
        at += counts[d];
    }
    for (uint64_t i = 0; i < n; i++)
        to[next[digit(&from[i], pass)]++] = from[i];
    return true;
}

/* Among the entries of one key. */
static bool find_twins_of_key(const struct entry *run, uint64_t n, struct entry_twins *out)
{
    const struct entry *of_gpu[DIGITS] = {NULL};
    for (uint64_t i = 0; i < n; i++) {
        const struct entry **seen = &of_gpu[run[i].gpu];
        if (*seen != NULL) {
            bool is_lower = (*seen)->slot < run[i].slot;
            *out =
                (struct entry_twins){true, is_lower ? **seen : run[i], is_lower ? run[i] : **seen};
            return true;
        }
        *seen = &run[i];
    }
    return false;
}

/* Entries in the order of their keys. */
static void find_twins(const struct entry *entries, uint64_t n, struct entry_twins *out)
{
    for (uint64_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && entries[end].key == entries[first].key;)
            end++;
        if (end - first > 1 && find_twins_of_key(entries + first, end - first, out))
            return;
    }
}

bool embd__entries_sort(struct entry *entries, uint64_t n, struct entry_twins *twins_out)
{
    *twins_out = (struct entry_twins){.are_there = false};
    if (n < 2)
        return true;
    struct entry *from = entries, *to = embd__entries_new(n), *other = to;
    uint64_t(*counts)[DIGITS] = calloc(PASSES, sizeof *counts);
    if (to && counts) {
        for (uint64_t i = 0; i < n; i++)
            for (uint32_t pass = 0; pass < PASSES; pass++)
                counts[pass][digit(&entries[i], pass)]++;
        for (uint32_t pass = 0; pass < PASSES; pass++) {
            if (pass == KEY_PASSES)
                find_twins(from, n, twins_out);
            if (move(from, to, n, pass, counts[pass])) {
                struct entry *moved = to;
                to = from;
                from = moved;
            }
        }
        if (from != entries)
            memcpy(entries, from, n * sizeof *entries);
    }
    bool done = other && counts;
    free(other);
    free(counts);
    return done;
}
