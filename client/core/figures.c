/* figures.c - what a client has seen of each shard. The links count (link_figures.h). */
#include "client/core/client.h"
#include "client/io/link_figures.h"
#include "embd/admin.h"
#include "proto/structs.h"

static uint64_t read_counter(const counter *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

static void read_latency(const struct latency *latency, embd_latency *out)
{
    out->sum_ns = read_counter(&latency->sum_ns);
    for (uint32_t i = 0; i < EMBD_LATENCY_BUCKETS; i++) {
        out->buckets[i] = read_counter(&latency->buckets[i]);
        out->count += out->buckets[i];
    }
}

static uint64_t starts_of(const struct link_figures *f, embd_durability durability)
{
    if (embd__durability_is_replicated(durability))
        return read_counter(&f->replicated_rollbacks);
    return read_counter(embd__durability_is_journaled(durability) ? &f->rollbacks : &f->restarts);
}

uint64_t embd__table_starts(const embd_client *client, embd_durability durability)
{
    uint64_t n = embd__durability_is_replicated(durability)  ? client->left_replicated_rollbacks
                 : embd__durability_is_journaled(durability) ? client->left_rollbacks
                                                             : client->left_restarts;
    for (uint32_t i = 0; i < client->n_linked; i++)
        n += starts_of(embd__link_figures(client->shards[i].link), durability);
    return n;
}

uint64_t embd_table_rollbacks(const embd_table *table)
{
    return embd__table_starts(table->client, table->schema.s.durability) - table->starts;
}

int embd_figures(const embd_client *client, uint32_t shard, embd_shard_figures *out)
{
    struct embd__error e = {0};
    if (shard >= client->n_linked)
        return embd__error_keep(&e, embd__error_set(&e, EMBD_INVALID, "shard %u; there are %u",
                                                    shard, client->n_linked));
    const struct link_figures *f = embd__link_figures(client->shards[shard].link);
    embd_shard_figures own = {
        .struct_bytes = out->struct_bytes,
        .is_connected = atomic_load_explicit(&f->is_connected, memory_order_relaxed),
        .connections = read_counter(&f->connections),
        .bytes_sent = read_counter(&f->bytes_sent),
        .bytes_received = read_counter(&f->bytes_received),
        .repeats = read_counter(&f->repeats),
        .failures = read_counter(&f->failures),
        .unnumbered = read_counter(&f->unnumbered),
        .restarts = read_counter(&f->restarts),
        .rollbacks = read_counter(&f->rollbacks),
        .is_local = atomic_load_explicit(&f->is_local, memory_order_relaxed),
    };
    read_latency(&f->pulls, &own.pulls);
    read_latency(&f->pushes, &own.pushes);
    embd__struct_give(out, out->struct_bytes, &own, sizeof own);
    return EMBD_OK;
}
