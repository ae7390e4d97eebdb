/* entries.h - rows by where they are to stand in an export, and their order: by GPU, slot and key.
 */
#ifndef EMBD_HUGECTR_ENTRIES_H
#define EMBD_HUGECTR_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

struct entry {
    uint64_t key, place; /* number of the row where it was kept */
    uint16_t gpu, slot;
};

/* Room for n, in huge pages where the kernel has them: entries are moved about at random. NULL: out
 * of memory; free() frees. */
struct entry *embd__entries_new(uint64_t n);

/* Two entries of one key in two slots of one GPU. */
struct entry_twins {
    bool are_there;
    struct entry a, b; /* a's slot is the lower one */
};

/* Sorts by GPU, then slot, then key, unsigned, and reports twins, if there are any. False: no
 * memory for a second array. */
bool embd__entries_sort(struct entry *entries, uint64_t n, struct entry_twins *twins_out);

#endif
