/* records.c - see records.h. */
#include "tests/engine/records.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- the list ---- */

void records_open(struct records *records)
{
    memset(records, 0, sizeof *records);
    embd__msg_init(&records->msg);
    assert_int_equal(record_key_new(&records->key), 0);
}

void records_drop_last(struct records *records)
{
    struct written *last = records->list[--records->n];
    struct record fields;
    record_fields(last->bytes, &fields);
    records->position = fields.position;
    records->chain = fields.chain;
    free(last->bytes);
    free(last);
}

void records_close(struct records *records)
{
    while (records->n > 0)
        records_drop_last(records);
    free(records->list);
    embd__msg_fini(&records->msg);
}

static struct written *add(struct records *records)
{
    if (records->n == records->capacity) {
        records->capacity = 2 * records->capacity + 256;
        records->list = realloc(records->list, records->capacity * sizeof *records->list);
        assert_non_null(records->list);
    }
    struct written *record = calloc(1, sizeof *record);
    assert_non_null(record);
    return records->list[records->n++] = record;
}

struct written *records_write(struct records *records, const struct op *op)
{
    struct embd__error e = {.status = EMBD_OK};
    struct written *record = add(records);
    if (operation_write(&records->msg, op, &records->frame, &e) != EMBD_OK)
        fail_msg("operation_write: %s", e.text);
    record->n_bytes = record_bytes(&records->frame);
    record->bytes = malloc(record->n_bytes);
    assert_non_null(record->bytes);
    record_write(record->bytes, &records->frame);
    uint64_t n_bytes;
    records->chain = record_seal(record->bytes, &records->key, records->position, records->position,
                                 records->chain, &n_bytes);
    assert_int_equal(n_bytes, record->n_bytes);
    records->position++;
    return record;
}

/* ---- copies ---- */

void copy_open(struct copy *copy)
{
    memset(copy, 0, sizeof *copy);
    engine_init(&copy->engine, &store_host);
}

void copy_close(struct copy *copy)
{
    operation_reader_fini(&copy->reader);
    engine_fini(&copy->engine);
}

void copy_replay(struct copy *copy, const struct records *records, const struct written *record)
{
    struct embd__error e = {.status = EMBD_OK};
    struct record fields;
    bool is_partly_done;
    assert_true(record_read(&records->key, record->bytes, record->n_bytes, &fields));
    int status =
        commit_replay(&copy->reader, &copy->engine, record->bytes, &fields, 0, &is_partly_done, &e);
    if (status != record->status)
        fail_msg("record %llu: %s, where it was %s: %s", (unsigned long long)fields.position,
                 embd_status_text(status), embd_status_text(record->status), e.text);
    assert_false(is_partly_done);
}
