/* codes.c - rows of i8 and e4m3: codes times one scale, the largest magnitude of the row divided by
 * the largest code. In double, by the definition of the formats, where the servers count bits. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "tests/model/model.h"

bool model_has_codes(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_I8 || dtype == EMBD_DTYPE_E4M3;
}

static float largest_code(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_I8 ? 127 : 448;
}

/* The step between two codes around x. e4m3 has four digits, and 2^-9 as its least number. */
static double unit_of(double x, embd_dtype dtype)
{
    int exponent;
    if (dtype == EMBD_DTYPE_I8)
        return 1;
    frexp(x, &exponent); /* 2^(exponent-1) <= |x| < 2^exponent */
    return ldexp(1, x != 0 && exponent - 4 > -9 ? exponent - 4 : -9);
}

/* The code that stands for x, as a number. By chance x is first a multiple of 1/65536 of a step. */
static double code_of(float x, embd_dtype dtype, const uint32_t *chance)
{
    double unit = unit_of((double)x, dtype), units = fabs((double)x) / unit;
    double whole = chance ? floor((rint(units * 65536) + *chance) / 65536) : rint(units);
    double code = fmin(whole * unit, (double)largest_code(dtype));
    return dtype == EMBD_DTYPE_I8 && x < 0 ? -code : copysign(code, (double)x);
}

float model_round_codes(float *w, uint32_t dim, embd_dtype dtype, const uint32_t *chances)
{
    float largest = 0, scale;
    bool are_numbers = true;
    for (uint32_t c = 0; c < dim; c++) {
        are_numbers &= isfinite(w[c]) != 0;
        largest = fmaxf(largest, fabsf(w[c]));
    }
    scale = are_numbers ? largest / largest_code(dtype) : NAN;
    if (dtype == EMBD_DTYPE_I8 && scale > FLT_MAX / 128)
        scale = FLT_MAX / 128;
    for (uint32_t c = 0; c < dim; c++) {
        double code = scale > 0 ? code_of(w[c] / scale, dtype, chances ? &chances[c] : NULL) : 0;
        if (dtype == EMBD_DTYPE_I8 && code == 0)
            code = 0; /* two's complement has one zero */
        w[c] = are_numbers ? (float)code * scale : NAN;
    }
    return scale;
}

/* The byte of a code. e4m3: the exponent counts steps of 8 from 2^-6 on. */
static uint8_t byte_of(double code, embd_dtype dtype)
{
    double unit = unit_of(code, dtype);
    if (dtype == EMBD_DTYPE_I8)
        return (uint8_t)(int8_t)code;
    double magnitude = 8 * (log2(unit) + 9) + fabs(code) / unit;
    return (uint8_t)((int)magnitude | (signbit(code) ? 0x80 : 0));
}

void model_write_codes(const struct model *model, const struct model_key *k, uint8_t *out)
{
    uint32_t dim = model->schema.dim;
    embd_dtype dtype = model->schema.dtype;
    memset(out, 0, 4 + (dim + 3) / 4 * 4);
    memcpy(out, &k->scale, 4);
    for (uint32_t c = 0; c < dim && k->scale > 0; c++)
        out[4 + c] = byte_of(code_of(k->w[c] / k->scale, dtype, NULL), dtype);
}
