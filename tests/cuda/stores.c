/* stores.c - in the place of server/store/stores.c: the cuda store alone, over the stand-in of a
 * device. */
#include "server/store/cuda/frozen.h"

#include <string.h>

extern const struct store_ops store_cuda;

const struct store_ops *store_find(const char *name, struct embd__error *e)
{
    frozen_chunk_bytes = 2000; /* a log of many chunks */
    if (strcmp(name, "cuda") == 0 || strcmp(name, "auto") == 0)
        return &store_cuda;
    embd__error_set(e, EMBD_INVALID, "store '%.40s' is not compiled in; it can be cuda", name);
    return NULL;
}
