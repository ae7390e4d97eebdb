/* golden_watch.c - the messages that look at a shard at work: hot and trace; and pushes of a
 * round, with a learning rate, and of columns. As golden_messages.c has the others. */
#include "tests/unit/golden_watch.h"

#include <math.h>
#include <string.h>

static const uint64_t push_keys[2] = {5, 6};
static const float push_grads[4] = {0.25f, -1, 0, 3};

void build_push_round_request(struct msg *m)
{
    const struct part part = {.table = 0x12345678,
                              .n_keys = 2,
                              .n_rows = 2,
                              .keys = push_keys,
                              .grads = push_grads,
                              .grads_bytes = sizeof push_grads};
    const struct push_extra extra = {.round = {"dlrm", 1, 4, 300, 10000, 0x1122334455667788, 2}};
    embd__msg_request(m, 21, METHOD_PUSH);
    embd__push_write(m, &part, 1, &extra);
    embd__msg_end(m);
}

void read_push_round_request(struct reader *r)
{
    static struct part parts[LIMIT_PARTS];
    struct push_extra extra;
    int n = embd__push_read(r, parts, LIMIT_PARTS, &extra);
    struct push_round round = extra.round;
    if (n != 1 || parts[0].n_rows != 2 || parts[0].grads_bytes != sizeof push_grads ||
        memcmp(parts[0].grads, push_grads, sizeof push_grads) != 0 ||
        strcmp(round.job, "dlrm") != 0 || round.worker != 1 || round.n_workers != 4 ||
        round.clock != 300 || round.lease_ms != 10000 || round.incarnation != 0x1122334455667788 ||
        round.epoch != 2)
        embd__error_set(r->error, EMBD_INVALID, "the push or its round is another");
}

void build_push_lr_request(struct msg *m)
{
    const struct part part = {.table = 0x12345678,
                              .n_keys = 2,
                              .n_rows = 2,
                              .lr = 0.001f,
                              .keys = push_keys,
                              .grads = push_grads,
                              .grads_bytes = sizeof push_grads};
    embd__msg_request(m, 28, METHOD_PUSH);
    embd__push_write(m, &part, 1, NULL);
    embd__msg_end(m);
}

void read_push_lr_request(struct reader *r)
{
    static struct part parts[LIMIT_PARTS];
    struct push_extra extra;
    if (embd__push_read(r, parts, LIMIT_PARTS, &extra) != 1 || parts[0].lr != 0.001f)
        embd__error_set(r->error, EMBD_INVALID, "the push or its learning rate is another");
}

static const float push_scores[2] = {0.5f, -INFINITY};

void build_push_scores_request(struct msg *m)
{
    const struct part part = {.table = 0x12345678,
                              .n_keys = 2,
                              .n_rows = 2,
                              .keys = push_keys,
                              .scores = push_scores,
                              .grads = push_grads,
                              .grads_bytes = sizeof push_grads};
    embd__msg_request(m, 28, METHOD_PUSH);
    embd__push_write(m, &part, 1, NULL);
    embd__msg_end(m);
}

void read_push_scores_request(struct reader *r)
{
    static struct part parts[LIMIT_PARTS];
    struct push_extra extra;
    if (embd__push_read(r, parts, LIMIT_PARTS, &extra) != 1 || parts[0].scores == NULL ||
        memcmp(parts[0].scores, push_scores, sizeof push_scores) != 0)
        embd__error_set(r->error, EMBD_INVALID, "the push or its scores are others");
}

static const uint16_t column_slots[1] = {3};
static const uint32_t column_offsets[3] = {0, 1, 2};
static const uint16_t column_grads[1] = {0x3c00};

void build_push_columns_request(struct msg *m)
{
    const struct part parts[2] = {{.table = 0x12345678,
                                   .n_keys = 2,
                                   .n_rows = 2,
                                   .want_status = true,
                                   .lr = 0.5f,
                                   .keys = push_keys,
                                   .offsets = column_offsets,
                                   .grads = push_grads,
                                   .grads_bytes = sizeof push_grads},
                                  {.table = 9,
                                   .dtype = EMBD_DTYPE_F16,
                                   .n_keys = 1,
                                   .n_rows = 1,
                                   .keys = push_keys,
                                   .slots = column_slots,
                                   .grads = column_grads,
                                   .grads_bytes = sizeof column_grads}};
    const struct part_list list = {parts, sizeof *parts, 2};
    const struct push_extra extra = {.order = 300};
    embd__msg_request(m, 29, METHOD_PUSH);
    embd__columns_write(m, &list, PARTS_PUSH, &extra);
    embd__msg_end(m);
}

void read_push_columns_request(struct reader *r)
{
    static struct part parts[LIMIT_PARTS];
    struct push_extra extra;
    const struct part *a = &parts[0], *b = &parts[1];
    if (embd__push_read(r, parts, LIMIT_PARTS, &extra) != 2 || extra.order != 300 ||
        a->table != 0x12345678 || a->n_rows != 2 || !a->want_status || a->lr != 0.5f ||
        memcmp(a->offsets, column_offsets, sizeof column_offsets) != 0 || a->slots != NULL ||
        memcmp(a->grads, push_grads, sizeof push_grads) != 0 || b->table != 9 ||
        b->dtype != EMBD_DTYPE_F16 || b->keys[0] != push_keys[0] || b->slots[0] != 3 ||
        b->offsets != NULL || b->grads_bytes != 2 || memcmp(b->grads, column_grads, 2) != 0)
        embd__error_set(r->error, EMBD_INVALID, "the push's columns are others");
}

void build_hot_request(struct msg *m)
{
    embd__msg_request(m, 22, METHOD_HOT);
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "table", "items");
    embd__msg_field_uint(m, "keys", 3);
    embd__msg_end(m);
}

void read_hot_request(struct reader *r)
{
    struct fields f;
    char table[EMBD_NAME_MAX + 1];
    embd__read_fields(&f, r, "hot");
    embd__field_str(&f, "table", table, sizeof table, NULL);
    embd__field_uint(&f, "keys", 3, 3, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

static const uint64_t hot_keys[2] = {7, UINT64_MAX};
static const uint32_t hot_counts[2] = {700, 12};

void build_hot_result(struct msg *m)
{
    embd__msg_result(m, 22);
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "keys", 2);
    embd__msg_field_uint(m, "samples", 1024);
    embd__msg_field_uint(m, "taken", 90000);
    embd__msg_field_uint(m, "stride", 64);
    embd__msg_bin(m, hot_keys, sizeof hot_keys);
    embd__msg_bin(m, hot_counts, sizeof hot_counts);
    embd__msg_end(m);
}

void read_hot_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "hot");
    embd__field_uint(&f, "keys", 2, 2, FIELD_REQUIRED);
    embd__field_uint(&f, "samples", 1024, 1024, FIELD_REQUIRED);
    embd__field_uint(&f, "taken", 90000, 90000, FIELD_REQUIRED);
    embd__field_uint(&f, "stride", 64, 64, FIELD_REQUIRED);
    embd__fields_end(&f);
    const void *keys = embd__read_bin(r, "keys", sizeof hot_keys);
    const void *counts = embd__read_bin(r, "counts", sizeof hot_counts);
    if (keys == NULL || counts == NULL || memcmp(keys, hot_keys, sizeof hot_keys) != 0 ||
        memcmp(counts, hot_counts, sizeof hot_counts) != 0)
        embd__error_set(r->error, EMBD_INVALID, "the hot keys are others");
    embd__reader_end(r);
}

void build_trace_request(struct msg *m)
{
    embd__msg_request(m, 23, METHOD_TRACE);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "requests", 1);
    embd__msg_end(m);
}

void read_trace_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "trace");
    embd__field_uint(&f, "requests", 1, 1, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__reader_end(r);
}

/* Of the request in a trace. */
static const struct {
    const char *name;
    uint64_t value;
} figures[] = {{"age_us", 1500},    {"bytes", 8264},    {"queue_ns", 900}, {"decode_ns", 2100},
               {"store_ns", 41000}, {"encode_ns", 700}, {"send_ns", 70000}};
#define N_FIGURES (sizeof figures / sizeof *figures)

void build_trace_result(struct msg *m)
{
    embd__msg_result(m, 23);
    embd__msg_map(m, 1);
    embd__msg_str(m, "requests");
    embd__msg_array(m, 1);
    embd__msg_map(m, 1 + N_FIGURES);
    embd__msg_field_str(m, "method", "pull");
    for (uint32_t i = 0; i < N_FIGURES; i++)
        embd__msg_field_uint(m, figures[i].name, figures[i].value);
    embd__msg_end(m);
}

void read_trace_result(struct reader *r)
{
    struct fields f, request;
    const msgpack_object *items;
    char method[16];
    embd__read_fields(&f, r, "trace");
    uint32_t n = embd__field_list(&f, "requests", 64, &items);
    embd__fields_end(&f);
    if (n == 1) {
        embd__list_map(r, &items[0], &request, "request 0");
        embd__field_str(&request, "method", method, sizeof method, NULL);
        for (uint32_t i = 0; i < N_FIGURES; i++)
            embd__field_uint(&request, figures[i].name, figures[i].value, figures[i].value,
                             FIELD_REQUIRED);
        embd__fields_end(&request);
    }
    embd__reader_end(r);
}
