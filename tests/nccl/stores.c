/* stores.c - in the place of server/store/stores.c: the nccl store alone. Its name says over how
 * many devices and which way: "nccl", "nccl3", "peer4". */
#include "server/store/cuda/frozen.h"

#include <stdlib.h>
#include <string.h>

#include "tests/nccl/stand_in_wire.h"

extern const struct store_ops store_nccl;

static struct store_ops named;

const struct store_ops *store_find(const char *name, struct embd__error *e)
{
    static char kept[16];
    bool is_peer = strncmp(name, "peer", 4) == 0;
    if (!is_peer && strncmp(name, "nccl", 4) != 0 && strcmp(name, "auto") != 0) {
        embd__error_set(e, EMBD_INVALID, "store '%.40s' is not compiled in; it can be nccl", name);
        return NULL;
    }
    frozen_chunk_bytes = 2000; /* a log of many chunks */
    named = store_nccl;
    if (strcmp(name, "auto") != 0) {
        strncpy(kept, name, sizeof kept - 1);
        named.name = kept;
        stand_in_peer = is_peer;
        stand_in_devices = name[4] ? (uint32_t)atoi(name + 4) : 1;
    }
    return &named;
}
