/* own_pair.h - the stores of several shards, each with a set of vshards or residues and a model
 * beside it, that get the same calls in the same memory of a device: each takes the keys of its
 * set. */
#ifndef EMBD_TESTS_CUDA_OWN_PAIR_H
#define EMBD_TESTS_CUDA_OWN_PAIR_H

#include "proto/key_set.h"
#include "tests/cuda/lent_pair.h"

enum { OWN_SHARDS = 4, OWN_POOL = 300, OWN_NOBODY = OWN_SHARDS };

struct owners {
    struct pair pairs[OWN_SHARDS];
    struct key_set sets[OWN_SHARDS];
    uint32_t n_shards, n_residues; /* 0: vshards */
    uint8_t of_place[1024];        /* a shard, or OWN_NOBODY */
    struct dice dice;
    uint64_t pool[OWN_POOL];
};

/* Sets that are drawn: disjoint, some of them empty, all together not always whole. */
void owners_open(struct owners *o, const embd_schema *schema, uint32_t n_shards,
                 uint32_t n_residues, uint64_t seed);
void owners_close(struct owners *o);

/* n keys of the pool, to be freed. */
uint64_t *owners_draw(struct owners *o, uint32_t n);
uint32_t owner_of(const struct owners *o, uint64_t key);

/* All shards pull the same keys into the same memory: rows of nobody stay as they were. */
void owners_pull(struct owners *o, const uint64_t *keys, uint32_t n, embd_dtype wire, bool zero);
/* All push the same keys; gradients of other shards' keys are not finite for each. */
void owners_push(struct owners *o, const uint64_t *keys, uint32_t n, embd_dtype wire);
/* All insert the same keys. */
void owners_insert(struct owners *o, const uint64_t *keys, uint32_t n);
/* Each shard's own keys, by ordinary calls. */
void owners_push_plain(struct owners *o, const uint64_t *keys, uint32_t n, embd_dtype wire);
void owners_compare(struct owners *o);

#endif
