/* own_pair.c - see own_pair.h. Whose a key is says the plain hash, or remainder, here. */
#include "tests/cuda/own_pair.h"

#include <stdlib.h>
#include <string.h>

#include "proto/convert.h"
#include "proto/route.h"

/* ---- shards ---- */

static void draw_sets(struct owners *o)
{
    uint32_t n_places = o->n_residues > 0 ? o->n_residues : 1024, n_owners = o->n_shards;
    if (n_owners > 1 && dice_below(&o->dice, 4) == 0)
        n_owners--; /* the last one has none */
    bool has_nobody = dice_below(&o->dice, 2);
    memset(o->sets, 0, sizeof o->sets);
    for (uint32_t p = 0; p < n_places; p++) {
        uint32_t owner = dice_below(&o->dice, n_owners);
        if (has_nobody && dice_below(&o->dice, 8) == 0)
            owner = OWN_NOBODY;
        o->of_place[p] = (uint8_t)owner;
        if (owner != OWN_NOBODY)
            o->sets[owner].words[p / 32] |= UINT32_C(1) << p % 32;
    }
    for (uint32_t s = 0; s < o->n_shards; s++)
        o->sets[s].n_residues = o->n_residues;
}

void owners_open(struct owners *o, const embd_schema *schema, uint32_t n_shards,
                 uint32_t n_residues, uint64_t seed)
{
    o->n_shards = n_shards;
    o->n_residues = n_residues;
    o->dice = (struct dice){seed};
    draw_sets(o);
    for (uint32_t i = 0; i < OWN_POOL; i++)
        o->pool[i] = dice_next(&o->dice) >> i % 3 * 20;
    for (uint32_t s = 0; s < n_shards; s++)
        pair_open(&o->pairs[s], "cuda", schema, seed);
}

void owners_close(struct owners *o)
{
    for (uint32_t s = 0; s < o->n_shards; s++)
        pair_close(&o->pairs[s]);
}

void owners_compare(struct owners *o)
{
    for (uint32_t s = 0; s < o->n_shards; s++)
        pair_compare(&o->pairs[s]);
}

uint64_t *owners_draw(struct owners *o, uint32_t n)
{
    uint64_t *keys = malloc(n * sizeof *keys + 1);
    for (uint32_t i = 0; i < n; i++)
        keys[i] = o->pool[dice_below(&o->dice, OWN_POOL)];
    return keys;
}

uint32_t owner_of(const struct owners *o, uint64_t key)
{
    return o->of_place[o->n_residues > 0 ? key % o->n_residues : embd__mix64(key) >> 54];
}

/* ---- the keys of one shard ---- */

struct share {
    struct batch batch;
    uint32_t *at; /* [n] places among all keys */
    uint32_t n;
};

static struct share share_of(const struct owners *o, uint32_t s, const uint64_t *keys, uint32_t n)
{
    struct share share = {.at = malloc(n * sizeof *share.at + 1)};
    uint64_t *own = malloc(n * sizeof *own + 1);
    for (uint32_t i = 0; i < n; i++)
        if (owner_of(o, keys[i]) == s) {
            own[share.n] = keys[i];
            share.at[share.n++] = i;
        }
    batch_of(&share.batch, own, share.n);
    free(own);
    return share;
}

static void share_free(struct share *share)
{
    batch_free(&share->batch);
    free(share->at);
}

static struct store_keys own_keys(const struct owners *o, uint32_t s, const uint64_t *keys,
                                  uint32_t n)
{
    struct store_keys in = lent_keys(keys, n);
    in.own = &o->sets[s];
    return in;
}

/* ---- pulls ---- */

/* The rows of the share, as they are in the whole answer. */
static void expect_rows(struct pair *pair, const struct share *share, embd_dtype wire, bool zero,
                        uint8_t *all)
{
    uint32_t dim = pair->schema.s.dim;
    size_t row_bytes = dim * embd__dtype_bytes(wire);
    float *rows = malloc(share->n * dim * sizeof *rows + 1);
    model_pull(pair->model, &share->batch.in, zero, false, rows, NULL);
    for (uint32_t i = 0; i < share->n; i++)
        embd__from_f32(all + share->at[i] * row_bytes, wire, rows + (size_t)i * dim, dim);
    free(rows);
}

static void pull_own(struct owners *o, uint32_t s, const struct store_pull *all)
{
    struct store_pull pull = *all;
    struct outcome outcome;
    outcome_init(&outcome);
    pull.in.own = &o->sets[s];
    o->pairs[s].ops->pull(o->pairs[s].store, &pull, &outcome.done);
    lent_await(&o->pairs[s], &outcome);
    assert_int_equal(outcome.status, EMBD_OK);
}

void owners_pull(struct owners *o, const uint64_t *keys, uint32_t n, embd_dtype wire, bool zero)
{
    const struct pair *first = &o->pairs[0];
    uint64_t bytes = n * first->schema.s.dim * (uint64_t)embd__dtype_bytes(wire);
    uint8_t *expected = malloc(bytes + 1), *got = malloc(bytes + 1);
    uint64_t *d_keys = lent_new(first, keys, n * sizeof *keys);
    memset(expected, 0x5a, bytes);
    struct store_pull pull = {.in = lent_keys(d_keys, n),
                              .dtype = wire,
                              .zero_missing = zero,
                              .count = n,
                              .values = lent_new(first, expected, bytes)};
    for (uint32_t s = 0; s < o->n_shards; s++) {
        struct share share = share_of(o, s, keys, n);
        expect_rows(&o->pairs[s], &share, wire, zero, expected);
        pull_own(o, s, &pull);
        lent_fetch(first, got, pull.values, bytes);
        assert_memory_equal(got, expected, bytes);
        share_free(&share);
    }
    lent_free(first, pull.values);
    lent_free(first, d_keys);
    free(expected);
    free(got);
}

/* ---- pushes and inserts ---- */

/* Of the share's keys; those of others are not finite. */
static void draw_gradients(struct pair *pair, const struct share *share, embd_dtype wire,
                           float *grads, uint8_t *all, uint64_t bytes)
{
    uint32_t dim = pair->schema.s.dim;
    size_t row_bytes = dim * embd__dtype_bytes(wire);
    memset(all, 0xff, bytes);
    for (uint32_t i = 0; i < share->n; i++) {
        for (uint32_t c = 0; c < dim; c++)
            grads[(size_t)i * dim + c] = model_round(dice_float(&pair->dice) * 1.3f, wire);
        embd__from_f32(all + share->at[i] * row_bytes, wire, grads + (size_t)i * dim, dim);
    }
}

/* Of four calls one is decided before, and memory is taken for one. */
static int prepare(struct pair *pair, struct store_change *change)
{
    struct embd__error e = {.status = EMBD_OK};
    uint32_t what = dice_below(&pair->dice, 4);
    if (what == 0)
        assert_int_equal(pair->ops->prepare(pair->store, change, STORE_PREPARE_MEMORY, &e),
                         EMBD_OK);
    if (what != 1)
        return EMBD_OK;
    int status = pair->ops->prepare(pair->store, change, STORE_PREPARE_OUTCOME, &e);
    if (status != EMBD_OK)
        pair->ops->cancel(pair->store, &change->ticket);
    return status;
}

/* Keys and gradients are others when the call has returned. */
static int apply_own(struct pair *pair, struct store_change *change, uint64_t grads_bytes)
{
    struct outcome outcome;
    outcome_init(&outcome);
    int status = prepare(pair, change);
    if (status != EMBD_OK)
        return status;
    pair->ops->apply(pair->store, change, &outcome.done);
    lent_spoil(pair, (void *)(uintptr_t)change->in.keys, change->in.n_keys * sizeof(uint64_t));
    if (grads_bytes > 0)
        lent_spoil(pair, (void *)(uintptr_t)change->grads, grads_bytes);
    lent_await(pair, &outcome);
    return outcome.status;
}

static void compare_counts(const struct store_change *change, const struct model_counts *expected)
{
    assert_int_equal(change->n_inserted, expected->n_inserted);
    assert_int_equal(change->n_full, expected->n_full);
    assert_int_equal(change->n_filtered, expected->n_filtered);
    assert_int_equal(change->n_evicted, expected->n_evicted);
}

static void push_share(struct owners *o, uint32_t s, const struct share *share,
                       const uint64_t *keys, uint32_t n, embd_dtype wire)
{
    struct pair *pair = &o->pairs[s];
    uint32_t dim = pair->schema.s.dim;
    uint64_t bytes = n * dim * (uint64_t)embd__dtype_bytes(wire);
    float *grads = malloc(share->n * dim * sizeof *grads + 1);
    uint8_t *all = malloc(bytes + 1);
    struct model_counts counts;
    draw_gradients(pair, share, wire, grads, all, bytes);
    uint64_t *d_keys = lent_new(pair, keys, n * sizeof *keys);
    void *d_grads = lent_new(pair, all, bytes);
    struct store_change push = {.in = own_keys(o, s, d_keys, n),
                                .dtype = wire,
                                .grads = d_grads,
                                .lr = pair->model->lr = pair_draw_lr(pair),
                                .seconds = pair_draw_seconds(pair)};
    int status = apply_own(pair, &push, bytes);
    assert_int_equal(model_push(pair->model, &share->batch.in, grads, false, NULL, &counts),
                     status);
    pair->model->lr = 0;
    if (status == EMBD_OK)
        compare_counts(&push, &counts);
    lent_free(pair, d_keys);
    lent_free(pair, d_grads);
    free(all);
    free(grads);
}

void owners_push(struct owners *o, const uint64_t *keys, uint32_t n, embd_dtype wire)
{
    for (uint32_t s = 0; s < o->n_shards; s++) {
        struct share share = share_of(o, s, keys, n);
        push_share(o, s, &share, keys, n, wire);
        share_free(&share);
    }
}

void owners_insert(struct owners *o, const uint64_t *keys, uint32_t n)
{
    for (uint32_t s = 0; s < o->n_shards; s++) {
        struct pair *pair = &o->pairs[s];
        struct share share = share_of(o, s, keys, n);
        uint64_t *d_keys = lent_new(pair, keys, n * sizeof *keys);
        struct model_counts counts;
        struct store_change insert = {.kind = STORE_INSERT,
                                      .in = own_keys(o, s, d_keys, n),
                                      .seconds = pair_draw_seconds(pair)};
        int status = apply_own(pair, &insert, 0);
        assert_int_equal(model_insert(pair->model, &share.batch.in, NULL, &counts), status);
        if (status == EMBD_OK)
            compare_counts(&insert, &counts);
        lent_free(pair, d_keys);
        share_free(&share);
    }
}

void owners_push_plain(struct owners *o, const uint64_t *keys, uint32_t n, embd_dtype wire)
{
    for (uint32_t s = 0; s < o->n_shards; s++) {
        struct share share = share_of(o, s, keys, n);
        pair_push(&o->pairs[s], &share.batch, wire, dice_below(&o->dice, 2));
        share_free(&share);
    }
}
