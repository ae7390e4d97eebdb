/* route.c - the ids that a name may have: hashes of it. If two names have the same first id, a
 * shard gives the later of them its second one. */
#include "proto/route.h"

#include <string.h>
#include <xxhash.h>

uint32_t embd__table_id_at(const char *name, uint32_t n)
{
    uint32_t id = (uint32_t)XXH3_64bits_withSeed(name, strlen(name), n);
    return id == 0 ? 1 : id;
}

uint32_t embd__table_id(const char *name)
{
    return embd__table_id_at(name, 0);
}
