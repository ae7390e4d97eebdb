/* first.c - the value a row begins with: a function of the seed, the key, the slot and the column
 * alone. Philox draws 32 bits for each column; the initializer makes a float of them. */
#include <math.h>
#include <string.h>

#include "tests/model/inside.h"

void model_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4], k0 = key[0], k1 = key[1];
    memcpy(c, counter, sizeof c);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t next[4] = {(uint32_t)(p1 >> 32) ^ c[1] ^ k0, (uint32_t)p1,
                            (uint32_t)(p0 >> 32) ^ c[3] ^ k1, (uint32_t)p0};
        memcpy(c, next, sizeof c);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    memcpy(out, c, sizeof c);
}

/* 2 (s + s^3/3 + ... + s^23/23) + e log 2 where x = 2^e (1 + s) / (1 - s) */
static double natural_log(double x)
{
    int e;
    double m = frexp(x, &e);
    if (m < 0.70710678118654752) {
        m *= 2;
        e--;
    }
    double s = (m - 1) / (m + 1), z = s * s, sum = 0;
    for (int k = 23; k > 0; k -= 2)
        sum = sum * z + 2.0 / k;
    return e * 0.69314718055994530942 + s * sum;
}

static double ratio(const double above[8], const double below[8], double x)
{
    double a = above[7], b = below[7];
    for (int i = 7; i-- > 0;) {
        a = a * x + above[i];
        b = b * x + below[i];
    }
    return a / b;
}

/* Applied Statistics algorithm AS 241, PPND16. */
static double normal_quantile(double p)
{
    static const double a[8] = {3.3871328727963666080e0, 133.14166789178437745,
                                1971.5909503065514427,   13731.693765509461125,
                                45921.953931549871457,   67265.770927008700853,
                                33430.575583588128105,   2509.0809287301226727};
    static const double b[8] = {1,
                                42.313330701600911252,
                                687.18700749205790830,
                                5394.1960214247511077,
                                21213.794301586595867,
                                39307.895800092710610,
                                28729.085735721942674,
                                5226.4952788528545610};
    static const double c[8] = {1.42343711074968357734,   4.63033784615654529590,
                                5.76949722146069140550,   3.64784832476320460504,
                                1.27045825245236838258,   0.241780725177450611770,
                                0.0227238449892691845833, 7.74545014278341407640e-4};
    static const double d[8] = {1,
                                2.05319162663775882187,
                                1.67638483018380384940,
                                0.689767334985100004550,
                                0.148103976427480074590,
                                0.0151986665636164571966,
                                5.47593808499534494600e-4,
                                1.05075007164441684324e-9};
    static const double e[8] = {6.65790464350110377720,    5.46378491116411436990,
                                1.78482653991729133580,    0.296560571828504891230,
                                0.0265321895265761230930,  1.24266094738807843860e-3,
                                2.71155556874348757815e-5, 2.01033439929228813265e-7};
    static const double f[8] = {1,
                                0.599832206555887937690,
                                0.136929880922735805310,
                                0.0148753612908506148525,
                                7.86869131145613259100e-4,
                                1.84631831751005468180e-5,
                                1.42151175831644588870e-7,
                                2.04426310338993978564e-15};
    double q = p - 0.5;
    if (fabs(q) <= 0.425) {
        double r = 0.180625 - q * q, above = a[7], below = b[7];
        for (int i = 7; i-- > 0;) {
            above = above * r + a[i];
            below = below * r + b[i];
        }
        return q * above / below;
    }
    double r = sqrt(-natural_log(q < 0 ? p : 1 - p));
    double z = r <= 5 ? ratio(c, d, r - 1.6) : ratio(e, f, r - 5);
    return q < 0 ? -z : z;
}

/* Where slots do not tell keys apart, the slot is the one whose keys the key is among. */
static uint64_t slot_size(const embd_schema *s, uint64_t key, uint32_t slot)
{
    if (s->partition == EMBD_PARTITION_SLOT)
        return s->slot_sizes[slot];
    uint64_t end = 0;
    for (slot = 0; slot + 1 < s->slots; slot++)
        if (key < (end += s->slot_sizes[slot]))
            break;
    return s->slot_sizes[slot];
}

static float first_column(const embd_schema *s, uint64_t key, uint32_t slot, uint32_t column)
{
    uint32_t counter[4] = {(uint32_t)key, (uint32_t)(key >> 32), column / 4, slot}, words[4];
    uint32_t philox_key[2] = {(uint32_t)s->seed, (uint32_t)(s->seed >> 32)};
    model_philox(counter, philox_key, words);
    uint32_t word = words[column % 4];
    float a = s->initializer.a, b = s->initializer.b;
    if (s->initializer.kind == EMBD_INITIALIZER_CONSTANT)
        return a;
    if (s->initializer.kind == EMBD_INITIALIZER_NORMAL)
        return (float)(a + b * normal_quantile((word + 0.5) / 4294967296.0));
    if (s->initializer.kind == EMBD_INITIALIZER_UNIFORM_SLOT) {
        b = sqrtf(1.0f / (float)slot_size(s, key, slot));
        a = -b;
    }
    float value = a + (b - a) * ((float)(word / 256) / 16777216.0f);
    return value < b ? value : a;
}

void model_first_exact(const struct model *model, uint64_t key, uint32_t slot, float *w)
{
    for (uint32_t c = 0; c < model->schema.dim; c++)
        w[c] = first_column(&model->schema, key, slot, c);
}

float model_first_row(const struct model *model, uint64_t key, uint32_t slot, float *w)
{
    const embd_schema *s = &model->schema;
    model_first_exact(model, key, slot, w);
    if (model_has_codes(s->dtype))
        return model_round_codes(w, s->dim, s->dtype, NULL);
    for (uint32_t c = 0; c < s->dim; c++)
        w[c] = model_round(w[c], s->dtype);
    return 0;
}

void model_first_value(const struct model *model, uint64_t key, uint32_t slot, float *w)
{
    model_first_row(model, key, slot, w);
}
