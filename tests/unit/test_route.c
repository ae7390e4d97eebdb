/* test_route.c - where keys go: placements that are known from outside, and spread. */
#include "tests/unit/cmocka_all.h"

#include <string.h>

#include "proto/placement.h"

/* 10 slots on 3 shards: {0,3,6,9} {1,4,7} {2,5,8}. */
static void slots_go_round_the_shards(void **state)
{
    static const uint32_t expected[10] = {0, 1, 2, 0, 1, 2, 0, 1, 2, 0};
    (void)state;
    for (uint32_t slot = 0; slot < 10; slot++)
        assert_int_equal(embd__route(EMBD_PARTITION_SLOT, 3, slot, 12345), expected[slot]);
}

static void modulo_takes_the_whole_key(void **state)
{
    (void)state;
    assert_int_equal(embd__route(EMBD_PARTITION_MODULO, 7, 0, UINT64_MAX), UINT64_MAX % 7);
    assert_int_equal(embd__route(EMBD_PARTITION_MODULO, 3, 5, 10), 1);
}

/* Values of the finalizer as MurmurHash3's fmix64 has them. */
static void mix64_is_the_finalizer_of_murmur3(void **state)
{
    (void)state;
    assert_true(embd__mix64(0) == 0);
    assert_true(embd__mix64(1) == 0xb456bcfc34c2cb2cull);
    assert_true(embd__mix64(UINT64_MAX) == 0x64b5720b4b825f21ull);
}

static void hash_spreads_consecutive_keys_evenly(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 9; n++) {
        uint32_t counts[9] = {0};
        const uint32_t keys = 100000;
        for (uint64_t key = 0; key < keys; key++) {
            uint32_t shard = embd__route(EMBD_PARTITION_HASH, n, 0, key);
            assert_true(shard < n);
            counts[shard]++;
        }
        for (uint32_t shard = 0; shard < n;
             shard++) /* 1024 virtual shards: shares differ by under 1 % */
            assert_in_range(counts[shard], keys / n * 95 / 100, keys / n * 105 / 100 + 1);
    }
}

static void a_virtual_shard_belongs_to_one_shard_in_order(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= 1024; n *= 2) {
        for (uint64_t key = 0; key < 5000; key++) {
            uint64_t v = embd__mix64(key) >> 54;
            assert_int_equal(embd__route(EMBD_PARTITION_HASH, n, 0, key), v * n / 1024);
        }
    }
}

/* ---- maps ---- */

static const embd_partition partitions[] = {EMBD_PARTITION_HASH, EMBD_PARTITION_MODULO,
                                            EMBD_PARTITION_SLOT};

/* So data directories and clients that know no map agree with it, for any number of shards. */
static void the_even_map_is_the_route_without_a_map(void **state)
{
    (void)state;
    for (uint32_t n = 1; n <= PLACEMENT_VSHARDS; n++) {
        struct placement even;
        embd__placement_even(&even, 1, n);
        assert_true(even.is_even);
        for (uint64_t i = 0; i < 600; i++) {
            uint64_t key = embd__mix64(i * n) >> i % 64;
            for (int p = 0; p < 3; p++)
                if (embd__placement_shard(&even, partitions[p], (uint32_t)(i * 109), key) !=
                    embd__route(partitions[p], n, (uint32_t)(i * 109), key))
                    fail_msg("%u shards, partition %d, key %llu", n, p, (unsigned long long)key);
        }
    }
}

static void equal_weights_are_even_and_others_in_proportion(void **state)
{
    (void)state;
    uint32_t weights[1024], uneven[4] = {1, 0, 2, 5};
    struct placement p, even;
    for (uint32_t n = 1; n <= 1024; n++) {
        for (uint32_t s = 0; s < n; s++)
            weights[s] = 1000000;
        embd__placement_weighted(&p, 3, n, weights);
        embd__placement_even(&even, 1, n);
        assert_true(p.is_even && p.version == 3 && embd__placement_is_same(&p, &even));
        assert_true(embd__placement_digest(&p) != embd__placement_digest(&even));
    }
    embd__placement_weighted(&p, 1, 4, uneven);
    for (uint32_t s = 0; s < 4; s++)
        assert_int_equal(embd__placement_count(&p, s), uneven[s] * 128);
    assert_false(p.is_even);
}

/* Runs of shard and vshards, and what is said about them; NULL: they are a map of 3 shards. */
static const struct {
    uint64_t version, base, runs[6];
    const char *says;
} given[] = {
    {1, 3, {0, 1024}, NULL},
    {1, 3, {2, 1, 0, 1022, 2, 1}, NULL},
    {PLACEMENT_VERSION_MAX, 1024, {1, 1024}, NULL},
    {0, 3, {0, 1024}, "version is 0"},
    {PLACEMENT_VERSION_MAX + 1, 3, {0, 1024}, "version is 9007199254740993"},
    {1, 0, {0, 1024}, "base is 0"},
    {1, 1025, {0, 1024}, "base is 1025"},
    {1, 3, {0, 1023}, "of 1023 vshards together"},
    {1, 3, {0, 1025}, "a run of 1025 vshards behind 0"},
    {1, 3, {0, 1024, 1, 1}, "a run of 1 vshards behind 1024"},
    {1, 3, {0, 1, 3, 1023}, "shard 3"},
    {1, 3, {UINT64_MAX, 1024}, "shard 18446744073709551615"},
    {1, 3, {0, 1, 1, UINT64_MAX}, "18446744073709551615 vshards behind 1"},
};

static void maps_with_holes_or_unknown_shards_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof given / sizeof *given; i++) {
        struct placement p;
        struct embd__error e = {.status = EMBD_OK};
        int status = embd__placement_begin(&p, given[i].version, 3, given[i].base, &e);
        for (int r = 0; r < 6 && given[i].runs[r + 1] > 0 && status == EMBD_OK; r += 2)
            status = embd__placement_add(&p, given[i].runs[r], given[i].runs[r + 1], &e);
        if (status == EMBD_OK)
            embd__placement_end(&p, &e);
        assert_int_equal(e.status, given[i].says == NULL ? EMBD_OK : EMBD_INVALID);
        assert_true(given[i].says == NULL || strstr(e.text, given[i].says) != NULL);
    }
}

/* A residue is a vshard: no two are the same one, so each moves by itself. */
static void residues_move_one_by_one(void **state)
{
    (void)state;
    for (uint32_t base = 1; base <= 1024; base++) {
        struct placement p;
        struct embd__error e = {.status = EMBD_OK};
        embd__placement_begin(&p, 1, 1024, base, &e);
        for (uint32_t v = 0; v < 1024; v++)
            embd__placement_add(&p, v, 1, &e);
        embd__placement_end(&p, &e);
        bool seen[1024] = {false};
        assert_true(p.n_residues <= 1024 && p.n_residues > 1024 - base);
        for (uint32_t r = 0; r < p.n_residues; r++) {
            assert_false(seen[p.of_residue[r]]);
            seen[p.of_residue[r]] = true;
        }
    }
}

/* Written down once, since every client and every file depends on them. */
static void table_ids_are_fixed(void **state)
{
    (void)state;
    assert_int_equal(embd__table_id("items"), 1622843896u);
    assert_int_not_equal(embd__table_id("users"), embd__table_id("items"));
    assert_int_not_equal(embd__table_id(""), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"S0.1 slots go round the shards", slots_go_round_the_shards, NULL, NULL, NULL},
        {"S4.1 modulo takes the whole key", modulo_takes_the_whole_key, NULL, NULL, NULL},
        cmocka_unit_test(mix64_is_the_finalizer_of_murmur3),
        cmocka_unit_test(hash_spreads_consecutive_keys_evenly),
        cmocka_unit_test(a_virtual_shard_belongs_to_one_shard_in_order),
        cmocka_unit_test(table_ids_are_fixed),
        cmocka_unit_test(the_even_map_is_the_route_without_a_map),
        cmocka_unit_test(equal_weights_are_even_and_others_in_proportion),
        cmocka_unit_test(maps_with_holes_or_unknown_shards_are_refused),
        cmocka_unit_test(residues_move_one_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
