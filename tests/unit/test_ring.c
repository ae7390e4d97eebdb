/* test_ring.c - rings in shared memory (proto/local/ring.h): bytes arrive as they were sent, in any
 * pieces, and no doorbell is missed; words that cannot be are found out, whenever they change. And
 * when it is worth it to look at a ring instead of sleeping (proto/local/spin.h). */
#include "tests/unit/cmocka_all.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "proto/local/ring.h"
#include "proto/local/spin.h"

enum { REQUESTS = 4096, ANSWERS = 8192, TOTAL = 1 << 20 };

/* Both ends over one memory; a doorbell is a semaphore's. */
struct pair {
    _Alignas(4096) uint8_t memory[RING_WORDS_BYTES + REQUESTS + ANSWERS];
    struct ring client, server;
    sem_t for_client, for_server;
};

static struct pair *pair_new(void)
{
    struct pair *p = aligned_alloc(4096, (sizeof *p + 4095) / 4096 * 4096);
    memset(p, 0, sizeof *p);
    embd__ring_init(&p->client, p->memory, REQUESTS, ANSWERS, false);
    embd__ring_init(&p->server, p->memory, REQUESTS, ANSWERS, true);
    sem_init(&p->for_client, 0, 0);
    sem_init(&p->for_server, 0, 0);
    return p;
}

static void pair_free(struct pair *p)
{
    sem_destroy(&p->for_client);
    sem_destroy(&p->for_server);
    free(p);
}

static uint8_t byte_at(size_t i)
{
    return (uint8_t)(i * 2654435761u >> 13);
}

/* The n-th piece's size. */
static size_t piece(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (*state >> 16) % 6000;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Sleeps until one of `waits` is so. */
static void await(struct ring *ring, unsigned waits, sem_t *doorbell)
{
    if (embd__ring_wait(ring, waits))
        sem_wait(doorbell);
    embd__ring_wake(ring);
}

/* Not a byte more than the other side takes: what it leaves behind may fill the ring for ever. */
static void put_all(struct ring *ring, sem_t *own, sem_t *others)
{
    uint8_t bytes[6000];
    uint32_t state = 7;
    for (size_t at = 0; at < TOTAL;) {
        size_t n = least(piece(&state) + 1, TOTAL - at), sent = 0;
        for (size_t i = 0; i < n; i++)
            bytes[i] = byte_at(at + i);
        while (sent < n) {
            size_t put = embd__ring_put(ring, bytes + sent, n - sent);
            sent += put;
            if (put > 0 && embd__ring_publish(ring))
                sem_post(others);
            if (put == 0)
                await(ring, RING_ROOM, own);
        }
        at += n;
    }
}

static size_t n_wrong;

static void take_all(struct ring *ring, sem_t *own, sem_t *others)
{
    uint8_t bytes[6000];
    uint32_t state = 11;
    for (size_t at = 0; at < TOTAL;) {
        size_t got = embd__ring_take(ring, bytes, piece(&state) + 1);
        for (size_t i = 0; i < got; i++)
            n_wrong += bytes[i] != byte_at(at + i);
        at += got;
        if (got > 0 && embd__ring_release(ring))
            sem_post(others);
        if (got == 0)
            await(ring, RING_BYTES, own);
    }
}

static void *serve(void *arg)
{
    struct pair *p = arg;
    take_all(&p->server, &p->for_server, &p->for_client);
    put_all(&p->server, &p->for_server, &p->for_client);
    return NULL;
}

static void bytes_arrive_as_they_were_sent_and_no_doorbell_is_missed(void **state)
{
    (void)state;
    struct pair *p = pair_new();
    pthread_t server;
    pthread_create(&server, NULL, serve, p);
    put_all(&p->client, &p->for_client, &p->for_server);
    take_all(&p->client, &p->for_client, &p->for_server);
    pthread_join(server, NULL);
    assert_int_equal(n_wrong, 0);
    pair_free(p);
}

static void who_does_not_wait_is_not_woken_and_who_waits_once(void **state)
{
    (void)state;
    struct pair *p = pair_new();
    uint8_t bytes[REQUESTS];
    memset(bytes, 1, sizeof bytes);
    embd__ring_put(&p->client, bytes, 8);
    assert_false(embd__ring_publish(&p->client));
    assert_false(embd__ring_wait(&p->server, RING_BYTES)); /* they are there already */
    assert_int_equal(embd__ring_take(&p->server, bytes, 100), 8);
    assert_false(embd__ring_release(&p->server));
    assert_true(embd__ring_wait(&p->server, RING_BYTES));
    embd__ring_put(&p->client, bytes, 8);
    assert_true(embd__ring_publish(&p->client));
    assert_false(embd__ring_publish(&p->client));
    assert_int_equal(embd__ring_put(&p->client, bytes, REQUESTS), REQUESTS - 8);
    embd__ring_publish(&p->client);
    assert_int_equal(embd__ring_put(&p->client, bytes, 1), 0);
    assert_true(embd__ring_wait(&p->client, RING_ROOM));
    embd__ring_take(&p->server, bytes, REQUESTS / 2 - 1); /* too little */
    assert_false(embd__ring_release(&p->server));
    embd__ring_take(&p->server, bytes, 1);
    assert_true(embd__ring_release(&p->server));
    pair_free(p);
}

static struct {
    uint32_t *page;
    struct ring *sleeper;
} turn;

/* The sleeper wakes, and sleeps again for something else. */
static void on_store(int signal)
{
    (void)signal;
    mprotect(turn.page, 4096, PROT_READ | PROT_WRITE);
    embd__ring_wake(turn.sleeper);
    embd__ring_wait(turn.sleeper, RING_BYTES);
}

/* Between the look at what it waits for and the store that takes that back: the page of that word
 * cannot be written to until then. */
static void a_wait_that_changes_while_it_is_taken_back_is_woken(void **state)
{
    (void)state;
    struct pair *p = pair_new();
    struct sigaction before, action = {.sa_handler = on_store};
    uint8_t bytes[REQUESTS] = {0};
    turn.page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    turn.sleeper = &p->client;
    p->client.own_wait = p->server.other_wait = (_Atomic uint32_t *)(void *)turn.page;
    embd__ring_put(&p->client, bytes, REQUESTS);
    embd__ring_publish(&p->client);
    assert_true(embd__ring_wait(&p->client, RING_BYTES | RING_ROOM));
    embd__ring_take(&p->server, bytes, REQUESTS);
    sigaction(SIGSEGV, &action, &before);
    mprotect(turn.page, 4096, PROT_READ);
    bool rings = embd__ring_release(&p->server);
    sigaction(SIGSEGV, &before, NULL);
    assert_true(p->client.is_waiting);
    assert_true(rings || *p->client.own_wait == RING_BYTES);
    munmap(turn.page, 4096);
    pair_free(p);
}

static void impossible_words_move_no_byte(void **state)
{
    (void)state;
    const uint64_t words[] = {REQUESTS + 1, 1u << 31, UINT64_MAX, UINT64_MAX / 2};
    uint8_t bytes[64];
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        struct pair *p = pair_new();
        memcpy(p->memory, &words[i], 8);            /* written by the client, to the server */
        memcpy(p->memory + 128 + 64, &words[i], 8); /* taken by the client */
        assert_int_equal(embd__ring_ready(&p->server), -1);
        assert_int_equal(embd__ring_take(&p->server, bytes, sizeof bytes), 0);
        assert_int_equal(embd__ring_room(&p->server), words[i] == UINT64_MAX ? ANSWERS - 1 : -1);
        assert_false(embd__ring_wait(&p->server, RING_BYTES)); /* it is looked at, not waited for */
        pair_free(p);
    }
    assert_false(embd__ring_fits(4095, 4096));
    assert_false(embd__ring_fits(4096, 4096 * 3));
    assert_false(embd__ring_fits(4096, RING_MOST_BYTES * 2));
    assert_false(embd__ring_fits(0, 4096));
    assert_true(embd__ring_fits(RING_MOST_BYTES, RING_LEAST_BYTES));
}

static atomic_bool ends;

/* All words and bytes, all the time. */
static void *rewrite(void *arg)
{
    struct pair *p = arg;
    for (uint64_t i = 1; !atomic_load(&ends); i = i * 6364136223846793005u + 1)
        for (size_t at = 0; at < sizeof p->memory; at += 64)
            atomic_store((_Atomic uint64_t *)(void *)(p->memory + at), i >> (i % 64));
    return NULL;
}

/* Under the address sanitizer: nothing outside of the ring is touched. */
static void a_writer_that_races_leads_nowhere(void **state)
{
    (void)state;
    struct pair *p = pair_new();
    uint8_t bytes[64] = {0};
    pthread_t writer;
    pthread_create(&writer, NULL, rewrite, p);
    for (int i = 0; i < 20000; i++) {
        size_t n = embd__ring_take(&p->server, bytes, sizeof bytes);
        assert_true(n <= sizeof bytes);
        embd__ring_release(&p->server);
        assert_true(embd__ring_put(&p->server, bytes, sizeof bytes) <= sizeof bytes);
        embd__ring_publish(&p->server);
        embd__ring_wait(&p->server, RING_BYTES | RING_ROOM);
        embd__ring_wake(&p->server);
    }
    atomic_store(&ends, true);
    pthread_join(writer, NULL);
    pair_free(p);
}

/* ---- whether to look ---- */

static void looking_in_vain_costs_ever_less(void **state)
{
    (void)state;
    struct spin spin = {.most_ns = 50000};
    uint64_t now = 1000000, looked = 0;
    for (int call = 0; call < 1000; call++) {
        uint64_t since = now;
        for (; embd__spin_goes_on(&spin, now); now += 1000)
            ;
        looked += now - since;
        now += 1000000;
    }
    assert_true(looked > 0 && looked <= 25 * 50000); /* 2.5 % of the time at first, then 0.08 % */
    while (!embd__spin_is_worth(&spin))
        assert_false(embd__spin_goes_on(&spin, now));
    assert_true(embd__spin_goes_on(&spin, now));
    embd__spin_found(&spin); /* once it was worth it */
    assert_true(embd__spin_goes_on(&spin, now += 1000));
    assert_true(embd__spin_goes_on(&spin, now += 1000));
}

static void a_lost_processor_ends_it_and_zero_is_never(void **state)
{
    (void)state;
    struct spin spin = {.most_ns = 50000}, never = {.most_ns = 0};
    assert_true(embd__spin_goes_on(&spin, 1000));
    assert_false(embd__spin_goes_on(&spin, 1000 + SPIN_AWAY_NS + 1));
    assert_false(embd__spin_is_worth(&spin));
    assert_false(embd__spin_goes_on(&never, 1000));
    assert_false(embd__spin_is_worth(&never));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_arrive_as_they_were_sent_and_no_doorbell_is_missed),
        cmocka_unit_test(who_does_not_wait_is_not_woken_and_who_waits_once),
        cmocka_unit_test(a_wait_that_changes_while_it_is_taken_back_is_woken),
        cmocka_unit_test(impossible_words_move_no_byte),
        cmocka_unit_test(a_writer_that_races_leads_nowhere),
        cmocka_unit_test(looking_in_vain_costs_ever_less),
        cmocka_unit_test(a_lost_processor_ends_it_and_zero_is_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
