/* request.c - batches are drawn from small sets, so that keys meet again. Each shard judges its own
 * keys, of all parts together, and so do the models here. */
#include "tests/history/request.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/client/batch.h"

#define KEYS 150u /* different ones in a slot */

/* ---- drawing ---- */

void request_draw_keys(struct world *w, const embd_schema *schema, uint32_t n, bool is_one_slot,
                       struct keys *k)
{
    uint32_t slot = draw(w, schema->slots);
    bool is_spread = schema->seed == 1; /* keys of all 64 bits */
    k->n = 0;
    for (uint32_t s = 0; s < schema->slots; s++) {
        uint32_t n_here =
            is_one_slot ? (s == slot ? n : 0) : (n + schema->slots - 1 - s) / schema->slots;
        k->offsets[s] = k->n;
        for (uint32_t i = 0; i < n_here; i++, k->n++) {
            k->keys[k->n] = draw(w, KEYS) * (is_spread ? 0x9e3779b97f4a7c15ULL : 1);
            k->slots[k->n] = schema->partition == EMBD_PARTITION_SLOT ? (uint16_t)s : 0;
            for (uint32_t c = 0; c < schema->dim; c++)
                k->values[k->n * schema->dim + c] = batch_random_float(&w->dice);
        }
    }
    k->offsets[schema->slots] = k->n;
    k->has_scores = schema->on_full == EMBD_ON_FULL_EVICT_SCORE && !one_in(w, 3);
    for (uint32_t i = 0; i < k->n && k->has_scores; i++)
        k->scores[i] = one_in(w, 8) ? -INFINITY : (float)draw(w, 9) / 2.0f - 2.0f;
}

/* Mostly few keys: then blocks of increments are of one shard. */
static void add_part(struct world *w, struct request *request, uint32_t table)
{
    static const uint32_t n[] = {1, 1, 1, 2, 3, 3, 50, 200};
    struct keys *k = &request->keys[request->n];
    request->tables[request->n++] = table;
    uint32_t n_keys = n[draw(w, 8)];
    bool is_one_slot = one_in(w, 2);
    request_draw_keys(w, &w->now.tables[table].schema, n_keys, is_one_slot, k);
    k->asks_statuses = one_in(w, 2);
    k->lr = one_in(w, 3) ? 0.01f + 0.1f * (float)draw(w, 3) : 0.0f;
}

void request_draw(struct world *w, uint32_t table, struct request *request)
{
    uint32_t other = table ^ 1; /* of the same kind */
    request->n = 0;
    add_part(w, request, table);
    if (w->now.tables[other].is_there && one_in(w, 3))
        add_part(w, request, other);
}

void request_draw_pull(struct world *w, uint32_t table, struct request *request)
{
    request_draw(w, table, request);
    if (request->n < REQUEST_PARTS && one_in(w, 4))
        add_part(w, request, table);
}

void request_empty(struct request *request)
{
    for (uint32_t i = 0; i < request->n; i++) {
        request->keys[i].n = 0;
        memset(request->keys[i].offsets, 0, sizeof request->keys[i].offsets);
    }
}

void request_tell(struct world *w, const char *deed, const struct request *request)
{
    tell(w, "\n%s", deed);
    for (uint32_t i = 0; i < request->n; i++)
        tell(w, "%s t%" PRIu32 ", %" PRIu32 " keys%s%s, lr %g", i ? " and" : "", request->tables[i],
             request->keys[i].n, request->keys[i].asks_statuses ? ", statuses" : "",
             request->keys[i].has_scores ? ", scores" : "", (double)request->keys[i].lr);
}

void request_parts(struct world *w, struct request *request, embd_part *parts)
{
    for (uint32_t i = 0; i < request->n; i++) {
        struct keys *k = &request->keys[i];
        uint32_t table = request->tables[i];
        parts[i] =
            (embd_part)EMBD_PART(.table = w->handles[table],
                                 .n_rows = w->now.tables[table].schema.slots, .offsets = k->offsets,
                                 .n_keys = k->n, .keys = k->keys, .values = k->values,
                                 .statuses = k->asks_statuses ? k->statuses : NULL, .raw = true,
                                 .lr = k->lr, .scores = k->has_scores ? k->scores : NULL);
    }
}

/* ---- one shard ---- */

/* Its keys of a part, and where they stand in it. */
struct share {
    struct model *model;
    struct model_batch batch;
    uint32_t at[KEYS_MAX];
    uint64_t keys[KEYS_MAX];
    uint16_t slots[KEYS_MAX];
    float values[KEYS_MAX * DIM_TOP], scores[KEYS_MAX];
    uint8_t statuses_memory[KEYS_MAX];
    uint8_t *statuses; /* NULL: it asks for none */
    float lr;
};

/* Of all parts; good until the next call. */
static struct share *shares_of(struct world *w, const struct request *request, uint32_t shard)
{
    static struct share shares[REQUEST_PARTS];
    for (uint32_t p = 0; p < request->n; p++) {
        const struct image_table *t = &w->now.tables[request->tables[p]];
        const struct keys *k = &request->keys[p];
        struct share *share = &shares[p];
        uint32_t dim = t->schema.dim, n = 0;
        for (uint32_t i = 0; i < k->n; i++) {
            if (image_shard_of(&t->schema, w->now.n_shards, k->keys[i], k->slots[i]) != shard)
                continue;
            memcpy(share->values + n * dim, k->values + i * dim, dim * sizeof *k->values);
            share->keys[n] = k->keys[i];
            share->slots[n] = k->slots[i];
            share->scores[n] = k->scores[i];
            share->at[n++] = i;
        }
        share->model = t->shards[shard];
        share->batch = (struct model_batch){
            .n_keys = n, .n_rows = n, .keys = share->keys, .slots = share->slots};
        share->batch.scores = k->has_scores ? share->scores : NULL;
        share->statuses = k->asks_statuses ? share->statuses_memory : NULL;
        share->lr = k->lr;
    }
    return shares;
}

static void return_shares(const struct share *shares, struct request *request)
{
    for (uint32_t p = 0; p < request->n; p++) {
        struct keys *k = &request->keys[p];
        uint32_t dim = shares[p].model->schema.dim;
        for (uint32_t i = 0; i < shares[p].batch.n_keys; i++) {
            uint32_t at = shares[p].at[i];
            if (shares[p].statuses)
                k->wanted_statuses[at] = shares[p].statuses[i];
            memcpy(k->wanted + at * dim, shares[p].values + i * dim, dim * sizeof *k->wanted);
        }
    }
}

/* ---- push ---- */

static bool finds_room(const struct share *share)
{
    return share->statuses != NULL || model_foresee(share->model, &share->batch) == EMBD_OK;
}

/* All parts or none. */
static bool push_to_shard(struct share *shares, uint32_t n)
{
    for (uint32_t p = 0; p < n; p++)
        if (!finds_room(&shares[p]))
            return false;
    for (uint32_t p = 0; p < n; p++) {
        shares[p].model->lr = shares[p].lr;
        model_push(shares[p].model, &shares[p].batch, shares[p].values, false, shares[p].statuses,
                   NULL);
    }
    return true;
}

uint32_t request_push(struct world *w, struct request *request, uint32_t shards)
{
    uint32_t refused = 0;
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        if ((shards >> shard & 1) == 0)
            continue;
        struct share *shares = shares_of(w, request, shard);
        if (!push_to_shard(shares, request->n))
            refused |= 1u << shard;
        return_shares(shares, request);
    }
    return refused;
}

/* ---- pull and erase ---- */

/* Parts of one table that have keys of the shard are judged as one, which may leave keys out where
 * all of them ask. */
static bool insert_joined(struct share *shares)
{
    static struct share all;
    uint32_t n = shares[0].batch.n_keys, n_more = shares[1].batch.n_keys;
    memcpy(all.keys, shares[0].keys, n * sizeof *all.keys);
    memcpy(all.keys + n, shares[1].keys, n_more * sizeof *all.keys);
    memcpy(all.slots, shares[0].slots, n * sizeof *all.slots);
    memcpy(all.slots + n, shares[1].slots, n_more * sizeof *all.slots);
    all.model = shares[0].model;
    all.batch = (struct model_batch){
        .n_keys = n + n_more, .n_rows = n + n_more, .keys = all.keys, .slots = all.slots};
    all.statuses = shares[0].statuses && shares[1].statuses ? all.statuses_memory : NULL;
    if (!finds_room(&all))
        return false;
    model_insert(all.model, &all.batch, all.statuses_memory, NULL);
    memcpy(shares[0].statuses_memory, all.statuses_memory, n);
    memcpy(shares[1].statuses_memory, all.statuses_memory + n, n_more);
    return true;
}

static bool creates(const struct share *share)
{
    return share->model->schema.create_on == EMBD_CREATE_ON_PULL;
}

static bool insert_into_shard(struct share *shares, uint32_t n)
{
    bool is_joined = n == 2 && shares[0].model == shares[1].model && shares[0].batch.n_keys > 0 &&
                     shares[1].batch.n_keys > 0;
    if (is_joined && creates(&shares[0]))
        return insert_joined(shares);
    for (uint32_t p = 0; p < n; p++)
        if (creates(&shares[p]) && !finds_room(&shares[p]))
            return false;
    for (uint32_t p = 0; p < n; p++)
        if (creates(&shares[p]))
            model_insert(shares[p].model, &shares[p].batch, shares[p].statuses, NULL);
    return true;
}

/* First the rows of all parts, then their values. */
static bool pull_from_shard(struct share *shares, uint32_t n, bool is_zero)
{
    if (!is_zero && !insert_into_shard(shares, n))
        return false;
    for (uint32_t p = 0; p < n; p++) {
        bool is_told = !is_zero && creates(&shares[p]); /* by the insert */
        model_pull(shares[p].model, &shares[p].batch, is_zero, false, shares[p].values,
                   is_told ? NULL : shares[p].statuses);
    }
    return true;
}

uint32_t request_pull(struct world *w, struct request *request, bool is_zero)
{
    uint32_t refused = 0;
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        struct share *shares = shares_of(w, request, shard);
        if (!pull_from_shard(shares, request->n, is_zero))
            refused |= 1u << shard;
        return_shares(shares, request);
    }
    return refused;
}

void request_erase(struct world *w, struct request *request)
{
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        struct share *shares = shares_of(w, request, shard);
        for (uint32_t p = 0; p < request->n; p++)
            model_erase(shares[p].model, &shares[p].batch, shares[p].statuses);
        return_shares(shares, request);
    }
}

/* ---- what the cluster answers ---- */

/* " shard 1" or " shards 0, 2-4". */
static size_t list_shards(char *text, size_t room, uint32_t shards)
{
    bool is_one = (shards & (shards - 1)) == 0;
    size_t n = (size_t)snprintf(text, room, is_one ? " shard" : " shards");
    const char *before = " ";
    for (uint32_t first = 0, last; shards >> first != 0; first = last + 1) {
        last = first;
        if ((shards >> first & 1) == 0)
            continue;
        while (shards >> (last + 1) & 1)
            last++;
        n += (size_t)snprintf(text + n, room - n, "%s%" PRIu32, before, first);
        if (last > first)
            n += (size_t)snprintf(text + n, room - n, "-%" PRIu32, last);
        before = ", ";
    }
    return n;
}

void request_expect(struct world *w, const char *call, int status, uint32_t refused)
{
    char text[256];
    uint32_t all = (1u << w->now.n_shards) - 1;
    expect(w, call, status, refused ? EMBD_FULL : EMBD_OK);
    if (refused == 0)
        return;
    size_t n = (size_t)snprintf(text, sizeof text, "; applied by");
    if (refused != all) {
        n += list_shards(text + n, sizeof text - n, all & ~refused);
        n += (size_t)snprintf(text + n, sizeof text - n, "; refused by");
        n += list_shards(text + n, sizeof text - n, refused);
        snprintf(text + n, sizeof text - n, " (%s)", embd_status_text(EMBD_FULL));
    }
    if ((strstr(embd_error_text(), text) != NULL) != (refused != all))
        fail(w, "%s answered '%s', which should %shave '%s'", call, embd_error_text(),
             refused != all ? "" : "not ", text);
}

void request_compare_statuses(struct world *w, const char *deed, const struct request *request)
{
    for (uint32_t p = 0; p < request->n; p++) {
        const struct keys *k = &request->keys[p];
        for (uint32_t i = 0; i < k->n && k->asks_statuses; i++)
            if (k->statuses[i] != k->wanted_statuses[i])
                fail(w, "%s: the status of key %" PRIu64 " of t%" PRIu32 " is %d, it should be %d",
                     deed, k->keys[i], request->tables[p], k->statuses[i], k->wanted_statuses[i]);
    }
}
