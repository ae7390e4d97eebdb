/* round.c - a float to the nearest that a dtype can hold, even where two are as near. */
#include <math.h>

#include "tests/model/model.h"

float model_round(float x, embd_dtype dtype)
{
    if (dtype == EMBD_DTYPE_F32 || !isfinite(x) || x == 0.0f)
        return x;
    int digits = dtype == EMBD_DTYPE_F16 ? 11 : 8, least = dtype == EMBD_DTYPE_F16 ? -24 : -133,
        exponent;
    frexp((double)x, &exponent); /* 2^(exponent-1) <= |x| < 2^exponent */
    int unit = exponent - digits > least ? exponent - digits : least;
    double rounded = ldexp(rint(ldexp((double)x, -unit)), unit);
    double overflow = dtype == EMBD_DTYPE_F16 ? 65536.0 : ldexp(1.0, 128);
    if (fabs(rounded) >= overflow)
        return x > 0 ? INFINITY : -INFINITY;
    return copysignf((float)rounded, x);
}
