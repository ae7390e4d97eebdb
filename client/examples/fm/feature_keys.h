/* feature_keys.h - what the model sees of a pair (A, B), as the keys of a CSR batch.
 *
 * A sample asks whether package A depends on package B. Its slots describe both sides; a slot
 * holds any number of keys. A key is a 64-bit hash of the kind of feature and its text, so
 * nobody keeps a dictionary and a dump can be asked for a package by name.
 *
 * Nothing may give the answer away:
 *   - a positive and the negatives beside it share the same A, and of A's dependencies the same
 *     ones: training edges only, without the positive's B; so A's side cannot tell them apart;
 *   - a negative's B is the target of a random edge, which makes it as popular as a positive's
 *     B;
 *   - held-out edges are nobody's feature. */
#ifndef FM_FEATURE_KEYS_H
#define FM_FEATURE_KEYS_H

#include "client/examples/fm/graph.h"

typedef enum slot {
    SLOT_A_SECTION,
    SLOT_A_MAINTAINER,
    SLOT_A_TOKENS,       /* words of A's name */
    SLOT_A_DEPENDENCIES, /* what else A depends on */
    SLOT_B,
    SLOT_B_SECTION,
    SLOT_B_MAINTAINER,
    SLOT_B_TOKENS,
    SLOTS,
} slot;

#define TOKENS_MAX          4
#define DEPENDENCIES_MAX    8 /* of the others; which, is a function of the pair */
#define KEYS_PER_SAMPLE_MAX (5 + 2 * TOKENS_MAX + DEPENDENCIES_MAX)

/* What is known of one package, hashed once. */
typedef struct node_features {
    uint64_t name, section, maintainer;
    uint64_t tokens[TOKENS_MAX];
    uint32_t n_tokens;
} node_features;

typedef struct features {
    const graph *graph;   /* the caller's; outlives the features */
    node_features *nodes; /* [n_nodes] */
} features;

/* Samples in the form embd takes them. */
typedef struct batch {
    uint32_t n_samples;
    uint32_t room; /* samples */
    uint64_t n_keys;
    uint64_t *offsets; /* [room * SLOTS + 1] row r = sample * SLOTS + slot */
    uint64_t *keys;    /* [room * KEYS_PER_SAMPLE_MAX] */
    float *labels;     /* [room] 1: A depends on B; 0: it does not */
    uint32_t *targets; /* [room] B's number */
} batch;

/* False: out of memory; the features are then empty. */
bool features_build(features *f, const graph *g);
void features_free(features *f);

bool batch_alloc(batch *b, uint32_t room);
void batch_free(batch *b);
void batch_clear(batch *b);

/* Appends the sample (a, b). `hidden` is the target that is not shown among a's dependencies.
 * The caller has seen to the room. */
void batch_add(batch *samples, const features *f, uint32_t a, uint32_t b, uint32_t hidden,
               float label);

/* The two keys a package has as a dependency: in SLOT_B and in SLOT_A_DEPENDENCIES. */
void features_package_keys(const features *f, uint32_t node, uint64_t keys_out[2]);

#endif
