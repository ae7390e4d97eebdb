/* test_receive.c - answers are received the same however the network cuts them: bins of units go to
 * their owner unit by unit, other bins to their place, and nothing else is written. The receivers
 * of a loop have one buffer, so another one fills it between any two pieces. */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/io/receive.h"
#include "tests/unit/received.h"

#define SMALL_BYTES 7u
#define GUARD       0x77

/* One end of a connection, and what came out of it. */
struct side {
    struct receiver receiver;
    struct channel channel;
    int peer;
    counter bytes;
    uint32_t unit; /* of the first bin of each frame */
    bool refuses;  /* it */
    uint8_t one[RECEIVE_UNIT_BYTES + 8], small[SMALL_BYTES + 8]; /* guarded */
    uint8_t *units;                                              /* as they came */
    size_t n_units, n_frames;
};

static uint8_t *buffer;

static int on_bin(void *owner, uint8_t **to_out, uint32_t *unit_out, struct embd__error *e)
{
    struct side *side = owner;
    (void)e;
    bool is_first = side->receiver.frame.n_bins == 1;
    *to_out = is_first && side->refuses ? NULL : is_first ? side->one : side->small;
    *unit_out = is_first && !side->refuses ? side->unit : 0;
    return EMBD_OK;
}

static void on_units(void *owner, const uint8_t *p, uint32_t bytes)
{
    struct side *side = owner;
    assert_int_equal((uintptr_t)p % RECEIVE_ALIGNMENT, 0);
    assert_true(bytes > 0 && bytes % side->unit == 0);
    memcpy(side->units + side->n_units, p, bytes);
    side->n_units += bytes;
}

static int on_frame(void *owner, struct embd__error *e)
{
    struct side *side = owner;
    (void)e;
    side->n_frames++;
    return EMBD_OK;
}

static void open_side(struct side *side, uint32_t unit, size_t most)
{
    int fds[2];
    struct embd__error e = {0};
    memset(side, 0, sizeof *side);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    side->peer = fds[1];
    side->unit = unit;
    side->units = malloc(most);
    memset(side->one, GUARD, sizeof side->one);
    memset(side->small, GUARD, sizeof side->small);
    side->receiver.in = buffer;
    side->receiver.owner = side;
    side->receiver.bytes = &side->bytes;
    side->receiver.on_bin = on_bin;
    side->receiver.on_units = on_units;
    side->receiver.on_frame = on_frame;
    assert_int_equal(embd__receive_init(&side->receiver, &e), EMBD_OK);
    assert_int_equal(embd__channel_open(&side->channel, fds[0], NULL, NULL, &e), EMBD_OK);
}

static void close_side(struct side *side)
{
    close(side->channel.fd);
    close(side->peer);
    embd__receive_fini(&side->receiver);
    free(side->units);
}

static void receive(struct side *side)
{
    struct embd__error e = {0};
    if (embd__receive(&side->receiver, &side->channel, &e) != EMBD_OK)
        fail_msg("%s", e.text);
}

/* Sends all of it, as much at a time as the socket takes. */
static void pass(struct side *side, const uint8_t *p, size_t n)
{
    while (n > 0) {
        ssize_t sent = send(side->peer, p, n, 0);
        assert_true(sent > 0);
        receive(side);
        p += sent;
        n -= (size_t)sent;
    }
}

/* An answer whose bins are the payload and SMALL_BYTES of its end. */
static uint8_t *answer(const uint8_t *payload, size_t bytes, size_t *bytes_out)
{
    struct msg m;
    embd__msg_init(&m);
    embd__msg_result(&m, 5);
    embd__msg_map(&m, 1);
    embd__msg_field_str(&m, "name", "of some length");
    embd__msg_bin(&m, payload, bytes);
    embd__msg_bin(&m, payload + bytes - SMALL_BYTES, SMALL_BYTES);
    assert_int_equal(embd__msg_end(&m), EMBD_OK);
    uint8_t *flat = flatten(&m, bytes_out);
    embd__msg_fini(&m);
    return flat;
}

static uint8_t *make_payload(size_t bytes)
{
    uint8_t *payload = malloc(bytes);
    for (size_t i = 0; i < bytes; i++)
        payload[i] = (uint8_t)(i * 37 + i / 251);
    return payload;
}

static void assert_received(const struct side *side, const uint8_t *payload, size_t bytes,
                            size_t n_frames)
{
    assert_int_equal(side->n_frames, n_frames);
    assert_int_equal(side->n_units, bytes * n_frames);
    for (size_t i = 0; i < n_frames; i++)
        assert_memory_equal(side->units + i * bytes, payload, bytes);
    assert_memory_equal(side->small, payload + bytes - SMALL_BYTES, SMALL_BYTES);
    assert_int_equal(side->small[SMALL_BYTES], GUARD);
    for (size_t i = side->unit; i < sizeof side->one; i++)
        assert_int_equal(side->one[i], GUARD);
}

static void an_answer_may_be_cut_anywhere(void **state)
{
    static const uint32_t units[] = {1, 3, 12, 65};
    (void)state;
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t bytes = units[u] * (size_t)(units[u] == 1 ? 13 : 5), n;
        uint8_t *payload = make_payload(bytes), *flat = answer(payload, bytes, &n);
        for (size_t cut = 0; cut <= n; cut++) {
            struct side side;
            open_side(&side, units[u], 2 * bytes);
            pass(&side, flat, cut);
            memset(buffer, 0xff, RECEIVE_BUFFER_BYTES); /* another connection's bytes */
            pass(&side, flat + cut, n - cut);
            pass(&side, flat, n);
            assert_received(&side, payload, bytes, 2);
            close_side(&side);
        }
        free(flat);
        free(payload);
    }
}

static void bytes_may_come_one_by_one_on_two_connections_in_turn(void **state)
{
    enum { UNIT = 10, BYTES = 60 };
    struct side a, b;
    size_t n;
    (void)state;
    uint8_t *payload = make_payload(2 * BYTES), *other = payload + BYTES;
    uint8_t *one = answer(payload, BYTES, &n), *two = answer(other, BYTES, &n);
    open_side(&a, UNIT, BYTES);
    open_side(&b, UNIT, BYTES);
    for (size_t i = 0; i < n; i++) {
        pass(&a, one + i, 1);
        pass(&b, two + i, 1);
    }
    assert_received(&a, payload, BYTES, 1);
    assert_received(&b, other, BYTES, 1);
    close_side(&a);
    close_side(&b);
    free(one);
    free(two);
    free(payload);
}

static void bins_may_be_larger_than_the_buffer(void **state)
{
    static const uint32_t units[] = {256, 4100, RECEIVE_UNIT_BYTES};
    (void)state;
    for (size_t u = 0; u < sizeof units / sizeof *units; u++) {
        size_t bytes = 5 * (size_t)RECEIVE_BUFFER_BYTES / units[u] * units[u], n;
        uint8_t *payload = make_payload(bytes), *flat = answer(payload, bytes, &n);
        struct side side;
        open_side(&side, units[u], bytes);
        pass(&side, flat, n);
        assert_received(&side, payload, bytes, 1);
        close_side(&side);
        free(flat);
        free(payload);
    }
}

static void the_rest_of_a_bin_can_be_dropped(void **state)
{
    enum { UNIT = 12, BYTES = 60 };
    size_t n;
    (void)state;
    uint8_t *payload = make_payload(BYTES), *flat = answer(payload, BYTES, &n);
    for (size_t cut = 0; cut <= n; cut++) {
        struct side side;
        open_side(&side, UNIT, 2 * BYTES);
        pass(&side, flat, cut);
        embd__receive_drop(&side.receiver);
        side.n_units = 0;
        pass(&side, flat + cut, n - cut);
        size_t later = side.n_units;
        assert_true(later == 0 || later == BYTES); /* cut before or behind the bin's beginning */
        assert_int_equal(side.n_frames, 1);
        side.n_units = 0;
        pass(&side, flat, n);
        assert_int_equal(side.n_units, BYTES);
        assert_memory_equal(side.units, payload, BYTES);
        close_side(&side);
    }
    free(flat);
    free(payload);
}

static void a_refused_bin_is_written_nowhere(void **state)
{
    enum { UNIT = 12, BYTES = 60 };
    struct side side;
    size_t n;
    (void)state;
    uint8_t *payload = make_payload(BYTES), *flat = answer(payload, BYTES, &n);
    open_side(&side, UNIT, BYTES);
    side.refuses = true;
    for (size_t i = 0; i < n; i++)
        pass(&side, flat + i, 1);
    assert_int_equal(side.n_frames, 1);
    assert_int_equal(side.n_units, 0);
    for (size_t i = 0; i < sizeof side.one; i++)
        assert_int_equal(side.one[i], GUARD);
    assert_memory_equal(side.small, payload + BYTES - SMALL_BYTES, SMALL_BYTES);
    close_side(&side);
    free(flat);
    free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_may_be_cut_anywhere),
        cmocka_unit_test(bytes_may_come_one_by_one_on_two_connections_in_turn),
        cmocka_unit_test(bins_may_be_larger_than_the_buffer),
        cmocka_unit_test(the_rest_of_a_bin_can_be_dropped),
        cmocka_unit_test(a_refused_bin_is_written_nowhere),
    };
    buffer = embd__receive_buffer_new();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(buffer);
    return failed;
}
