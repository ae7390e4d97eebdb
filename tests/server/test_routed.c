/* test_routed.c - keys of other shards: which ones are found, and that pulls, pushes, erases and
 * loads with one change nothing. */
#include "tests/server/rig.h"

#include <stdio.h>
#include <string.h>

#include "proto/keyed.h"
#include "proto/route.h"
#include "server/engine/routed.h"
#include "proto/schema.h"

#define MOST  700u /* keys of a request: some blocks of routed.c, and a rest */
#define LARGE 20000u

static const embd_partition partitions[] = {EMBD_PARTITION_HASH, EMBD_PARTITION_MODULO,
                                            EMBD_PARTITION_SLOT};

/* ---- which ones ---- */

/* One key at a time, so that each is looked at with nothing to hide behind. */
static void checks_agree(embd_partition partition, const struct routed_place *place, uint16_t slot,
                         uint64_t key)
{
    static struct table table;
    struct embd__error e = {.status = EMBD_OK};
    struct store_keys in = {.n_keys = 1, .n_rows = 1, .keys = &key};
    table.schema.s.partition = partition;
    in.slots = partition == EMBD_PARTITION_SLOT ? &slot : NULL;
    bool is_ours = embd__route(partition, place->n_shards, slot, key) == place->shard;
    if ((routed_check(&table, &in, place, "", &e) == EMBD_OK) != is_ours)
        fail_msg("partition %d, shard %u of %u, slot %u, key %llu: %s", (int)partition,
                 place->shard, place->n_shards, slot, (unsigned long long)key, e.text);
}

static void the_check_agrees_with_the_route(void **state)
{
    static const uint64_t far[] = {0, 1ull << 32, 1ull << 63, UINT64_MAX - 1500};
    static const uint32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 8, 12, 31, 64, 100, 1000, 1023, 1024};
    (void)state;
    for (uint32_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (uint32_t i = 0; i < 5; i++) {
            struct routed_place place = {.n_shards = counts[c]};
            place.shard = i == 4 ? counts[c] - 1 : i * counts[c] / 4;
            for (uint64_t k = 0; k < 3000; k++)
                for (int p = 0; p < 3; p++)
                    checks_agree(partitions[p], &place, (uint16_t)(k * 21), far[k % 4] + k / 2);
        }
}

/* As the check of the even map: what decides is what clients route by. */
static void the_check_agrees_with_maps_that_are_not_even(void **state)
{
    static struct table table;
    struct embd__error e = {.status = EMBD_OK};
    struct placement map;
    (void)state;
    embd__placement_begin(&map, 2, 3, 5, &e);
    for (uint32_t v = 0; v < 1024; v++)
        embd__placement_add(&map, embd__mix64(v) % 3, 1, &e);
    embd__placement_end(&map, &e);
    for (uint32_t shard = 0; shard < 3; shard++)
        for (uint64_t key = 0; key < 3000; key++)
            for (int p = 0; p < 3; p++) {
                const struct routed_place place = {shard, 3, 1, &map};
                uint16_t slot = (uint16_t)(key * 21);
                struct store_keys in = {.n_keys = 1, .n_rows = 1, .keys = &key};
                in.slots = partitions[p] == EMBD_PARTITION_SLOT ? &slot : NULL;
                table.schema.s.partition = partitions[p];
                e.status = EMBD_OK;
                bool is_ours = embd__placement_shard(&map, partitions[p], slot, key) == shard;
                assert_int_equal(routed_check(&table, &in, &place, "", &e),
                                 is_ours ? EMBD_OK : EMBD_INVALID);
            }
}

/* The first `n` keys that a shard has, of rows whose slot is its. */
static void own_keys(embd_partition partition, const struct routed_place *place, uint64_t *keys,
                     uint16_t *slots, uint32_t n)
{
    uint64_t key = 1;
    for (uint32_t i = 0; i < n; key++) {
        uint16_t slot = (uint16_t)(key % 100);
        if (embd__route(partition, place->n_shards, slot, key) != place->shard)
            continue;
        keys[i] = key;
        slots[i++] = slot;
    }
}

static void one_among_many_is_found_wherever_it_is(void **state)
{
    static struct table table;
    uint64_t keys[MOST];
    uint16_t slots[MOST];
    char expected[32];
    const struct routed_place place = {2, 5, 9, NULL}, other = {4, 5, 9, NULL};
    (void)state;
    for (int p = 0; p < 3; p++) {
        uint64_t stray;
        uint16_t stray_slot;
        table.schema.s.partition = partitions[p];
        own_keys(partitions[p], &other, &stray, &stray_slot, 1);
        for (uint32_t at = 0; at < MOST; at++) {
            struct embd__error e = {.status = EMBD_OK};
            struct store_keys in = {.n_keys = MOST, .n_rows = MOST, .keys = keys};
            in.slots = partitions[p] == EMBD_PARTITION_SLOT ? slots : NULL;
            own_keys(partitions[p], &place, keys, slots, MOST);
            assert_int_equal(routed_check(&table, &in, &place, "part 3", &e), EMBD_OK);
            keys[at] = stray;
            slots[at] = stray_slot;
            assert_int_equal(routed_check(&table, &in, &place, "part 3", &e), EMBD_INVALID);
            snprintf(expected, sizeof expected, "part 3 keys[%u]: %llu", at,
                     (unsigned long long)stray);
            assert_non_null(strstr(e.text, expected));
            assert_non_null(strstr(e.text, "shard 4 of 5, this is shard 2 (map version 9)"));
        }
    }
}

static void a_row_without_keys_may_be_of_any_slot(void **state)
{
    static struct table table;
    const uint64_t keys[2] = {7, 8};
    const uint32_t offsets[4] = {0, 1, 1, 2}, filled[4] = {0, 1, 2, 2};
    const uint16_t slots[3] = {0, 1, 2};
    const struct routed_place place = {0, 2, 1, NULL};
    struct embd__error e = {.status = EMBD_OK};
    struct store_keys in = {
        .n_keys = 2, .n_rows = 3, .keys = keys, .offsets = offsets, .slots = slots};
    (void)state;
    table.schema.s.partition = EMBD_PARTITION_SLOT;
    assert_int_equal(routed_check(&table, &in, &place, "part 0", &e), EMBD_OK);
    in.offsets = filled;
    assert_int_equal(routed_check(&table, &in, &place, "part 0", &e), EMBD_INVALID);
    assert_non_null(strstr(e.text, "part 0 keys[1]: 8 of slot 1 belongs to shard 1"));
}

/* ---- requests ---- */

/* Shard 1 of 3, with a table of each partition, and the keys of a request. */
struct world {
    struct rig rig;
    uint64_t keys[MOST];
    uint16_t slots[MOST];
    float grads[MOST];
    struct part part;
};

static const char *name_of(embd_partition partition)
{
    return partition == EMBD_PARTITION_HASH     ? "hash"
           : partition == EMBD_PARTITION_MODULO ? "modulo"
                                                : "slot";
}

static embd_schema schema_of(embd_partition partition)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, name_of(partition));
    schema.dim = 1;
    schema.combiner = EMBD_COMBINER_CONCAT;
    schema.partition = partition;
    schema.slots = partition == EMBD_PARTITION_SLOT ? 100 : 1;
    return schema;
}

static int setup(void **state)
{
    static struct world w;
    rig_open(&w.rig, &store_host, 1, 3, NULL);
    for (int p = 0; p < 3; p++) {
        embd_schema schema = schema_of(partitions[p]);
        create_table(&w.rig, &schema);
    }
    *state = &w;
    return 0;
}

static int teardown(void **state)
{
    struct world *w = *state;
    rig_close(&w->rig);
    return 0;
}

/* All its keys are this shard's. */
static void fill(struct world *w, embd_partition partition)
{
    const struct routed_place place = {1, 3, 7, NULL};
    own_keys(partition, &place, w->keys, w->slots, MOST);
    w->part = (struct part){.table = embd__table_id(name_of(partition)),
                            .n_keys = MOST,
                            .n_rows = MOST,
                            .keys = w->keys,
                            .slots = partition == EMBD_PARTITION_SLOT ? w->slots : NULL,
                            .grads = w->grads,
                            .grads_bytes = sizeof w->grads};
}

/* Key `at` is one of shard 2. */
static void lead_astray(struct world *w, embd_partition partition, uint32_t at)
{
    const struct routed_place place = {2, 3, 7, NULL};
    own_keys(partition, &place, &w->keys[at], &w->slots[at], 1);
}

static void all_refuse(struct world *w, uint32_t at)
{
    static const enum method methods[] = {METHOD_PULL, METHOD_PUSH, METHOD_ERASE};
    char key[48];
    snprintf(key, sizeof key, "part 0 keys[%u]: %llu", at, (unsigned long long)w->keys[at]);
    for (int m = 0; m < 3; m++)
        ask_error(ask_parts(&w->rig, methods[m], &w->part, 1), EMBD_INVALID, key,
                  "belongs to shard 2 of 3, this is shard 1 (map version 7)", NULL);
}

static void pulls_pushes_and_erases_refuse_it_and_change_nothing(void **state)
{
    struct world *w = *state;
    float values[MOST];
    for (int p = 0; p < 3; p++) {
        struct image image;
        fill(w, partitions[p]);
        assert_int_equal(push(&w->rig, &w->part, NULL).n_inserted, MOST);
        image_take(&w->rig, name_of(partitions[p]), &image);
        for (uint32_t at = 0; at < MOST; at += MOST / 2 - 1) {
            fill(w, partitions[p]);
            lead_astray(w, partitions[p], at);
            all_refuse(w, at);
        }
        image_check(&w->rig, name_of(partitions[p]), &image);
        image_fini(&image);
        fill(w, partitions[p]);
        pull(&w->rig, &w->part, values, NULL);
        ask_free(ask_parts(&w->rig, METHOD_ERASE, &w->part, 1));
    }
}

static void a_part_behind_a_right_one_undoes_both(void **state)
{
    struct world *w = *state;
    struct part parts[2];
    uint64_t own;
    uint16_t slot;
    const struct routed_place place = {1, 3, 7, NULL};
    fill(w, EMBD_PARTITION_MODULO);
    lead_astray(w, EMBD_PARTITION_MODULO, 5);
    own_keys(EMBD_PARTITION_HASH, &place, &own, &slot, 1);
    parts[0] = (struct part){.table = embd__table_id("hash"),
                             .n_keys = 1,
                             .n_rows = 1,
                             .keys = &own,
                             .grads = w->grads,
                             .grads_bytes = 4};
    parts[1] = w->part;
    ask_error(ask_parts(&w->rig, METHOD_PUSH, parts, 2), EMBD_INVALID, "part 1 keys[5]", NULL);
    assert_int_equal(figure(&w->rig, "hash", "steps"), 0);
    assert_int_equal(figure(&w->rig, "hash", "rows"), 0);
}

/* Its gradients come late, so that the shard looks at the keys before. */
static struct exchange *begin_late(struct world *w, embd_partition partition, bool is_stray)
{
    static uint64_t keys[LARGE];
    static uint16_t slots[LARGE];
    static float grads[LARGE];
    const struct routed_place place = {1, 3, 7, NULL}, other = {2, 3, 7, NULL};
    own_keys(partition, &place, keys, slots, LARGE);
    if (is_stray)
        own_keys(partition, &other, &keys[LARGE - 1], &slots[LARGE - 1], 1);
    struct part part = {.table = embd__table_id(name_of(partition)),
                        .n_keys = LARGE,
                        .n_rows = LARGE,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads};
    struct exchange *x = ask_parts(&w->rig, METHOD_PUSH, &part, 1);
    ask_arrive(x, sizeof grads / 2, 4096);
    return x;
}

static void a_late_push_is_refused_too(void **state)
{
    struct world *w = *state;
    const char *const said[] = {"part 0 keys[19999]", "belongs to shard 2 of 3", NULL};
    struct exchange *x = begin_late(w, EMBD_PARTITION_HASH, true);
    ask_arrive_all(x);
    ask_read(x);
    check_error(x, EMBD_INVALID, said);
    ask_free(x);
    x = begin_late(w, EMBD_PARTITION_HASH, false);
    ask_arrive_all(x);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(figure(&w->rig, "hash", "rows"), LARGE);
}

/* What was found out about the keys while they arrived holds for the table there was then. */
static void a_table_that_comes_meanwhile_may_have_another_partition(void **state)
{
    struct world *w = *state;
    const char *const said[] = {"part 0 keys[", "this is shard 1", NULL};
    struct exchange *x = begin_late(w, EMBD_PARTITION_HASH, false);
    struct exchange *drop = ask(&w->rig, &w->rig.admin, METHOD_TABLE_DROP);
    embd__msg_map(&drop->out, 1);
    embd__msg_field_str(&drop->out, "name", "hash");
    ask_ok(drop);
    ask_free(drop);
    embd_schema schema = schema_of(EMBD_PARTITION_HASH);
    schema.partition = EMBD_PARTITION_MODULO;
    create_table(&w->rig, &schema);
    ask_arrive_all(x);
    ask_read(x);
    check_error(x, EMBD_INVALID, said);
    ask_free(x);
}

static struct exchange *ask_load(struct world *w, embd_partition partition, const uint64_t *key,
                                 const uint16_t *slot)
{
    embd_schema schema = schema_of(partition);
    struct exchange *x = ask(&w->rig, &w->rig.admin, METHOD_LOAD);
    struct row_block block = {
        .n_rows = 1, .keys = key, .slots = slot, .rows = w->grads, .states = w->grads};
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", schema.name);
    embd__msg_field_uint(&x->out, "rows", 1);
    embd__msg_field_uint(&x->out, "candidates", 0);
    embd__row_block_write(&x->out, &schema, &block);
    return x;
}

static struct exchange *ask_keyed(struct world *w, enum method method, embd_partition partition,
                                  const uint64_t *key, const uint16_t *slot)
{
    embd_schema schema = schema_of(partition);
    struct exchange *x = ask(&w->rig, &w->rig.data, method);
    struct keyed_fields fields = {.n_keys = 1};
    struct row_block block = {.n_rows = 1, .keys = key, .slots = slot, .rows = w->grads};
    snprintf(fields.table, sizeof fields.table, "%s", schema.name);
    embd__keyed_fields_write(&x->out, &fields);
    if (method == METHOD_PUT)
        embd__put_bins_write(&x->out, &schema, &block);
    else
        embd__get_bins_write(&x->out, &schema, &block);
    return x;
}

static void gets_and_puts_refuse_it(void **state)
{
    struct world *w = *state;
    for (int p = 0; p < 3; p++) {
        uint64_t key;
        uint16_t slot;
        const struct routed_place own = {1, 3, 7, NULL}, other = {0, 3, 7, NULL};
        own_keys(partitions[p], &other, &key, &slot, 1);
        ask_error(ask_keyed(w, METHOD_PUT, partitions[p], &key, &slot), EMBD_INVALID, "put keys[0]",
                  "belongs to shard 0 of 3, this is shard 1", NULL);
        ask_error(ask_keyed(w, METHOD_GET, partitions[p], &key, &slot), EMBD_INVALID, "get keys[0]",
                  "belongs to shard 0 of 3, this is shard 1", NULL);
        assert_int_equal(figure(&w->rig, name_of(partitions[p]), "rows"), 0);
        own_keys(partitions[p], &own, &key, &slot, 1);
        struct exchange *x = ask_keyed(w, METHOD_PUT, partitions[p], &key, &slot);
        ask_ok(x);
        ask_free(x);
        assert_int_equal(figure(&w->rig, name_of(partitions[p]), "rows"), 1);
    }
}

static void loads_refuse_it(void **state)
{
    struct world *w = *state;
    for (int p = 0; p < 3; p++) {
        uint64_t key;
        uint16_t slot;
        const struct routed_place own = {1, 3, 7, NULL}, other = {0, 3, 7, NULL};
        own_keys(partitions[p], &other, &key, &slot, 1);
        ask_error(ask_load(w, partitions[p], &key, &slot), EMBD_INVALID, "load keys[0]",
                  "belongs to shard 0 of 3, this is shard 1", NULL);
        own_keys(partitions[p], &own, &key, &slot, 1);
        struct exchange *x = ask_load(w, partitions[p], &key, &slot);
        ask_ok(x);
        ask_free(x);
        assert_int_equal(figure(&w->rig, name_of(partitions[p]), "rows"), 1);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_check_agrees_with_the_route),
        cmocka_unit_test(the_check_agrees_with_maps_that_are_not_even),
        cmocka_unit_test(one_among_many_is_found_wherever_it_is),
        cmocka_unit_test(a_row_without_keys_may_be_of_any_slot),
        TEST(pulls_pushes_and_erases_refuse_it_and_change_nothing),
        TEST(a_part_behind_a_right_one_undoes_both),
        TEST(a_late_push_is_refused_too),
        TEST(a_table_that_comes_meanwhile_may_have_another_partition),
        TEST(loads_refuse_it),
        TEST(gets_and_puts_refuse_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
