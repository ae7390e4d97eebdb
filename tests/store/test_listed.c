/* test_listed.c - the host store lists the keys that changed since a cut while they are few beside
 * its rows, and then reads a later cut by them; else it passes over the whole index. A scan passes
 * over so many entries at most, so that the number of scans tells one from the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "proto/schema.h"
#include "server/store/host/table.h"
#include "server/store/store.h"

#define BLOCK  65536u
#define VISITS 131072u /* of frozen.c */

static void load(struct store *store, uint64_t n)
{
    static uint64_t keys[BLOCK];
    static float rows[BLOCK];
    struct embd__error e = {.status = EMBD_OK};
    for (uint64_t at = 0; at < n; at += BLOCK) {
        struct row_block block = {.keys = keys, .rows = rows};
        for (; block.n_rows < BLOCK && at + block.n_rows < n; block.n_rows++)
            keys[block.n_rows] = at + block.n_rows;
        assert_int_equal(store_host.load(store, &block, &e), EMBD_OK);
    }
}

/* Reads the cut of what changed since the one before; returns the number of scans. */
static uint32_t read_cut(struct store *store, uint64_t id, uint64_t expected)
{
    static uint64_t keys[BLOCK], candidates[BLOCK];
    static float rows[BLOCK];
    static uint32_t counts[BLOCK];
    struct store_cut cut = {.id = id, .since = id - 1};
    struct embd__error e = {.status = EMBD_OK};
    uint64_t n = 0;
    uint32_t scans = 0;
    bool done = false;
    assert_int_equal(store_host.freeze(store, &cut, &e), EMBD_OK);
    for (; !done; scans++) {
        struct store_scan out = {
            .keys = keys, .rows = rows, .candidate_keys = candidates, .candidate_counts = counts};
        assert_int_equal(store_host.scan_frozen(store, BLOCK, &out, &done, &e), EMBD_OK);
        n += out.n_rows;
    }
    store_host.thaw(store);
    assert_int_equal(cut.has_all, false);
    assert_int_equal(n, expected);
    return scans;
}

/* Of `most` changed keys all are listed, of one more none. */
static void check_bound(uint64_t n_rows, uint64_t most)
{
    struct table_schema schema = {.sizes = NULL};
    struct embd__error e = {.status = EMBD_OK};
    struct store_cut first = {.id = 1};
    struct store *store = NULL;
    embd_schema_init(&schema.s);
    strcpy(schema.s.name, "listed");
    schema.s.dim = 1;
    assert_int_equal(store_host.open(&schema, &store, &e), EMBD_OK);
    load(store, n_rows);
    assert_int_equal(store_host.freeze(store, &first, &e), EMBD_OK);
    store_host.thaw(store);
    load(store, most);
    uint32_t by_list = read_cut(store, 2, most);
    load(store, most + 1);
    uint32_t by_index = read_cut(store, 3, most + 1);
    assert_in_range(by_list, 1, most / BLOCK + 1);
    assert_in_range(by_index, n_rows / VISITS, UINT32_MAX);
    assert_true(by_list < by_index);
    store_host.close(store);
}

static void test_at_least_65536_keys_are_listed(void **state)
{
    (void)state;
    check_bound(700000, LISTED_LEAST);
    assert_int_equal(LISTED_LEAST, 65536);
}

static void test_a_sixteenth_of_the_rows_are_listed(void **state)
{
    (void)state;
    check_bound(1600000, 100000);
    check_bound(3200000, 200000);
}

static void test_at_most_262144_keys_are_listed(void **state)
{
    (void)state;
    check_bound(4400000, 262144);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_at_least_65536_keys_are_listed),
        cmocka_unit_test(test_a_sixteenth_of_the_rows_are_listed),
        cmocka_unit_test(test_at_most_262144_keys_are_listed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
