/* test_route.c - where keys go: placements that are known from outside, and spread. */
#include "tests/unit/cmocka_all.h"

#include <string.h>

#include "proto/route.h"

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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
