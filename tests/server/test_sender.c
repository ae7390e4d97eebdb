/* test_sender.c - a sender sends a batch whole and in order, also to a peer that takes it slowly.
 * It says when its peer has gone, and who ends it waits for no peer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/net/sender.h"

#define BATCH_BYTES (3u << 20) /* more than a socket takes at once */
#define HEAD_BYTES  17u

/* What a shard has, as far as a sender knows. */
struct rig {
    pthread_mutex_t lock;
    pthread_cond_t news;
    bool is_woken;
    int ends[2];
    uint8_t *bytes;
    uv_buf_t bufs[3];
    struct sender *sender;
};

static void wake(void *arg)
{
    struct rig *rig = arg;
    pthread_mutex_lock(&rig->lock);
    rig->is_woken = true;
    pthread_cond_signal(&rig->news);
    pthread_mutex_unlock(&rig->lock);
}

static void open_rig(struct rig *rig)
{
    *rig = (struct rig){.is_woken = false};
    pthread_mutex_init(&rig->lock, NULL);
    pthread_cond_init(&rig->news, NULL);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, rig->ends), 0);
    rig->bytes = malloc(BATCH_BYTES);
    assert_non_null(rig->bytes);
    for (uint32_t i = 0; i < BATCH_BYTES; i++)
        rig->bytes[i] = (uint8_t)(i * 2654435761u >> 24);
    rig->bufs[0] = uv_buf_init((char *)rig->bytes, HEAD_BYTES);
    rig->bufs[1] = uv_buf_init((char *)rig->bytes + HEAD_BYTES, 0);
    rig->bufs[2] = uv_buf_init((char *)rig->bytes + HEAD_BYTES, BATCH_BYTES - HEAD_BYTES);
    rig->sender = sender_open(wake, rig);
    assert_non_null(rig->sender);
}

static void close_rig(struct rig *rig)
{
    sender_close(rig->sender);
    for (int i = 0; i < 2; i++)
        if (rig->ends[i] >= 0)
            close(rig->ends[i]);
    free(rig->bytes);
    pthread_cond_destroy(&rig->news);
    pthread_mutex_destroy(&rig->lock);
}

static void begin(struct rig *rig)
{
    rig->is_woken = false;
    sender_begin(rig->sender, rig->ends[0], rig->bufs, 3);
}

/* The error that it ended with. */
static int wait_for_end(struct rig *rig)
{
    int error;
    pthread_mutex_lock(&rig->lock);
    while (!rig->is_woken)
        pthread_cond_wait(&rig->news, &rig->lock);
    pthread_mutex_unlock(&rig->lock);
    assert_true(sender_is_over(rig->sender, &error));
    return error;
}

static void take(struct rig *rig, uint64_t n, uint8_t *out)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t got = read(rig->ends[1], out + done, n - done);
        assert_true(got > 0);
        done += (uint64_t)got;
    }
}

static void a_batch_comes_whole_and_in_order_and_so_does_the_next(void **state)
{
    struct rig rig;
    int error;
    (void)state;
    open_rig(&rig);
    uint8_t *came = malloc(BATCH_BYTES);
    assert_non_null(came);
    for (int i = 0; i < 3; i++) {
        begin(&rig);
        take(&rig, 1, came);
        assert_false(sender_is_over(rig.sender, &error)); /* the socket has no room for the rest */
        take(&rig, BATCH_BYTES - 1, came + 1);
        assert_int_equal(wait_for_end(&rig), 0);
        assert_int_equal(sender_sent(rig.sender), BATCH_BYTES);
        assert_memory_equal(came, rig.bytes, BATCH_BYTES);
    }
    free(came);
    close_rig(&rig);
}

static void a_peer_that_goes_ends_the_batch(void **state)
{
    struct rig rig;
    uint8_t byte;
    (void)state;
    open_rig(&rig);
    begin(&rig);
    take(&rig, 1, &byte);
    close(rig.ends[1]);
    rig.ends[1] = -1;
    int error = wait_for_end(&rig);
    assert_true(error == UV_EPIPE || error == UV_ECONNRESET);
    assert_true(sender_sent(rig.sender) < BATCH_BYTES);
    close_rig(&rig);
}

/* The peer reads nothing until the sender has ended, and then finds the beginning of the batch and
 * an end. */
static void who_ends_a_sender_waits_for_no_peer(void **state)
{
    struct rig rig;
    ssize_t got;
    uint64_t n = 1;
    (void)state;
    open_rig(&rig);
    uint8_t *came = malloc(BATCH_BYTES);
    assert_non_null(came);
    begin(&rig);
    take(&rig, 1, came); /* it is in the middle of the batch */
    sender_close(rig.sender);
    rig.sender = NULL;
    while ((got = read(rig.ends[1], came + n, BATCH_BYTES - n)) > 0)
        n += (uint64_t)got;
    assert_int_equal(got, 0);
    assert_in_range(n, 1, BATCH_BYTES - 1);
    assert_memory_equal(came, rig.bytes, n);
    free(came);
    close_rig(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_comes_whole_and_in_order_and_so_does_the_next),
        cmocka_unit_test(a_peer_that_goes_ends_the_batch),
        cmocka_unit_test(who_ends_a_sender_waits_for_no_peer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
