/* check.c - what must be so, whatever happens. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

/* ---- digests ---- */

enum { ROWS_MOST = 64, STATES_MOST = 4 * DIM + 8 };

static uint64_t sum_rows(const struct table *table)
{
    uint64_t keys[ROWS_MOST], candidates[ROWS_MOST], cursor = 0, sum = 0;
    uint32_t counts[ROWS_MOST];
    float rows[ROWS_MOST * DIM], states[ROWS_MOST * STATES_MOST];
    struct embd__error e = {.status = EMBD_OK};
    uint32_t n_states = embd__schema_state_floats(&table->schema.s);
    while (cursor != UINT64_MAX) {
        struct store_scan out = {.keys = keys,
                                 .rows = rows,
                                 .states = states,
                                 .candidate_keys = candidates,
                                 .candidate_counts = counts};
        if (store_host.scan(table->store, &cursor, ROWS_MOST, &out, &e) != EMBD_OK)
            abort();
        for (uint32_t i = 0; i < out.n_rows; i++)
            sum += XXH3_64bits_withSeed(rows + i * DIM, DIM * sizeof *rows, keys[i]) * 3 +
                   XXH3_64bits_withSeed(states + i * n_states, n_states * sizeof *states, keys[i]);
        for (uint32_t i = 0; i < out.n_candidates; i++)
            sum += XXH3_64bits_withSeed(&counts[i], sizeof counts[i], ~candidates[i]);
    }
    return sum;
}

static uint64_t sum_table(const struct table *table)
{
    struct store_stats stats;
    store_host.stats(table->store, &stats);
    const uint64_t counters[] = {table->id,   stats.rows,      stats.candidates, stats.steps,
                                 stats.clock, sum_rows(table), stats.forgotten};
    return XXH3_64bits(counters, sizeof counters) + XXH3_64bits(&table->lost, sizeof table->lost);
}

static uint64_t sum_streams(const struct pushers *pushers)
{
    struct push_stream list[CLIENTS];
    uint64_t sum = 0;
    if (pushers->n > CLIENTS)
        return 1;
    uint32_t n = pushers_list(pushers, list, NULL);
    for (uint32_t i = 0; i < n; i++)
        sum += XXH3_64bits(&list[i], sizeof list[i]);
    return sum;
}

uint64_t check_digest(struct sim *sim, struct node *node)
{
    const struct tables *tables = &node->engine.tables;
    uint64_t sum = sum_streams(&node->engine.journaled_pushers);
    for (uint32_t i = 0; i < tables->n; i++)
        sum += sum_table(tables->by_name[i]);
    sim->seen.digests++;
    return sum;
}

void check_note_digest(struct sim *sim, const struct node *node, uint64_t chain, uint64_t digest)
{
    uint64_t at = chain % DIGESTS;
    for (uint32_t n = 0; n < DIGESTS; n++, at = (at + 1) % DIGESTS) {
        if (sim->digests[at].chain == 0) {
            sim->digests[at].chain = chain;
            sim->digests[at].digest = digest;
            return;
        }
        if (sim->digests[at].chain != chain)
            continue;
        if (sim->digests[at].digest != digest)
            sim_fail(sim, "server %u has other tables than another server at the same record",
                     node->index);
        return;
    }
    sim_fail(sim, "more records than there is room for digests");
}

/* ---- pushes ---- */

static const float *row_of(const struct node *node, uint64_t key, float row[DIM])
{
    struct embd__error e = {.status = EMBD_OK};
    const struct table *table = tables_find(&node->engine.tables, "counters", &e);
    uint8_t status;
    struct store_read read = {
        .in = {.n_keys = 1, .n_rows = 1, .keys = &key}, .rows = row, .statuses = &status};
    if (table == NULL || store_host.read(table->store, &read, &e) != EMBD_OK)
        return NULL;
    return row;
}

void check_once(struct sim *sim, struct node *node)
{
    for (uint32_t c = 0; c < CLIENTS; c++) {
        float row[DIM] = {0};
        const struct push_number stream = client_stream(c, 0);
        uint64_t last = pushers_last(&node->engine.journaled_pushers, &stream);
        if (row_of(node, c, row) == NULL)
            continue;
        float sum = (float)(last * (last + 1) / 2);
        if (row[0] != (float)last || row[1] != sum)
            sim_fail(
                sim,
                "server %u: client %u's pushes up to %llu were applied %g times, and add up to "
                "%g, not %g",
                node->index, c, (unsigned long long)last, (double)row[0], (double)row[1],
                (double)sum);
    }
}

bool check_may_lose(const struct sim *sim)
{
    return sim->is_rash || sim->promise == PROMISE_BUFFERED ||
           (sim->promise == PROMISE_DURABLE && sim->n_histories > 0);
}

void check_none_lost(struct sim *sim, struct node *node, const char *when)
{
    check_once(sim, node);
    for (uint32_t c = 0; c < CLIENTS && !check_may_lose(sim); c++) {
        const struct push_number stream = client_stream(c, 0);
        uint64_t last = pushers_last(&node->engine.journaled_pushers, &stream);
        if (last < sim->clients[c].acked)
            sim_fail(sim,
                     "%s: server %u has client %u's pushes up to %llu, and %llu was acknowledged",
                     when, node->index, c, (unsigned long long)last,
                     (unsigned long long)sim->clients[c].acked);
    }
}
