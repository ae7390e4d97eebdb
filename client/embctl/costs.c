/* costs.c - see costs.h. */
#include "client/embctl/costs.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "client/embctl/figures.h"

enum { WEIGHT_OF_MEAN = 10000, SHARDS_MAX = 1024 };

static uint64_t keys_of(const struct figures *f, uint32_t shard)
{
    return figures_get(f, shard, "keys_pulled") + figures_get(f, shard, "keys_pushed");
}

static int read_rows(embd_client *client, uint64_t *costs)
{
    struct figures f;
    int status = figures_read(client, NULL, &f);
    for (uint32_t i = 0; status == EMBD_OK && i < f.n_shards; i++)
        costs[i] = figures_of_tables(&f, i, "rows");
    figures_free(&f);
    return status;
}

static void wait_for(double seconds)
{
    struct timespec rest = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "embctl rebalance: counting keys for %g s\n", seconds);
    while (nanosleep(&rest, &rest) != 0)
        ;
}

/* A shard that was started again meanwhile counts from 0. */
static int read_load(embd_client *client, double seconds, uint64_t *costs)
{
    struct figures before, now;
    int status = figures_read(client, NULL, &before);
    if (status == EMBD_OK) {
        wait_for(seconds);
        status = figures_read(client, NULL, &now);
        for (uint32_t i = 0; status == EMBD_OK && i < now.n_shards; i++) {
            uint64_t first = keys_of(&before, i), last = keys_of(&now, i);
            costs[i] = last >= first ? last - first : last;
        }
        figures_free(&now);
    }
    figures_free(&before);
    return status;
}

/* Of one vshard, on average; of those that have keys. */
static double mean_cost(uint32_t n, const uint64_t *costs, const uint32_t *vshards)
{
    double sum = 0, n_vshards = 0;
    for (uint32_t i = 0; i < n; i++)
        if (vshards[i] > 0) {
            sum += (double)costs[i];
            n_vshards += vshards[i];
        }
    return n_vshards > 0 ? sum / n_vshards : 0;
}

/* A weight is what the others' would be if their vshards cost the mean. Costs far from it are
 * chance: eight times of it at most, either way. */
static uint32_t weight_of(double cost, double mean)
{
    double ratio = cost > 0 ? mean / cost : 8;
    ratio = ratio > 8 ? 8 : ratio < 0.125 ? 0.125 : ratio;
    return (uint32_t)(ratio * WEIGHT_OF_MEAN + 0.5);
}

int costs_weigh(embd_client *client, enum cost cost, double seconds, uint32_t *weights,
                bool *is_nothing_out)
{
    uint32_t n = embd_shard_count(client), vshards[SHARDS_MAX];
    uint64_t costs[SHARDS_MAX] = {0};
    int status = cost == COST_ROWS ? read_rows(client, costs) : read_load(client, seconds, costs);
    if (status == EMBD_OK)
        status = embd_vshards(client, vshards);
    if (status != EMBD_OK)
        return status;
    double mean = mean_cost(n, costs, vshards);
    *is_nothing_out = mean <= 0;
    for (uint32_t i = 0; i < n; i++)
        weights[i] = vshards[i] == 0 || mean <= 0 ? WEIGHT_OF_MEAN
                                                  : weight_of((double)costs[i] / vshards[i], mean);
    return EMBD_OK;
}
