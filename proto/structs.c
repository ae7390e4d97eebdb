/* structs.c - see structs.h. */
#include "proto/structs.h"

#include <string.h>

#define STRUCT_BYTES_MAX 4096u /* no public struct comes near */

static bool is_zero(const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i] != 0)
            return false;
    return true;
}

int embd__struct_convert(void *own, size_t own_bytes, size_t alignment, const void *given,
                         const char *name, struct embd__error *e)
{
    uint32_t given_bytes, kept_bytes = (uint32_t)own_bytes;
    memcpy(&given_bytes, given, sizeof given_bytes);
    if (given_bytes < 2 * sizeof given_bytes || given_bytes % alignment != 0 ||
        given_bytes > STRUCT_BYTES_MAX)
        return embd__error_set(e, EMBD_INVALID,
                               "%s: struct_bytes is %u, sizeof is %u; set it by the struct's "
                               "initializer",
                               name, given_bytes, kept_bytes);
    if (given_bytes > own_bytes &&
        !is_zero((const unsigned char *)given + own_bytes, given_bytes - own_bytes))
        return embd__error_set(e, EMBD_INVALID,
                               "%s: struct_bytes is %u, and a member is set that libembd %s does "
                               "not know; it knows the first %u bytes",
                               name, given_bytes, embd_version(), kept_bytes);
    memcpy(own, given, given_bytes < own_bytes ? given_bytes : own_bytes);
    memcpy(own, &kept_bytes, sizeof kept_bytes);
    return EMBD_OK;
}

void embd__struct_give(void *to, uint32_t struct_bytes, const void *own, size_t own_bytes)
{
    memset(to, 0, struct_bytes);
    memcpy(to, own, struct_bytes < own_bytes ? struct_bytes : own_bytes);
    memcpy(to, &struct_bytes, sizeof struct_bytes);
}
