/* members.c - a worker's heartbeats by shard: they are made where the client gets shards. */
#include <stdlib.h>

#include "client/core/clocks.h"

void embd__member_take(struct member *m, uint32_t n)
{
    for (uint32_t i = m->n; i < n; i++) {
        m->heartbeats[i].shard = i;
        m->heartbeats[i].heartbeats = m->heartbeats[0].heartbeats;
        embd__msg_init(&m->heartbeats[i].x.msg);
    }
    if (m->n < n)
        m->n = n;
}

void embd__members_grow(embd_client *client, uint32_t n)
{
    for (struct member *m = client->members; m != NULL; m = m->next) {
        for (uint32_t i = client->n_shards; i < m->n; i++) {
            m->heartbeats[i].epoch = 0; /* it is of one that had the number before */
            m->heartbeats[i].is_other = true;
        }
        embd__member_take(m, n);
        m->has_joined = false;
    }
}

void embd__member_free(const embd_client *client, struct member *member)
{
    (void)client;
    for (uint32_t i = 0; i < member->n; i++)
        embd__msg_fini(&member->heartbeats[i].x.msg);
    free(member);
}
