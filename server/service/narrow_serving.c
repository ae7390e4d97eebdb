/* narrow_serving.c - what a replica with narrow rows answers, and how far behind it is.
 *
 * A table's rows are those of a cut that was made after its schema was asked for, so nothing that
 * was acknowledged before that question is missing. Both times are by the clock here. */
#include <stdio.h>

#include "proto/dtype.h"
#include "server/service/lag.h"
#include "server/service/narrow_inside.h"

bool narrow_serves(const struct shard *shard, enum method method)
{
    if (method == METHOD_TABLES || method == METHOD_TABLE_DESCRIBE)
        return true;
    return shard->narrow->is_ready &&
           (method == METHOD_PULL || method == METHOD_GET || method == METHOD_KEYS);
}

static const char *address_of(const struct shard *shard)
{
    const struct narrow *n = shard->narrow;
    return n->address[0] != '\0' ? n->address : shard->config.follow->address;
}

int narrow_refuse_method(struct call *call)
{
    const struct shard *shard = call->shard;
    return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                           "shard %u of this server is a replica of %s with rows as %s and without "
                           "optimizer state, which answers reads alone, and cannot be changed, "
                           "compared, saved or promoted: ask that server for %s",
                           shard->config.index, address_of(shard),
                           embd_dtype_name(shard->narrow->dtype), call->reader.method_name);
}

void narrow_tell(const struct shard *shard, char *text, size_t text_bytes)
{
    const struct narrow *n = shard->narrow;
    snprintf(text, text_bytes,
             "shard %u of this server is a replica of %s, and is taking its tables%s%.160s",
             shard->config.index, address_of(shard), n->is_lost ? ": " : "",
             n->is_lost ? n->lost_why : "");
}

/* ---- how far behind ---- */

int narrow_check_table(struct call *call, const struct table *table)
{
    const struct shard *shard = call->shard;
    const struct narrow_table *t = shard->narrow->of[table->number];
    if (t == NULL || !t->is_changing)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_LOADING,
                           "shard %u of this replica has taken a part of what changed in table "
                           "'%s', and not all: try again, or ask the server that it follows",
                           shard->config.index, table->schema.s.name);
}

int narrow_check_pull(struct call *call)
{
    struct shard *shard = call->shard;
    struct lag *lag = &call->reader.lag;
    const struct op *op = &call->work->op;
    uint64_t most = lag->ms;
    lag->ms = lag->position = 0;
    for (uint32_t i = 0; i < op->n_parts; i++) {
        const struct narrow_table *t = shard->narrow->of[op->parts[i].table->number];
        uint64_t ms = lag_ms(t != NULL ? t->fresh_ns : 0);
        lag->ms = ms > lag->ms ? ms : lag->ms;
        if (narrow_check_table(call, op->parts[i].table) != EMBD_OK)
            return call->error.status;
    }
    return lag_check(call, lag->is_told ? most : 0);
}

/* ---- figures ---- */

static uint64_t oldest_ns(const struct narrow *n)
{
    uint64_t ns = n->listed_ns;
    for (uint32_t i = 0; i < n->n; i++)
        if (n->tables[i]->is_shown && n->tables[i]->fresh_ns < ns)
            ns = n->tables[i]->fresh_ns;
    return ns;
}

struct following_figures narrow_figures(const struct shard *shard)
{
    const struct narrow *n = shard->narrow;
    uint64_t since_ns = oldest_ns(n);
    if (since_ns == 0)
        since_ns = shard->opened_ns;
    return (struct following_figures){
        .us = (clock_ns() - since_ns) / 1000,
        .is_connected = n->is_connected && !n->is_lost,
        .is_base = !n->is_ready,
    };
}

const struct histogram *narrow_freshness(const struct shard *shard)
{
    return &shard->narrow->freshness;
}

uint64_t narrow_freshness_us(const struct shard *shard, double quantile)
{
    const struct narrow *n = shard->narrow;
    return histogram_quantile(&n->freshness, &n->before[1], quantile) / 1000;
}
