/* read.c - rows of given keys out: the host groups the keys by owner, every member copies its own
 * rows out, and the host puts them in the order of the request. */
#include "server/store/cuda/queue.h"
#include "server/store/nccl/grouped.h"

#include <stdlib.h>
#include <string.h>

/* Of one member after the other, in the order of the grouped keys. */
struct found {
    uint8_t *rows;
    float *states;
    uint64_t row_bytes, state_bytes;
};

static bool found_new(struct found *found, const struct group *group, const struct store_read *read)
{
    const struct table_view *t = &group->tables[0]->view;
    uint64_t n = read->in.n_keys;
    found->row_bytes = embd__value_bytes(t->dtype, t->dim);
    found->state_bytes = read->states != NULL ? t->state_floats * sizeof(float) : 0;
    found->rows = malloc(n * found->row_bytes + 1);
    found->states = malloc(n * found->state_bytes + 1);
    return found->rows != NULL && found->states != NULL;
}

static void found_free(struct found *found)
{
    free(found->rows);
    free(found->states);
}

static void put_in_order(const struct grouped *g, const struct found *found,
                         const struct store_read *read)
{
    for (uint64_t i = 0; i < read->in.n_keys; i++) {
        uint64_t to = g->places[i];
        read->statuses[to] = g->statuses[i];
        memcpy((uint8_t *)read->rows + to * found->row_bytes, found->rows + i * found->row_bytes,
               found->row_bytes);
        if (found->state_bytes > 0)
            memcpy((uint8_t *)read->states + to * found->state_bytes,
                   (const uint8_t *)found->states + i * found->state_bytes, found->state_bytes);
    }
}

static int read_all(struct group *group, const struct grouped *g, const struct found *found,
                    const struct store_read *read, struct embd__error *e)
{
    for (uint32_t d = 0; d < group->n; d++) {
        uint32_t at = g->begin[d], n = g->begin[d + 1] - at;
        uint64_t floats = found->state_bytes / sizeof(float);
        struct store_read part = {
            .in = {n, n, g->keys + at, NULL, read->in.slots ? g->slots + at : NULL, NULL},
            .rows = found->rows + at * found->row_bytes,
            .states = floats > 0 ? found->states + at * floats : NULL,
            .statuses = g->statuses + at};
        int status = device_use(group->tables[d]->device);
        if (status != 0)
            return group_error(group, status, "reading rows", e);
        if (cuda_read(group->tables[d], &part, e) == EMBD_OK)
            continue;
        struct embd__error cause = *e;
        if (group->tables[d]->failed)
            group_error(group, WIRE_LOST, "reading rows", e);
        *e = cause;
        return e->status;
    }
    return EMBD_OK;
}

static int no_memory(const struct group *group, struct embd__error *e)
{
    return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to read rows",
                           group->schema->s.name);
}

int group_read(struct group *group, const struct store_read *read, struct embd__error *e)
{
    struct grouped g;
    struct found found = {.rows = NULL};
    e->status = EMBD_OK;
    flow_wait_all(group);
    if (group->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
    if (!grouped_new(&g, group, &read->in))
        return no_memory(group, e);
    if (!found_new(&found, group, read))
        no_memory(group, e);
    else if (read_all(group, &g, &found, read, e) == EMBD_OK)
        put_in_order(&g, &found, read);
    found_free(&found);
    grouped_free(&g);
    return e->status;
}
