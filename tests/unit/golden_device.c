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
    const struct device_opened opened = {5, true, true, true};
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
        expect(r, opened.number == 5 && opened.takes_turns && opened.has_gates && opened.takes_own,
               "what was opened");
}

/* Of shard 1 of 2. */
static const uint8_t *own_set(void)
{
    static uint8_t set[PLACEMENT_SET_BYTES];
    struct placement p;
    embd__placement_even(&p, 1, 2);
    embd__placement_set(&p, EMBD_PARTITION_HASH, 1, set);
    return set;
}

static struct device_batch batch_of(bool is_push)
{
    return (struct device_batch){
        .table = 0x12345678,
        .n_keys = 65536,
        .keys = {5, 0},
        .rows = {5, 524288},
        .zero_missing = !is_push,
        .lr = is_push ? 0.25f : 0,
        .gate = {.at = is_push ? 128 : 0, .number = is_push ? 8 : 0, .needs = is_push ? 7 : 0}};
}

static void build_batch(struct msg *m, uint32_t msgid, bool is_push, bool has_own)
{
    struct device_batch batch = batch_of(is_push);
    if (has_own) {
        batch.own = own_set();
        batch.placement = 3;
    }
    embd__msg_request(m, msgid, is_push ? METHOD_DEVICE_PUSH : METHOD_DEVICE_PULL);
    embd__device_batch_write(m, &batch);
    embd__msg_end(m);
}

static bool is_own(const struct device_batch *got, bool has_own)
{
    if (!has_own)
        return got->own == NULL && got->placement == 0;
    return got->own != NULL && memcmp(got->own, own_set(), PLACEMENT_SET_BYTES) == 0 &&
           got->placement == 3;
}

static void check_batch(struct reader *r, bool is_push, bool has_own)
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
                   got.gate.needs == expected.gate.needs && is_own(&got, has_own),
               "the batch");
}

void build_device_pull_request(struct msg *m)
{
    build_batch(m, 4, false, false);
}

void read_device_pull_request(struct reader *r)
{
    struct device_batch batch;
    embd__device_batch_read(r, false, &batch);
}

void check_device_pull_request(struct reader *r)
{
    check_batch(r, false, false);
}

void build_device_pull_own_request(struct msg *m)
{
    build_batch(m, 5, false, true);
}

void check_device_pull_own_request(struct reader *r)
{
    check_batch(r, false, true);
}

void build_device_push_request(struct msg *m)
{
    build_batch(m, 6, true, false);
}

void read_device_push_request(struct reader *r)
{
    struct device_batch batch;
    embd__device_batch_read(r, true, &batch);
}

void check_device_push_request(struct reader *r)
{
    check_batch(r, true, false);
}

void build_device_push_gates_request(struct msg *m)
{
    struct device_batch batch = batch_of(true);
    batch.gate.at = 192;
    batch.gate.all_at = 64;
    batch.gate.n_all = 3;
    batch.order = 9;
    embd__msg_request(m, 8, METHOD_DEVICE_PUSH);
    embd__device_batch_write(m, &batch);
    embd__msg_end(m);
}

void check_device_push_gates_request(struct reader *r)
{
    struct device_batch got;
    if (embd__device_batch_read(r, true, &got) == EMBD_OK)
        expect(r,
               got.gate.at == 192 && got.gate.number == 8 && got.gate.needs == 7 &&
                   got.gate.all_at == 64 && got.gate.n_all == 3 && got.order == 9,
               "the gates");
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
