/* lent_pair.h - for tests whose keys, rows and gradients lie in memory of a device (pair.h). */
#ifndef EMBD_TESTS_CUDA_LENT_PAIR_H
#define EMBD_TESTS_CUDA_LENT_PAIR_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "server/store/cuda/cuda_store.h"
#include "tests/store/pair.h"

/* Device memory with a copy of what is given, or of zeros; lent_free. */
void *lent_new(const struct pair *pair, const void *from, uint64_t bytes);
void lent_free(const struct pair *pair, void *memory);
/* All of its bytes are others from now on. */
void lent_spoil(const struct pair *pair, void *memory, uint64_t bytes);
void lent_fetch(const struct pair *pair, void *to, const void *memory, uint64_t bytes);
/* Until the call has ended. */
void lent_await(const struct pair *pair, const struct outcome *outcome);

/* Single keys, in memory of the device. */
struct store_keys lent_keys(const uint64_t *keys, uint32_t n);

#endif
