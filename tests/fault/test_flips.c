/* test_flips.c - every bit of every file of a small dump is flipped, one after the other:
 * embd_verify finds each. So does embd_load, of which every 61st is tried, and no table is there
 * then. Cut at every byte, each file is refused too.
 *
 * Asked for what goes unseen, it has checksums that are always right (always_right.c), and succeeds
 * when flips are missed then.
 *
 * usage: test_flips EMBD [unseen] */
#include "tests/unit/cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/fault/always_right.h"
#include "tests/client/cluster.h"
#include "embd/embd.h"
#include "embd/admin.h"
#include "tests/fault/flips.h"

enum { SHARDS = 2, KEYS = 12, DIM = 2, LOAD_EACH = 61 };

static const char *program;
static bool expects_unseen;

struct world {
    struct cluster cluster;
    embd_client *client;
    char dir[64], dump[96];
    struct flips flips;
};

static void push_some(embd_client *client, const embd_schema *schema)
{
    uint64_t keys[KEYS];
    float grads[KEYS * DIM];
    embd_part part = EMBD_PART(.n_keys = KEYS, .keys = keys, .values = grads, .raw = true);
    for (uint64_t i = 0; i < KEYS; i++)
        keys[i] = i * i;
    for (int i = 0; i < KEYS * DIM; i++)
        grads[i] = (float)i;
    assert_int_equal(embd_table_create(client, schema), EMBD_OK);
    assert_int_equal(embd_table_open(client, schema->name, &part.table), EMBD_OK);
    assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_OK);
    part.n_keys = KEYS / 2;
    assert_int_equal(embd_push(client, &part, 1, NULL), EMBD_OK);
}

/* Rows with states, and keys that wait for theirs. */
static void fill(embd_client *client)
{
    embd_schema schema;
    embd_schema_init(&schema);
    strcpy(schema.name, "a");
    schema.dim = DIM;
    schema.admit_after = 2;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    push_some(client, &schema);
    embd_schema_init(&schema);
    strcpy(schema.name, "b");
    schema.dim = DIM;
    schema.dtype = EMBD_DTYPE_F16;
    push_some(client, &schema);
}

static void drop_tables(embd_client *client)
{
    assert_int_equal(embd_table_drop(client, "a"), EMBD_OK);
    assert_int_equal(embd_table_drop(client, "b"), EMBD_OK);
}

static int count_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

static bool verifies(void *world)
{
    const struct world *w = world;
    const char *why = embd_error_text();
    always_right = expects_unseen;
    int status = embd_verify(w->dump, NULL, NULL, NULL);
    always_right = false;
    assert_true(status == EMBD_OK || strlen(why) > 10);
    return status == EMBD_OK;
}

static bool loads(void *world)
{
    const struct world *w = world;
    int n_tables = 0, status = embd_load(w->client, NULL, w->dump, NULL, NULL, NULL);
    if (status == EMBD_OK) {
        drop_tables(w->client);
        return true;
    }
    assert_int_equal(embd_table_list(w->client, count_name, &n_tables), EMBD_OK);
    assert_int_equal(n_tables, 0);
    return false;
}

static int open_world(void **state)
{
    static struct world w;
    const char *why = embd_error_text();
    cluster_start(&w.cluster, program, SHARDS, 0);
    if (embd_connect(w.cluster.address, NULL, &w.client) != EMBD_OK)
        fail_msg("%s", why);
    fill(w.client);
    strcpy(w.dir, "/dev/shm/embd-flips-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    snprintf(w.dump, sizeof w.dump, "%s/dump", w.dir);
    always_right = expects_unseen;
    assert_int_equal(embd_dump(w.client, NULL, w.dump, NULL, NULL, NULL), EMBD_OK);
    always_right = false;
    drop_tables(w.client);
    w.flips = (struct flips){.load_each = LOAD_EACH,
                             .verifies = verifies,
                             .loads = loads,
                             .world = &w,
                             .expects_unseen = expects_unseen};
    flips_add(&w.flips, w.dump);
    assert_int_equal(w.flips.n_files, 5); /* the manifest, and two tables on two shards */
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < w->flips.n_files; i++)
        unlink(w->flips.files[i]);
    rmdir(w->dump);
    rmdir(w->dir);
    embd_close(w->client);
    cluster_stop(&w->cluster);
    return 0;
}

static void no_flipped_bit_goes_unseen(void **state)
{
    struct world *w = *state;
    flips_flip(&w->flips);
    assert_true(expects_unseen ? w->flips.n_unseen > w->flips.n_flips / 10
                               : w->flips.n_unseen == 0);
}

static void no_cut_goes_unseen(void **state)
{
    struct world *w = *state;
    flips_cut(&w->flips);
    assert_int_equal(w->flips.n_unseen, 0);
}

static void the_whole_dump_is_good(void **state)
{
    assert_true(verifies(*state));
    assert_true(expects_unseen || loads(*state));
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_whole_dump_is_good),
        cmocka_unit_test(no_flipped_bit_goes_unseen),
        cmocka_unit_test(no_cut_goes_unseen),
        cmocka_unit_test(the_whole_dump_is_good),
    };
    if (argc != 2 && argc != 3) {
        fprintf(stderr, "usage: %s EMBD [unseen]\n", argv[0]);
        return 2;
    }
    program = argv[1];
    expects_unseen = argc == 3;
    return cmocka_run_group_tests(tests, open_world, close_world);
}
