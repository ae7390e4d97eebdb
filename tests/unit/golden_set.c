/* golden_set.c - fields of a table that are set while it lives. As golden_messages.c. */
#include "tests/unit/golden_set.h"

#include "proto/schema_change.h"
#include "tests/unit/cmocka_all.h"

void build_table_set_request(struct msg *m)
{
    struct embd__error e = {.status = EMBD_OK};
    struct schema_change change;
    embd__schema_change_init(&change);
    embd__schema_change_add(&change, "optimizer.lr", "0.05", &e);
    embd__schema_change_add(&change, "admit_nonfinite", "true", &e);
    embd__msg_request(m, 21, METHOD_TABLE_SET);
    embd__msg_map(m, 3);
    embd__msg_field_str(m, "name", "items");
    embd__msg_field_bool(m, "check", true);
    embd__msg_str(m, "set");
    embd__schema_change_write(m, &change);
    embd__msg_end(m);
}

static void read(struct reader *r, struct schema_change *out)
{
    struct fields f, map;
    char name[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, r, "table_set");
    embd__field_str(&f, "name", name, sizeof name, NULL);
    embd__field_bool(&f, "check", false);
    embd__field_map(&f, "set", &map, "set");
    embd__schema_change_read(&map, out);
    embd__fields_end(&f);
    embd__reader_end(r);
}

void read_table_set_request(struct reader *r)
{
    struct schema_change change;
    read(r, &change);
}

void check_table_set_request(struct reader *r)
{
    struct schema_change change;
    char names[SCHEMA_CHANGED_BYTES];
    read(r, &change);
    assert_true(embd__schema_changed_names(change.named, names));
    assert_string_equal(names, "admit_nonfinite,optimizer.lr");
    assert_true(change.to.optimizer.lr == 0.05f && change.to.admit_nonfinite);
}

void build_table_set_result(struct msg *m)
{
    embd__msg_result(m, 21);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "step", 300);
    embd__msg_end(m);
}

void read_table_set_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "table_set");
    embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}
