/* workload.c - batches of keys, uniform or by Zipf's law.
 *
 * A batch is drawn as ranks; a rank becomes a key by a bijection that scatters it over all 64 bits,
 * so that keys are sparse and popular ones are no neighbours in any table. A run replays sixteen
 * batches that were made before it, so that drawing keys is never inside what is timed.
 *
 * Zipf ranks are drawn by rejection-inversion (Hörmann and Derflinger, "Rejection-inversion to
 * generate variates from monotone discrete distributions", 1996): a point under the curve x^-s is
 * found by inverting its integral, rounded to a rank, and accepted if it lies under the rank's bar
 * as well. No table of n entries, about 1.1 draws a rank. */
#include "client/bench/workload.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GOLDEN 0x9e3779b97f4a7c15ULL

/* Stafford's 13th variant of the 64-bit finalizer. Not the one that routes and hashes in embd: keys
 * must not know the order of the tables they go to. */
static uint64_t scatter(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

uint64_t workload_key(uint64_t rank)
{
    return scatter((rank + 1) * GOLDEN);
}

struct draw {
    uint64_t state;
    uint64_t n;
    double s;         /* exponent */
    double low, high; /* of the integral: left of rank 1, right of rank n */
    double sure;      /* distance from its rank within which a point is under the bar for certain */
};

static double draw_unit(struct draw *d)
{
    d->state += GOLDEN;
    return (double)(scatter(d->state) >> 11) * 0x1p-53;
}

/* Integral of t^-s from 1 to x, also for s = 1 and near it. */
static double integral(double s, double x)
{
    double l = log(x), t = (1 - s) * l;
    return fabs(t) > 1e-8 ? expm1(t) / (1 - s) : l * (1 + t / 2);
}

static double integral_inverse(double s, double y)
{
    double t = (1 - s) * y;
    if (t < -1)
        t = -1; /* rounding at the far end */
    return exp(fabs(t) > 1e-8 ? log1p(t) / (1 - s) : y * (1 - t / 2));
}

static void draw_init(struct draw *d, double s, uint64_t n)
{
    *d = (struct draw){.state = 0x656d6264, .n = n, .s = s};
    d->low = integral(s, 1.5) - 1;
    d->high = integral(s, (double)n + 0.5);
    d->sure = 2 - integral_inverse(s, integral(s, 2.5) - pow(2, -s));
}

static uint64_t draw_uniform(struct draw *d)
{
    d->state += GOLDEN;
    return (uint64_t)(((unsigned __int128)scatter(d->state) * d->n) >> 64);
}

static uint64_t draw_zipf(struct draw *d)
{
    for (;;) {
        double y = d->low + draw_unit(d) * (d->high - d->low);
        double x = integral_inverse(d->s, y);
        double rank = floor(x + 0.5);
        rank = rank < 1 ? 1 : rank > (double)d->n ? (double)d->n : rank;
        if (rank - x <= d->sure || y >= integral(d->s, rank + 0.5) - pow(rank, -d->s))
            return (uint64_t)rank - 1;
    }
}

static void fill_keys(struct workload *w)
{
    struct draw d;
    draw_init(&d, w->spec.zipf, w->spec.table_keys);
    uint64_t n = (uint64_t)WORKLOAD_BATCHES * w->spec.batch;
    for (uint64_t i = 0; i < n; i++)
        w->keys[i] = workload_key(w->spec.zipf > 0 ? draw_zipf(&d) : draw_uniform(&d));
}

static int make_offsets(struct workload *w)
{
    uint32_t rows = workload_rows(&w->spec);
    w->offsets = malloc((rows + (size_t)1) * sizeof *w->offsets);
    if (!w->offsets)
        return -1;
    for (uint32_t r = 0; r <= rows; r++)
        w->offsets[r] = (uint64_t)r * w->spec.keys_per_row;
    return 0;
}

int workload_init(struct workload *w, const struct workload_spec *spec)
{
    *w = (struct workload){.spec = *spec};
    w->keys = malloc((size_t)WORKLOAD_BATCHES * spec->batch * sizeof *w->keys);
    if (!w->keys || (spec->keys_per_row > 1 && make_offsets(w))) {
        workload_fini(w);
        return -1;
    }
    fill_keys(w);
    return 0;
}

void workload_fini(struct workload *w)
{
    free(w->keys);
    free(w->offsets);
    *w = (struct workload){0};
}

const uint64_t *workload_batch(const struct workload *w, uint64_t i)
{
    return w->keys + (i % WORKLOAD_BATCHES) * w->spec.batch;
}

const char *workload_mix_name(enum workload_mix mix)
{
    static const char *const names[] = {"pull", "pooled", "push", "train"};
    return names[mix];
}

uint32_t workload_rows(const struct workload_spec *spec)
{
    return spec->batch / spec->keys_per_row;
}
