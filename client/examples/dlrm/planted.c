/* planted.c - the truth behind a made-up click log.
 *
 * Clicks depend on every key alone, on the dense values, and on pairs of keys of different slots
 * by the product of hidden vectors, which is what a model with embeddings is for. Small keys are
 * more frequent than large ones. */
#include "client/examples/dlrm/planted.h"

#include <math.h>

#define PAIRS   4     /* slots 0 and 1, 2 and 3, ... */
#define HIDDEN  2     /* length of the hidden vectors */
#define BIAS    -0.5f /* fewer clicks than not */
#define SAMPLES UINT64_C(0x5a)
#define EFFECTS UINT64_C(0xef)

const uint64_t planted_slot_sizes[SLOTS] = {30, 30, 24, 24, 16, 16, 12, 12, 2,  3,  5,   8,   10,
                                            12, 16, 20, 24, 32, 40, 50, 64, 80, 90, 100, 120, 150};

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* In [0, 1), a function of three numbers. */
static float uniform(uint64_t purpose, uint64_t a, uint64_t b)
{
    return (float)(mix(mix(mix(purpose) ^ a) ^ b) >> 40) * 0x1p-24f;
}

/* In [-1, 1): number `which` of what belongs to a key. */
static float effect(uint32_t slot, uint64_t key, uint32_t which)
{
    return 2 * uniform(EFFECTS + which, slot, key) - 1;
}

static float pair_effect(const uint64_t *keys, uint32_t slot)
{
    float sum = 0;
    for (uint32_t h = 1; h <= HIDDEN; h++)
        sum += effect(slot, keys[slot], h) * effect(slot + 1, keys[slot + 1], h);
    return sum;
}

float planted_logit(const float dense[DENSE], const uint64_t keys[SLOTS])
{
    float logit = BIAS;
    for (uint32_t j = 0; j < DENSE; j++)
        logit += 0.3f * effect(SLOTS, j, 0) * (dense[j] - 1);
    for (uint32_t s = 0; s < SLOTS; s++)
        logit += 0.4f * effect(s, keys[s], 0);
    for (uint32_t p = 0; p < PAIRS; p++)
        logit += 1.2f * pair_effect(keys, 2 * p);
    return logit;
}

void planted_sample(uint64_t i, float *label_out, float dense_out[DENSE], uint64_t keys_out[SLOTS])
{
    for (uint32_t j = 0; j < DENSE; j++)
        dense_out[j] = -logf(1 - uniform(SAMPLES, i, j));
    for (uint32_t s = 0; s < SLOTS; s++) {
        float u = uniform(SAMPLES, i, DENSE + s);
        keys_out[s] = (uint64_t)((float)planted_slot_sizes[s] * u * sqrtf(u));
    }
    float chance = 1 / (1 + expf(-planted_logit(dense_out, keys_out)));
    *label_out = uniform(SAMPLES, i, DENSE + SLOTS) < chance ? 1 : 0;
}
