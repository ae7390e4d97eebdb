/* test_pages.c - pieces of a pool are zeroed, apart from each other and used again, from one piece
 * to some huge pages of them; a message goes from buffers that it was lent to its own. */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/io/pages.h"
#include "proto/message.h"

#define PIECE_BYTES 1000u
#define PIECES      6000u /* more than two huge pages */

static uint8_t *pieces[PIECES];

static bool is_all(const uint8_t *p, uint8_t value)
{
    size_t i = 0;
    while (i < PIECE_BYTES && p[i] == value)
        i++;
    return i == PIECE_BYTES;
}

static void take_all(struct pool *pool)
{
    for (size_t i = 0; i < PIECES; i++) {
        pieces[i] = embd__pool_take(pool);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 64, 0);
        assert_true(is_all(pieces[i], 0));
        memset(pieces[i], (int)(i % 251 + 1), PIECE_BYTES);
    }
    for (size_t i = 0; i < PIECES; i++)
        assert_true(is_all(pieces[i], (uint8_t)(i % 251 + 1)));
}

static void pieces_are_zeroed_apart_and_used_again(void **state)
{
    (void)state;
    struct pool pool = {0};
    embd__pool_init(&pool, PIECE_BYTES);
    take_all(&pool);
    size_t taken = pool.taken;
    for (size_t i = 0; i < PIECES; i++)
        embd__pool_give(&pool, pieces[i]);
    take_all(&pool);
    assert_int_equal(pool.taken, taken);
    embd__pool_fini(&pool);
}

static void memory_of_any_size_can_be_written(void **state)
{
    (void)state;
    for (size_t bytes = 1; bytes < (size_t)8 << 20; bytes = bytes * 5 + 3) {
        uint8_t *memory = embd__pages_new(bytes);
        assert_non_null(memory);
        assert_int_equal((uintptr_t)memory % 64, 0);
        memset(memory, 1, bytes);
        free(memory);
    }
}

/* A message of n bins whose map has n fields. */
static void build(struct msg *m, uint32_t n, const uint64_t *bins)
{
    char name[16];
    embd__msg_request(m, 7, METHOD_PULL);
    embd__msg_map(m, n);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(name, sizeof name, "field%u", i);
        embd__msg_field_uint(m, name, i);
    }
    for (uint32_t i = 0; i < n; i++)
        embd__msg_bin(m, &bins[i], sizeof bins[i]);
    assert_int_equal(embd__msg_end(m), EMBD_OK);
}

static void a_message_outgrows_what_it_was_lent(void **state)
{
    (void)state;
    const uint64_t bins[20] = {0};
    uint8_t head[64];
    struct msg_bin lent[2];
    struct msg m, own;
    embd__msg_init(&m);
    embd__msg_init(&own);
    embd__msg_lend(&m, head, sizeof head, lent, 2);
    for (uint32_t n = 1; n <= 20; n++) {
        build(&m, n, bins);
        build(&own, n, bins);
        assert_int_equal(m.head == head, m.head_bytes <= sizeof head);
        assert_int_equal(m.bins == lent, n <= 2);
        assert_int_equal(m.head_bytes, own.head_bytes);
        assert_memory_equal(m.head, own.head, m.head_bytes);
        for (uint32_t i = 0; i < n; i++)
            assert_true(m.bins[i].at == own.bins[i].at && m.bins[i].data == own.bins[i].data);
    }
    embd__msg_fini(&m);
    embd__msg_fini(&own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_zeroed_apart_and_used_again),
        cmocka_unit_test(memory_of_any_size_can_be_written),
        cmocka_unit_test(a_message_outgrows_what_it_was_lent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
