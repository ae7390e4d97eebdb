/* machine.h - which vector instructions loops over arrays may use, found when the program starts.
 * Every path gives the same bits. */
#ifndef EMBD_PROTO_MACHINE_H
#define EMBD_PROTO_MACHINE_H

#include <stdbool.h>

/* Each path's machine has all of the one before. */
enum machine_path { MACHINE_ANY, MACHINE_HAS_AVX2, MACHINE_HAS_AVX512, MACHINE_PATHS };

#define MACHINE_AVX2   __attribute__((target("avx2,f16c")))
#define MACHINE_AVX512 __attribute__((target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512dq")))

/* Set when the program starts. */
extern enum machine_path embd__machine_in_use;

static inline enum machine_path embd__machine_path(void)
{
    return embd__machine_in_use;
}

/* The best there is here. */
enum machine_path embd__machine_best(void);
/* For tests: a path up to the best. */
void embd__machine_use(enum machine_path path);
const char *embd__machine_path_name(enum machine_path path);

#endif
