/* tail.c - embctl tail: which keys of a table changed, round after round. A round is shown when all
 * of it is there: its keys are kept until then. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/embctl/embctl.h"
#include "embd/rows.h"

#define MS_MAX 30000u /* servers forget who asks nothing for 60 seconds */

struct tail {
    struct words words;
    uint64_t rounds, interval_ms; /* rounds 0: until interrupted */
    bool from_now, keys;
};

/* Keys of a round, with their slots in slot tables. */
struct tailed {
    uint64_t *keys;
    uint16_t *slots;
    uint64_t n, capacity, of_shard; /* the shard's share begins there */
};

struct tailed_round {
    struct tailed rows, gone;
    uint64_t number, step, bytes, before; /* bytes of all rounds, and before this one */
    bool has_slots, has_all;
};

enum { KEY_SINCE_NOW = 256, KEY_ROUNDS, KEY_INTERVAL };

static const struct argp_option options[] = {
    {"since-now", KEY_SINCE_NOW, NULL, 0, "Leave out the rows that there are", 0},
    {"rounds", KEY_ROUNDS, "N", 0, "End after N rounds (default: until interrupted)", 0},
    {"interval", KEY_INTERVAL, "MS", 0, "Milliseconds between two rounds (default: 1000)", 0},
    {"keys", 'k', NULL, 0, "Print the keys too: + has changed, - is gone", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct tail *tail = state->input;
    switch (key) {
    case KEY_SINCE_NOW:
        tail->from_now = true;
        return 0;
    case KEY_ROUNDS:
        tail->rounds = parse_uint(state, "--rounds", arg, 1, UINT64_MAX);
        return 0;
    case KEY_INTERVAL:
        tail->interval_ms = parse_uint(state, "--interval", arg, 1, MS_MAX);
        return 0;
    case 'k':
        tail->keys = true;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

/* ---- a round ---- */

static bool add(struct tailed *to, const uint64_t *keys, const uint16_t *slots, uint32_t n)
{
    if (to->n + n > to->capacity) {
        uint64_t capacity = 2 * to->capacity + n;
        uint64_t *grown = realloc(to->keys, capacity * sizeof *grown);
        to->keys = grown != NULL ? grown : to->keys;
        uint16_t *grown_slots = realloc(to->slots, capacity * sizeof *grown_slots);
        to->slots = grown_slots != NULL ? grown_slots : to->slots;
        if (grown == NULL || grown_slots == NULL)
            return false;
        to->capacity = capacity;
    }
    if (n > 0)
        memcpy(to->keys + to->n, keys, n * sizeof *keys);
    if (n > 0 && slots != NULL)
        memcpy(to->slots + to->n, slots, n * sizeof *slots);
    to->n += n;
    return true;
}

/* A share that begins again is counted from 0. */
static void begin_share(struct tailed *tailed, const embd_changes_part *part)
{
    if (part->is_first)
        tailed->n = tailed->of_shard = 0;
    else if (part->is_shard_first)
        tailed->n = tailed->of_shard;
}

static int take(struct tailed_round *round, const embd_changes_part *part, uint32_t *shard)
{
    if (part->shard != *shard) {
        round->rows.of_shard = round->rows.n;
        round->gone.of_shard = round->gone.n;
        *shard = part->shard;
    }
    begin_share(&round->rows, part);
    begin_share(&round->gone, part);
    round->has_slots = part->slots != NULL || part->gone_slots != NULL;
    round->has_all = part->has_all;
    round->bytes = part->wire_bytes;
    round->step = part->shard == 0 || part->step < round->step ? part->step : round->step;
    return add(&round->rows, part->keys, part->slots, part->n_rows) &&
                   add(&round->gone, part->gone_keys, part->gone_slots, part->n_gone)
               ? EMBD_OK
               : EMBD_NO_MEMORY;
}

static int read_round(embd_changes *changes, struct tailed_round *round)
{
    embd_changes_part part = EMBD_CHANGES_PART;
    uint32_t shard = 0;
    int status = EMBD_OK;
    round->before = round->bytes;
    do {
        status = embd_changes_next(changes, &part);
        if (status == EMBD_OK)
            status = take(round, &part, &shard);
    } while (status == EMBD_BUSY || (status == EMBD_OK && !part.is_last));
    round->number++;
    return status;
}

/* ---- showing ---- */

static void print_keys(const struct tailed *tailed, bool has_slots, char sign)
{
    for (uint64_t i = 0; i < tailed->n; i++)
        if (has_slots)
            printf("%c %" PRIu64 " %u\n", sign, tailed->keys[i], tailed->slots[i]);
        else
            printf("%c %" PRIu64 "\n", sign, tailed->keys[i]);
}

static void print_json_keys(const char *name, const struct tailed *tailed, bool has_slots)
{
    printf(",\"%s\":[", name);
    for (uint64_t i = 0; i < tailed->n; i++) {
        printf("%s{\"key\":%" PRIu64, i > 0 ? "," : "", tailed->keys[i]);
        if (has_slots)
            printf(",\"slot\":%u", tailed->slots[i]);
        printf("}");
    }
    printf("]");
}

static void print_round(const struct tail *tail, const struct tailed_round *r)
{
    if (globals.json) {
        printf("{\"round\":%" PRIu64 ",\"all\":%s,\"step\":%" PRIu64 ",\"rows\":%" PRIu64
               ",\"gone\":%" PRIu64 ",\"bytes\":%" PRIu64,
               r->number, r->has_all ? "true" : "false", r->step, r->rows.n, r->gone.n,
               r->bytes - r->before);
        if (tail->keys) {
            print_json_keys("keys", &r->rows, r->has_slots);
            print_json_keys("gone_keys", &r->gone, r->has_slots);
        }
        printf("}\n");
    } else {
        if (tail->keys) {
            print_keys(&r->gone, r->has_slots, '-');
            print_keys(&r->rows, r->has_slots, '+');
        }
        printf("round %" PRIu64 ": step %" PRIu64 ", %s%" PRIu64 " rows, %" PRIu64 " gone, %" PRIu64
               " bytes\n",
               r->number, r->step, r->has_all ? "all " : "", r->rows.n, r->gone.n,
               r->bytes - r->before);
    }
    fflush(stdout);
}

static void wait_ms(uint64_t ms)
{
    const struct timespec time = {.tv_sec = (time_t)(ms / 1000),
                                  .tv_nsec = (long)(ms % 1000) * 1000000};
    nanosleep(&time, NULL);
}

static int tail_rounds(const struct tail *tail, embd_changes *changes)
{
    struct tailed_round round = {.number = 0};
    int status = EMBD_OK;
    while (status == EMBD_OK && (tail->rounds == 0 || round.number < tail->rounds)) {
        if (round.number > 0)
            wait_ms(tail->interval_ms);
        status = read_round(changes, &round);
        if (status == EMBD_OK)
            print_round(tail, &round);
    }
    free(round.rows.keys);
    free(round.rows.slots);
    free(round.gone.keys);
    free(round.gone.slots);
    return status;
}

static int tail_table(const struct tail *tail, embd_client *client)
{
    embd_table *table;
    embd_changes *changes;
    int status = embd_table_open(client, tail->words.list[0], &table);
    if (status == EMBD_OK)
        status = embd_changes_open(client, table, EMBD_DTYPE_F32, tail->from_now, &changes);
    if (status != EMBD_OK)
        return status;
    status = tail_rounds(tail, changes);
    if (status == EMBD_OK) /* else the client's error is to be shown */
        embd_changes_close(changes);
    return status;
}

int command_tail(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "TABLE",
        .doc = "Prints what changed in a table since the round before: each key once, however "
               "often it was pushed to, and keys that were erased or evicted. The first round has "
               "all rows.\v"
               "A round is the table as it was at one step on each shard; 'step' is the least of "
               "them. 'all' marks a round of all rows, which also comes when a server was started "
               "again. Bytes are those of keys and f32 rows. With -o json each round is a line.\n"
               "\n"
               "Examples:\n"
               "  embctl tail items\n"
               "  embctl tail --since-now --interval 200 --keys items\n"
               "  embctl tail --rounds 1 -o json items"};
    struct tail tail = {.words = {.min = 1, .max = 1, .wanted = "name a table"},
                        .interval_ms = 1000};
    embd_client *client;
    parse_command(&argp, argc, argv, &tail);
    int code = connect_servers(&client);
    return code ? code : end_client(client, tail_table(&tail, client));
}
