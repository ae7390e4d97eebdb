/* key_set.h - a set of keys, by their vshards or residues (placement.h): those that take part in a
 * call whose keys lie in memory of a GPU. */
#ifndef EMBD_PROTO_KEY_SET_H
#define EMBD_PROTO_KEY_SET_H

#include "proto/route.h"

#define KEY_SET_PLACES 1024u /* vshards; residues are that many at most */
#define KEY_SET_WORDS  (KEY_SET_PLACES / 32)

struct key_set {
    uint32_t n_residues; /* 1 to KEY_SET_PLACES: keys go by key % n_residues; 0: by vshards */
    uint32_t words[KEY_SET_WORDS]; /* bit p % 32 of word p / 32: keys of the place p are in it */
};

/* Below KEY_SET_PLACES. */
EMBD_INLINE uint32_t embd__key_place(uint32_t n_residues, uint64_t key)
{
    return (uint32_t)(n_residues > 0 ? key % n_residues : embd__mix64_high(key) >> 54);
}

EMBD_INLINE bool embd__key_set_has(const struct key_set *set, uint64_t key)
{
    uint32_t place = embd__key_place(set->n_residues, key);
    return (set->words[place / 32] >> place % 32 & 1) != 0;
}

/* About how many of n keys are in it: as many as if places had equally many. */
uint32_t embd__key_set_share(const struct key_set *set, uint32_t n_keys);

#endif
