/* making_room.c - see making_room.h.
 *
 * The happy path: a shard hears of more shards, and the main thread opens a listener for each,
 * notes their number in the directory, and starts them. What can fail is a port that another
 * program has, and a directory that takes no note: then the log says so, the cluster waits or
 * refuses to grow, and the next answer asks again.
 *
 * Owner: the main thread. Others see a shard once n_started counts it. */
#include "server/making_room.h"

#include "server/net/trunks.h"
#include "server/wanting_room.h"

/* Spare until its shard has a base: a promotion asks for its vote. */
static int name(struct process *p, uint32_t i, struct embd__error *e)
{
    struct embd__error ignored = {.status = EMBD_OK};
    if (places_add(&p->places, &p->config, p->loops, i, e) != EMBD_OK ||
        promotion_set_shards(p->promotion, i + 1, e) != EMBD_OK)
        return e->status;
    if (identity_set_room(p->identity, i + 1, e) != EMBD_OK)
        promotion_set_shards(p->promotion, i, &ignored);
    return e->status;
}

/* What is there of it when a step fails is closed, and made again by the next try. */
static int add_shard(struct process *p, struct embd__error *e)
{
    uint32_t i = p->n;
    if (process_open_loop(p, i, e) != EMBD_OK)
        return e->status;
    if (name(p, i, e) != EMBD_OK) {
        loop_close(p->loops[i]);
        p->loops[i] = NULL;
        return e->status;
    }
    p->config.servers[p->config.self].shards = p->config.n_shards = i + 1;
    p->n = i + 1;
    follow_maps_set_room(p->maps, i + 1);
    if (process_start_shard(p, i, e) != EMBD_OK)
        return e->status;
    trunks_allow(p->trunks, p->n);
    log_event(LOG_INFO, "room_made", "shard=%u address=%s admin=%s", i, p->places.addresses[i],
              p->places.admin_addresses[i]);
    return EMBD_OK;
}

void making_room_look(struct process *p)
{
    struct embd__error e = {.status = EMBD_OK};
    uint32_t asked = atomic_exchange(&p->room_asked, 0);
    while (p->n < asked && p->n < p->room && wanting_room_may(p) && e.status == EMBD_OK)
        add_shard(p, &e);
    if (e.status != EMBD_OK)
        log_event(
            LOG_ERROR, "no_room",
            "shards=%u of=%u why=\"the cluster gets more shards, and this server cannot: %s\"",
            p->n, asked, e.text);
}
