/* row_limit.c - the limit of row_memory, from the configuration or from the memory there is. */
#include "server/config_values.h"
#include "server/process.h"

/* The machine's memory is for frames, for rows and, a fifth, for all else: what a start takes more,
 * copies for snapshots, the journal's buffers. A device's limit is set when shards use it. */
static uint64_t by_default(const struct process *p)
{
    uint64_t most = config_memory_bytes() / 10 * 8, frames = p->config.frame_memory;
    if (p->store != &store_host)
        return 0;
    return most > frames + most / 4 ? most - frames : most / 4;
}

void row_limit_set(struct process *p)
{
    uint64_t limit = p->config.row_memory;
    if (!p->config.has_row_memory)
        limit = by_default(p);
    else if (limit == 0)
        limit = ROW_MEMORY_UNLIMITED;
    for (uint32_t i = 0; i < STORE_PLACES; i++)
        atomic_init(&p->row_memory[i].limit, limit);
}
