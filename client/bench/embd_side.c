/* embd_side.c - embd as its users see it: everything goes through the public library.
 *
 * The table is named after this process, so that runs against a shared cluster do not meet, and is
 * dropped at the end. Every key gets its row before anything is timed. Pushed gradients are zeros:
 * they cost what others cost, and rows stay what they were in runs of any length. */
#include "client/bench/embd_side.h"

#include "client/bench/pages.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILL_BYTES    (32u << 20) /* gradients of one filling push */
#define FILL_KEYS_MAX 262144u

static int exit_code_of(int status)
{
    switch (status) {
    case EMBD_OK:
        return DONE;
    case EMBD_UNREACHABLE:
    case EMBD_CLOSED:
    case EMBD_DEADLINE:
        return UNREACHABLE;
    default:
        return FAILED;
    }
}

static int check(int status)
{
    if (status != EMBD_OK)
        fprintf(stderr, "embd-bench: %s\n", embd_error_text());
    return exit_code_of(status);
}

static int out_of_memory(void)
{
    fprintf(stderr, "embd-bench: out of memory\n");
    return FAILED;
}

static int connect_to(const char *servers, embd_client **client_out)
{
    int status = embd_connect(servers, NULL, client_out);
    if (status != EMBD_OK)
        fprintf(stderr, "embd-bench: %s\n", embd_error_text());
    return exit_code_of(status);
}

/* ---- the table ------------------------------------------------------------------------------- */

static void show_progress(uint64_t done, uint64_t all)
{
    if (!isatty(STDERR_FILENO))
        return;
    if (done < all)
        fprintf(stderr, "\rfilling the table: %3.0f %%", 100.0 * (double)done / (double)all);
    else
        fprintf(stderr, "\r\033[K");
}

static int fill_with(embd_client *client, embd_table *table, uint64_t n_keys, uint64_t *keys,
                     float *zeros, uint64_t at_once)
{
    for (uint64_t done = 0; done < n_keys; done += at_once) {
        uint64_t count = n_keys - done < at_once ? n_keys - done : at_once;
        for (uint64_t i = 0; i < count; i++)
            keys[i] = workload_key(done + i);
        embd_part part =
            EMBD_PART(.table = table, .n_keys = count, .keys = keys, .values = zeros, .raw = true);
        int code = check(embd_push(client, &part, 1, NULL));
        if (code != DONE)
            return code;
        show_progress(done + count, n_keys);
    }
    return DONE;
}

static int fill(embd_client *client, embd_table *table, uint64_t n_keys, uint32_t dim)
{
    uint64_t at_once = FILL_BYTES / (dim * sizeof(float));
    at_once = at_once < FILL_KEYS_MAX ? at_once : FILL_KEYS_MAX;
    uint64_t *keys = malloc(at_once * sizeof *keys);
    float *zeros = calloc(at_once * dim, sizeof *zeros);
    int code =
        keys && zeros ? fill_with(client, table, n_keys, keys, zeros, at_once) : out_of_memory();
    free(keys);
    free(zeros);
    return code;
}

static int create_table(struct side *side, embd_client *client, const struct options *options,
                        uint32_t dim)
{
    embd_schema schema;
    static unsigned serial;
    snprintf(side->table, sizeof side->table, "bench-%ld-%u", (long)getpid(), serial++);
    embd_schema_init(&schema);
    memcpy(schema.name, side->table, sizeof side->table);
    schema.dim = dim;
    schema.dtype = options->dtype;
    schema.durability = options->durability;
    int code = check(embd_table_create(client, &schema));
    side->has_table = code == DONE;
    return code;
}

static int prepare(struct side *side, const struct options *options, uint64_t n_keys, uint32_t dim)
{
    embd_client *client;
    embd_table *table;
    int code = connect_to(side->servers, &client);
    if (code != DONE)
        return code;
    code = create_table(side, client, options, dim);
    if (code == DONE)
        code = check(embd_table_open(client, side->table, &table));
    if (code == DONE)
        code = fill(client, table, n_keys, dim);
    embd_close(client);
    return code;
}

int side_open(struct side *side, const struct options *options, uint64_t n_keys, uint32_t dim,
              uint32_t shards, const struct cpu_list *cpus)
{
    int code = DONE;
    *side = (struct side){.servers = options->servers};
    if (!side->servers) {
        code = server_process_start(&side->process, options->server_bin, shards, cpus,
                                    options->verbose);
        side->servers = side->process.servers;
    }
    if (code == DONE)
        code = prepare(side, options, n_keys, dim);
    if (code != DONE)
        side_close(side);
    return code;
}

/* A table of a process of ours ends with it. */
static void drop_table(struct side *side)
{
    embd_client *client;
    if (connect_to(side->servers, &client) != DONE)
        return;
    check(embd_table_drop(client, side->table));
    embd_close(client);
}

void side_close(struct side *side)
{
    if (side->process.pid > 0)
        server_process_stop(&side->process);
    else if (side->has_table)
        drop_table(side);
    *side = (struct side){0};
}

/* ---- movers ---------------------------------------------------------------------------------- */

struct lane {
    embd_part part;
    embd_call *call; /* NULL: nothing in flight */
    float *values;   /* pulled rows */
};

/* One client handle; its thread owns it. */
struct caller {
    embd_client *client;
    const struct workload *workload;
    embd_call_options calls;
    bool is_lent;       /* arrays are the library's */
    size_t array_bytes; /* of `values` of each lane and of `zeros` */
    float *zeros;       /* gradients */
    uint32_t n_lanes;
    struct lane lanes[MOVER_IN_FLIGHT_MAX];
};

static int start(void *context, uint64_t batch, uint32_t lane_index)
{
    struct caller *c = context;
    struct lane *lane = &c->lanes[lane_index];
    lane->part.keys = workload_batch(c->workload, batch);
    if (c->workload->spec.mix == MIX_PUSH)
        return check(embd_push_start(c->client, &lane->part, 1, &c->calls, &lane->call));
    return check(embd_pull_start(c->client, &lane->part, 1, &c->calls, &lane->call));
}

static int finish(void *context, uint32_t lane_index)
{
    struct caller *c = context;
    struct lane *lane = &c->lanes[lane_index];
    int status = embd_wait(lane->call);
    lane->call = NULL;
    if (status == EMBD_OK && c->workload->spec.mix == MIX_TRAIN) {
        embd_part push = lane->part;
        push.values = c->zeros;
        status = embd_push(c->client, &push, 1, &c->calls);
    }
    return check(status);
}

static void *array_new(struct caller *c)
{
    void *array = NULL;
    if (!c->is_lent)
        return pages_new(c->array_bytes);
    check(embd_buffer_new(c->client, c->array_bytes, &array));
    return array;
}

static void array_free(struct caller *c, void *array)
{
    if (c->is_lent && array)
        embd_buffer_free(array);
    else
        pages_free(array, c->array_bytes);
}

static void close_caller(void *context)
{
    struct caller *c = context;
    for (uint32_t i = 0; i < c->n_lanes; i++)
        array_free(c, c->lanes[i].values);
    array_free(c, c->zeros);
    embd_close(c->client);
    free(c);
}

static int open_lanes(struct caller *c, embd_table *table)
{
    const struct workload_spec *spec = &c->workload->spec;
    c->zeros = array_new(c);
    for (uint32_t i = 0; i < c->n_lanes; i++) {
        struct lane *lane = &c->lanes[i];
        lane->values = array_new(c);
        if (!lane->values || !c->zeros)
            return out_of_memory();
        lane->part = (embd_part)EMBD_PART(.table = table, .n_rows = workload_rows(spec),
                                          .offsets = c->workload->offsets, .n_keys = spec->batch,
                                          .values = spec->mix == MIX_PUSH ? c->zeros : lane->values,
                                          .raw = spec->keys_per_row == 1);
    }
    return DONE;
}

int side_mover_open(const struct side *side, const struct workload *w,
                    const struct options *options, embd_plan plan, struct mover *out)
{
    struct caller *c = calloc(1, sizeof *c);
    embd_table *table;
    if (!c)
        return out_of_memory();
    c->workload = w;
    c->n_lanes = options->in_flight;
    c->is_lent = options->lent;
    c->array_bytes = (size_t)w->spec.batch * w->spec.dim * sizeof(float);
    c->calls = (embd_call_options)EMBD_CALL_OPTIONS(.plan = plan, .wire = options->wire);
    int code = connect_to(side->servers, &c->client);
    if (code == DONE)
        code = check(embd_table_open(c->client, side->table, &table));
    if (code == DONE)
        code = open_lanes(c, table);
    if (code != DONE) {
        close_caller(c);
        return code;
    }
    *out = (struct mover){c, c->n_lanes, start, finish, close_caller};
    return DONE;
}
