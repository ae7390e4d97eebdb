/* flow.c - one call of a group: its memory on the devices, which later calls reuse. queue.c decides
 * when it runs. */
#include "server/store/nccl/group.h"

#include <stdlib.h>
#include <string.h>

/* ---- blocks ---- */

int block_need(struct block *block, uint64_t bytes)
{
    void *memory;
    if (bytes <= block->bytes)
        return 0;
    uint64_t more = block->bytes + block->bytes / 2, ample = bytes > more ? bytes : more;
    int status =
        block->n_before < BLOCK_GROWTHS ? wire_memory_new(&memory, ample) : DEVICE_NO_MEMORY;
    if (status != 0)
        return status;
    if (block->memory != NULL)
        block->before[block->n_before++] = block->memory;
    block->memory = memory;
    block->bytes = ample;
    return 0;
}

static void block_free(struct block *block)
{
    for (uint32_t i = 0; i < block->n_before; i++)
        wire_memory_free(block->before[i]);
    wire_memory_free(block->memory);
}

/* ---- a call ---- */

static void destroy(struct flow *flow)
{
    for (uint32_t d = 0; d < flow->group->n; d++) {
        struct member *m = &flow->members[d];
        device_use(m->table->device);
        device_event_free(m->event);
        block_free(&m->home);
        block_free(&m->owner);
    }
    free(flow);
}

static struct flow *create(struct group *group)
{
    struct flow *flow = calloc(1, sizeof *flow);
    if (flow == NULL)
        return NULL;
    flow->group = group;
    for (uint32_t d = 0; d < group->n; d++)
        flow->members[d].table = group->tables[d];
    for (uint32_t d = 0; d < group->n; d++)
        if (device_use(group->tables[d]->device) != 0 ||
            device_event_new(&flow->members[d].event) != 0) {
            destroy(flow);
            return NULL;
        }
    return flow;
}

/* Resets an ended call, but keeps the memory that the next one reuses. */
static void clear(struct flow *flow)
{
    struct group *group = flow->group;
    struct member members[WIRE_MAX] = {{0}};
    for (uint32_t d = 0; d < group->n; d++) {
        const struct member *m = &flow->members[d];
        members[d] = (struct member){
            .table = m->table, .event = m->event, .home = m->home, .owner = m->owner};
    }
    *flow = (struct flow){.group = group};
    memcpy(flow->members, members, sizeof members);
}

struct flow *flow_new(struct group *group)
{
    struct flow *flow = group->spare;
    if (flow == NULL)
        return create(group);
    group->spare = flow->next;
    clear(flow);
    return flow;
}

void flow_free(struct flow *flow)
{
    for (uint32_t d = 0; d < flow->group->n; d++) {
        struct member *m = &flow->members[d];
        if (m->call == NULL)
            continue;
        device_use(m->table->device);
        call_free(m->call);
        m->call = NULL;
    }
    if (!flow->group->failed) { /* else a device may still write there */
        buffer_free(flow->pinned, flow->pinned_bytes);
        flow->pinned = NULL;
    }
    flow->next = flow->group->spare;
    flow->group->spare = flow;
}

void flow_free_spare(struct group *group)
{
    while (group->spare != NULL) {
        struct flow *flow = group->spare;
        group->spare = flow->next;
        destroy(flow);
    }
}
