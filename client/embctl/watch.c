/* watch.c - embctl hot and trace: the most frequent keys, and where the time of requests goes. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "embd/admin.h"

/* ---- hot ---- */

enum { HOT_KEYS_MAX = 1000 };

struct hot_arguments {
    struct words words; /* the table */
    uint64_t keys;
};

struct hot_key {
    uint64_t key;
    uint32_t shard, n;
    double share; /* of all requested keys */
};

static const struct argp_option hot_options[] = {
    {"keys", 'n', "N", 0, "How many keys to show (default: 10)", 0},
    {0},
};

static int parse_hot(int key, char *arg, struct argp_state *state)
{
    struct hot_arguments *a = state->input;
    switch (key) {
    case 'n':
        a->keys = parse_uint(state, "--keys", arg, 1, HOT_KEYS_MAX);
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int compare_hot(const void *a, const void *b)
{
    const struct hot_key *x = a, *y = b;
    if (x->share != y->share)
        return x->share > y->share ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The shard's hottest keys, their shares of its own samples. */
static int read_shard(embd_client *client, uint32_t shard, const struct hot_arguments *a,
                      struct hot_key *out, uint32_t *n_out, uint64_t *taken_out)
{
    static uint64_t keys[HOT_KEYS_MAX];
    static uint32_t counts[HOT_KEYS_MAX];
    embd_hot_report report;
    int status =
        embd_hot(client, shard, a->words.list[0], (uint32_t)a->keys, keys, counts, &report);
    if (status)
        return status;
    *n_out = report.n_keys;
    *taken_out = report.taken;
    for (uint32_t i = 0; i < report.n_keys; i++)
        out[i] = (struct hot_key){.key = keys[i],
                                  .shard = shard,
                                  .n = counts[i],
                                  .share = (double)counts[i] / (double)report.samples};
    return EMBD_OK;
}

static void print_hot(const struct hot_key *keys, size_t n)
{
    static const struct column columns[] = {{"key", CELL_NUMBER},
                                            {"shard", CELL_NUMBER},
                                            {"share", CELL_FLOAT},
                                            {"samples", CELL_COUNT}};
    struct listing l;
    listing_init(&l, "keys", columns, 4);
    for (size_t i = 0; i < n; i++) {
        listing_row(&l);
        listing_uint(&l, 0, keys[i].key);
        listing_uint(&l, 1, keys[i].shard);
        listing_float(&l, 2, (float)keys[i].share);
        listing_uint(&l, 3, keys[i].n);
    }
    listing_print(&l);
    listing_fini(&l);
}

/* A shard's shares count as much as the shard is asked. */
static int gather_hot(embd_client *client, const struct hot_arguments *a, struct hot_key *keys,
                      size_t *n_out)
{
    uint32_t n_shards = embd_shard_count(client), n = 0;
    uint64_t all_taken = 0;
    size_t at = 0;
    for (uint32_t shard = 0; shard < n_shards; shard++) {
        uint64_t taken;
        int status = read_shard(client, shard, a, keys + at, &n, &taken);
        if (status)
            return status;
        for (uint32_t i = 0; i < n; i++)
            keys[at + i].share *= (double)taken;
        all_taken += taken;
        at += n;
    }
    for (size_t i = 0; i < at; i++)
        keys[i].share /= (double)all_taken;
    qsort(keys, at, sizeof *keys, compare_hot);
    *n_out = at < a->keys ? at : a->keys;
    return EMBD_OK;
}

int command_hot(int argc, char **argv)
{
    static const struct argp argp = {
        .options = hot_options,
        .parser = parse_hot,
        .args_doc = "TABLE",
        .doc = "Shows the keys of a table that are pulled and pushed most, from a sample: each "
               "shard remembers the last 4096 of about every 1024th key.\v"
               "SHARE is the key's estimated part of all keys requested. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl hot items\n"
               "  embctl hot items -n 100 -o json | jq '[.keys[].share] | add'"};
    struct hot_arguments a = {.words = {.min = 1, .max = 1, .wanted = "name a table"}, .keys = 10};
    embd_client *client;
    size_t n = 0;
    parse_command(&argp, argc, argv, &a);
    int status = connect_servers(&client);
    if (status)
        return status;
    struct hot_key *keys = calloc(embd_shard_count(client) * a.keys, sizeof *keys);
    status = keys ? gather_hot(client, &a, keys, &n) : EMBD_NO_MEMORY;
    if (status == EMBD_OK)
        print_hot(keys, n);
    free(keys);
    return end_client(client, status);
}

/* ---- trace ---- */

struct trace {
    char method[16];
    uint32_t shard;
    uint64_t age_us, bytes, ns[EMBD_STAGES], total_ns;
};

struct traces {
    struct trace *list;
    size_t n;
    uint32_t shard;
};

struct trace_arguments {
    bool slowest;
    uint64_t n;
};

static const struct argp_option trace_options[] = {
    {"slowest", 'S', NULL, 0, "The longest first (default: the newest first)", 0},
    {"requests", 'n', "N", 0, "How many to show (default: 10)", 0},
    {0},
};

static int parse_trace(int key, char *arg, struct argp_state *state)
{
    struct trace_arguments *a = state->input;
    switch (key) {
    case 'S':
        a->slowest = true;
        return 0;
    case 'n':
        a->n = parse_uint(state, "--requests", arg, 1, 1000000);
        return 0;
    default:
        return parse_no_argument(key, arg, state);
    }
}

static int add_trace(void *arg, const embd_trace_report *report)
{
    struct traces *traces = arg;
    struct trace *grown = reallocarray(traces->list, traces->n + 1, sizeof *grown);
    if (!grown)
        return EMBD_NO_MEMORY;
    traces->list = grown;
    struct trace *trace = &grown[traces->n++];
    *trace =
        (struct trace){.shard = traces->shard, .age_us = report->age_us, .bytes = report->bytes};
    snprintf(trace->method, sizeof trace->method, "%s", report->method);
    for (int i = 0; i < EMBD_STAGES; i++) {
        trace->ns[i] = report->stage_ns[i];
        trace->total_ns += report->stage_ns[i];
    }
    return 0;
}

static int by_age(const void *a, const void *b)
{
    const struct trace *x = a, *y = b;
    return x->age_us < y->age_us ? -1 : x->age_us > y->age_us;
}

static int by_duration(const void *a, const void *b)
{
    const struct trace *x = a, *y = b;
    return x->total_ns > y->total_ns ? -1 : x->total_ns < y->total_ns;
}

static void print_traces(const struct traces *traces, size_t n)
{
    static const struct column columns[] = {
        {"method", CELL_TEXT},         {"shard", CELL_NUMBER},   {"age_us", CELL_MICROS},
        {"request_bytes", CELL_BYTES}, {"total_us", CELL_FLOAT}, {"queue_us", CELL_FLOAT},
        {"decode_us", CELL_FLOAT},     {"store_us", CELL_FLOAT}, {"encode_us", CELL_FLOAT},
        {"send_us", CELL_FLOAT}};
    struct listing l;
    if (!traces->n && !globals.json) {
        puts("No pull or push has been traced yet; below 16 KiB one request in 31 is traced.");
        return;
    }
    listing_init(&l, "requests", columns, 10);
    for (size_t i = 0; i < n && i < traces->n; i++) {
        const struct trace *trace = &traces->list[i];
        listing_row(&l);
        listing_text(&l, 0, trace->method);
        listing_uint(&l, 1, trace->shard);
        listing_uint(&l, 2, trace->age_us);
        listing_uint(&l, 3, trace->bytes);
        listing_float(&l, 4, (float)trace->total_ns / 1e3f);
        for (size_t stage = 0; stage < EMBD_STAGES; stage++)
            listing_float(&l, 5 + stage, (float)trace->ns[stage] / 1e3f);
    }
    listing_print(&l);
    listing_fini(&l);
}

int command_trace(int argc, char **argv)
{
    static const struct argp argp = {
        .options = trace_options,
        .parser = parse_trace,
        .doc = "Shows where the time of single requests went: the stages of each shard's last "
               "pulls and pushes, up to 64 a shard. Of requests below 16 KiB one in 31 is "
               "traced.\v"
               "Microseconds. queue: from the last byte of the request until it was handled; "
               "decode: reading and checking; store: finding and making rows, or applying "
               "gradients; encode: writing the answer; send: until the kernel had its last byte, "
               "which waits for a peer that reads slowly. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl trace\n"
               "  embctl trace --slowest -n 5"};
    struct trace_arguments a = {.n = 10};
    struct traces traces = {0};
    embd_client *client;
    parse_command(&argp, argc, argv, &a);
    int status = connect_servers(&client);
    if (status)
        return status;
    for (; traces.shard < embd_shard_count(client) && status == EMBD_OK; traces.shard++)
        status = embd_trace(client, traces.shard, add_trace, &traces);
    if (traces.n > 0)
        qsort(traces.list, traces.n, sizeof *traces.list, a.slowest ? by_duration : by_age);
    if (status == EMBD_OK)
        print_traces(&traces, a.n);
    free(traces.list);
    return end_client(client, status);
}
