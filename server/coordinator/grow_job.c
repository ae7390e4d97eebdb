/* grow_job.c - servers that have begun with --join become members of the cluster: it has more
 * shards, and these have no keys until keys move there.
 *
 * The happy path: `move begin` brings the later map, and where the new shards are, to all. Changes
 * are held on the shards that there are. What every shard has of a table but its rows, and how far
 * pushes have come, is read from shard 0 and staged on the new ones. Then the map takes the place
 * of the one before, on all shards or on none, and with it the staged tables theirs
 * (cluster_replace.c). Clients are answered EMBD_MOVED, and find the new shards in the map.
 *
 * What can fail before shard 0 has the map changes nothing: the connections end, and the new shards
 * drop what was staged. Behind it nothing is undone. */
#include <stdlib.h>
#include <string.h>

#include "proto/batch.h"
#include "proto/placement_wire.h"
#include "proto/schema.h"
#include "proto/shard_entry.h"
#include "proto/streamsfile.h"
#include "server/coordinator/cluster_hold.h"
#include "server/coordinator/cluster_replace.h"
#include "server/coordinator/job.h"

typedef char table_name[EMBD_NAME_MAX + 1];

struct growing {
    struct job *job;
    uint32_t n_old; /* shards that are members */
    table_name *names;
    uint32_t n_tables;
    struct table_schema schema; /* of the table that is staged, */
    uint64_t step;
    void *streams[2]; /* malloc'd bins; [1]: of journaled tables */
    uint64_t n_streams[2];
    struct cluster_marks marks;
};

static int run(struct growing *g, void (*take)(void *arg, uint32_t shard, struct reader *r))
{
    return peers_run(g->job->peers, take, g, &g->job->error);
}

static struct msg *ask_first(struct growing *g, enum method method)
{
    return peers_add(g->job->peers, 0, method, CLUSTER_ASK_MS);
}

/* ---- begin ---- */

static void write_members(struct msg *m, const struct job *job, uint32_t n_old)
{
    const struct job_order *order = &job->order;
    embd__msg_str(m, "members");
    embd__msg_array(m, job->n_shards - n_old);
    for (uint32_t i = n_old; i < job->n_shards; i++)
        embd__shard_entry_write(m, order->addresses[i], order->admin_addresses[i],
                                order->admin_hosts[i]);
}

static int begin_all(struct growing *g)
{
    const struct job *job = g->job;
    for (uint32_t shard = 0; shard < job->n_shards; shard++) {
        struct msg *m = peers_add(job->peers, shard, METHOD_MOVE, CLUSTER_ASK_MS);
        embd__msg_map(m, 5);
        embd__msg_field_str(m, "phase", "begin");
        embd__msg_field_uint(m, "id", job->id);
        embd__msg_field_uint(m, "shards", job->n_shards);
        embd__placement_write(m, &job->order.place);
        write_members(m, job, g->n_old);
    }
    return run(g, NULL);
}

/* ---- tables ---- */

static void take_names(void *arg, uint32_t shard, struct reader *r)
{
    struct growing *g = arg;
    struct fields f, item;
    const msgpack_object *items;
    (void)shard;
    embd__read_fields(&f, r, "tables");
    uint32_t n = embd__field_list(&f, "tables", LIMIT_TABLES, &items);
    g->names = calloc(n + 1u, sizeof *g->names);
    if (g->names == NULL)
        embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for a list of tables");
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++) {
        embd__list_map(r, &items[i], &item, "a table");
        embd__field_str(&item, "name", g->names[i], sizeof g->names[i], NULL);
    }
    g->n_tables = n;
}

static void take_table(void *arg, uint32_t shard, struct reader *r)
{
    struct growing *g = arg;
    struct fields f, map;
    (void)shard;
    embd__read_fields(&f, r, "table_describe");
    g->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__field_map(&f, "schema", &map, "schema");
    embd__schema_read(&map, &g->schema);
}

static int describe(struct growing *g, const char *name)
{
    struct msg *m = ask_first(g, METHOD_TABLE_DESCRIBE);
    embd__schema_fini(&g->schema);
    g->schema = (struct table_schema){.sizes = NULL};
    embd__msg_map(m, 1);
    embd__msg_field_str(m, "name", name);
    return run(g, take_table);
}

/* A request to each new shard; `write` its map and bins. */
static int ask_added(struct growing *g, enum method method,
                     void (*write)(const struct growing *g, struct msg *m))
{
    for (uint32_t shard = g->n_old; shard < g->job->n_shards; shard++)
        write(g, peers_add(g->job->peers, shard, method, CLUSTER_ASK_MS));
    return run(g, NULL);
}

static void write_stage(const struct growing *g, struct msg *m)
{
    embd__msg_map(m, 2);
    embd__msg_field_uint(m, "id", g->job->id);
    embd__msg_str(m, "schema");
    embd__schema_write(m, &g->schema.s);
}

/* Of no rows: it sets the step. */
static void write_step(const struct growing *g, struct msg *m)
{
    const struct row_block none = {.n_rows = 0};
    embd__msg_map(m, 5);
    embd__msg_field_str(m, "table", g->schema.s.name);
    embd__msg_field_uint(m, "rows", 0);
    embd__msg_field_uint(m, "candidates", 0);
    embd__msg_field_uint(m, "step", g->step);
    embd__msg_field_uint(m, "staged", g->job->id);
    embd__row_block_write(m, &g->schema.s, &none);
}

static int stage_tables(struct growing *g)
{
    embd__msg_map(ask_first(g, METHOD_TABLES), 0);
    if (run(g, take_names) != EMBD_OK)
        return g->job->error.status;
    for (uint32_t i = 0; i < g->n_tables && g->job->error.status == EMBD_OK; i++)
        if (describe(g, g->names[i]) == EMBD_OK &&
            ask_added(g, METHOD_TABLE_STAGE, write_stage) == EMBD_OK)
            ask_added(g, METHOD_LOAD, write_step);
    return g->job->error.status;
}

/* ---- how far pushes have come ---- */

static void keep_streams(struct growing *g, struct reader *r, int of)
{
    uint64_t bytes = g->n_streams[of] * STREAM_BYTES;
    const void *list = embd__read_bin(r, "writers", bytes);
    g->streams[of] = malloc(bytes + 1);
    if (list == NULL)
        return;
    if (g->streams[of] == NULL)
        embd__error_set(r->error, EMBD_NO_MEMORY, "no memory for a list of streams");
    else
        memcpy(g->streams[of], list, bytes);
}

static void take_streams(void *arg, uint32_t shard, struct reader *r)
{
    struct growing *g = arg;
    struct fields f;
    (void)shard;
    embd__read_fields(&f, r, "move");
    g->n_streams[1] = embd__field_uint(&f, "journaled", 0, UINT32_MAX, FIELD_REQUIRED);
    g->n_streams[0] = embd__field_uint(&f, "other", 0, UINT32_MAX, FIELD_REQUIRED);
    if (embd__fields_end(&f) != EMBD_OK)
        return;
    keep_streams(g, r, 1);
    keep_streams(g, r, 0);
}

static void write_streams(const struct growing *g, struct msg *m, int of)
{
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "id", g->job->id);
    embd__msg_field_uint(m, "writers", g->n_streams[of]);
    embd__msg_field_bool(m, "journaled", of == 1);
    embd__msg_field_bool(m, "all", true);
    embd__msg_bin(m, g->streams[of], g->n_streams[of] * STREAM_BYTES);
}

static void write_journaled(const struct growing *g, struct msg *m)
{
    write_streams(g, m, 1);
}

static void write_other(const struct growing *g, struct msg *m)
{
    write_streams(g, m, 0);
}

/* Where there is no table, no stream is of any. */
static int stage_streams(struct growing *g)
{
    if (g->n_tables == 0)
        return EMBD_OK;
    struct msg *m = ask_first(g, METHOD_MOVE);
    embd__msg_map(m, 2);
    embd__msg_field_str(m, "phase", "streams");
    embd__msg_field_uint(m, "id", g->job->id);
    if (run(g, take_streams) == EMBD_OK &&
        ask_added(g, METHOD_TABLE_STAGE, write_journaled) == EMBD_OK)
        ask_added(g, METHOD_TABLE_STAGE, write_other);
    return g->job->error.status;
}

static void write_marks(const struct growing *g, struct msg *m)
{
    const struct cluster_marks *marks = &g->marks;
    embd__msg_map(m, 3);
    embd__msg_field_str(m, "phase", "marks");
    embd__msg_field_uint(m, "id", g->job->id);
    embd__msg_field_uint(m, "clients", marks->n);
    embd__msg_bin(m, marks->clients, marks->n * sizeof *marks->clients);
    embd__msg_bin(m, marks->pushed, marks->n * sizeof *marks->pushed);
}

/* ---- the moment ---- */

static void write_hold(const struct growing *g, struct msg *m)
{
    (void)g;
    embd__msg_map(m, 0);
}

static int add_held(struct growing *g)
{
    struct job *job = g->job;
    const struct cluster_replace replace = {.id = job->id,
                                            .decision = job->id,
                                            .n_shards = job->n_shards,
                                            .is_place = true,
                                            .first_added = g->n_old,
                                            .n_tables = g->n_tables};
    if (ask_added(g, METHOD_HOLD, write_hold) != EMBD_OK ||
        cluster_check_replace(job->peers, &replace, &job->error) != EMBD_OK ||
        !job_enter(job, JOB_COMMIT))
        return job->error.status;
    return cluster_apply_replace(job->peers, &replace, &job->error);
}

static int add_all(struct growing *g)
{
    struct job *job = g->job;
    uint64_t pause_us = 0;
    move_job_await_followers(job);
    if (job->error.status != EMBD_OK || !job_enter(job, JOB_HOLD) ||
        cluster_hold_marks(job->peers, g->n_old, &g->marks, &pause_us, &job->error) != EMBD_OK)
        return job->error.status;
    if (stage_tables(g) == EMBD_OK && stage_streams(g) == EMBD_OK &&
        ask_added(g, METHOD_MOVE, write_marks) == EMBD_OK)
        add_held(g);
    cluster_release(job->peers, job->n_shards, &pause_us);
    job_tell_pause(job, pause_us);
    return job->error.status;
}

static void fini(struct growing *g)
{
    embd__schema_fini(&g->schema);
    cluster_marks_fini(&g->marks);
    free(g->names);
    free(g->streams[0]);
    free(g->streams[1]);
}

void grow_job_run(struct job *job)
{
    struct growing g = {.job = job, .n_old = job->n_shards - job->order.n_added};
    if (job_enter(job, JOB_BEGIN) && begin_all(&g) == EMBD_OK && add_all(&g) == EMBD_OK &&
        job_renew(job) == EMBD_OK)
        move_job_await_removal(job);
    fini(&g);
}
