/* golden_hold.c - the messages of a hold over several shards, as golden_messages.c has the others.
 */
#include "tests/unit/golden_hold.h"

static const uint64_t clients[2] = {0x0123456789abcdef, 7};
static const uint32_t pushed[2] = {300, 12};

void build_hold_request(struct msg *m)
{
    embd__msg_request(m, 22, METHOD_HOLD);
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "timeout_ms", 60000);
    embd__msg_field_uint(m, "clients", 1);
    embd__msg_bin(m, clients, sizeof clients[0]);
    embd__msg_bin(m, pushed, sizeof pushed[0]);
    embd__msg_end(m);
}

void read_hold_request(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "hold");
    embd__field_uint(&f, "timeout_ms", 60000, 60000, FIELD_REQUIRED);
    embd__field_uint(&f, "clients", 1, 1, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__read_bin(r, "clients", sizeof clients[0]);
    embd__read_bin(r, "pushed", sizeof pushed[0]);
    embd__reader_end(r);
}

void build_hold_result(struct msg *m)
{
    embd__msg_result(m, 22);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "clients", 2);
    embd__msg_bin(m, clients, sizeof clients);
    embd__msg_bin(m, pushed, sizeof pushed);
    embd__msg_end(m);
}

void read_hold_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "hold");
    embd__field_uint(&f, "clients", 2, 2, FIELD_REQUIRED);
    embd__fields_end(&f);
    embd__read_bin(r, "clients", sizeof clients);
    embd__read_bin(r, "pushed", sizeof pushed);
    embd__reader_end(r);
}

#define ORDER 0x10000012c

static const uint64_t push_keys[1] = {5};
static const float push_grads[2] = {0.25f, -1};

void build_push_order_request(struct msg *m)
{
    const struct part part = {.table = 0x12345678,
                              .n_keys = 1,
                              .n_rows = 1,
                              .keys = push_keys,
                              .grads = push_grads,
                              .grads_bytes = sizeof push_grads};
    const struct push_extra extra = {.order = ORDER};
    embd__msg_request(m, 27, METHOD_PUSH);
    embd__push_write(m, &part, 1, &extra);
    embd__msg_end(m);
}

void read_push_order_request(struct reader *r)
{
    static struct part parts[LIMIT_PARTS];
    struct push_extra extra;
    uint64_t order = embd__push_order(r);
    if (embd__push_read(r, parts, LIMIT_PARTS, &extra) != 1 || extra.order != ORDER ||
        order != ORDER)
        embd__error_set(r->error, EMBD_INVALID, "the push or its order is another");
}
