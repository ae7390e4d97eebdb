/* route.c - a table's id: a hash of its name, so that no shard must ask another for it. The shard
 * that creates a table refuses the rare second name with the same id. */
#include "proto/route.h"

#include <string.h>
#include <xxhash.h>

uint32_t embd__table_id(const char *name)
{
    uint32_t id = (uint32_t)XXH3_64bits(name, strlen(name));
    return id == 0 ? 1 : id;
}
