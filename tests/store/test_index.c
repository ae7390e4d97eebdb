/* test_index.c - the host store's index alone: what the case table reaches only by luck. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/store/host/index.h"
#include "server/store/store.h"
#include "proto/route.h"

static void put(struct index *index, uint64_t hash, uint32_t slot, uint32_t ref)
{
    assert_true(index_reserve(index, &hash, 1));
    index_put(index, hash, slot, ref);
}

static void test_hash_is_a_bijection(void **state)
{
    (void)state;
    static const uint64_t keys[] = {0, 1, 2, UINT64_MAX, 1ULL << 63, 0x123456789abcdefULL, 1024};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        for (uint32_t slot = 0; slot < 1024; slot += 33)
            assert_true(index_key(index_hash(keys[i], slot), slot) == keys[i]);
}

static void test_hash_is_not_that_of_routes(void **state)
{
    (void)state;
    assert_true(index_hash(0, 0) == 0);
    assert_true(index_hash(1, 0) != embd__mix64(1));
}

/* A shard sees the keys of one range of routing hashes; they fill its buckets evenly all the same.
 */
static void test_routed_keys_spread(void **state)
{
    (void)state;
    uint32_t buckets[64] = {0}, n = 0;
    for (uint64_t key = 0; n < 64000; key++)
        if (embd__route(EMBD_PARTITION_HASH, 16, 0, key) == 3) {
            buckets[index_hash(key, 0) >> INDEX_HOME & 63]++;
            n++;
        }
    for (int i = 0; i < 64; i++)
        assert_in_range(buckets[i], 850, 1150);
}

static uint32_t most_in_a_bucket(const uint64_t *keys, uint32_t n)
{
    static uint8_t in_bucket[INDEX_BUCKETS_MAX];
    uint32_t most = 0;
    memset(in_bucket, 0, sizeof in_bucket);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t now = ++in_bucket[index_hash(keys[i], 0) >> INDEX_HOME & (INDEX_BUCKETS_MAX - 1)];
        most = now > most ? now : most;
    }
    return most;
}

/* Who knows the code and not the secret cannot choose keys that fall together. */
static void test_chosen_keys(void **state)
{
    (void)state;
    enum { N = 200 };
    uint64_t keys[N];
    struct embd__error e = {.status = EMBD_OK};
    embd_schema s = {.name = "chosen", .dim = 4};
    struct table_schema schema = {.s = s};
    struct store *store;
    for (uint64_t i = 0; i < N; i++)
        keys[i] = index_key(i << 19 | 0x7ffff, 0);
    assert_int_equal(most_in_a_bucket(keys, N), N);
    assert_int_equal(store_host.open(&schema, &store, &e), EMBD_OK);
    assert_in_range(most_in_a_bucket(keys, N), 1, 5);
    test_hash_is_a_bijection(state);
    store_host.close(store);
    store_secret = (struct store_secret){0};
}

/* Keys whose searches begin at one bucket, the last of the segment, so that they go on at its
 * front. */
static void test_colliding_keys(void **state)
{
    (void)state;
    enum { N = 100 };
    struct index index;
    assert_true(index_open(&index, true));
    for (uint64_t i = 0; i < N; i++)
        put(&index, i << 40 | 0xffffff, 0, (uint32_t)i + 1);
    put(&index, 0, 0, 1000);
    put(&index, 0xffffff, 7, 2000); /* another slot is another key */
    for (uint64_t i = 0; i < N; i++)
        assert_int_equal(index_find(&index, i << 40 | 0xffffff, 0), i + 1);
    assert_int_equal(index_find(&index, 0, 0), 1000);
    assert_int_equal(index_find(&index, 0xffffff, 7), 2000);
    assert_int_equal(index_find(&index, 0xffffff, 8), 0);
    assert_int_equal(index_find(&index, (uint64_t)N << 40 | 0xffffff, 0), 0);
    index_close(&index);
}

/* Keys come and go, many of them in a few buckets; those that are there are always found. */
static void test_removed_keys(void **state)
{
    (void)state;
    enum { N = 3000, MOVES = 200000 };
    struct index index;
    static uint32_t refs[N];
    uint64_t used = 0, x = 1;
    assert_true(index_open(&index, true));
    for (uint32_t move = 0; move < MOVES; move++) {
        x = x * 6364136223846793005ULL + 1442695040888963407ULL;
        uint32_t i = (uint32_t)(x >> 33) % N, slot = i % 3;
        uint64_t hash = i % 5 == 0 ? (uint64_t)i << 40 | 0xffffff : index_hash(i, slot);
        if (refs[i] != 0) {
            assert_int_equal(index_find(&index, hash, slot), refs[i]);
            assert_true(index_remove(&index, hash, slot));
            used--;
            refs[i] = 0;
        } else {
            assert_false(index_remove(&index, hash, slot));
            put(&index, hash, slot, refs[i] = move + 1);
            used++;
        }
        assert_int_equal(index_find(&index, hash, slot), refs[i]);
    }
    assert_int_equal(index.n_entries, used);
    for (uint32_t i = 0; i < N; i++) {
        uint64_t hash = i % 5 == 0 ? (uint64_t)i << 40 | 0xffffff : index_hash(i, i % 3);
        assert_int_equal(index_find(&index, hash, i % 3), refs[i]);
    }
    uint64_t at = 0, n = 0;
    struct index_entry entry;
    while (index_next(&index, &at, &entry))
        n++;
    assert_int_equal(n, used);
    index_close(&index);
}

/* Keys made so that no split separates them are refused when the directory has its full size; the
 * others stay. */
static void test_inseparable_keys(void **state)
{
    (void)state;
    enum { N = 131072 };
    struct index index;
    uint64_t *hashes = malloc(N * sizeof *hashes);
    assert_true(index_open(&index, false));
    put(&index, 99, 0, 5);
    for (uint64_t i = 0; i < N; i++)
        hashes[i] = 0xabcdefULL << 40 | i;
    assert_false(index_reserve(&index, hashes, N));
    assert_true(index_bytes(&index) < 64u << 20);
    assert_int_equal(index_find(&index, 99, 0), 5);
    assert_int_equal(index_find(&index, hashes[0], 0), 0);
    assert_true(index_reserve(&index, hashes, 1000));
    free(hashes);
    index_close(&index);
}

static void fill(struct index *index, uint64_t begin, uint64_t end)
{
    enum { BATCH = 4096 };
    uint64_t hashes[BATCH];
    for (uint64_t key = begin; key < end;) {
        uint32_t n = 0;
        while (n < BATCH && key < end)
            hashes[n++] = index_hash(key++, 0);
        assert_true(index_reserve(index, hashes, n));
        for (uint32_t i = 0; i < n; i++)
            index_put(index, hashes[i], 0, (uint32_t)(key - n + i) + 1);
    }
}

static void test_growth_and_order(void **state)
{
    (void)state;
    enum { N = 1400000 };
    struct index index;
    assert_true(index_open(&index, false));
    fill(&index, 0, N);
    for (uint64_t key = 0; key < N; key++)
        assert_true(index_find(&index, index_hash(key, 0), 0) == key + 1);
    for (uint64_t key = N; key < N + 100000; key++)
        assert_true(index_find(&index, index_hash(key, 0), 0) == 0);
    uint8_t *seen = calloc(N, 1);
    uint64_t at = 0, n = 0;
    struct index_entry entry;
    while (index_next(&index, &at, &entry)) {
        assert_true(entry.ref == index_key(entry.hash, 0) + 1);
        assert_int_equal(seen[entry.ref - 1]++, 0);
        n++;
    }
    assert_int_equal(n, N);
    assert_true(at == UINT64_MAX);
    free(seen);
    index_close(&index);
}

/* A table that grows by 65,536 keys at a time splits few segments in each, however many it has. */
enum { PUSH = 65536, SPLITS = 24 };

static uint64_t most_splits(struct index *index, uint64_t begin, uint64_t end)
{
    uint64_t most = 0;
    for (uint64_t key = begin; key < end; key += PUSH) {
        uint64_t before = index->n_segments;
        fill(index, key, key + PUSH);
        most = index->n_segments - before > most ? index->n_segments - before : most;
    }
    return most;
}

static void test_segments_split_one_after_another(void **state)
{
    (void)state;
    enum { N = 60 * PUSH };
    struct index index;
    assert_true(index_open(&index, false));
    assert_in_range(most_splits(&index, 0, N), 1, SPLITS);
    for (uint64_t key = 0; key < N; key++)
        assert_true(index_find(&index, index_hash(key, 0), 0) == key + 1);
    assert_int_equal(index_find(&index, index_hash(N, 0), 0), 0);
    index_close(&index);
}

/* At every number of keys the index takes at most 24 bytes a key and that of an empty one. */
enum { EMPTY = 16384, MILLIONS = 2100000 };

static void check_bytes(const struct index *index, uint64_t n)
{
    if (index_bytes(index) > 24 * n + EMPTY)
        fail_msg("%llu keys: %llu bytes", (unsigned long long)n,
                 (unsigned long long)index_bytes(index));
}

static uint32_t slot_of(uint64_t key, bool has_slots)
{
    return has_slots ? (uint32_t)(key % 1000) : 0;
}

static uint64_t hash_of(uint64_t key, bool has_slots)
{
    return index_hash(key, slot_of(key, has_slots));
}

static void put_all(struct index *index, uint64_t begin, uint64_t end)
{
    for (uint64_t key = begin; key < end; key++) {
        put(index, hash_of(key, index->has_slots), slot_of(key, index->has_slots),
            (uint32_t)key + 1);
        check_bytes(index, index->n_entries);
    }
}

static void test_bytes_for_each_key(void **state)
{
    (void)state;
    for (int has_slots = 0; has_slots < 2; has_slots++) {
        struct index index;
        assert_true(index_open(&index, has_slots));
        check_bytes(&index, 0);
        put_all(&index, 0, MILLIONS);
        for (uint64_t key = 0; key < MILLIONS; key++)
            assert_true(index_find(&index, hash_of(key, has_slots), slot_of(key, has_slots)) ==
                        key + 1);
        index_close(&index);
    }
}

/* Keys that go make room for those that come. */
static void test_bytes_after_removal(void **state)
{
    (void)state;
    enum { N = 300000, TURNS = 4 };
    struct index index;
    assert_true(index_open(&index, false));
    put_all(&index, 0, N);
    for (uint64_t turn = 0; turn < TURNS; turn++) {
        for (uint64_t key = turn * N; key < (turn + 1) * N; key++)
            assert_true(index_remove(&index, index_hash(key, 0), 0));
        fill(&index, (turn + 1) * N, (turn + 2) * N);
        check_bytes(&index, N + N / 50); /* other hashes, other numbers in each segment */
    }
    index_close(&index);
}

/* Also of keys that are not known yet: the room is there, and not much more. */
static void test_room_at_once(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {1, 170, 85000, 1000000};
    for (int i = 0; i < 4; i++) {
        struct index index;
        assert_true(index_open(&index, false));
        uint64_t growth = index_growth(&index, sizes[i]), before = index_bytes(&index);
        assert_true(index_reserve_more(&index, sizes[i]));
        uint64_t bytes = index_bytes(&index);
        assert_true(bytes - before <= growth);
        assert_true(bytes < 26 * sizes[i] + EMPTY);
        fill(&index, 0, sizes[i]);
        assert_int_equal(index_bytes(&index), bytes);
        index_close(&index);
    }
}

/* What index_growth says is never less than what keys then take. */
static void test_growth_is_foreseen(void **state)
{
    (void)state;
    struct index index;
    assert_true(index_open(&index, false));
    for (uint64_t key = 0, n = 1; key < 400000; key += n, n = n * 5 % 4093 + 1) {
        uint64_t growth = index_growth(&index, n), before = index_bytes(&index);
        fill(&index, key, key + n);
        assert_true(index_bytes(&index) - before <= growth);
        assert_true(index_growth(&index, 0) == 0);
    }
    index_close(&index);
}

/* Half of all keys in one 512th of all hashes: its segments split when they are full, the others
 * when it is their turn. */
static void test_growth_of_keys_that_fall_together(void **state)
{
    (void)state;
    enum { N = 500000 };
    struct index index;
    assert_true(index_open(&index, false));
    for (uint64_t key = 0; key < N; key++) {
        uint64_t hash = index_hash(key, 0);
        put(&index, key % 2 ? hash >> 9 | 5ULL << 55 : hash, 0, (uint32_t)key + 1);
    }
    for (uint64_t key = 0; key < N; key++) {
        uint64_t hash = index_hash(key, 0);
        assert_int_equal(index_find(&index, key % 2 ? hash >> 9 | 5ULL << 55 : hash, 0), key + 1);
    }
    assert_true(index_bytes(&index) < 100u * N);
    index_close(&index);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hash_is_a_bijection),
        cmocka_unit_test(test_hash_is_not_that_of_routes),
        cmocka_unit_test(test_chosen_keys),
        cmocka_unit_test(test_routed_keys_spread),
        cmocka_unit_test(test_colliding_keys),
        cmocka_unit_test(test_removed_keys),
        cmocka_unit_test(test_inseparable_keys),
        cmocka_unit_test(test_growth_and_order),
        cmocka_unit_test(test_bytes_for_each_key),
        cmocka_unit_test(test_bytes_after_removal),
        cmocka_unit_test(test_segments_split_one_after_another),
        cmocka_unit_test(test_room_at_once),
        cmocka_unit_test(test_growth_is_foreseen),
        cmocka_unit_test(test_growth_of_keys_that_fall_together),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
