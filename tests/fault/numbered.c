/* numbered.c - `fault-numbered ADDRESS KEY COUNT MODE`: a trainer whose pushes each count once. Its
 * n-th push adds 1, n mod 1021 and the number of the writer, KEY / 2 + 1, to the keys KEY and KEY +
 * 1, which lie on two shards, and to two on which all trainers meet: MET + n / EACH * 2, and the
 * next. It makes COUNT of them, and where it was killed, another run makes the rest. MODE "once":
 * as a pusher. MODE "guess": as nobody, and what fails is pushed again. Prints the greatest time a
 * push took, in ms. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "embd/embd.h"

#define MODULUS 1021
#define DIM     4
#define RETRY   3
#define MET     1000000
#define EACH    4096 /* pushes of each trainer to a key where they meet: sums stay below 2^24 */

static double now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

static int fail(const char *what, int status)
{
    fprintf(stderr, "%s: %s: %s\n", what, embd_status_text(status), embd_error_text());
    return 1;
}

static int push(embd_client *client, embd_table *table, uint64_t key, uint64_t n,
                const embd_pusher *pusher)
{
    const uint64_t met = MET + n / EACH * 2, keys[4] = {key, key + 1, met, met + 1};
    float grads[4][DIM];
    for (int i = 0; i < 4; i++)
        memcpy(grads[i], (float[DIM]){-1, -(float)(n % MODULUS), -(float)(key / 2 + 1)},
               sizeof grads[i]);
    embd_part part = EMBD_PART(.table = table, .n_keys = 4, .keys = keys, .values = &grads[0][0]);
    embd_call_options options = EMBD_CALL_OPTIONS(.pusher = pusher, .sequence = n);
    return embd_push(client, &part, 1, &options);
}

static int run(embd_client *client, embd_table *table, uint64_t key, uint64_t count, bool guesses)
{
    const embd_pusher pusher = {.high = 0x656d6264, .low = key, .stream = 7};
    uint64_t least, greatest;
    double longest = 0;
    int status = embd_pusher_last(client, &pusher, &least, &greatest);
    if (status != EMBD_OK)
        return RETRY;
    if (greatest > least + 1)
        return fail("embd_pusher_last: more than one push is open", status);
    for (uint64_t n = least + 1; n <= count; n++) {
        double begin = now_ms();
        do
            status = push(client, table, key, n, guesses ? NULL : &pusher);
        while (status != EMBD_OK && guesses);
        if (status != EMBD_OK)
            return fail("embd_push", status);
        longest = now_ms() - begin > longest ? now_ms() - begin : longest;
    }
    printf("%.1f\n", longest);
    return 0;
}

/* What is before the first push may meet a server that is gone, and is tried again; but not where
 * memory was short: an OpenSSL that had none to begin with never begins. */
static int try(char **argv)
{
    embd_client *client;
    embd_table *table;
    embd_options options;
    embd_options_init(&options);
    options.reconnect_max_ms = 100;
    options.unnumbered = true; /* who guesses has no number of the library's either */
    int status = embd_connect(argv[1], &options, &client);
    if (status != EMBD_OK)
        return status == EMBD_NO_MEMORY ? fail("embd_connect", status) : RETRY;
    int result = RETRY;
    if (embd_table_open(client, "fault", &table) == EMBD_OK)
        result = run(client, table, strtoull(argv[2], NULL, 10), strtoull(argv[3], NULL, 10),
                     !strcmp(argv[4], "guess"));
    embd_close(client);
    return result;
}

int main(int argc, char **argv)
{
    const struct timespec pause = {.tv_nsec = 20000000};
    double begin = now_ms();
    if (argc != 5)
        return 2;
    int result = RETRY;
    while (result == RETRY && now_ms() - begin < 60e3) {
        result = try(argv);
        if (result == RETRY)
            nanosleep(&pause, NULL);
    }
    return result;
}
