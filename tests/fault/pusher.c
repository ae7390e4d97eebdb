/* pusher.c - a trainer whose pushes can be told apart afterwards: fault-pusher ADDRESS SECONDS
 * FIRST WRITER [numbered | unnumbered]
 *
 * The n-th push of a key adds 1 to lane 0, n mod 1021 to lane 1 and WRITER to lane 2, so that the
 * lanes tell how many were applied, also where two writers meet on the keys, and that it was the
 * first so many, each once. Of a push whose end is not known it is not pushed on: the next one
 * takes the next key; and so it does after MOST pushes, for sums below 2^24. At the end it prints,
 * for each key,
 *     KEY ACKNOWLEDGED UNKNOWN AGAIN
 * where UNKNOWN is 1 when one more may have been applied. Errors that make no sense end it: a push
 * is acknowledged, refused, surely not sent, or of unknown end.
 *
 * Without a mode the client numbers the pushes, with "unnumbered" nobody does. "numbered": the
 * trainer does, as a pusher, and makes what is refused or of unknown end again, AGAIN times, until
 * it is acknowledged; also for a while behind the end. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "embd/embd.h"

enum { MODULUS = 1021, DIM = 4, MOST = 16000, SECONDS_BEHIND = 20 };

struct trainer {
    embd_client *client;
    embd_table *table;
    double end;
    unsigned writer;
    bool is_numbered, is_unnumbered;
    embd_pusher pusher;
    uint64_t sequence; /* of the pusher's next push */
};

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static embd_client *connect_until(const char *address, double end, bool unnumbered)
{
    embd_options options;
    embd_client *client;
    const char *why = embd_error_text();
    embd_options_init(&options);
    options.deadline_ms = 400;
    options.reconnect_max_ms = 50;
    options.unnumbered = unnumbered;
    while (seconds() < end)
        if (embd_connect(address, &options, &client) == EMBD_OK)
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
    fprintf(stderr, "never opened: %s\n", embd_error_text());
    exit(1);
}

/* Whether a push with this end may have been applied. */
static bool is_unknown(const struct trainer *t, int status)
{
    switch (status) {
    case EMBD_UNREACHABLE:
    case EMBD_BUSY:
    case EMBD_DRAINING:
        return false;
    case EMBD_UNANSWERED:
        if (!t->is_unnumbered)
            return true;
        break;
    case EMBD_CLOSED:
        if (t->is_unnumbered)
            return true;
        break;
    case EMBD_DEADLINE:
        return true;
    default:
        break;
    }
    fprintf(stderr, "a push ended with '%s': %s\n", embd_status_text(status), embd_error_text());
    exit(1);
}

static int push(const struct trainer *t, uint64_t key, uint32_t n)
{
    float gradient[DIM] = {-1, -(float)(n % MODULUS), -(float)t->writer};
    embd_part part =
        EMBD_PART(.table = t->table, .n_keys = 1, .keys = &key, .values = gradient, .raw = true);
    embd_call_options options =
        EMBD_CALL_OPTIONS(.pusher = t->is_numbered ? &t->pusher : NULL, .sequence = t->sequence);
    return embd_push(t->client, &part, 1, &options);
}

/* Pushes of one key until one has an unknown end, there are MOST, or time is over. */
static void push_key(struct trainer *t, uint64_t key)
{
    uint32_t n = 0, again = 0;
    bool is_open = false; /* the n + 1st may have been applied */
    while (n < MOST && seconds() < t->end + (is_open ? SECONDS_BEHIND : 0)) {
        int status = push(t, key, n + 1);
        is_open = status != EMBD_OK && (is_unknown(t, status) || is_open);
        again += status != EMBD_OK && t->is_numbered;
        if (status == EMBD_OK) {
            n++;
            t->sequence++;
        } else if (is_open && !t->is_numbered) {
            break;
        }
    }
    printf("%llu %u %d %u\n", (unsigned long long)key, n, is_open, again);
}

int main(int argc, char **argv)
{
    const char *mode = argc == 6 ? argv[5] : "";
    struct trainer t = {.sequence = 1,
                        .is_numbered = strcmp(mode, "numbered") == 0,
                        .is_unnumbered = strcmp(mode, "unnumbered") == 0};
    if (argc < 5 || argc > 6 || (argc == 6 && !t.is_numbered && !t.is_unnumbered)) {
        fprintf(stderr, "usage: %s ADDRESS SECONDS FIRST WRITER [numbered | unnumbered]\n",
                argv[0]);
        return 2;
    }
    t.end = seconds() + atof(argv[2]);
    t.client = connect_until(argv[1], t.end, t.is_unnumbered);
    t.table = open_until(t.client, t.end);
    t.writer = (unsigned)strtoul(argv[4], NULL, 10);
    if (t.is_numbered && embd_pusher_new(&t.pusher) != EMBD_OK)
        return 1;
    for (uint64_t key = strtoull(argv[3], NULL, 10); seconds() < t.end; key++)
        push_key(&t, key);
    embd_close(t.client);
    return 0;
}
