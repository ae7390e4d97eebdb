/* initializer.h - the first value of a row: a pure function of (seed, key, slot, column), the same
 * bits from every store, host or device, for any number of shards and any order of arrival.
 *
 * Random words come from Philox4x32-10, a counter-based generator without state: the counter is
 * (low word of the key, high word, column / 4, slot in slot tables or else 0), the Philox key is
 * the seed, and word w of a draw belongs to column 4 * (column / 4) + w. Words become values by
 * single IEEE operations only; nothing of libm decides a bit, so the logarithm and the normal
 * quantile are written out below.
 *
 * Also compiled as CUDA C++ (-fmad=false). */
#ifndef EMBD_PROTO_INITIALIZER_H
#define EMBD_PROTO_INITIALIZER_H

#include <math.h>

#include "proto/dtype.h"
#include "proto/philox.h"

/* EMBD_INITIALIZER_UNIFORM_SLOT is EMBD_INITIALIZER_UNIFORM with the bounds of the key's slot
 * (embd__initializer_slot_bound). */
struct initializer {
    embd_initializer_kind kind;
    float a, b;
    uint64_t seed;
};

/* u of uniform_slot: sqrt(1 / slot_size), each operation in f32. */
EMBD_INLINE float embd__initializer_slot_bound(uint64_t slot_size)
{
    return sqrtf(1.0f / (float)slot_size);
}

/* The four random words of columns 4 * block .. 4 * block + 3. */
EMBD_INLINE void embd__initializer_draw(uint64_t seed, uint64_t key, uint32_t slot, uint32_t block,
                                        uint32_t word[4])
{
    philox4x32_ctr_t counter = {{(uint32_t)key, (uint32_t)(key >> 32), block, slot}};
    philox4x32_key_t philox_key = {{(uint32_t)seed, (uint32_t)(seed >> 32)}};
    philox4x32_ctr_t drawn = philox4x32(counter, philox_key);
    for (int i = 0; i < 4; i++)
        word[i] = drawn.v[i];
}

/* a + (b - a) * u, u = the upper 24 bits / 2^24, exact. Where the sum is rounded up to b it becomes
 * a, so that the interval stays half open. */
EMBD_INLINE float embd__initializer_uniform(uint32_t word, float a, float b)
{
    float u = (float)(word >> 8) * 0x1p-24f;
    float value = a + (b - a) * u;
    return value < b ? value : a;
}

/* The natural logarithm of a normal x > 0: x = m * 2^e with m in [sqrt(1/2), sqrt(2)), and
 * log m = 2 artanh(s), s = (m - 1) / (m + 1), as a series of 12 terms: the next is below 2^-60. */
EMBD_INLINE double embd__initializer_log(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int e = (int)(bits >> 52) - 1022;
    bits = (bits & 0xfffffffffffffULL) | 0x3fe0000000000000ULL;
    double m;
    memcpy(&m, &bits, sizeof m);
    if (m < 0.70710678118654752) {
        m = m * 2.0;
        e--;
    }
    double s = (m - 1.0) / (m + 1.0), z = s * s, sum = 0.0;
    for (int k = 23; k >= 1; k -= 2)
        sum = sum * z + 2.0 / (double)k;
    return (double)e * 0.69314718055994530942 + s * sum;
}

/* ((c7 x + c6) x + ...) x + c0 */
EMBD_INLINE double embd__initializer_polynomial(const double c[8], double x)
{
    double sum = c[7];
    for (int i = 6; i >= 0; i--)
        sum = sum * x + c[i];
    return sum;
}

/* |q| <= 0.425: the middle of Wichura's algorithm. */
EMBD_INLINE double embd__initializer_quantile_middle(double q)
{
    const double a[8] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                         1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                         3.3430575583588128105e4, 2.5090809287301226727e3};
    const double b[8] = {1.0,
                         4.2313330701600911252e1,
                         6.8718700749205790830e2,
                         5.3941960214247511077e3,
                         2.1213794301586595867e4,
                         3.9307895800092710610e4,
                         2.8729085735721942674e4,
                         5.2264952788528545610e3};
    double r = 0.180625 - q * q;
    return q * embd__initializer_polynomial(a, r) / embd__initializer_polynomial(b, r);
}

/* The tails, r = sqrt(-log(min(p, 1 - p))). */
EMBD_INLINE double embd__initializer_quantile_tail(double r)
{
    const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                         5.76949722146069140550e0,  3.64784832476320460504e0,
                         1.27045825245236838258e0,  2.41780725177450611770e-1,
                         2.27238449892691845833e-2, 7.74545014278341407640e-4};
    const double d[8] = {1.0,
                         2.05319162663775882187e0,
                         1.67638483018380384940e0,
                         6.89767334985100004550e-1,
                         1.48103976427480074590e-1,
                         1.51986665636164571966e-2,
                         5.47593808499534494600e-4,
                         1.05075007164441684324e-9};
    const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                         1.78482653991729133580e0,  2.96560571828504891230e-1,
                         2.65321895265761230930e-2, 1.24266094738807843860e-3,
                         2.71155556874348757815e-5, 2.01033439929228813265e-7};
    const double f[8] = {1.0,
                         5.99832206555887937690e-1,
                         1.36929880922735805310e-1,
                         1.48753612908506148525e-2,
                         7.86869131145613259100e-4,
                         1.84631831751005468180e-5,
                         1.42151175831644588870e-7,
                         2.04426310338993978564e-15};
    if (r <= 5.0)
        return embd__initializer_polynomial(c, r - 1.6) / embd__initializer_polynomial(d, r - 1.6);
    return embd__initializer_polynomial(e, r - 5.0) / embd__initializer_polynomial(f, r - 5.0);
}

/* The quantile of the standard normal distribution at 0 < p < 1: M. J. Wichura, "The percentage
 * points of the normal distribution", Applied Statistics 37 (1988), algorithm AS 241, PPND16. */
EMBD_INLINE double embd__initializer_quantile(double p)
{
    double q = p - 0.5;
    if (q >= -0.425 && q <= 0.425)
        return embd__initializer_quantile_middle(q);
    double z = embd__initializer_quantile_tail(sqrt(-embd__initializer_log(q < 0.0 ? p : 1.0 - p)));
    return q < 0.0 ? -z : z;
}

/* mean + deviation * quantile((word + 1/2) / 2^32) in double, then rounded once. */
EMBD_INLINE float embd__initializer_normal(uint32_t word, float mean, float deviation)
{
    double p = ((double)word + 0.5) * 0x1p-32;
    return (float)((double)mean + (double)deviation * embd__initializer_quantile(p));
}

/* Columns 4 * block .. 4 * block + 3 of a row's first value, in f32. */
EMBD_INLINE void embd__initializer_four(const struct initializer *init, uint64_t key, uint32_t slot,
                                        uint32_t block, float out[4])
{
    uint32_t word[4] = {0, 0, 0, 0};
    if (init->kind != EMBD_INITIALIZER_CONSTANT)
        embd__initializer_draw(init->seed, key, slot, block, word);
    for (int i = 0; i < 4; i++) {
        if (init->kind == EMBD_INITIALIZER_CONSTANT)
            out[i] = init->a;
        else if (init->kind == EMBD_INITIALIZER_NORMAL)
            out[i] = embd__initializer_normal(word[i], init->a, init->b);
        else
            out[i] = embd__initializer_uniform(word[i], init->a, init->b);
    }
}

/* A whole first value, in f32; a table of another dtype rounds it to that. `slot` is 0 but in slot
 * tables. */
EMBD_INLINE void embd__initializer_row(const struct initializer *init, uint64_t key, uint32_t slot,
                                       float *out, uint32_t dim)
{
    float four[4];
    for (uint32_t column = 0; column < dim; column += 4) {
        embd__initializer_four(init, key, slot, column / 4, four);
        for (uint32_t i = 0; i < 4 && column + i < dim; i++)
            out[column + i] = four[i];
    }
}

#endif
