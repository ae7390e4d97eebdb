/* test_flips_snapshot.c - every bit of every file of a small snapshot, and of one of what changed
 * since it, is flipped, one after the other: parts, streams of pushers, blobs, manifests.
 * embd_verify of the second, which is upon the first, finds each; so does embd_load, of which every
 * 61st is tried, and leaves no table and no stream behind; a blob whose bit is flipped is not read.
 * Cut at every byte, each file is refused too.
 *
 * usage: test_flips_snapshot EMBD [STRIDE]
 * STRIDE: every so manieth bit and length alone, where there is less time. */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/client/cluster.h"
#include "embd/embd.h"
#include "embd/admin.h"
#include "tests/fault/flips.h"

enum { SHARDS = 2, KEYS = 6, DIM = 1, LOAD_EACH = 61 };

static const char *program;
static uint64_t stride;
static const embd_pusher pusher = {.high = 7, .low = 9, .stream = 3};

struct world {
    struct cluster from, into; /* that made the snapshots, and that loads them */
    embd_client *client;       /* of `into` */
    char dir[64], base[96], upon[96];
    struct flips flips;
};

static embd_client *connect_to(const struct cluster *cluster)
{
    const char *why = embd_error_text();
    embd_client *client;
    if (embd_connect(cluster->address, NULL, &client) != EMBD_OK)
        fail_msg("%s", why);
    return client;
}

static void push(embd_client *client, embd_table *table, uint64_t first, uint64_t sequence)
{
    uint64_t keys[KEYS];
    float grads[KEYS * DIM];
    embd_part part =
        EMBD_PART(.table = table, .n_keys = KEYS, .keys = keys, .values = grads, .raw = true);
    embd_call_options options = EMBD_CALL_OPTIONS(.pusher = &pusher, .sequence = sequence);
    for (uint64_t i = 0; i < KEYS; i++) {
        keys[i] = first + i;
        grads[i] = (float)(i + sequence);
    }
    assert_int_equal(embd_push(client, &part, 1, &options), EMBD_OK);
}

static void snapshot(embd_client *client, const char *name, const char *base)
{
    const embd_blob blob = {.name = "dense", .data = name, .bytes = strlen(name)};
    embd_snapshot_options options =
        EMBD_SNAPSHOT_OPTIONS(.blobs = &blob, .n_blobs = 1, .base = base);
    if (embd_snapshot(client, name, &options, NULL) != EMBD_OK)
        fail_msg("%s", embd_error_text());
}

/* Rows with states, keys that wait for theirs, and in the second one keys that are gone. */
static void make_snapshots(embd_client *client)
{
    static const uint64_t gone[2] = {0, 1};
    embd_table *table;
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "a");
    schema.dim = DIM;
    schema.admit_after = 2;
    schema.durability = EMBD_DURABILITY_DURABLE;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    assert_int_equal(embd_table_create(client, &schema), EMBD_OK);
    assert_int_equal(embd_table_open(client, "a", &table), EMBD_OK);
    push(client, table, 0, 1);
    push(client, table, 0, 2);
    push(client, table, 3, 3);
    snapshot(client, "base", NULL);
    push(client, table, 2, 4);
    embd_part part = EMBD_PART(.table = table, .n_keys = 2, .keys = gone);
    assert_int_equal(embd_erase(client, &part, 1, NULL), EMBD_OK);
    snapshot(client, "upon", "base");
}

static bool verifies(void *world)
{
    const struct world *w = world;
    const char *why = embd_error_text();
    int status = embd_verify(w->upon, NULL, NULL, NULL);
    assert_true(status == EMBD_OK || strlen(why) > 10);
    return status == EMBD_OK;
}

static int count_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

/* Then the pusher's stream is of before the load, too. */
static bool loads(void *world)
{
    const struct world *w = world;
    int n_tables = 0;
    uint64_t least, greatest;
    if (embd_load(w->client, NULL, w->upon, NULL, NULL, NULL) == EMBD_OK)
        return true;
    assert_int_equal(embd_table_list(w->client, count_name, &n_tables), EMBD_OK);
    assert_int_equal(n_tables, 0);
    assert_int_equal(embd_pusher_last(w->client, &pusher, &least, &greatest), EMBD_OK);
    assert_int_equal(greatest, 0);
    return false;
}

static int open_world(void **state)
{
    static struct world w;
    strcpy(w.dir, "/dev/shm/embd-flips-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    const char *const flags[] = {"--data-dir", w.dir, NULL};
    cluster_start_with(&w.from, program, SHARDS, flags);
    cluster_start(&w.into, program, SHARDS, 0);
    w.client = connect_to(&w.into);
    embd_client *client = connect_to(&w.from);
    make_snapshots(client);
    embd_close(client);
    snprintf(w.base, sizeof w.base, "%s/base", w.dir);
    snprintf(w.upon, sizeof w.upon, "%s/upon", w.dir);
    w.flips = (struct flips){.stride = stride,
                             .load_each = LOAD_EACH,
                             .verifies = verifies,
                             .loads = loads,
                             .world = &w};
    flips_add(&w.flips, w.base);
    flips_add(&w.flips, w.upon);
    assert_int_equal(w.flips.n_files,
                     12); /* of each: manifest, blob, and of two shards a part and streams */
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    char command[96];
    embd_close(w->client);
    cluster_stop(&w->into);
    cluster_stop(&w->from);
    snprintf(command, sizeof command, "rm -r %s", w->dir);
    return system(command);
}

static void no_flipped_bit_goes_unseen(void **state)
{
    struct world *w = *state;
    flips_flip(&w->flips);
    assert_int_equal(w->flips.n_unseen, 0);
}

static void no_cut_goes_unseen(void **state)
{
    struct world *w = *state;
    flips_cut(&w->flips);
    assert_int_equal(w->flips.n_unseen, 0);
}

static bool blob_is_read(void *world)
{
    const struct world *w = world;
    void *data = NULL;
    uint64_t bytes;
    int status = embd_blob_read(w->upon, "dense", &data, &bytes);
    assert_true(status != EMBD_OK || bytes == strlen("upon"));
    assert_true((status == EMBD_OK) == (data != NULL));
    free(data);
    return status == EMBD_OK;
}

static void no_flipped_bit_of_a_blob_is_read(void **state)
{
    struct world *w = *state;
    struct flips flips = {
        .load_each = 1, .verifies = blob_is_read, .loads = blob_is_read, .world = w, .n_files = 1};
    snprintf(flips.files[0], sizeof flips.files[0], "%s/dense.blob", w->upon);
    assert_true(blob_is_read(w));
    flips_flip(&flips);
    flips_cut(&flips);
    assert_int_equal(flips.n_unseen, 0);
}

static void the_whole_is_good(void **state)
{
    struct world *w = *state;
    uint64_t least, greatest;
    assert_true(verifies(w));
    assert_true(loads(w));
    assert_int_equal(embd_pusher_last(w->client, &pusher, &least, &greatest), EMBD_OK);
    assert_true(least == 4 && greatest == 4);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_flipped_bit_goes_unseen),
        cmocka_unit_test(no_cut_goes_unseen),
        cmocka_unit_test(no_flipped_bit_of_a_blob_is_read),
        cmocka_unit_test(the_whole_is_good),
    };
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s EMBD [STRIDE]\n", argv[0]);
        return 2;
    }
    program = argv[1];
    stride = argc == 3 ? strtoull(argv[2], NULL, 10) : 1;
    return cmocka_run_group_tests(tests, open_world, close_world);
}
