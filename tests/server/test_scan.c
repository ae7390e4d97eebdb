/* test_scan.c - a scan loaded into another shard is the same table. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/server/copying.h"

static struct exchange *ask_scan(struct rig *rig, const char *table, uint64_t cursor,
                                 uint64_t bytes)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_SCAN);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", table);
    embd__msg_field_uint(&x->out, "cursor", cursor);
    embd__msg_field_uint(&x->out, "bytes", bytes);
    return x;
}

struct scanned {
    uint64_t rows, candidates, next, step;
    bool done;
};

static struct scanned read_scan(struct exchange *x)
{
    struct fields f;
    struct scanned s;
    embd__read_fields(&f, &x->reader, "scan");
    s.rows = embd__field_uint(&f, "rows", 0, LIMIT_ROWS, FIELD_REQUIRED);
    s.candidates = embd__field_uint(&f, "candidates", 0, LIMIT_ROWS, FIELD_REQUIRED);
    s.next = embd__field_uint(&f, "next", 0, UINT64_MAX, FIELD_REQUIRED);
    s.done = embd__field_bool(&f, "done", false);
    s.step = embd__field_uint(&f, "step", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    assert_int_equal(embd__fields_end(&f), EMBD_OK);
    return s;
}

static void copy(struct rig *from, struct rig *to, const embd_schema *schema, uint64_t bytes)
{
    struct scanned s = {.done = false};
    copying_simple(from, METHOD_HOLD);
    while (!s.done) {
        struct row_block block;
        struct exchange *x = ask_scan(from, schema->name, s.next, bytes);
        ask_ok(x);
        s = read_scan(x);
        assert_int_equal(embd__row_block_read(&x->reader, schema, (uint32_t)s.rows,
                                              (uint32_t)s.candidates, &block),
                         EMBD_OK);
        uint64_t row_bytes = 0;
        for (uint32_t i = 0; i < x->answer_frame.n_bins; i++)
            row_bytes += x->answer_frame.bins[i].bytes;
        assert_true(row_bytes <= bytes);
        copying_load(to, schema, &block, s.step);
        ask_free(x);
    }
    copying_simple(from, METHOD_RELEASE);
}

static void a_scan_loaded_elsewhere_is_the_same_table(void **state)
{
    (void)state;
    const embd_schema schemas[2] = {copying_slotted(), copying_plain()};
    for (int i = 0; i < 2; i++) {
        struct rig from, to;
        struct image image;
        rig_open(&from, &store_host, 0, 1, NULL);
        rig_open(&to, &store_host, 0, 1, NULL);
        copying_fill(&from, &schemas[i]);
        create_table(&to, &schemas[i]);
        image_take(&from, schemas[i].name, &image);
        assert_true(image.rows > 100);
        assert_int_equal(image.candidates > 0, i == 0);
        copy(&from, &to, &schemas[i], 1000);
        image_check(&to, schemas[i].name, &image);
        image_fini(&image);
        rig_close(&from);
        rig_close(&to);
    }
}

/* What a row of lazy_global owes depends on the step of its last push: step and stamps go along. */
static void S2d_stamps_of_lazy_rows_survive_a_copy(void **state)
{
    (void)state;
    struct rig from, to;
    struct image before, after;
    embd_schema schema = copying_slotted();
    schema.admit_after = 0;
    schema.optimizer.update = EMBD_UPDATE_LAZY_GLOBAL;
    rig_open(&from, &store_host, 0, 1, NULL);
    rig_open(&to, &store_host, 0, 1, NULL);
    copying_fill(&from, &schema);
    create_table(&to, &schema);
    copy(&from, &to, &schema, 1000);
    image_take(&from, schema.name, &before);
    image_check(&to, schema.name, &before);
    for (uint64_t i = 0; i < 3; i++) {
        copying_push_again(&from, &schema, 77 + i);
        copying_push_again(&to, &schema, 77 + i);
    }
    image_take(&from, schema.name, &after);
    assert_true(after.rows > before.rows);
    image_check(&to, schema.name, &after);
    image_fini(&before);
    image_fini(&after);
    rig_close(&from);
    rig_close(&to);
}

static void scans_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema schema = copying_plain();
    rig_open(&rig, &store_host, 0, 1, NULL);
    copying_fill(&rig, &schema);
    copying_simple(&rig, METHOD_HOLD);
    ask_error(ask_scan(&rig, "nowhere", 0, 1000), EMBD_UNKNOWN_TABLE, "nowhere", NULL);
    ask_error(ask_scan(&rig, "plain", 0, (8 << 20) + 1), EMBD_INVALID, "bytes", "8388609",
              "8388608", NULL);
    ask_error(ask_scan(&rig, "plain", 0, 50), EMBD_INVALID, "bytes", "50", "72", NULL);
    ask_error(ask_scan(&rig, "plain", 12345, 1000), EMBD_INVALID, "cursor", "12345", NULL);
    struct exchange *x = ask_scan(&rig, "plain", 0, 1000);
    ask_ok(x);
    uint64_t next = read_scan(x).next;
    ask_free(x);
    copying_simple(&rig, METHOD_RELEASE);
    copying_simple(&rig, METHOD_HOLD); /* another cut: the old cursor is none of it */
    ask_error(ask_scan(&rig, "plain", next, 1000), EMBD_INVALID, "cursor", NULL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        {"S2.3 a scan loaded elsewhere is the same table",
         a_scan_loaded_elsewhere_is_the_same_table, NULL, NULL, NULL},
        cmocka_unit_test(S2d_stamps_of_lazy_rows_survive_a_copy),
        cmocka_unit_test(scans_that_do_not_fit_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
