/* wanting_room.c - see wanting_room.h. */
#include "server/wanting_room.h"

bool wanting_room_may(const struct process *p)
{
    const struct config *config = &p->config;
    return config->follow[0] != '\0' && config->data_dir[0] != '\0' && config->n_servers == 1 &&
           !config->has_etcd && !config->promotes && !p->is_embedded;
}

void wanting_room_ask(void *process, uint32_t n_shards)
{
    struct process *p = process;
    uint32_t asked = atomic_load(&p->room_asked);
    while (n_shards > asked && !atomic_compare_exchange_weak(&p->room_asked, &asked, n_shards))
        ;
    uv_async_send(&p->news);
}
