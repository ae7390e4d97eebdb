/* key_set.c - see key_set.h. */
#include "proto/key_set.h"

uint32_t embd__key_set_share(const struct key_set *set, uint32_t n_keys)
{
    uint64_t n = 0, places = set->n_residues > 0 ? set->n_residues : KEY_SET_PLACES;
    for (uint32_t i = 0; i < KEY_SET_WORDS; i++)
        n += (uint32_t)__builtin_popcount(set->words[i]);
    return (uint32_t)(n * n_keys / places);
}
