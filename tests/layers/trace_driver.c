/* trace_driver.c - makes one of the calls that trace_calls.py counts: starts a server, warms the
 * call up, and makes it once more with the recorder's switch on.
 *
 * trace-driver SERVER CALL FOLDER [N]: CALL is a key of `calls` below; FOLDER is the recorder's.
 * With N the call is made N times with the switch on, for tools that count instructions. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "embd/embd.h"
#include "tests/client/cluster.h"

#define KEYS 64u
#define BAGS 8u
#define DIM  16u

static const struct call {
    const char *name;
    uint32_t n_shards;
    bool is_push, is_pooled, is_durable;
} calls[] = {
    {"pull", 1, false, false, false},
    {"pull-bags", 2, false, true, false},
    {"push", 1, true, false, false},
    {"push-durable", 2, true, false, true},
};

static void check(int status, const char *what)
{
    if (status == EMBD_OK)
        return;
    fprintf(stderr, "trace-driver: %s: %s\n", what, embd_status_text(status));
    exit(1);
}

static void make(embd_client *client, const struct call *call, const embd_part *part)
{
    int status =
        call->is_push ? embd_push(client, part, 1, NULL) : embd_pull(client, part, 1, NULL);
    check(status, call->name);
}

static void turn(const char *folder, char value)
{
    char path[512];
    snprintf(path, sizeof path, "%s/switch", folder);
    int fd = open(path, O_WRONLY | O_CREAT, 0600);
    if (fd < 0 || write(fd, &value, 1) != 1)
        check(EMBD_IO, path);
    close(fd);
}

static void trace(embd_client *client, const struct call *call, const char *folder, int n)
{
    static uint64_t keys[KEYS], offsets[BAGS + 1];
    static float values[KEYS * DIM];
    embd_table *table;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "traced");
    schema.dim = DIM;
    schema.combiner = EMBD_COMBINER_SUM;
    schema.durability = call->is_durable ? EMBD_DURABILITY_DURABLE : EMBD_DURABILITY_SNAPSHOT;
    check(embd_table_create(client, &schema), "embd_table_create");
    check(embd_table_open(client, "traced", &table), "embd_table_open");
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i * UINT64_C(0x9e3779b97f4a7c15);
    for (uint32_t i = 0; i <= BAGS; i++)
        offsets[i] = i * KEYS / BAGS;
    embd_part part = EMBD_PART(.table = table, .n_keys = KEYS, .keys = keys, .values = values);
    part.raw = !call->is_pooled;
    part.offsets = call->is_pooled ? offsets : NULL;
    part.n_rows = call->is_pooled ? BAGS : 0;
    check(embd_push(client, &part, 1, NULL), "embd_push"); /* what is pulled has rows */
    for (int i = 0; i < 3; i++)
        make(client, call, &part);
    usleep(50000);             /* whatever the server does behind an answer is done */
    make(client, call, &part); /* what is due every 10 ms is done */
    usleep(3000);
    turn(folder, 1);
    for (int i = 0; i < n; i++)
        make(client, call, &part);
    usleep(5000);
    turn(folder, 0);
}

static const struct call *find(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    fprintf(stderr, "trace-driver: unknown call '%s'\n", name);
    exit(2);
}

int main(int argc, char **argv)
{
    struct cluster cluster;
    embd_client *client;
    char data[600], why[200];
    if (argc < 4)
        return 2;
    const struct call *call = find(argv[2]);
    snprintf(data, sizeof data, "%s/data", argv[3]);
    const char *const plain[] = {"--local-spin", "0", NULL};
    const char *const durable[] = {"--local-spin", "0", "--data-dir", data, NULL};
    mkdir(data, 0700);
    cluster_start_with(&cluster, argv[1], call->n_shards, call->is_durable ? durable : plain);
    if (embd_connect(cluster.address, NULL, &client) != EMBD_OK) {
        fprintf(stderr, "trace-driver: %s\n", why);
        cluster_kill(&cluster);
        return 1;
    }
    trace(client, call, argv[3], argc > 4 ? atoi(argv[4]) : 1);
    embd_close(client);
    return cluster_stop(&cluster) == 0 ? 0 : 1;
}
