/* sampler.h - which pairs a pass goes through, in which order.
 *
 * Each positive edge is followed by NEGATIVES pairs of the same A with a B that A does not
 * depend on, drawn as the target of a random edge of the same set. Everything is a function of
 * the graph and the seed. */
#ifndef FM_SAMPLER_H
#define FM_SAMPLER_H

#include "client/examples/fm/feature_keys.h"

#define NEGATIVES 3

/* From a graph, or from another source: then `fill`, `close` and n_samples are that one's. */
typedef struct sampler {
    void *source;
    bool (*fill)(struct sampler *s, batch *out);
    void (*close)(struct sampler *s);
    uint64_t n_samples;
    bool failed;              /* the source did, and has said so */
    const features *features; /* the caller's; outlives the sampler */
    uint32_t *edges;          /* [n_edges] positives in the order they come */
    uint32_t n_edges;         /* of this pass */
    uint32_t n_pool;          /* edges that negatives take their targets from */
    uint32_t next;
    uint64_t random; /* state of the generator */
} sampler;

/* The training edges in an order shuffled by `seed`; at most `limit` samples (0: all). False: no
 * memory. */
bool sampler_training(sampler *s, const features *f, uint64_t seed, uint64_t limit);

/* The held-out edges, always the same samples in the same order. False: no memory. */
bool sampler_held_out(sampler *s, const features *f);

void sampler_free(sampler *s);

/* Samples of the whole pass. */
uint64_t sampler_size(const sampler *s);

/* Fills the batch with the next samples; false once there is none left, or when the source failed.
 */
bool sampler_fill(sampler *s, batch *out);

#endif
