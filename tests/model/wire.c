/* wire.c - a row as it comes over the wire: i8 and i4 by their definition, in double where a double
 * holds the exact result of what is one operation of f32. */
#include <math.h>

#include "tests/model/model.h"

/* A half of 16 bits for column c of row `at`. */
static uint32_t draw(const struct model_chance *chance, uint32_t at, uint32_t c)
{
    uint32_t counter[4] = {at, c / 8, (uint32_t)chance->number, (uint32_t)(chance->number >> 32)};
    uint32_t key[2] = {(uint32_t)chance->id ^ chance->table ^ 0x51554e54u,
                       (uint32_t)(chance->id >> 32)};
    uint32_t words[4];
    model_philox(counter, key, words);
    return c % 2 ? words[c % 8 / 2] >> 16 : words[c % 8 / 2] & 0xffff;
}

static double code_of(float x, float scale, double most, const struct model_chance *chance,
                      uint32_t at, uint32_t c)
{
    double quotient = (double)(float)((double)x / (double)scale);
    quotient = fmin(fmax(quotient, -most), most);
    if (chance == NULL)
        return rint(quotient) + 0.0; /* a code has no negative zero */
    return floor((double)(float)(quotient + (draw(chance, at, c) + 0.5) / 65536));
}

void model_round_row(float *row, uint32_t dim, embd_dtype wire, const struct model_chance *chance,
                     uint32_t at)
{
    double most = wire == EMBD_DTYPE_I8 ? 127 : 7, top = 0;
    bool is_finite = true;
    if (wire != EMBD_DTYPE_I8 && wire != EMBD_DTYPE_I4) {
        for (uint32_t c = 0; c < dim; c++)
            row[c] = model_round(row[c], wire);
        return;
    }
    for (uint32_t c = 0; c < dim; c++) {
        is_finite = is_finite && isfinite(row[c]);
        top = fmax(top, fabs((double)row[c]));
    }
    float scale = (float)fmin((double)(float)(top / most), 0x1.fffffep+127 / (most + 1));
    for (uint32_t c = 0; c < dim; c++)
        row[c] = !is_finite   ? NAN
                 : scale == 0 ? 0
                              : (float)(code_of(row[c], scale, most, chance, at, c) * scale);
}
