/* rebalance.c - embd_rebalance: keys move to other shards, as shard 0's server does it.
 *
 * The happy path: the newest map is asked for; the next one is made of it and the weights; shard
 * 0's server begins the move, and is watched until it has ended. What can fail: another move came
 * in between, and the shards refuse the map. */
#include <inttypes.h>
#include <stdio.h>

#include "client/core/client.h"
#include "client/formats/coordinate.h"
#include "embd/admin.h"
#include "proto/structs.h"

#define WEIGHT_MAX 1000000u

static int check_weights(const embd_client *client, const uint32_t *weights, struct embd__error *e)
{
    uint64_t all = 0;
    for (uint32_t s = 0; weights != NULL && s < client->n_shards; s++) {
        if (weights[s] > WEIGHT_MAX)
            return embd__error_set(e, EMBD_INVALID,
                                   "weights[%" PRIu32 "]: %" PRIu32 ", the limit is %u", s,
                                   weights[s], WEIGHT_MAX);
        all += weights[s];
    }
    return all > 0 ? EMBD_OK
                   : embd__error_set(e, EMBD_INVALID, "weights: no shard has one above 0");
}

/* The map as shard 0 has it. */
static int ask_map(embd_client *client)
{
    bool is_newer;
    return embd__placement_learn(client, 0, 0, &is_newer);
}

static int check_vshards(const embd_client *client, const embd_rebalance_options *o,
                         struct embd__error *e)
{
    if (o->weights != NULL)
        return embd__error_set(e, EMBD_INVALID, "n_vshards: it goes with no weights");
    if (o->first_vshard >= EMBD_VSHARDS || o->n_vshards > EMBD_VSHARDS - o->first_vshard)
        return embd__error_set(e, EMBD_INVALID,
                               "first_vshard, n_vshards: %" PRIu32 ", %" PRIu32
                               "; there are vshards 0 to %d",
                               o->first_vshard, o->n_vshards, EMBD_VSHARDS - 1);
    return o->to_shard < client->n_shards
               ? EMBD_OK
               : embd__error_set(e, EMBD_INVALID,
                                 "to_shard: %" PRIu32 "; the cluster has shards 0 to %" PRIu32,
                                 o->to_shard, client->n_shards - 1);
}

/* What is to move. */
static int check_keys(const embd_client *client, const embd_rebalance_options *o,
                      struct embd__error *e)
{
    return o->n_vshards > 0 ? check_vshards(client, o, e) : check_weights(client, o->weights, e);
}

static int check_rate(uint64_t rate, struct embd__error *e)
{
    if (rate == 0 || (rate >= LIMIT_RATE_LEAST && rate <= LIMIT_RATE_MOST))
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "rate: %" PRIu64 " bytes a second; it can be %u to %llu, or 0: no limit",
                           rate, LIMIT_RATE_LEAST, LIMIT_RATE_MOST);
}

static int move(embd_client *client, const struct placement *next, uint64_t rate,
                embd_rebalance_report *out)
{
    char name[32];
    struct job_told job;
    snprintf(name, sizeof name, "move-%" PRIu64, next->version);
    const struct job_ask ask = {.name = name, .place = next, .rate = rate};
    if (embd__job_start(client, &ask, &job) != EMBD_OK ||
        embd__job_await(client, &job, NULL) != EMBD_OK)
        return client->error.status;
    out->rows = job.rows;
    out->bytes = job.bytes;
    out->pause_us = job.pause_us;
    out->elapsed_us = job.elapsed_us;
    return ask_map(client);
}

static int rebalance(embd_client *client, const embd_rebalance_options *options,
                     embd_rebalance_report *out)
{
    struct placement next;
    uint32_t n = client->n_shards;
    if (check_keys(client, options, &client->error) != EMBD_OK ||
        check_rate(options->rate, &client->error) != EMBD_OK || ask_map(client) != EMBD_OK)
        return client->error.status;
    if (client->n_shards != n)
        return embd__error_set(&client->error, EMBD_BUSY,
                               "the cluster has %" PRIu32 " shards now, and weights are of %" PRIu32
                               ": try again",
                               client->n_shards, n);
    if (options->n_vshards > 0)
        embd__placement_move(&next, &client->placement, options->first_vshard, options->n_vshards,
                             options->to_shard);
    else
        embd__placement_rebalance(&next, &client->placement, options->weights);
    next.version = client->next_placement > next.version ? client->next_placement : next.version;
    out->vshards = embd__placement_moved(&client->placement, &next);
    out->version = out->vshards > 0 ? next.version : client->placement.version;
    return out->vshards == 0 || options->is_plan ? EMBD_OK
                                                 : move(client, &next, options->rate, out);
}

EMBD_API int embd_rebalance(embd_client *client, const embd_rebalance_options *options,
                            embd_rebalance_report *report_out)
{
    embd_rebalance_options own = EMBD_REBALANCE_OPTIONS();
    embd_rebalance_report report = {.struct_bytes = sizeof report};
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (embd__take(embd_rebalance_options, &own, options, e) != EMBD_OK)
        return embd__error_keep(e, e->status);
    int status = rebalance(client, &own, &report);
    if (status == EMBD_OK && report_out != NULL)
        embd__struct_give(report_out, report_out->struct_bytes, &report, sizeof report);
    return embd__error_keep(e, status);
}

EMBD_API int embd_rebalance_rate(embd_client *client, uint64_t rate)
{
    struct job_rate job;
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (check_rate(rate, e) == EMBD_OK)
        embd__job_rate(client, "", &rate, &job);
    return embd__error_keep(e, e->status);
}

EMBD_API int embd_vshards(embd_client *client, uint32_t *out)
{
    struct embd__error *e = &client->error;
    uint32_t n = client->n_shards; /* the caller has room for so many */
    *e = (struct embd__error){0};
    if (ask_map(client) != EMBD_OK)
        return embd__error_keep(e, e->status);
    for (uint32_t s = 0; s < n; s++)
        out[s] = embd__placement_count(&client->placement, s);
    return EMBD_OK;
}

EMBD_API int embd_vshard_shards(embd_client *client, uint32_t *out)
{
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (ask_map(client) != EMBD_OK)
        return embd__error_keep(e, e->status);
    for (uint32_t v = 0; v < EMBD_VSHARDS; v++)
        out[v] = client->placement.of_vshard[v];
    return EMBD_OK;
}
