/* growing.c - see growing.h. Where shards are is written behind what any shard counts with: lists
 * have room for all that there can be, and a shard that counts with more has come by here.
 *
 * Owner: the main thread until the shards start; then any shard's, with the mutex held. */
#include "server/growing.h"

#include "proto/placement.h"

#define MAP_S 3 /* beyond a lease: another process may have had the name until now */

static int add_places(struct process *p, uint32_t first, uint32_t end, uint64_t version,
                      struct embd__error *e)
{
    struct shard_entry entry = {.address = ""}; /* etcd has it */
    for (uint32_t shard = first; shard < end; shard++)
        if (!identity_member(p->identity, shard, &entry) && !p->config.has_failover)
            return embd__error_set(e, EMBD_IO, "identity.json does not say where shard %u is",
                                   shard);
        else if (places_set(&p->places, shard, &entry, e) != EMBD_OK)
            return e->status;
        else
            p->added_by[shard] = version;
    return EMBD_OK;
}

int growing_begin(struct process *p, struct embd__error *e)
{
    struct config *config = &p->config;
    uint32_t listed = config->n_shards, n = identity_shards(p->identity);
    config->n_shards = p->n_placed = n;
    while (config->servers[config->n_servers - 1].first_shard >= n)
        config->n_servers--;
    uint64_t version = identity_placement(p->identity)->version;
    p->standing = (struct member_standing){
        .is = version == 0 ? MEMBERSHIP_NONE : MEMBERSHIP_HELD,
        .placement = version,
        .n_shards = n,
        .latest = version,
    };
    return add_places(p, listed, n, 0, e);
}

static int ask(struct process *p, uint32_t wait_ms, struct embd__error *e)
{
    const struct credential_files *files = &p->config.credential_files;
    bool has_tls = credential_files_have_tls(files);
    const struct identity_asking asking = {
        .cert = has_tls ? files->tls_cert : NULL,
        .key = has_tls ? files->tls_key : NULL,
        .wait_ms = wait_ms,
    };
    return identity_ask(p->identity, &asking, (const char *const *)p->places.addresses, e);
}

int growing_ask(struct process *p, struct embd__error *e)
{
    return ask(p, p->config.has_etcd ? (p->config.etcd_lease_s + MAP_S) * 1000 : 0, e);
}

/* All shards that a server which follows has are of its own process. */
static void resize_own(struct process *p, uint32_t n_shards)
{
    atomic_store(&p->n_own, n_shards);
    p->n_placed = n_shards;
    p->http_process.n_cluster_shards = n_shards;
    coordinator_set_own(p->coordinator, n_shards);
    written_set_shards(p->written, n_shards);
}

int growing_take_own(void *process, uint32_t n_shards, struct embd__error *e)
{
    struct process *p = process;
    (void)e;
    uv_mutex_lock(&p->growing);
    resize_own(p, n_shards);
    uv_mutex_unlock(&p->growing);
    return EMBD_OK;
}

/* A server that was alone asks nobody until then. The places of shards that left stay in the lists:
 * other threads may be reading them. */
int growing_take(struct process *p, const struct placement *place, struct embd__error *e)
{
    uint32_t before = p->n_placed, n = place->n_shards;
    if (n == before || n <= process_self(p)->first_shard)
        return EMBD_OK;
    if (n > before && add_places(p, before, n, place->version, e) != EMBD_OK)
        return e->status;
    bool was_alone = before == atomic_load(&p->n_own) && n > before;
    p->n_placed = n;
    p->http_process.n_cluster_shards = n;
    coordinator_set_shards(p->coordinator, n);
    const struct credential_files *files = &p->config.credential_files;
    bool can_ask = !credential_files_have_tls(files) || files->peer_ca[0] != '\0';
    return was_alone && can_ask ? ask(p, 0, e) : EMBD_OK;
}
