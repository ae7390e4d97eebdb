/* baseline.h - kernels of the bench: inputs, and the plain copy of random rows that a pull is
 * measured against. */
#ifndef EMBD_TESTS_GPU_BASELINE_H
#define EMBD_TESTS_GPU_BASELINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Key number first + i, or with a range a random one of the first `range`. */
void baseline_keys(uint64_t *keys, uint64_t first, uint64_t n, uint64_t range, uint64_t seed);
void baseline_rows(uint32_t *rows, uint64_t n, uint64_t range, uint64_t seed);
void baseline_floats(float *values, uint64_t n);
/* row_bytes: 64, 128 or 256. */
void baseline_gather(const void *from, const uint32_t *rows, uint64_t n, uint32_t row_bytes,
                     void *to, void *stream);

#ifdef __cplusplus
}
#endif
#endif
