/* distinct.c - an open-addressing table at half load at most, probed in blocks: the entries of a
 * block are prefetched before any is looked at, so that no cache miss waits for another. */
#include "client/call/distinct.h"

#include <stdlib.h>

#include "proto/route.h"

#define BLOCK 32u

static bool make_room(struct distinct *d, uint64_t n)
{
    size_t capacity = 1024;
    while (capacity < 2 * n)
        capacity *= 2;
    if (d->capacity >= capacity && d->stamp != UINT32_MAX) {
        d->stamp++;
        return true;
    }
    free(d->entries);
    d->capacity = d->capacity > capacity ? d->capacity : capacity;
    d->entries = calloc(d->capacity, sizeof *d->entries);
    d->stamp = 1;
    if (d->entries == NULL)
        d->capacity = 0;
    return d->entries != NULL;
}

/* The number of a key, `next` when it is new; then its entry is made. */
static uint32_t find_or_add(struct distinct *d, size_t at, uint64_t key, uint32_t slot,
                            const uint16_t *known_slots, uint32_t next)
{
    for (;; at = (at + 1) & (d->capacity - 1)) {
        struct distinct_entry *entry = &d->entries[at];
        if (entry->stamp != d->stamp) {
            *entry = (struct distinct_entry){key, d->stamp, next};
            return next;
        }
        if (entry->key == key && (known_slots == NULL || known_slots[entry->number] == slot))
            return entry->number;
    }
}

static size_t place_of(const struct distinct *d, uint64_t key, uint32_t slot)
{
    return (size_t)embd__mix64(key + slot * 0x9e3779b97f4a7c15ULL) & (d->capacity - 1);
}

int64_t embd__distinct(struct distinct *d, const uint64_t *keys, const uint16_t *slots, uint64_t n,
                       uint32_t *numbers_out, uint64_t *keys_out, uint16_t *slots_out)
{
    size_t places[BLOCK];
    uint32_t n_distinct = 0;
    if (!make_room(d, n))
        return -1;
    for (uint64_t begin = 0; begin < n; begin += BLOCK) {
        uint64_t count = n - begin < BLOCK ? n - begin : BLOCK;
        for (uint64_t i = 0; i < count; i++) {
            places[i] = place_of(d, keys[begin + i], slots == NULL ? 0 : slots[begin + i]);
            __builtin_prefetch(&d->entries[places[i]]);
        }
        for (uint64_t i = 0; i < count; i++) {
            uint64_t key = keys[begin + i];
            uint16_t slot = slots == NULL ? 0 : slots[begin + i];
            uint32_t number =
                find_or_add(d, places[i], key, slot, slots == NULL ? NULL : slots_out, n_distinct);
            numbers_out[begin + i] = number;
            if (number == n_distinct) {
                keys_out[number] = key;
                if (slots != NULL)
                    slots_out[number] = slot;
                n_distinct++;
            }
        }
    }
    return n_distinct;
}

void embd__distinct_fini(struct distinct *d)
{
    free(d->entries);
    *d = (struct distinct){0};
}
