/* golden_device.c - memory of a GPU that a client lends, and pulls and pushes that name it. As
 * golden_messages.c has the others. */
#include "tests/unit/golden_device.h"

#include <string.h>

#include "proto/device.h"

static void fill(uint8_t *to, uint32_t n, uint32_t first)
{
    for (uint32_t i = 0; i < n; i++)
        to[i] = (uint8_t)(first + i);
}

static void expect(struct reader *r, bool is_so, const char *what)
{
    if (!is_so)
        embd__error_set(r->error, EMBD_INVALID, "%s is another", what);
}

void build_device_open_request(struct msg *m)
{
    static uint8_t handle[DEVICE_HANDLE_BYTES], uuid[DEVICE_UUID_BYTES];
    const struct device_lent lent = {32u << 20, handle, uuid, 0};
    fill(handle, sizeof handle, 0);
    fill(uuid, sizeof uuid, 0xa0);
    embd__msg_request(m, 3, METHOD_DEVICE_OPEN);
    embd__device_open_write(m, &lent);
    embd__msg_end(m);
}

void read_device_open_request(struct reader *r)
{
    struct device_lent lent;
    embd__device_open_read(r, &lent);
}

void check_device_open_request(struct reader *r)
{
    struct device_lent lent;
    if (embd__device_open_read(r, &lent) == EMBD_OK)
        expect(r, lent.bytes == 32u << 20 && lent.handle[63] == 63 && lent.uuid[15] == 0xaf,
               "what is lent");
}

void build_device_open_result(struct msg *m)
{
    const struct device_opened opened = {5, true, true};
    embd__msg_result(m, 3);
    embd__device_opened_write(m, &opened);
    embd__msg_end(m);
}

void read_device_open_result(struct reader *r)
{
    struct device_opened opened;
    embd__device_opened_read(r, &opened);
}

void check_device_open_result(struct reader *r)
{
    struct device_opened opened;
    if (embd__device_opened_read(r, &opened) == EMBD_OK)
        expect(r, opened.number == 5 && opened.takes_turns && opened.has_gates, "what was opened");
}

static struct device_batch batch_of(bool is_push)
{
    return (struct device_batch){.table = 0x12345678,
                                 .n_keys = 65536,
                                 .keys = {5, 0},
                                 .rows = {5, 524288},
                                 .zero_missing = !is_push,
                                 .lr = is_push ? 0.25f : 0,
                                 .gate = {is_push ? 128 : 0, is_push ? 8 : 0, is_push ? 7 : 0}};
}

static void build_batch(struct msg *m, bool is_push)
{
    const struct device_batch batch = batch_of(is_push);
    embd__msg_request(m, is_push ? 6 : 4, is_push ? METHOD_DEVICE_PUSH : METHOD_DEVICE_PULL);
    embd__device_batch_write(m, &batch);
    embd__msg_end(m);
}

static void check_batch(struct reader *r, bool is_push)
{
    struct device_batch got;
    const struct device_batch expected = batch_of(is_push);
    if (embd__device_batch_read(r, is_push, &got) == EMBD_OK)
        expect(r,
               got.table == expected.table && got.n_keys == expected.n_keys &&
                   got.dtype == EMBD_DTYPE_F32 && got.keys.number == 5 && got.rows.number == 5 &&
                   got.keys.at == 0 && got.rows.at == expected.rows.at &&
                   got.zero_missing == expected.zero_missing && got.lr == expected.lr &&
                   got.gate.at == expected.gate.at && got.gate.number == expected.gate.number &&
                   got.gate.needs == expected.gate.needs,
               "the batch");
}

void build_device_pull_request(struct msg *m)
{
    build_batch(m, false);
}

void read_device_pull_request(struct reader *r)
{
    struct device_batch batch;
    embd__device_batch_read(r, false, &batch);
}

void check_device_pull_request(struct reader *r)
{
    check_batch(r, false);
}

void build_device_push_request(struct msg *m)
{
    build_batch(m, true);
}

void read_device_push_request(struct reader *r)
{
    struct device_batch batch;
    embd__device_batch_read(r, true, &batch);
}

void check_device_push_request(struct reader *r)
{
    check_batch(r, true);
}

void build_device_close_request(struct msg *m)
{
    embd__msg_request(m, 7, METHOD_DEVICE_CLOSE);
    embd__device_close_write(m, 5);
    embd__msg_end(m);
}

void read_device_close_request(struct reader *r)
{
    uint64_t number;
    embd__device_close_read(r, &number);
}
