/* golden_packed.c - a push and the answer to a pull with rows of i8 and i4. As golden_messages.c
 * has the others. */
#include "tests/unit/golden_packed.h"

#include <string.h>

#include "proto/packed.h"

#define DIM 3u

static const uint64_t keys[2] = {5, 6};
/* 1, -63.5, 0 and three zeros; 1.75, -0.25, 0 */
static const uint8_t rows_i8[14] = {2, 0x81, 0, 0, 0, 0, 0x3f, 0, 0, 0, 0, 0, 0, 0};
static const uint8_t rows_i4[6] = {0xf7, 0, 0, 0, 0x80, 0x3e};
static const float values[9] = {1, -63.5f, 0, 0, 0, 0, 1.75f, -0.25f, 0};

void build_push_packed_request(struct msg *m)
{
    const struct part parts[2] = {{.table = 0x12345678,
                                   .dtype = EMBD_DTYPE_I8,
                                   .n_keys = 2,
                                   .n_rows = 2,
                                   .keys = keys,
                                   .grads = rows_i8,
                                   .grads_bytes = sizeof rows_i8},
                                  {.table = 9,
                                   .dtype = EMBD_DTYPE_I4,
                                   .n_keys = 1,
                                   .n_rows = 1,
                                   .keys = keys,
                                   .grads = rows_i4,
                                   .grads_bytes = sizeof rows_i4}};
    embd__msg_request(m, 33, METHOD_PUSH);
    embd__push_write(m, parts, 2, NULL);
    embd__msg_end(m);
}

static bool are_values(const void *rows, embd_dtype dtype, uint32_t n, const float *expected)
{
    float got[2 * DIM];
    embd__rows_to_f32(got, rows, dtype, DIM, n);
    return memcmp(got, expected, n * DIM * sizeof *got) == 0;
}

void read_push_packed_request(struct reader *r)
{
    static struct part parts[LIMIT_PARTS];
    struct push_extra extra;
    const struct part *a = &parts[0], *b = &parts[1];
    if (embd__push_read(r, parts, LIMIT_PARTS, &extra) != 2 || a->dtype != EMBD_DTYPE_I8 ||
        b->dtype != EMBD_DTYPE_I4 || a->grads_bytes != sizeof rows_i8 ||
        b->grads_bytes != sizeof rows_i4 || !are_values(a->grads, a->dtype, 2, values) ||
        !are_values(b->grads, b->dtype, 1, values + 6))
        embd__error_set(r->error, EMBD_INVALID, "the push's rows of i8 and i4 are others");
}

void build_pull_packed_result(struct msg *m)
{
    const struct part_answer answers[2] = {
        {.n_rows = 2, .dim = DIM, .n_keys = 2, .dtype = EMBD_DTYPE_I8, .values = rows_i8},
        {.n_rows = 1, .dim = DIM, .n_keys = 1, .dtype = EMBD_DTYPE_I4, .values = rows_i4},
    };
    embd__msg_result(m, 33);
    embd__pull_answer_write(m, answers, 2, 0, NULL);
    embd__msg_end(m);
}

static bool is_answer(const struct part_answer *a, embd_dtype dtype, uint32_t n,
                      const float *expected)
{
    return a->dtype == dtype && a->dim == DIM && a->n_rows == n &&
           are_values(a->values, dtype, n, expected);
}

void read_pull_packed_result(struct reader *r)
{
    static struct part_answer answers[LIMIT_PARTS];
    if (embd__pull_answer_read(r, answers, LIMIT_PARTS) != 2 ||
        !is_answer(&answers[0], EMBD_DTYPE_I8, 2, values) ||
        !is_answer(&answers[1], EMBD_DTYPE_I4, 1, values + 6))
        embd__error_set(r->error, EMBD_INVALID, "the pulled rows of i8 and i4 are others");
}
