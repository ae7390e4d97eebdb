/* always_right.c - checksums that are always the same, and so always right, while they are asked to
 * be: what the test of flipped bits has to notice. */
#include "tests/fault/always_right.h"

#include "proto/xxh3.h"

bool always_right;

XXH64_hash_t __real_XXH3_64bits(const void *bytes, size_t n);
XXH64_hash_t __real_XXH3_64bits_digest(const XXH3_state_t *state);

XXH64_hash_t __wrap_XXH3_64bits(const void *bytes, size_t n);
XXH64_hash_t __wrap_XXH3_64bits_digest(const XXH3_state_t *state);

XXH64_hash_t __wrap_XXH3_64bits(const void *bytes, size_t n)
{
    return always_right ? 1 : __real_XXH3_64bits(bytes, n);
}

XXH64_hash_t __wrap_XXH3_64bits_digest(const XXH3_state_t *state)
{
    return always_right ? 1 : __real_XXH3_64bits_digest(state);
}

#ifdef EMBD_XXH_DISPATCH
XXH64_hash_t __real_XXH3_64bits_dispatch(const void *bytes, size_t n);
XXH64_hash_t __wrap_XXH3_64bits_dispatch(const void *bytes, size_t n);

XXH64_hash_t __wrap_XXH3_64bits_dispatch(const void *bytes, size_t n)
{
    return always_right ? 1 : __real_XXH3_64bits_dispatch(bytes, n);
}
#endif
