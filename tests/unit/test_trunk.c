/* test_trunk.c - chunks of a trunk: at every split the same, and none that may not come. */
#include "tests/unit/cmocka_all.h"

#include <string.h>

#include "proto/trunk.h"

#define STREAM 0x30007u

/* What a side has seen: chunks, and the bytes of DATA. */
struct seen {
    struct trunk_chunk chunks[8];
    uint32_t n;
    uint8_t bytes[64];
    size_t n_bytes;
    struct embd__error error;
};

/* In pieces of `piece` bytes. The last event. */
static int feed(struct seen *seen, bool from_client, const uint8_t *p, size_t n, size_t piece)
{
    struct trunk_reader r = {.left = 0};
    size_t used;
    int event = TRUNK_MORE;
    for (size_t at = 0; at < n && event >= 0; at += used) {
        size_t most = n - at < piece ? n - at : piece;
        event = embd__trunk_read(&r, from_client, p + at, most, &used, &seen->error);
        assert_true(used > 0 && used <= most);
        if (event == TRUNK_CHUNK)
            seen->chunks[seen->n++] = r.chunk;
        if (event == TRUNK_BYTES) {
            memcpy(seen->bytes + seen->n_bytes, p + at, used);
            seen->n_bytes += used;
        }
    }
    return event;
}

static void test_splits(void **state)
{
    uint8_t sent[4 * TRUNK_HEAD_BYTES + 5], *at = sent;
    (void)state;
    embd__trunk_head(at, TRUNK_OPEN, STREAM, 1023);
    embd__trunk_head(at += TRUNK_HEAD_BYTES, TRUNK_DATA, STREAM, 5);
    memcpy(at + TRUNK_HEAD_BYTES, "hello", 5);
    embd__trunk_head(at += TRUNK_HEAD_BYTES + 5, TRUNK_END, STREAM, 0);
    embd__trunk_head(at + TRUNK_HEAD_BYTES, TRUNK_CLOSE, STREAM, 0);
    for (size_t piece = 1; piece <= sizeof sent; piece++) {
        struct seen seen = {.n = 0};
        assert_int_equal(feed(&seen, true, sent, sizeof sent, piece), TRUNK_CHUNK);
        assert_int_equal(seen.n, 4);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(seen.chunks[i].kind, TRUNK_OPEN + i);
            assert_int_equal(seen.chunks[i].stream, STREAM);
        }
        assert_int_equal(seen.chunks[0].value, 1023);
        assert_int_equal(seen.n_bytes, 5);
        assert_memory_equal(seen.bytes, "hello", 5);
    }
}

/* Whether such a chunk may come. */
static bool is_taken(bool from_client, uint32_t kind, uint32_t stream, uint32_t value)
{
    uint8_t head[TRUNK_HEAD_BYTES];
    struct seen seen = {.n = 0};
    embd__trunk_head(head, kind, stream, value);
    int event = feed(&seen, from_client, head, sizeof head, sizeof head);
    assert_int_equal(event < 0 ? EMBD_PROTOCOL : TRUNK_CHUNK, event);
    assert_int_equal(seen.error.status, event < 0 ? EMBD_PROTOCOL : EMBD_OK);
    return event == TRUNK_CHUNK;
}

static void test_refused(void **state)
{
    static const struct {
        uint32_t kind, value;
        bool by_client, by_server;
    } cases[] = {
        {0, 0, false, false},
        {TRUNK_OPEN, 0, true, false},
        {TRUNK_OPEN, LIMIT_SHARDS - 1, true, false},
        {TRUNK_OPEN, LIMIT_SHARDS, false, false},
        {TRUNK_DATA, 0, false, false},
        {TRUNK_DATA, 1, true, true},
        {TRUNK_DATA, TRUNK_DATA_BYTES, true, true},
        {TRUNK_DATA, TRUNK_DATA_BYTES + 1, false, false},
        {TRUNK_END, 0, true, true},
        {TRUNK_END, 1, false, false},
        {TRUNK_CLOSE, 0, true, true},
        {TRUNK_CLOSE, 1, false, false},
        {TRUNK_CREDIT, 0, false, false},
        {TRUNK_CREDIT, 1, false, true},
        {TRUNK_CREDIT, TRUNK_WINDOW_BYTES, false, true},
        {TRUNK_CREDIT, TRUNK_WINDOW_BYTES + 1, false, false},
        {TRUNK_CREDIT + 1, 0, false, false},
        {UINT32_MAX, UINT32_MAX, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(is_taken(true, cases[i].kind, STREAM, cases[i].value), cases[i].by_client);
        assert_int_equal(is_taken(false, cases[i].kind, STREAM, cases[i].value),
                         cases[i].by_server);
        assert_false(is_taken(true, cases[i].kind, TRUNK_SLOTS, cases[i].value));
    }
}

static void test_numbers(void **state)
{
    (void)state;
    assert_int_equal(embd__trunk_slot(STREAM), 7);
    assert_int_equal(embd__trunk_next(STREAM), 0x40007);
    assert_int_equal(embd__trunk_next(0xffff0007), 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_splits),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
