/* rebound.c - see rebound.h. capacity is a shard's. So that a full table fits on fewer shards, it
 * is loaded with room for all rows that the shards before could have; then every shard gets the
 * same share. Keys are not spread evenly: a shard may need more than that, and nothing is evicted
 * by a load. */
#include "client/core/client.h"
#include "client/formats/rebound.h"

#include <inttypes.h>
#include <stdio.h>

#include "client/formats/admin.h"
#include "proto/schema_fields.h"
#include "proto/share.h"

EMBD_API uint64_t embd_capacity_share(const embd_schema *schema, uint32_t n_shards, uint64_t rows)
{
    struct embd__error ignored = {0};
    embd_schema own;
    if (n_shards == 0 || embd__schema_take(&own, schema, &ignored) != EMBD_OK)
        return 0;
    return embd__share_of(&own, n_shards, rows);
}

EMBD_API uint64_t embd_table_capacity(const embd_schema *schema, uint32_t n_shards)
{
    struct embd__error ignored = {0};
    embd_schema own;
    if (n_shards == 0 || embd__schema_take(&own, schema, &ignored) != EMBD_OK)
        return 0;
    return embd__share_total(&own, n_shards, own.capacity);
}

static uint64_t at_most(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

void embd__rebound_begin(const struct load *l, struct definition *d)
{
    const struct manifest *from = &l->dir->shares[0].manifest;
    struct placement there;
    embd_schema *s = &d->schema;
    if (embd__manifest_is_placed(from, &l->client->placement) || s->on_full == EMBD_ON_FULL_GROW ||
        s->capacity == 0)
        return;
    embd__manifest_placement(from, &there);
    d->bound = embd__share_total_placed(&d->table->schema.s, &there, s->capacity);
    s->capacity = at_most(s->capacity * from->n_shards, LIMIT_CAPACITY);
}

static int most_rows(struct load *l, const char *table, uint64_t *most_out)
{
    *most_out = 0;
    for (uint32_t shard = 0; shard < l->n_shards; shard++) {
        struct description here;
        if (embd__admin_describe(l->client, shard, table, &here))
            return l->e->status;
        *most_out = here.rows > *most_out ? here.rows : *most_out;
        embd__schema_fini(&here.schema);
    }
    return EMBD_OK;
}

int embd__rebound_end(struct load *l, const struct definition *d)
{
    char capacity[24];
    uint64_t most;
    if (d->bound == 0)
        return EMBD_OK;
    if (most_rows(l, d->schema.name, &most))
        return l->e->status;
    uint64_t share = embd__share_of_placed(&d->schema, &l->client->placement, d->bound);
    snprintf(capacity, sizeof capacity, "%" PRIu64, share > most ? share : most);
    const embd_field field = {"capacity", capacity};
    return embd_table_set(l->client, d->schema.name, &field, 1, NULL);
}
