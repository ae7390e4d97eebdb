/* sampler.c - positives in order, negatives by popularity. */
#include "client/examples/fm/sampler.h"

#include <stdlib.h>
#include <string.h>

#define HELD_OUT_SEED 0x6175637365656400u /* the evaluation does not depend on --seed */
#define TRIES         16 /* packages that depend on most of the popular ones get fewer */

/* SplitMix64. */
static uint64_t next_random(sampler *s)
{
    return packages_mix(s->random += 0x9e3779b97f4a7c15u);
}

static bool take_edges(sampler *s, const features *f, const uint32_t *edges, uint32_t n)
{
    s->features = f;
    s->n_edges = s->n_pool = n;
    s->edges = malloc(((size_t)n + 1) * sizeof *s->edges);
    if (s->edges)
        memcpy(s->edges, edges, n * sizeof *edges);
    return s->edges != NULL;
}

static void shuffle(sampler *s)
{
    for (uint32_t i = s->n_edges; i > 1; i--) {
        uint32_t j = (uint32_t)(next_random(s) % i), edge = s->edges[j];
        s->edges[j] = s->edges[i - 1];
        s->edges[i - 1] = edge;
    }
}

bool sampler_training(sampler *s, const features *f, uint64_t seed, uint64_t limit)
{
    *s = (sampler){.random = seed};
    if (!take_edges(s, f, f->graph->training, f->graph->n_training))
        return false;
    shuffle(s);
    uint64_t positives = limit / (1 + NEGATIVES);
    if (limit > 0 && positives < s->n_edges)
        s->n_edges = (uint32_t)positives;
    return true;
}

bool sampler_held_out(sampler *s, const features *f)
{
    *s = (sampler){.random = HELD_OUT_SEED};
    return take_edges(s, f, f->graph->held_out, f->graph->n_held_out);
}

void sampler_free(sampler *s)
{
    if (s->close)
        s->close(s);
    free(s->edges);
    *s = (sampler){0};
}

uint64_t sampler_size(const sampler *s)
{
    return s->fill ? s->n_samples : (uint64_t)s->n_edges * (1 + NEGATIVES);
}

/* A target that a does not depend on, or PACKAGE_NONE when none was met in a few tries. */
static uint32_t draw_negative(sampler *s, uint32_t a)
{
    const graph *g = s->features->graph;
    for (int i = 0; i < TRIES; i++) {
        uint32_t b = g->to[s->edges[next_random(s) % s->n_pool]];
        if (b != a && !graph_has_edge(g, a, b))
            return b;
    }
    return PACKAGE_NONE;
}

bool sampler_fill(sampler *s, batch *out)
{
    if (s->fill)
        return s->fill(s, out);
    const graph *g = s->features->graph;
    batch_clear(out);
    for (; s->next < s->n_edges && out->n_samples + 1 + NEGATIVES <= out->room; s->next++) {
        uint32_t edge = s->edges[s->next], a = g->from[edge], b = g->to[edge];
        batch_add(out, s->features, a, b, b, 1);
        for (int i = 0; i < NEGATIVES; i++) {
            uint32_t other = draw_negative(s, a);
            if (other != PACKAGE_NONE)
                batch_add(out, s->features, a, other, b, 0);
        }
    }
    return out->n_samples > 0;
}
