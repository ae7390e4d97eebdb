/* test_placement.c - where keys, rows and slots go: the index arithmetic of the reference's
 * dispatchers, filters, exchanges and reorderings, beside what libembd makes of a batch for n
 * shards. Formulas and worked examples are those of tests/REFERENCE.md, written out here and not
 * taken from the library. */
#include "tests/unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "client/call/call.h"
#include "proto/placement.h"
#include "proto/route.h"

#define ROWS_MAX   512u
#define KEYS_MAX   1024u
#define SHARDS_MAX 9u

/* One batch and what a call makes of it. */
struct batch {
    embd_client client;
    struct embd_table table;
    embd_part part;
    struct embd_call call;
    struct work work;
    embd_schema schema;
    uint64_t offsets[ROWS_MAX + 1], keys[KEYS_MAX];
    uint32_t n_rows, n_keys;
};

static struct batch b;

static int begin(void **state)
{
    (void)state;
    b = (struct batch){.schema = {.dim = 1, .slots = 1}};
    b.part.table = &b.table;
    return 0;
}

static int end(void **state)
{
    (void)state;
    embd__arena_fini(&b.call.arena);
    embd__distinct_fini(&b.client.distinct);
    return 0;
}

static void add_row(uint32_t n, const uint64_t *keys)
{
    memcpy(b.keys + b.n_keys, keys, n * sizeof *keys);
    b.n_keys += n;
    b.offsets[++b.n_rows] = b.n_keys;
}

/* n_keys keys from `first` on, `step` apart. */
static void add_run(uint32_t n, uint64_t first, uint64_t step)
{
    uint64_t keys[KEYS_MAX];
    for (uint32_t i = 0; i < n; i++)
        keys[i] = first + i * step;
    add_row(n, keys);
}

static void prepare(embd_partition partition, uint32_t slots, uint32_t n_shards, bool is_pooled)
{
    b.schema.partition = partition;
    b.schema.slots = slots;
    b.client.n_shards = n_shards;
    embd__placement_even(&b.client.placement, 1, n_shards);
    b.call.client = &b.client;
    b.call.n_shards = n_shards;
    b.work = (struct work){.part = &b.part,
                           .schema = &b.schema,
                           .dim = 1,
                           .row_bytes = 4,
                           .is_pooled = is_pooled,
                           .n_keys = b.n_keys,
                           .n_rows = is_pooled ? b.n_rows : b.n_keys,
                           .offsets = b.offsets,
                           .n_batch_rows = b.n_rows,
                           .keys = b.keys};
}

static const struct share *split(embd_partition partition, uint32_t slots, uint32_t n_shards,
                                 bool is_pooled)
{
    prepare(partition, slots, n_shards, is_pooled);
    assert_int_equal(embd__split(&b.call, &b.work), EMBD_OK);
    return b.work.shares;
}

static void check_keys(const struct share *share, uint32_t n, const uint64_t *keys)
{
    assert_int_equal(share->n_keys, n);
    assert_memory_equal(share->keys, keys, n * sizeof *keys);
}

/* ---- slots ---- */

static void ten_slots_on_three_shards(void **state)
{
    static const uint32_t rows[3][4] = {{0, 3, 6, 9}, {1, 4, 7}, {2, 5, 8}}, counts[3] = {4, 3, 3};
    (void)state;
    for (uint64_t slot = 0; slot < 10; slot++)
        add_row(1, &slot);
    const struct share *shares = split(EMBD_PARTITION_SLOT, 10, 3, true);
    for (uint32_t g = 0; g < 3; g++) {
        assert_int_equal(shares[g].n_rows, counts[g]);
        assert_memory_equal(shares[g].rows, rows[g], counts[g] * sizeof(uint32_t));
    }
}

static uint32_t slots_of_shard(uint32_t slots, uint32_t n, uint32_t g)
{
    return slots / n + (g < slots % n ? 1 : 0);
}

static void shards_have_their_slots(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 40; slots++)
        for (uint32_t n = 1; n < SHARDS_MAX; n++) {
            uint32_t counts[SHARDS_MAX] = {0};
            for (uint32_t slot = 0; slot < slots; slot++)
                counts[embd__route(EMBD_PARTITION_SLOT, n, slot, 7)]++;
            for (uint32_t g = 0; g < n; g++)
                assert_int_equal(counts[g], slots_of_shard(slots, n, g));
        }
}

/* Also with more shards than slots: then some shards have nothing to do. */
static void a_row_belongs_to_slot_g_plus_n_times_its_number(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 8; slots++)
        for (uint32_t n = 1; n <= 4; n++) {
            begin(NULL);
            for (uint64_t r = 0; r < 3 * slots; r++)
                add_row(1, &r);
            const struct share *shares = split(EMBD_PARTITION_SLOT, slots, n, true);
            for (uint32_t g = 0; g < n; g++) {
                uint32_t here = slots_of_shard(slots, n, g);
                assert_int_equal(shares[g].n_rows, 3 * here);
                for (uint32_t r = 0; r < shares[g].n_rows; r++)
                    assert_int_equal(shares[g].slots[r], g + r % here * n);
            }
            end(NULL);
        }
}

/* A filter by slot, written down plainly: rows of slot % n == g, and running sums of their keys. */
static void a_share_is_the_batch_filtered_by_slot(void **state)
{
    const uint32_t slots = 5, n = 3;
    (void)state;
    for (uint32_t r = 0; r < 8 * slots; r++)
        add_run(1 + r * 7 % 4, r * 100, 1);
    const struct share *shares = split(EMBD_PARTITION_SLOT, slots, n, true);
    for (uint32_t g = 0; g < n; g++) {
        uint32_t row = 0, key = 0;
        for (uint32_t r = 0; r < b.n_rows; r++) {
            if (r % slots % n != g)
                continue;
            assert_int_equal(shares[g].rows[row], r);
            assert_int_equal(shares[g].slots[row] / n, r % slots / n);
            assert_int_equal(shares[g].offsets[row++], key);
            for (uint64_t k = b.offsets[r]; k < b.offsets[r + 1]; k++)
                assert_true(shares[g].keys[key++] == b.keys[k]);
        }
        assert_int_equal(shares[g].n_rows, row);
        assert_int_equal(shares[g].offsets[row], key);
    }
}

static void row_offsets_have_one_entry_more_than_rows(void **state)
{
    const uint32_t samples = 6, slots = 4, n = 3;
    (void)state;
    for (uint32_t r = 0; r < samples * slots; r++)
        add_run(2, r * 10, 1);
    const struct share *shares = split(EMBD_PARTITION_SLOT, slots, n, true);
    for (uint32_t g = 0; g < n; g++) {
        uint32_t rows = samples * slots_of_shard(slots, n, g);
        assert_int_equal(shares[g].n_rows, rows);
        for (uint32_t r = 0; r <= rows; r++)
            assert_int_equal(shares[g].offsets[r], 2 * r);
        assert_int_equal(shares[g].n_keys, shares[g].offsets[rows]);
    }
}

static void keys_are_shifted_by_the_sizes_of_the_slots_before(void **state)
{
    static const uint64_t sizes[3] = {278899, 355877, 203750};
    struct table_schema schema;
    struct embd__error e = {0};
    embd_schema s;
    (void)state;
    embd_schema_init(&s);
    s.slots = 3;
    s.slot_sizes = sizes;
    assert_int_equal(embd__schema_copy(&schema, &s, &e), EMBD_OK);
    assert_int_equal(schema.slot_starts[0], 0);
    assert_int_equal(schema.slot_starts[1], 278899);
    assert_int_equal(schema.slot_starts[2], 634776);
    assert_int_equal(schema.slot_starts[3], 838526);
    assert_int_equal(embd__schema_slot_of(&schema, 278898), 0);
    assert_int_equal(embd__schema_slot_of(&schema, 278899), 1);
    assert_int_equal(embd__schema_slot_of(&schema, 838525), 2);
    embd__schema_fini(&schema);
}

/* ---- the exchange of pooled slots ---- */

/* Two samples, four slots, two shards: shard 0 computes 1,3,5,7, shard 1 computes 2,4,6,8; trainer
 * i wants sample i. */
static void two_samples_four_slots_two_shards(void **state)
{
    static const uint64_t sent[2][4] = {{1, 3, 5, 7}, {2, 4, 6, 8}};
    static const uint64_t received[2][4] = {{1, 3, 2, 4}, {5, 7, 6, 8}};
    (void)state;
    for (uint64_t value = 1; value <= 8; value++)
        add_row(1, &value);
    const struct share *shares = split(EMBD_PARTITION_SLOT, 4, 2, true);
    check_keys(&shares[0], 4, sent[0]);
    check_keys(&shares[1], 4, sent[1]);
    end(NULL);
    for (uint64_t sample = 0; sample < 2; sample++) {
        begin(NULL);
        for (uint64_t slot = 0; slot < 4; slot++)
            add_row(1, &(uint64_t){1 + sample * 4 + slot});
        shares = split(EMBD_PARTITION_SLOT, 4, 2, true);
        check_keys(&shares[0], 2, received[sample]);
        check_keys(&shares[1], 2, received[sample] + 2);
        for (uint32_t g = 0; g < 2; g++)
            for (uint32_t r = 0; r < 2; r++) /* reordered, the slots ascend */
                assert_true(b.keys[shares[g].rows[r]] == 1 + sample * 4 + g + 2 * r);
        if (sample == 0)
            end(NULL);
    }
}

/* For each number of slots, shards and samples, the pair (src, dst) of the reference: g = s % n,
 * pre = sum of b * S_k over the shards before, src = i*S_g + pre + s/n, dst = i*S + s. */
static void reordering_is_the_references(void **state)
{
    (void)state;
    for (uint32_t slots = 1; slots <= 8; slots++)
        for (uint32_t n = 1; n <= 4; n++)
            for (uint32_t samples = 1; samples <= 3; samples++) {
                uint32_t to[ROWS_MAX], at = 0;
                begin(NULL);
                for (uint64_t r = 0; r < samples * slots; r++)
                    add_row(1, &r);
                const struct share *shares = split(EMBD_PARTITION_SLOT, slots, n, true);
                for (uint32_t g = 0; g < n; g++)
                    for (uint32_t r = 0; r < shares[g].n_rows; r++)
                        to[at++] = shares[g].rows ? shares[g].rows[r] : r;
                assert_int_equal(at, samples * slots);
                for (uint32_t i = 0; i < samples; i++)
                    for (uint32_t s = 0; s < slots; s++) {
                        uint32_t g = s % n, pre = 0;
                        for (uint32_t k = 0; k < g; k++)
                            pre += samples * slots_of_shard(slots, n, k);
                        uint32_t src = i * slots_of_shard(slots, n, g) + pre + s / n;
                        assert_int_equal(to[src], i * slots + s);
                    }
                end(NULL);
            }
    begin(NULL);
}

/* table[i][j] = b * S_i rows from shard i to trainer j: the offsets are running sums of it. */
static void each_trainer_gets_its_samples_of_every_shard(void **state)
{
    const uint32_t samples = 3, slots = 7, n = 4;
    uint32_t before = 0;
    (void)state;
    for (uint64_t r = 0; r < samples * slots; r++)
        add_row(1, &r);
    const struct share *shares = split(EMBD_PARTITION_SLOT, slots, n, true);
    const uint32_t *rows = shares[0].rows;
    for (uint32_t i = 0; i < n; i++) {
        assert_int_equal(shares[i].n_rows, samples * slots_of_shard(slots, n, i));
        assert_ptr_equal(shares[i].rows, rows + before);
        before += shares[i].n_rows;
    }
    assert_int_equal(before, samples * slots);
}

/* 0 1 2 / 3 4 5 / 6 7 8: shard i computes slot i of three samples, trainer j takes column j. */
static void all_to_all_is_a_transposition(void **state)
{
    (void)state;
    for (uint64_t j = 0; j < 3; j++) {
        begin(NULL);
        for (uint64_t i = 0; i < 3; i++)
            add_row(1, &(uint64_t){3 * i + j});
        const struct share *shares = split(EMBD_PARTITION_SLOT, 3, 3, true);
        for (uint64_t i = 0; i < 3; i++)
            check_keys(&shares[i], 1, &(uint64_t){3 * i + j});
        end(NULL);
    }
    begin(NULL);
}

/* ---- keys ---- */

static void keys_are_grouped_and_their_places_kept(void **state)
{
    static const uint64_t keys[4] = {0, 1, 3, 5};
    static const uint32_t from[2][3] = {{0}, {1, 2, 3}};
    (void)state;
    add_row(4, keys);
    const struct share *shares = split(EMBD_PARTITION_MODULO, 1, 2, false);
    check_keys(&shares[0], 1, keys);
    check_keys(&shares[1], 3, keys + 1);
    assert_memory_equal(shares[0].from, from[0], 1 * sizeof(uint32_t));
    assert_memory_equal(shares[1].from, from[1], 3 * sizeof(uint32_t));
}

static void order_is_kept(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 300; i++)
        add_row(1, &(uint64_t){embd__mix64(i)});
    for (uint32_t n = 2; n < SHARDS_MAX; n++) {
        const struct share *shares = split(EMBD_PARTITION_MODULO, 1, n, false);
        uint32_t total = 0;
        for (uint32_t g = 0; g < n; g++)
            for (uint32_t k = 0; k < shares[g].n_keys; k++, total++) {
                assert_true(shares[g].keys[k] % n == g);
                assert_true(shares[g].keys[k] == b.keys[shares[g].from[k]]);
                assert_true(k == 0 || shares[g].from[k] > shares[g].from[k - 1]);
            }
        assert_int_equal(total, 300);
        embd__arena_reset(&b.call.arena);
    }
}

static void counts_are_known_before_keys_travel(void **state)
{
    uint32_t counts[3] = {0};
    (void)state;
    add_run(100, 18, 7);
    for (uint32_t i = 0; i < 100; i++)
        counts[b.keys[i] % 3]++;
    const struct share *shares = split(EMBD_PARTITION_MODULO, 1, 3, false);
    const uint64_t *keys = shares[0].keys;
    for (uint32_t g = 0; g < 3; keys += shares[g++].n_keys) {
        assert_int_equal(shares[g].n_keys, counts[g]);
        assert_ptr_equal(shares[g].keys,
                         keys); /* one group after another: what is sent is one stretch */
    }
}

/* The reference stores key / n; here the shard keeps the whole key, and its index is as small. */
static void a_shard_sees_its_part_of_the_range(void **state)
{
    (void)state;
    add_run(90, 0, 1);
    const struct share *shares = split(EMBD_PARTITION_MODULO, 1, 3, false);
    for (uint32_t g = 0; g < 3; g++) {
        assert_int_equal(shares[g].n_keys, 30);
        for (uint32_t k = 0; k < 30; k++) {
            assert_true(shares[g].keys[k] / 3 == k);
            assert_true(shares[g].keys[k] == 3 * k + g);
        }
    }
}

static void what_comes_back_is_put_where_it_was_asked_for(void **state)
{
    float rows[100];
    (void)state;
    add_run(100, 3, 11);
    const struct share *shares = split(EMBD_PARTITION_MODULO, 1, 4, false);
    for (uint32_t g = 0; g < 4; g++)
        for (uint32_t k = 0; k < shares[g].n_keys; k++)
            rows[shares[g].from[k]] = (float)shares[g].keys[k];
    for (uint32_t i = 0; i < 100; i++)
        assert_true(rows[i] == (float)(3 + 11 * i));
}

static void duplicates_travel_or_are_merged_as_the_plan_says(void **state)
{
    static const uint64_t keys[5] = {1, 3, 5, 5, 7}, distinct[4] = {1, 3, 5, 7};
    static const uint32_t numbers[5] = {0, 1, 2, 2, 3};
    (void)state;
    add_row(5, keys);
    const struct share *shares = split(EMBD_PARTITION_MODULO, 1, 2, false);
    check_keys(&shares[1], 5, keys);
    assert_int_equal(shares[0].n_keys, 0);
    prepare(EMBD_PARTITION_MODULO, 1, 2, false);
    assert_int_equal(embd__split_distinct(&b.call, &b.work), EMBD_OK);
    check_keys(&b.work.shares[1], 4, distinct);
    assert_memory_equal(b.work.numbers, numbers, sizeof numbers);
}

/* The distinct rows of all shards are one matrix, whatever shard each lies on. */
static void shares_of_the_rows_plan_are_one_run(void **state)
{
    (void)state;
    add_run(60, 5, 3);
    prepare(EMBD_PARTITION_HASH, 1, 5, false);
    assert_int_equal(embd__split_distinct(&b.call, &b.work), EMBD_OK);
    const uint64_t *keys = b.work.shares[0].keys, *all = keys;
    for (uint32_t g = 0; g < 5; keys += b.work.shares[g++].n_keys)
        assert_ptr_equal(b.work.shares[g].keys, keys);
    assert_int_equal(keys - all, 60);
    for (uint32_t i = 0; i < 60; i++)
        assert_true(all[b.work.numbers[i]] == b.keys[i]);
}

/* ---- row offsets of keys spread over shards ---- */

/* Row r has so many keys of remainder g on each of two shards. */
static void spread_rows(const uint32_t counts[2][4])
{
    uint64_t keys[KEYS_MAX], next[2] = {0, 1};
    for (uint32_t r = 0; r < 4; r++) {
        uint32_t n = 0;
        for (uint32_t g = 0; g < 2; g++)
            for (uint32_t k = 0; k < counts[g][r]; k++, next[g] += 2)
                keys[n++] = next[g];
        add_row(n, keys);
    }
}

static void partial_offsets_add_up(void **state)
{
    static const uint32_t counts[2][4] = {{4, 3, 2, 1}, {5, 2, 3, 1}};
    static const uint32_t offsets[2][5] = {{0, 4, 7, 9, 10}, {0, 5, 7, 10, 11}};
    static const uint32_t sums[5] = {0, 9, 14, 19, 21};
    (void)state;
    spread_rows(counts);
    const struct share *shares = split(EMBD_PARTITION_MODULO, 1, 2, true);
    for (uint32_t g = 0; g < 2; g++)
        assert_memory_equal(shares[g].offsets, offsets[g], sizeof offsets[g]);
    for (uint32_t r = 0; r <= 4; r++)
        assert_int_equal(b.offsets[r],
                         sums[r]); /* what the client divides by, with no all-reduce */
}

static void running_sums(void **state)
{
    static const uint32_t counts[7] = {8, 6, 7, 5, 3, 0, 9};
    static const uint64_t sums[7] = {8, 14, 21, 26, 29, 29, 38};
    (void)state;
    for (uint32_t r = 0; r < 7; r++)
        add_run(counts[r], r * 10, 1);
    assert_memory_equal(b.offsets + 1, sums, sizeof sums);
    const struct share *share = split(EMBD_PARTITION_MODULO, 1, 1, true);
    for (uint32_t r = 0; r < 7; r++)
        assert_int_equal(share->offsets[r + 1], sums[r]);
    assert_int_equal(share->n_keys, 38);
}

/* Rows 4,5,1,2 / 3,5,1 / 3,2 / 1: what stands beside the keys stands in the order of the keys. */
static void what_goes_with_keys_is_in_their_order(void **state)
{
    static const uint64_t keys[10] = {4, 5, 1, 2, 3, 5, 1, 3, 2, 1};
    (void)state;
    add_row(4, keys);
    add_row(3, keys + 4);
    add_row(2, keys + 7);
    add_row(1, keys + 9);
    prepare(EMBD_PARTITION_MODULO, 1, 1, true);
    assert_int_equal(embd__split_distinct(&b.call, &b.work), EMBD_OK);
    assert_int_equal(b.work.n_distinct, 5);
    for (uint32_t i = 0; i < 10; i++)
        assert_true(b.work.shares[0].keys[b.work.numbers[i]] == keys[i]);
}

static void localized_rows_lie_on_one_shard_and_distributed_ones_on_all(void **state)
{
    uint32_t shards_with_row = 0;
    (void)state;
    add_run(64, 0, 1);
    add_run(64, 64, 1);
    const struct share *shares = split(EMBD_PARTITION_SLOT, 2, 4, true);
    for (uint32_t g = 0; g < 4; g++)
        assert_int_equal(shares[g].n_keys, g < 2 ? 64 : 0);
    embd__arena_reset(&b.call.arena);
    shares = split(EMBD_PARTITION_HASH, 2, 4, true);
    for (uint32_t g = 0; g < 4; g++)
        shards_with_row += shares[g].n_rows == 2 && shares[g].n_keys > 10;
    assert_int_equal(shards_with_row, 4);
}

/* ---- memory of a call ---- */

static void pieces_lie_apart_and_begin_on_lines(void **state)
{
    static const uint64_t sizes[6] = {1, 31, 32, 33, 4096, 100000};
    uint8_t *pieces[6];
    (void)state;
    for (int round = 0; round < 3; round++) { /* the second round finds one block that holds all */
        for (int i = 0; i < 6; i++) {
            pieces[i] = embd__arena_take(&b.call.arena, sizes[i]);
            assert_non_null(pieces[i]);
            assert_int_equal((uintptr_t)pieces[i] % 64, 0);
            memset(pieces[i], i + 1, sizes[i]);
        }
        for (int i = 0; i < 6; i++)
            assert_true(pieces[i][0] == i + 1 && pieces[i][sizes[i] - 1] == i + 1);
        assert_true(round == 0 || b.call.arena.spill == NULL);
        embd__arena_reset(&b.call.arena);
    }
    assert_non_null(embd__arena_take(&b.call.arena, 0));
    assert_null(embd__arena_array(&b.call.arena, UINT64_MAX / 2, 4));
}

#define TEST(text, fn)                                                                             \
    {                                                                                              \
        text, fn, begin, end, NULL                                                                 \
    }

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST("S0.1 ten slots on three shards are 0 3 6 9, 1 4 7, 2 5 8", ten_slots_on_three_shards),
        TEST("S0.2 a shard has S/n slots, and one more up to the remainder",
             shards_have_their_slots),
        TEST("S0.6 S3.6 keys are shifted by the sizes of the slots before",
             keys_are_shifted_by_the_sizes_of_the_slots_before),
        TEST("S0.9 a share is the batch filtered by slot, with offsets of its own",
             a_share_is_the_batch_filtered_by_slot),
        TEST("S0.10 S4.4 row offsets have B*S_g + 1 entries, the last one is nnz",
             row_offsets_have_one_entry_more_than_rows),
        TEST("S0.12 S0.17 S1.4 a trainer gets b*S_i rows of shard i, at running sums, and sends as "
             "many back",
             each_trainer_gets_its_samples_of_every_shard),
        TEST("S0.13 two samples, four slots, two shards: 1 3 2 4 and 5 7 6 8 arrive",
             two_samples_four_slots_two_shards),
        TEST("S0.14 reordering has the reference's pairs of places for S 1..8, n 1..4, b 1..3",
             reordering_is_the_references),
        TEST("S0.15 the slot of local row r is g + (r % S_g) * n",
             a_row_belongs_to_slot_g_plus_n_times_its_number),
        TEST("S0.22 all-to-all: 0 1 2 / 3 4 5 / 6 7 8 becomes 0 3 6 / 1 4 7 / 2 5 8",
             all_to_all_is_a_transposition),
        TEST("S1.2 keys are grouped by key % n and their places remembered",
             keys_are_grouped_and_their_places_kept),
        TEST("S1.3 counts of the groups are known before keys travel",
             counts_are_known_before_keys_travel),
        TEST("S1.5 a shard sees one n-th of the range of keys", a_shard_sees_its_part_of_the_range),
        TEST("S1.7 what comes back is put where it was asked for",
             what_comes_back_is_put_where_it_was_asked_for),
        TEST("S1.9 the exchange does not merge 1 3 5 5 7; the rows plan does",
             duplicates_travel_or_are_merged_as_the_plan_says),
        TEST("S2.9 a localized row lies on one shard, a distributed one on all",
             localized_rows_lie_on_one_shard_and_distributed_ones_on_all),
        TEST("S3.13 pieces of a call's memory lie apart, aligned, in one block after the first "
             "round",
             pieces_lie_apart_and_begin_on_lines),
        TEST("S3.14 distinct rows of all shards are one flat run",
             shares_of_the_rows_plan_are_one_run),
        TEST("S4.1 a shard's keys are those of key % n, their order kept", order_is_kept),
        TEST("S4.2 S4.13 offsets 0 4 7 9 10 and 0 5 7 10 11 add up to 0 9 14 19 21",
             partial_offsets_add_up),
        TEST("S4.3 counts 8 6 7 5 3 0 9 have the running sums 8 14 21 26 29 29 38", running_sums),
        TEST("S4.8 what stands beside keys 4 5 1 2 3 5 1 3 2 1 stands in their order",
             what_goes_with_keys_is_in_their_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
