/* round.c - a float to the nearest that a dtype can hold, even where two are as near; or by chance
 * to one of the two around it. */
#include <math.h>

#include "tests/model/model.h"

/* The step between two values of the dtype around x. */
static int unit_of(float x, embd_dtype dtype)
{
    int digits = dtype == EMBD_DTYPE_F16 ? 11 : 8, least = dtype == EMBD_DTYPE_F16 ? -24 : -133,
        exponent;
    frexp((double)x, &exponent); /* 2^(exponent-1) <= |x| < 2^exponent */
    return exponent - digits > least ? exponent - digits : least;
}

static bool is_kept(float x, embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F32 || !isfinite(x) || x == 0.0f;
}

/* units times 2^unit, with the sign of x; infinity beyond the largest. */
static float value_of(float x, double units, int unit, embd_dtype dtype)
{
    double rounded = ldexp(units, unit);
    double overflow = dtype == EMBD_DTYPE_F16 ? 65536.0 : ldexp(1.0, 128);
    if (fabs(rounded) >= overflow)
        return x > 0 ? INFINITY : -INFINITY;
    return copysignf((float)rounded, x);
}

float model_round(float x, embd_dtype dtype)
{
    if (is_kept(x, dtype))
        return x;
    int unit = unit_of(x, dtype);
    return value_of(x, rint(ldexp((double)x, -unit)), unit, dtype);
}

float model_round_by(float x, embd_dtype dtype, uint32_t chance)
{
    if (is_kept(x, dtype))
        return x;
    int unit = unit_of(x, dtype);
    double units = fabs(ldexp((double)x, -unit)), below = floor(units);
    bool is_up = (units - below) * 65536.0 + chance >= 65536.0;
    return value_of(x, below + is_up, unit, dtype);
}
