/* pusher.c - a trainer whose pushes can be told apart afterwards: fault-pusher ADDRESS SECONDS FIRST
 *
 * The n-th push of a key adds 1 to lane 0 and n mod 1021 to lane 1, so that the lanes tell how many
 * of them were applied and that it was the first so many, each once. Of a push whose end is not
 * known it is not pushed on: the next one takes the next key. At the end it prints, for each key,
 *     KEY ACKNOWLEDGED UNKNOWN
 * where UNKNOWN is 1 when one more may have been applied. Errors that make no sense end it: a push is
 * acknowledged, refused, surely not sent, or of unknown end. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "embd/embd.h"

enum { MODULUS = 1021, DIM = 4 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static embd_client *connect_until(const char *address, double end)
{
    embd_options options;
    embd_client *client;
    char why[256] = "";
    embd_options_init(&options);
    options.deadline_ms = 400;
    options.reconnect_max_ms = 50;
    while (seconds() < end)
        if (embd_connect(address, &options, &client, why, sizeof why) == EMBD_OK)
            return client;
    fprintf(stderr, "never connected: %s\n", why);
    exit(1);
}

static embd_table *open_until(embd_client *client, double end)
{
    embd_table *table;
    while (seconds() < end)
        if (embd_table_open(client, "fault", &table) == EMBD_OK)
            return table;
    fprintf(stderr, "never opened: %s\n", embd_last_error(client));
    exit(1);
}

/* Whether a push with this end may have been applied. */
static bool is_unknown(const embd_client *client, int status)
{
    switch (status) {
    case EMBD_UNREACHABLE:
    case EMBD_BUSY:
    case EMBD_DRAINING:
        return false;
    case EMBD_DEADLINE:
    case EMBD_CLOSED:
        return true;
    default:
        fprintf(stderr, "a push ended with '%s': %s\n", embd_status_text(status),
                embd_last_error(client));
        exit(1);
    }
}

/* Pushes of one key until one has an unknown end, or time is over. */
static void push_key(embd_client *client, embd_table *table, uint64_t key, double end)
{
    uint32_t n = 0;
    bool unknown = false;
    while (seconds() < end && !unknown) {
        float gradient[DIM] = {-1, -(float)((n + 1) % MODULUS)};
        embd_part part = {.table = table, .n_keys = 1, .keys = &key, .values = gradient, .raw = true};
        int status = embd_push(client, &part, 1, NULL);
        if (status == EMBD_OK)
            n++;
        else
            unknown = is_unknown(client, status);
    }
    printf("%llu %u %d\n", (unsigned long long)key, n, unknown);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: %s ADDRESS SECONDS FIRST\n", argv[0]);
        return 2;
    }
    double end = seconds() + atof(argv[2]);
    embd_client *client = connect_until(argv[1], end);
    embd_table *table = open_until(client, end);
    for (uint64_t key = strtoull(argv[3], NULL, 10); seconds() < end; key++)
        push_key(client, table, key, end);
    embd_close(client);
    return 0;
}
