/* group.c - what all calls of a group share: its failure, and how devices and the host wait for
 * each other. */
#include "server/store/nccl/group.h"

#include <stdio.h>

uint64_t group_patience_ms = 30000;

uint32_t element_bytes(embd_dtype dtype)
{
    return dtype == EMBD_DTYPE_F32 ? 4 : 2;
}

int group_error(struct group *group, int status, const char *what, struct embd__error *e)
{
    const char *name = group->schema->s.name;
    if (status == DEVICE_NO_MEMORY)
        return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no device memory %s", name, what);
    if (!group->failed) {
        snprintf(group->why, sizeof group->why, "table %s: the devices failed %s: %.120s", name,
                 what, status == WIRE_LOST ? wire_why() : device_text(status));
        wire_abort();
    }
    group->failed = true;
    return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
}

int group_meet(struct flow *flow, void *const from[], void *const to[], bool of_all)
{
    struct group *group = flow->group;
    int status = 0;
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        status = device_use(group->tables[d]->device);
        if (status == 0)
            status = device_event_record(flow->members[d].event, from[d]);
    }
    for (uint32_t d = 0; d < group->n && status == 0; d++)
        for (uint32_t other = 0; other < group->n && status == 0; other++)
            if (from[other] != to[d] && (of_all || other == d))
                status = wire_wait_event(to[d], flow->members[other].event);
    return status;
}

void group_lose_patience(struct group *group)
{
    snprintf(group->why, sizeof group->why,
             "table %s: the devices failed: a call was not done after %llu ms",
             group->schema->s.name, (unsigned long long)group_patience_ms);
    group->failed = true;
    wire_abort();
}

static int await_event(struct group *group, void *event, uint64_t deadline_ms)
{
    int error = 0;
    while (device_event_query(event, &error) == DEVICE_PENDING && error == 0) {
        if (wire_now_ms() > deadline_ms)
            group_lose_patience(group);
        if (group->failed || wire_check() != 0)
            return WIRE_LOST;
    }
    return error;
}

int group_await(struct flow *flow)
{
    struct group *group = flow->group;
    uint64_t deadline_ms = wire_now_ms() + group_patience_ms;
    int status = 0;
    for (uint32_t d = 0; d < group->n && status == 0; d++) {
        status = device_use(group->tables[d]->device);
        if (status == 0)
            status = device_event_record(flow->members[d].event, group->table_streams[d]);
    }
    for (uint32_t d = 0; d < group->n && status == 0; d++)
        status = await_event(group, flow->members[d].event, deadline_ms);
    return status;
}
