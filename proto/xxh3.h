/* xxh3.h - XXH3 of many bytes, with the widest vectors of this processor, where the library detects
 * them. The numbers are those of the library's other functions. */
#ifndef EMBD_PROTO_XXH3_H
#define EMBD_PROTO_XXH3_H

#include <stdint.h>

#include <xxhash.h>

/* As the library declares them for x86, where a header of its own would give them other names. */
#ifdef EMBD_XXH_DISPATCH
XXH64_hash_t XXH3_64bits_dispatch(const void *bytes, size_t n);
XXH64_hash_t XXH3_64bits_withSecret_dispatch(const void *bytes, size_t n, const void *secret,
                                             size_t secret_bytes);
XXH_errorcode XXH3_64bits_update_dispatch(XXH3_state_t *state, const void *bytes, size_t n);
#else
#define XXH3_64bits_dispatch            XXH3_64bits
#define XXH3_64bits_withSecret_dispatch XXH3_64bits_withSecret
#define XXH3_64bits_update_dispatch     XXH3_64bits_update
#endif

#endif
