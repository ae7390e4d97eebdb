/* test_recent.c - what is read of a journal's last bytes is what was written there, also while the
 * writer comes round to where it is read. */
#include "server/journal/recent.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "server/journal/record.h"

#define MIB     (UINT64_C(1) << 20)
#define READERS 2u

static uint64_t below(uint64_t *seed, uint64_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed >> 33) % n;
}

/* Byte x of segment n is pattern[(x + 7919 n) % PERIOD]: another one a round later. */
#define PERIOD (MIB - 3)
static uint8_t pattern[PERIOD];

static uint64_t part_of(uint64_t number, uint64_t at, uint64_t n, const uint8_t **out)
{
    uint64_t place = (at + 7919 * number) % PERIOD;
    *out = pattern + place;
    return n < PERIOD - place ? n : PERIOD - place;
}

static void fill(uint8_t *bytes, uint64_t number, uint64_t at, uint64_t n)
{
    const uint8_t *from;
    for (uint64_t i = 0, some; i < n; i += some) {
        some = part_of(number, at + i, n - i, &from);
        memcpy(bytes + i, from, some);
    }
}

static bool is_right(const uint8_t *bytes, uint64_t number, uint64_t at, uint64_t n)
{
    const uint8_t *from;
    for (uint64_t i = 0, some; i < n; i += some) {
        some = part_of(number, at + i, n - i, &from);
        if (memcmp(bytes + i, from, some) != 0)
            return false;
    }
    return true;
}

static void note(struct recent *recent, uint8_t *bytes, uint64_t number, uint64_t at, uint64_t n)
{
    fill(bytes, number, at, n);
    recent_note(recent, number, at, bytes, n);
}

static void the_last_bytes_are_there(void **state)
{
    (void)state;
    uint64_t seed = 5;
    struct recent *recent = recent_new();
    uint8_t *bytes = malloc(8 * MIB), *read = malloc(8 * MIB);
    uint64_t at = 64;
    assert_non_null(recent);
    recent_keep(recent, true);
    while (at < 3 * RECENT_BYTES) {
        uint64_t n = 1 + below(&seed, below(&seed, 4) == 0 ? 7 * MIB : 5000);
        note(recent, bytes, 3, at, n);
        at += n;
        uint64_t back = 1 + below(&seed, at - 64 < RECENT_BYTES / 2 ? at - 64 : RECENT_BYTES / 2);
        uint64_t most = back < 8 * MIB ? back : 8 * MIB, some = 1 + below(&seed, most);
        assert_true(recent_read(recent, 3, at - back, read, some));
        assert_true(is_right(read, 3, at - back, some));
        assert_false(recent_read(recent, 3, at - back, read, back + 1));
        assert_false(recent_read(recent, 2, at - back, read, some));
    }
    assert_false(recent_read(recent, 3, at - RECENT_BYTES - MIB, read, 1));
    free(bytes);
    free(read);
    recent_free(recent);
}

static void zeros_are_between_blocks_and_nothing_between_others(void **state)
{
    (void)state;
    static const uint8_t zeros[RECORD_BLOCK_BYTES];
    uint8_t bytes[200], read[2 * RECORD_BLOCK_BYTES];
    struct recent *recent = recent_new();
    recent_keep(recent, true);
    note(recent, bytes, 1, RECORD_BLOCK_BYTES + 10, 100);
    note(recent, bytes, 1, 2 * RECORD_BLOCK_BYTES, 100);
    uint64_t gap = RECORD_BLOCK_BYTES - 110;
    assert_true(recent_read(recent, 1, RECORD_BLOCK_BYTES + 110, read, gap + 100));
    assert_memory_equal(read, zeros, gap);
    assert_true(is_right(read + gap, 1, 2 * RECORD_BLOCK_BYTES, 100));
    assert_true(recent_read(recent, 1, RECORD_BLOCK_BYTES + 10, read, gap + 200));
    note(recent, bytes, 1, 4 * RECORD_BLOCK_BYTES, 100); /* further away */
    assert_false(recent_read(recent, 1, 2 * RECORD_BLOCK_BYTES, read, 1));
    assert_true(recent_read(recent, 1, 4 * RECORD_BLOCK_BYTES, read, 100));
    note(recent, bytes, 1, 4 * RECORD_BLOCK_BYTES + 50, 10); /* once more from there */
    assert_false(recent_read(recent, 1, 4 * RECORD_BLOCK_BYTES, read, 50));
    assert_true(recent_read(recent, 1, 4 * RECORD_BLOCK_BYTES + 50, read, 10));
    note(recent, bytes, 2, 4 * RECORD_BLOCK_BYTES + 60, 10);
    assert_false(recent_read(recent, 1, 4 * RECORD_BLOCK_BYTES + 50, read, 10));
    assert_false(recent_read(recent, 2, 4 * RECORD_BLOCK_BYTES + 50, read, 10));
    assert_true(recent_read(recent, 2, 4 * RECORD_BLOCK_BYTES + 60, read, 10));
    recent_forget(recent); /* another journal begins */
    assert_false(recent_read(recent, 2, 4 * RECORD_BLOCK_BYTES + 60, read, 10));
    recent_free(recent);
}

static void nothing_is_there_while_nobody_reads(void **state)
{
    (void)state;
    uint8_t bytes[100], read[100];
    struct recent *recent = recent_new();
    note(recent, bytes, 1, 0, 100);
    assert_false(recent_read(recent, 1, 0, read, 100));
    recent_keep(recent, true);
    assert_false(recent_read(recent, 1, 0, read, 100));
    note(recent, bytes, 1, 100, 100);
    assert_true(recent_read(recent, 1, 100, read, 100));
    recent_keep(recent, false);
    note(recent, bytes, 1, 200, 100);
    assert_false(recent_read(recent, 1, 100, read, 100));
    assert_false(recent_read(recent, 1, 200, read, 100));
    recent_free(recent);
    assert_false(recent_read(NULL, 1, 0, read, 1));
    recent_note(NULL, 1, 0, bytes, 1);
    recent_keep(NULL, true);
}

static void memory_goes_with_the_last_who_reads(void **state)
{
    (void)state;
    uint8_t bytes[100];
    struct recent *recent = recent_new();
    assert_int_equal(recent_bytes(NULL), 0);
    recent_keep(recent, true);
    assert_int_equal(recent_bytes(recent), 0); /* nothing was written */
    for (uint32_t i = 0; i < 3; i++) {
        note(recent, bytes, 1, 100 * i, 100);
        assert_int_equal(recent_bytes(recent), RECENT_BYTES);
        recent_keep(recent, false); /* and without a further write: */
        assert_int_equal(recent_bytes(recent), 0);
        recent_keep(recent, true);
    }
    recent_free(recent);
}

/* ---- readers beside the writer ---- */

struct race {
    struct recent *recent;
    atomic_uint_fast64_t number, written; /* bytes of a segment */
    atomic_bool is_over, leaves;
    atomic_uint n_wrong, n_read;
};

/* The oldest bytes that may be there, and many of them: the writer comes round meanwhile. */
static void *read_oldest(void *arg)
{
    struct race *race = arg;
    uint8_t *read = malloc(24 * MIB);
    while (!atomic_load(&race->is_over)) {
        uint64_t to = atomic_load(&race->written), number = atomic_load(&race->number);
        uint64_t at = to > RECENT_BYTES - 2 * MIB ? to - (RECENT_BYTES - 2 * MIB) : 0;
        uint64_t n = to - at < 24 * MIB ? to - at : 24 * MIB;
        if (!recent_read(race->recent, number, at, read, n))
            continue;
        atomic_fetch_add(&race->n_read, 1);
        atomic_fetch_add(&race->n_wrong, !is_right(read, number, at, n));
    }
    free(read);
    return NULL;
}

/* At times nobody follows for a moment, in the midst of a write or a read. */
static void *leave_and_come(void *arg)
{
    struct race *race = arg;
    while (!atomic_load(&race->is_over)) {
        if (atomic_load(&race->leaves))
            recent_keep(race->recent, false);
        recent_keep(race->recent, true);
        sched_yield();
    }
    return NULL;
}

/* Until there were enough reads, whatever the machine runs besides. Segments begin at several
 * places, and are written in pieces that end with a chunk, or do not. */
static void a_reader_gets_what_was_written_while_the_writer_comes_round(void **state)
{
    (void)state;
    struct race race = {.recent = recent_new()};
    pthread_t threads[READERS];
    uint8_t *bytes = malloc(MIB + 4096);
    pthread_t leaver;
    recent_keep(race.recent, true);
    assert_int_equal(pthread_create(&leaver, NULL, leave_and_come, &race), 0);
    for (uint32_t i = 0; i < READERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_oldest, &race), 0);
    for (uint64_t number = 1; number < 40 || atomic_load(&race.n_read) < 20; number++) {
        uint64_t at = number % 3 * MIB, n = MIB + number % 2 * 4096;
        atomic_store(&race.leaves, number % 4 == 1);
        atomic_store(&race.number, number);
        for (; at < RECENT_BYTES + number % 8 * 9 * MIB; at += n) {
            note(race.recent, bytes, number, at, n);
            atomic_store(&race.written, at + n);
        }
    }
    atomic_store(&race.is_over, true);
    for (uint32_t i = 0; i < READERS; i++)
        pthread_join(threads[i], NULL);
    pthread_join(leaver, NULL);
    assert_int_equal(atomic_load(&race.n_wrong), 0);
    recent_keep(race.recent, false);
    assert_int_equal(recent_bytes(race.recent), 0);
    free(bytes);
    recent_free(race.recent);
}

int main(void)
{
    uint64_t seed = 1;
    for (uint64_t i = 0; i < PERIOD; i++)
        pattern[i] = (uint8_t)below(&seed, 256);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_last_bytes_are_there),
        cmocka_unit_test(zeros_are_between_blocks_and_nothing_between_others),
        cmocka_unit_test(nothing_is_there_while_nobody_reads),
        cmocka_unit_test(memory_goes_with_the_last_who_reads),
        cmocka_unit_test(a_reader_gets_what_was_written_while_the_writer_comes_round),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
