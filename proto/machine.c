/* machine.c - see machine.h. */
#include "proto/machine.h"

enum machine_path embd__machine_in_use;

void embd__machine_use(enum machine_path path)
{
    embd__machine_in_use = path;
}

const char *embd__machine_path_name(enum machine_path path)
{
    static const char *const names[] = {"any", "avx2 and f16c", "avx512"};
    return names[path];
}

#ifdef __x86_64__
#include <cpuid.h>

static bool has_f16c(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}

enum machine_path embd__machine_best(void)
{
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !has_f16c())
        return MACHINE_ANY;
    bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return has_avx512 ? MACHINE_HAS_AVX512 : MACHINE_HAS_AVX2;
}

__attribute__((constructor)) static void choose(void)
{
    embd__machine_in_use = embd__machine_best();
}
#else
enum machine_path embd__machine_best(void)
{
    return MACHINE_ANY;
}
#endif
