/* test_flips.c - every bit of every file of a small dump is flipped, one after the other: embd_verify
 * finds each. So does embd_load, of which every 61st is tried, and no table is there then. Cut at
 * every byte, each file is refused too.
 *
 * Asked for what goes unseen, it has checksums that are always right (always_right.c), and succeeds
 * when flips are missed then.
 *
 * usage: test_flips EMBD [unseen] */
#include "unit/cmocka_all.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "always_right.h"
#include "client/cluster.h"
#include "embd/embd.h"

enum { SHARDS = 2, KEYS = 12, DIM = 2, LOAD_EACH = 61, FILES_MAX = 16 };

static const char *program;
static bool expects_unseen;

struct world {
    struct cluster cluster;
    embd_client *client;
    char dir[64], dump[96];
    char files[FILES_MAX][256];
    int n_files;
};

static void push_some(embd_client *client, const embd_schema *schema)
{
    uint64_t keys[KEYS];
    float grads[KEYS * DIM];
    embd_part part = {.n_keys = KEYS, .keys = keys, .values = grads, .raw = true};
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
    embd_optimizer_init(&schema.optimizer, EMBD_ADAGRAD, 0.1f);
    push_some(client, &schema);
    embd_schema_init(&schema);
    strcpy(schema.name, "b");
    schema.dim = DIM;
    schema.dtype = EMBD_F16;
    push_some(client, &schema);
}

static void list_files(struct world *w)
{
    DIR *list = opendir(w->dump);
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (entry->d_name[0] != '.' && w->n_files < FILES_MAX)
            snprintf(w->files[w->n_files++], 256, "%s/%.120s", w->dump, entry->d_name);
    closedir(list);
    assert_int_equal(w->n_files, 5); /* the manifest, and two tables on two shards */
}

static void drop_tables(embd_client *client)
{
    assert_int_equal(embd_table_drop(client, "a"), EMBD_OK);
    assert_int_equal(embd_table_drop(client, "b"), EMBD_OK);
}

static int open_world(void **state)
{
    static struct world w;
    char why[256] = "";
    cluster_start(&w.cluster, program, SHARDS, 0);
    if (embd_connect(w.cluster.address, NULL, &w.client, why, sizeof why) != EMBD_OK)
        fail_msg("%s", why);
    fill(w.client);
    strcpy(w.dir, "/dev/shm/embd-flips-XXXXXX");
    assert_non_null(mkdtemp(w.dir));
    snprintf(w.dump, sizeof w.dump, "%s/dump", w.dir);
    always_right = expects_unseen;
    assert_int_equal(embd_dump(w.client, NULL, w.dump, NULL, NULL, NULL), EMBD_OK);
    always_right = false;
    drop_tables(w.client);
    list_files(&w);
    *state = &w;
    return 0;
}

static int close_world(void **state)
{
    struct world *w = *state;
    for (int i = 0; i < w->n_files; i++)
        unlink(w->files[i]);
    rmdir(w->dump);
    rmdir(w->dir);
    embd_close(w->client);
    cluster_stop(&w->cluster);
    return 0;
}

static int count_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

static bool verifies(const struct world *w)
{
    char why[256] = "";
    always_right = expects_unseen;
    int status = embd_verify(w->dump, NULL, NULL, NULL, why, sizeof why);
    always_right = false;
    assert_true(status == EMBD_OK || strlen(why) > 10);
    return status == EMBD_OK;
}

static bool loads(const struct world *w)
{
    int n_tables = 0, status = embd_load(w->client, NULL, w->dump, NULL, NULL, NULL);
    if (status == EMBD_OK) {
        drop_tables(w->client);
        return true;
    }
    assert_int_equal(embd_table_list(w->client, count_name, &n_tables), EMBD_OK);
    assert_int_equal(n_tables, 0);
    return false;
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void flip(int fd, uint64_t bit)
{
    uint8_t byte;
    assert_int_equal(pread(fd, &byte, 1, (off_t)(bit / 8)), 1);
    byte = (uint8_t)(byte ^ 1u << bit % 8);
    assert_int_equal(pwrite(fd, &byte, 1, (off_t)(bit / 8)), 1);
}

/* How many flips went unseen. */
static uint32_t flip_each(const struct world *w, const char *path, uint64_t *n_flips)
{
    uint32_t unseen = 0;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    for (uint64_t bit = 0; bit < 8 * (uint64_t)size_of(path); bit++, ++*n_flips) {
        flip(fd, bit);
        if (verifies(w) || (*n_flips % LOAD_EACH == 0 && loads(w))) {
            unseen++;
            if (!expects_unseen)
                print_message("bit %llu of %s is not missed\n", (unsigned long long)bit, path);
        }
        flip(fd, bit);
    }
    close(fd);
    return unseen;
}

static void no_flipped_bit_goes_unseen(void **state)
{
    const struct world *w = *state;
    uint32_t unseen = 0;
    uint64_t n_flips = 0;
    for (int i = 0; i < w->n_files; i++)
        unseen += flip_each(w, w->files[i], &n_flips);
    print_message("%llu bits flipped, %u unseen\n", (unsigned long long)n_flips, unseen);
    assert_true(expects_unseen ? unseen > n_flips / 10 : unseen == 0);
}

static void no_cut_goes_unseen(void **state)
{
    const struct world *w = *state;
    static uint8_t bytes[1 << 16];
    for (int i = 0; i < w->n_files; i++) {
        int fd = open(w->files[i], O_RDWR);
        ssize_t n = read(fd, bytes, sizeof bytes);
        assert_true(n > 0 && n < (ssize_t)sizeof bytes);
        for (off_t cut = n - 1; cut >= 0; cut--) {
            assert_int_equal(ftruncate(fd, cut), 0);
            assert_false(verifies(w));
        }
        assert_int_equal(pwrite(fd, bytes, (size_t)n, 0), n);
        close(fd);
    }
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
