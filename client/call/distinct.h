/* distinct.h - numbers the distinct keys of a batch in the order they first come. */
#ifndef EMBD_CALL_DISTINCT_H
#define EMBD_CALL_DISTINCT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A key is in the set if its stamp is that of the current batch: nothing is cleared between
 * batches. */
struct distinct_entry {
    uint64_t key;
    uint32_t stamp, number;
};

/* Zero is ready for use. Owner: one thread. */
struct distinct {
    struct distinct_entry *entries;
    size_t capacity; /* 0 or a power of two */
    uint32_t stamp;
};

/* numbers_out[i] is the number of (slot_of[i], keys[i]), counted from 0; keys_out[number] and
 * slots_out[number] are the key and its slot. All arrays have room for n; `slots` NULL: keys alone
 * decide, slots_out is not used. Returns how many distinct ones there are, or -1: out of memory. n
 * < 2^31. */
int64_t embd__distinct(struct distinct *d, const uint64_t *keys, const uint16_t *slots, uint64_t n,
                       uint32_t *numbers_out, uint64_t *keys_out, uint16_t *slots_out);
void embd__distinct_fini(struct distinct *d);

#endif
