/* structs.h - public structs that begin with their size, from callers of any minor version.
 *
 * A caller compiled with an older header gives fewer members: the others keep their defaults. One
 * compiled with a newer header gives more: they must be zero, since their meaning is unknown. */
#ifndef EMBD_PROTO_STRUCTS_H
#define EMBD_PROTO_STRUCTS_H

#include <string.h>

#include "proto/errors.h"

/* Copies the caller's struct over `own`, which holds the defaults. EMBD_INVALID: its struct_bytes
 * is not a size of such a struct, or members that are not known here are set. */
#define embd__take(type, own, given, e)                                                            \
    embd__struct_take((own), sizeof(type), _Alignof(type), (given), #type, (e))
/* The same, of a struct of any size. */
int embd__struct_convert(void *own, size_t own_bytes, size_t alignment, const void *given,
                         const char *name, struct embd__error *e);

static inline int embd__struct_take(void *own, size_t own_bytes, size_t alignment,
                                    const void *given, const char *name, struct embd__error *e)
{
    uint32_t given_bytes;
    memcpy(&given_bytes, given, sizeof given_bytes);
    if (given_bytes != own_bytes)
        return embd__struct_convert(own, own_bytes, alignment, given, name, e);
    memcpy(own, given, own_bytes);
    return EMBD_OK;
}

/* Fills the caller's struct of `struct_bytes` from `own`; members not known here become zero. */
void embd__struct_give(void *to, uint32_t struct_bytes, const void *own, size_t own_bytes);

#endif
