/* test_journal.c - a shard that starts on the journal of another has the same tables, whatever
 * changed them; a journal that has grown long begins anew; what cannot be kept is refused. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "server/service/state.h"
#include "server/journal/journal.h"
#include "server/journal/recordfile.h"
#include "tests/server/journaled.h"
#include "proto/schema.h"
#include "server/snapshot/snapshot.h"

#define N_PUSHES 4

/* The linker hands these to this file. */
int __real_fsync(int fd);
int __wrap_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fdatasync(int fd);

long __real_syscall(long number, ...);
long __wrap_syscall(long number, ...);

static const char *closed_to_us; /* name of what may not be opened */
static int n_refused;

long __wrap_syscall(long number, ...)
{
    long a[4];
    va_list args;
    va_start(args, number);
    for (int i = 0; i < 4; i++)
        a[i] = va_arg(args, long);
    va_end(args);
    if (number == SYS_openat2 && closed_to_us != NULL &&
        strcmp((const char *)(uintptr_t)a[1], closed_to_us) == 0) {
        n_refused++;
        errno = EACCES;
        return -1;
    }
    return __real_syscall(number, a[0], a[1], a[2], a[3]);
}

static _Thread_local char syncs[64]; /* those of this thread: 'f' an fsync, 'd' an fdatasync */

static void note_sync(char kind)
{
    size_t n = strlen(syncs);
    if (n + 1 < sizeof syncs)
        syncs[n] = kind;
}

int __wrap_fsync(int fd)
{
    note_sync('f');
    return __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
    note_sync('d');
    return __real_fdatasync(fd);
}

static void all_changes_are_replayed_to_the_same_bits(void **state)
{
    (void)state;
    struct journaled j;
    struct image a, b;
    embd_schema durable = kept_schema("a", EMBD_DURABILITY_DURABLE),
                buffered = kept_schema("b", EMBD_DURABILITY_BUFFERED),
                dropped = kept_schema("c", EMBD_DURABILITY_DURABLE),
                unkept = kept_schema("d", EMBD_DURABILITY_SNAPSHOT);
    journaled_new(&j);
    create_table(&j.rig, &durable);
    create_table(&j.rig, &buffered);
    create_table(&j.rig, &dropped);
    create_table(&j.rig, &unkept);
    for (int i = 0; i < N_PUSHES; i++) {
        push_batch(&j.rig, &durable);
        push_batch(&j.rig, &buffered);
        push_two(&j.rig, "a", 0.5f);
        push_two(&j.rig, "c", 0.5f);
        push_two(&j.rig, "d", 0.5f);
    }
    erase_one(&j.rig, "a");
    drop_table(&j.rig, "c");
    image_take(&j.rig, "a", &a);
    image_take(&j.rig, "b", &b);
    assert_true(a.rows > 2 && b.rows > 2);
    journaled_stop(&j);
    for (int starts = 0; starts < 2; starts++) {
        journaled_start(&j);
        image_check(&j.rig, "a", &a);
        image_check(&j.rig, "b", &b);
        create_table(&j.rig, &dropped); /* not there: its old rows would be seen */
        assert_int_equal(figure(&j.rig, "c", "rows"), 0);
        drop_table(&j.rig, "c");
        push_two(&j.rig, "a", 0.25f);
        image_fini(&a);
        image_take(&j.rig, "a", &a);
        journaled_stop(&j);
    }
    image_fini(&a);
    image_fini(&b);
    scratch_remove(j.dir);
}

/* ---- a store that finds no memory when the record is written ---- */

static bool has_no_memory;

static void scarce_push(struct store *store, struct store_change *push, struct store_done *done)
{
    if (!has_no_memory)
        store_host.apply(store, push, done);
    else
        done->fn(done, embd__error_set(&done->error, EMBD_NO_MEMORY, "no memory for a push"));
}

static int scarce_erase(struct store *store, struct store_erase *erase, struct embd__error *e)
{
    return has_no_memory ? embd__error_set(e, EMBD_NO_MEMORY, "no memory for an erase")
                         : store_host.erase(store, erase, e);
}

static int scarce_load(struct store *store, const struct row_block *block, struct embd__error *e)
{
    return has_no_memory ? embd__error_set(e, EMBD_NO_MEMORY, "no memory for a load")
                         : store_host.load(store, block, e);
}

static struct exchange *ask_change(struct rig *rig, int which, const embd_schema *schema)
{
    static const uint64_t keys[] = {1, 2};
    static const float values[16] = {1, 2, 3, 4};
    struct part part = part_of(schema->name, keys, 2, values);
    if (which < 2)
        return ask_parts(rig, which == 0 ? METHOD_PUSH : METHOD_ERASE, &part, 1);
    const struct row_block block = {.n_rows = 2, .keys = keys, .rows = values, .states = values};
    struct exchange *x = ask(rig, &rig->admin, METHOD_LOAD);
    embd__msg_map(&x->out, 3);
    embd__msg_field_str(&x->out, "table", schema->name);
    embd__msg_field_uint(&x->out, "rows", 2);
    embd__msg_field_uint(&x->out, "candidates", 0);
    embd__row_block_write(&x->out, schema, &block);
    return x;
}

static void what_found_no_memory_is_not_replayed(void **state)
{
    static const char *const names[] = {"no memory for a push", "no memory for an erase",
                                        "no memory for a load"};
    struct store_ops scarce = store_host;
    (void)state;
    scarce.apply = scarce_push;
    scarce.erase = scarce_erase;
    scarce.load = scarce_load;
    for (int which = 0; which < 3; which++) {
        struct rig rig;
        struct image image;
        char dir[64];
        embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
        scratch_new(dir);
        rig_open(&rig, &scarce, 0, 1, dir);
        create_table(&rig, &schema);
        push_two(&rig, "a", 0.5f);
        image_take(&rig, "a", &image);
        has_no_memory = true;
        ask_error(ask_change(&rig, which, &schema), EMBD_NO_MEMORY, names[which], NULL);
        has_no_memory = false;
        image_check(&rig, "a", &image);
        rig_close(&rig);
        rig_open(&rig, &scarce, 0, 1, dir);
        image_check(&rig, "a", &image);
        struct exchange *x = ask_change(&rig, which, &schema);
        ask_ok(x);
        ask_free(x);
        rig_close(&rig);
        image_fini(&image);
        scratch_remove(dir);
    }
}

static void a_replay_evicts_and_admits_as_the_first_time(void **state)
{
    (void)state;
    for (int policy = EMBD_ON_FULL_EVICT_LRU; policy <= EMBD_ON_FULL_EVICT_SCORE; policy++) {
        struct journaled j;
        struct image image;
        embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
        schema.on_full = (embd_on_full)policy;
        schema.capacity = 600;
        schema.ttl = 1;
        schema.admit_after = 2;
        journaled_new(&j);
        create_table(&j.rig, &schema);
        for (int i = 0; i < 12; i++)
            push_batch(&j.rig, &schema);
        image_take(&j.rig, "a", &image);
        uint64_t n_evicted = figure(&j.rig, "a", "evicted");
        assert_true(n_evicted > 0 && figure(&j.rig, "a", "candidates") > 0);
        journaled_stop(&j);
        journaled_start(&j);
        image_check(&j.rig, "a", &image);
        assert_int_equal(figure(&j.rig, "a", "evicted"), n_evicted);
        journaled_stop(&j);
        image_fini(&image);
        scratch_remove(j.dir);
    }
}

static void kept_and_unkept_tables_do_not_change_in_one_request(void **state)
{
    (void)state;
    struct journaled j;
    static const uint64_t keys[] = {1};
    static const float grads[4] = {1};
    embd_schema a = kept_schema("a", EMBD_DURABILITY_DURABLE),
                d = kept_schema("d", EMBD_DURABILITY_SNAPSHOT);
    struct part parts[2];
    journaled_new(&j);
    create_table(&j.rig, &a);
    create_table(&j.rig, &d);
    for (int i = 0; i < 2; i++)
        parts[i] = part_of(i == 0 ? "a" : "d", keys, 1, grads);
    ask_error(ask_parts(&j.rig, METHOD_PUSH, parts, 2), EMBD_INVALID, "part 1",
              "'d' has durability 'snapshot'", "'a' has 'durable'", NULL);
    journaled_end(&j);
}

/* Worker w of 2 for the clock; it waits until the other one has pushed. */
static struct exchange *push_in_round(struct rig *rig, struct shard_session *session, uint32_t w,
                                      uint64_t clock, const char *table)
{
    const uint64_t keys[] = {1, 2 + w};
    const float third = 1.0f / 3, grads[] = {third, 1, 2, (float)clock, (float)w, 5, 6, third};
    struct part part = part_of(table, keys, 2, grads);
    part.want_status = w == 1;
    struct push_extra extra = {
        .round = {.worker = w, .n_workers = 2, .clock = clock, .lease_ms = 1000}};
    strcpy(extra.round.job, table);
    struct exchange *x = ask(rig, session, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_send(x);
    return x;
}

static void a_step_of_a_round_is_journaled_and_replayed_to_the_same_bits(void **state)
{
    (void)state;
    struct journaled j;
    struct image kept;
    struct shard_session workers[2] = {0};
    embd_schema a = kept_schema("a", EMBD_DURABILITY_BUFFERED),
                b = kept_schema("b", EMBD_DURABILITY_SNAPSHOT);
    journaled_new(&j);
    create_table(&j.rig, &a);
    create_table(&j.rig, &b);
    for (uint64_t clock = 0; clock < 5; clock++)
        for (int i = 0; i < 2; i++) {
            struct exchange *x =
                push_in_round(&j.rig, &workers[clock % 2], 0, clock, i ? "b" : "a");
            assert_false(x->is_answered);
            struct exchange *y =
                push_in_round(&j.rig, &workers[(clock + 1) % 2], 1, clock, i ? "b" : "a");
            ask_ok(y);
            ask_ok(x);
            ask_free(x);
            ask_free(y);
        }
    assert_int_equal(figure(&j.rig, "a", "steps"), 5);
    image_take(&j.rig, "a", &kept);
    assert_int_equal(kept.rows, 3);
    image_check(&j.rig, "b", &kept);
    shard_session_end(j.rig.shard, &workers[0]);
    shard_session_end(j.rig.shard, &workers[1]);
    journaled_stop(&j);
    journaled_start(&j);
    image_check(&j.rig, "a", &kept);
    assert_int_equal(figure(&j.rig, "a", "steps"), 5);
    journaled_stop(&j);
    image_fini(&kept);
    scratch_remove(j.dir);
}

static embd_durability durability_of(struct rig *rig, const char *name)
{
    struct fields f, map;
    struct table_schema schema;
    struct exchange *x = ask(rig, &rig->data, METHOD_TABLE_DESCRIBE);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", name);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "table_describe");
    embd__field_map(&f, "schema", &map, "schema");
    assert_int_equal(embd__schema_read(&map, &schema), EMBD_OK);
    embd_durability durability = schema.s.durability;
    embd__schema_fini(&schema);
    ask_free(x);
    return durability;
}

static void a_table_is_durable_by_default_where_there_is_a_journal(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    struct image a;
    embd_schema own, pulled, buffered = kept_schema("b", EMBD_DURABILITY_BUFFERED);
    embd_schema_init(&own);
    own.dim = 4;
    pulled = own;
    strcpy(own.name, "a");
    strcpy(pulled.name, "c");
    pulled.create_on = EMBD_CREATE_ON_PULL;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create_table(&rig, &own);
    create_table(&rig, &pulled);
    create_table(&rig, &buffered);
    buffered.durability = EMBD_DURABILITY_AUTO;
    create_table(&rig, &buffered); /* whatever it is, it is there */
    assert_int_equal(durability_of(&rig, "a"), EMBD_DURABILITY_DURABLE);
    assert_int_equal(durability_of(&rig, "b"), EMBD_DURABILITY_BUFFERED);
    assert_int_equal(durability_of(&rig, "c"), EMBD_DURABILITY_SNAPSHOT);
    push_two(&rig, "a", 1);
    image_take(&rig, "a", &a);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    image_check(&rig, "a", &a);
    assert_int_equal(durability_of(&rig, "a"), EMBD_DURABILITY_DURABLE);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, NULL);
    create_table(&rig, &own);
    assert_int_equal(durability_of(&rig, "a"), EMBD_DURABILITY_SNAPSHOT);
    rig_close(&rig);
    image_fini(&a);
    scratch_remove(dir);
}

/* Of that many rows no store can make room: a journal with its creation could not be replayed. */
static void a_table_that_cannot_be_made_is_not_in_the_journal(void **state)
{
    (void)state;
    struct journaled j;
    embd_schema a = kept_schema("a", EMBD_DURABILITY_DURABLE),
                huge = kept_schema("huge", EMBD_DURABILITY_DURABLE);
    huge.dim = EMBD_DIM_MAX;
    huge.capacity = LIMIT_CAPACITY;
    journaled_new(&j);
    create_table(&j.rig, &a);
    struct exchange *x = ask(&j.rig, &j.rig.data, METHOD_TABLE_CREATE);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, &huge);
    ask_error(x, EMBD_NO_MEMORY, "huge", NULL);
    journaled_stop(&j);
    journaled_start(&j);
    assert_int_equal(figure(&j.rig, NULL, "tables"), 1);
    journaled_end(&j);
}

/* Whether the push had been applied before. */
static bool pushed_again(struct rig *rig, uint64_t sequence)
{
    static const uint64_t keys[] = {1};
    const float grads[4] = {1};
    struct part part = part_of("a", keys, 1, grads);
    struct push_extra extra = {.number = {7, 9, sequence, 3}};
    struct push_answer answer;
    bool again;
    struct exchange *x = ask(rig, &rig->data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_ok(x);
    embd__push_answer_read(&x->reader, &answer, 1, &again);
    ask_free(x);
    return again;
}

static bool opens(struct rig *rig)
{
    return open_stream(rig, &(struct push_number){.high = 7, .low = 9, .stream = 3}, true);
}

/* Sets bytes_since beyond what a base is made at. */
static void push_much(struct rig *rig, const char *name)
{
    static uint64_t keys[65536];
    static float grads[65536 * 4];
    struct part part = part_of(name, keys, 65536, grads);
    for (uint32_t i = 0; i < 65536; i++) {
        keys[i] = i % 1000;
        grads[4 * i] = (float)i;
    }
    for (uint64_t n = 0; n * sizeof grads < (uint64_t)64 << 20; n++)
        push(rig, &part, NULL);
}

/* Paths, of which the next call but one takes the memory of the last. */
static const char *path_of(const char *dir, uint64_t number, bool is_base)
{
    static char paths[2][160];
    static int next;
    char name[64], *path = paths[next++ % 2];
    if (is_base)
        basefile_name(name, 0, number);
    else
        journal_file_name(name, 0, number);
    snprintf(path, sizeof paths[0], "%s/%s", dir, name);
    return path;
}

static bool has_segment(const char *dir, uint64_t number)
{
    return access(path_of(dir, number, false), F_OK) == 0;
}

static bool has_base(const char *dir, uint64_t number)
{
    return access(path_of(dir, number, true), F_OK) == 0;
}

static void copy_file(const char *from, const char *to)
{
    char command[400];
    snprintf(command, sizeof command, "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

static void flip(const char *path, off_t offset)
{
    char byte;
    int fd = open(path, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pread(fd, &byte, 1, offset), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, offset), 1);
    close(fd);
}

static void check_refused(const char *dir, const char *word)
{
    struct rig rig;
    struct shard_config config;
    struct shard *shard;
    struct embd__error e = {.status = EMBD_OK};
    rig_open(&rig, &store_host, 0, 1, NULL);
    config = rig.config;
    config.data_dir = dir;
    assert_int_equal(shard_open(&config, &shard, &e), EMBD_CORRUPT);
    if (strstr(e.text, word) == NULL)
        fail_msg("'%s' is not in: %s", word, e.text);
    rig_close(&rig);
}

/* The start after the pushes begins the journal anew; what is pushed then is in the segment behind.
 */
static void a_journal_that_has_grown_long_begins_anew_and_holds_the_same(void **state)
{
    (void)state;
    struct journaled j;
    struct image a, empty;
    embd_schema first = kept_schema("a", EMBD_DURABILITY_BUFFERED),
                none = kept_schema("empty", EMBD_DURABILITY_DURABLE);
    journaled_new(&j);
    create_table(&j.rig, &first);
    create_table(&j.rig, &none);
    push_two(&j.rig, "empty", 1);
    erase_one(&j.rig, "empty");
    assert_true(opens(&j.rig));
    for (uint64_t n = 1; n <= 3; n++)
        assert_false(pushed_again(&j.rig, n));
    push_much(&j.rig, "a");
    image_take(&j.rig, "a", &a);
    image_take(&j.rig, "empty", &empty);
    journaled_stop(&j);
    assert_true(has_segment(j.dir, 1));
    for (int i = 0; i < 3; i++) {
        journaled_start(&j);
        image_check(&j.rig, "a", &a);
        image_check(&j.rig, "empty", &empty);
        assert_false(has_segment(j.dir, 1));
        assert_true(has_base(j.dir, 2));
        assert_int_equal(has_segment(j.dir, 2), i > 0);
        assert_int_equal(figure(&j.rig, NULL, "journal_bases"), i == 0);
        assert_true(figure(&j.rig, NULL, "journal_base_bytes") > 1000 * 4 * 3 * sizeof(float));
        assert_true(pushed_again(&j.rig, 3));
        image_check(&j.rig, "a", &a);
        push_two(&j.rig, "a", (float)i);
        image_fini(&a);
        image_take(&j.rig, "a", &a);
        journaled_stop(&j);
    }
    copy_file(path_of(j.dir, 2, false),
              path_of(j.dir, 1, false)); /* as if the server had ended before they went */
    copy_file(path_of(j.dir, 2, true), path_of(j.dir, 1, true));
    journaled_start(&j);
    image_check(&j.rig, "a", &a);
    assert_false(has_segment(j.dir, 1));
    assert_false(has_base(j.dir, 1));
    journaled_stop(&j);
    copy_file(path_of(j.dir, 2, false), path_of(j.dir, 4, false));
    check_refused(j.dir, "it is missing, and later ones exist");
    rig_open_damaged(&j.rig, &store_host, 0, 1, j.dir, true);
    image_check(&j.rig, "a", &a);
    assert_false(has_segment(j.dir, 4));
    assert_false(has_segment(j.dir, 5)); /* the record that keeps followers apart (commit_break) */
    assert_true(has_base(j.dir, 6));
    assert_false(has_base(j.dir, 2));
    journaled_stop(&j);
    journaled_start(&j);
    image_check(&j.rig, "a", &a);
    assert_false(has_segment(j.dir, 2));
    journaled_stop(&j);
    image_fini(&a);
    image_fini(&empty);
    scratch_remove(j.dir);
}

/* It is nothing but records whose every bit is verified, and may be neither longer nor shorter. */
static void a_base_that_is_not_as_it_was_written_is_refused(void **state)
{
    (void)state;
    struct journaled j;
    struct image a;
    struct embd__error e = {.status = EMBD_OK};
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    journaled_new(&j);
    create_table(&j.rig, &schema);
    push_two(&j.rig, "a", 1);
    assert_int_equal(compaction_make_now(&j.rig.shard->commit, &e), EMBD_OK);
    image_take(&j.rig, "a", &a);
    journaled_stop(&j);
    assert_false(has_segment(j.dir, 1));
    assert_true(has_base(j.dir, 2));
    const char *base = path_of(j.dir, 2, true);
    struct stat st;
    assert_int_equal(stat(base, &st), 0);
    for (off_t at = SEGMENT_HEADER_BYTES; at < st.st_size; at++) {
        flip(base, at);
        check_refused(j.dir, "it is in the base");
        flip(base, at);
    }
    for (off_t at = 0; at < (off_t)SEGMENT_HEADER_BYTES / 2; at++) { /* its header is there twice */
        flip(base, at);
        flip(base, at + (off_t)SEGMENT_HEADER_BYTES / 2);
        check_refused(j.dir, "its header does not verify");
        flip(base, at);
        journaled_start(&j);
        image_check(&j.rig, "a", &a);
        journaled_stop(&j);
        flip(base, at + (off_t)SEGMENT_HEADER_BYTES / 2);
    }
    assert_int_equal(truncate(base, st.st_size + 1), 0);
    check_refused(j.dir, "behind the base");
    assert_int_equal(truncate(base, st.st_size), 0);
    journaled_start(&j);
    image_check(&j.rig, "a", &a);
    push_two(&j.rig, "a", 2);
    journaled_stop(&j);
    assert_int_equal(truncate(base, st.st_size - 1), 0);
    check_refused(j.dir, "in the base");
    rig_open_damaged(&j.rig, &store_host, 0, 1, j.dir, true);
    assert_int_equal(figure(&j.rig, NULL, "journal_damages"), 1);
    image_check(&j.rig, "a", &a); /* the push that followed went with what was cut */
    journaled_stop(&j);
    assert_false(has_segment(j.dir, 3)); /* as above */
    assert_true(has_base(j.dir, 4));
    assert_false(has_base(j.dir, 2));
    image_fini(&a);
    scratch_remove(j.dir);
}

/* Without snapshots and without a start: beyond its limit, and beyond what the tables have. */
static void a_journal_stays_within_its_limit_and_what_the_tables_have(void **state)
{
    (void)state;
    struct journaled j;
    struct image a;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    scratch_new(j.dir);
    rig_open_limited(&j.rig, j.dir, 4096);
    create_table(&j.rig, &schema);
    for (int i = 0; i < 200; i++) {
        push_batch(&j.rig, &schema);
        uint64_t base = figure(&j.rig, NULL, "journal_base_bytes");
        uint64_t most = (base > 4096 ? base : 4096) + 65536; /* of a push */
        assert_true(figure(&j.rig, NULL, "journal_bytes") <= base + most);
    }
    assert_true(figure(&j.rig, NULL, "journal_bases") > 2);
    assert_int_equal(figure(&j.rig, NULL, "journal_base_errors"), 0);
    image_take(&j.rig, "a", &a);
    rig_close(&j.rig);
    for (int i = 0; i < 2; i++) {
        journaled_start(&j);
        image_check(&j.rig, "a", &a);
        journaled_stop(&j);
    }
    image_fini(&a);
    scratch_remove(j.dir);
}

/* Else a power cut leaves a torn tail before another segment, which is damage. */
static void a_segment_is_on_disk_before_there_is_another_one(void **state)
{
    (void)state;
    struct journaled j;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    int n_begun = 0;
    scratch_new(j.dir);
    rig_open_limited(&j.rig, j.dir, 4096);
    create_table(&j.rig, &schema);
    for (int i = 0; i < 200; i++) {
        memset(syncs, 0, sizeof syncs);
        push_batch(&j.rig, &schema);
        const char *new = strchr(syncs, 'f');
        if (new == NULL)
            continue;
        if (new == syncs ||
            strncmp(new - 1, "dff", 3) != 0) /* the old one; the new one, its name */
            fail_msg("syncs in the order '%s'", syncs);
        n_begun++;
    }
    assert_true(n_begun > 2);
    journaled_end(&j);
}

/* Of snapshots a start only wants to know since which there may be increments, and the next
 * snapshot how the others are numbered. */
static void a_directory_that_may_not_be_read_keeps_nobody_from_starting_or_from_snapshots(
    void **state)
{
    (void)state;
    struct journaled j;
    uint64_t sequence = 0;
    struct embd__error e = {.status = EMBD_OK};
    struct image a;
    char path[80];
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    journaled_new(&j);
    create_table(&j.rig, &schema);
    push_two(&j.rig, "a", 1);
    image_take(&j.rig, "a", &a);
    journaled_stop(&j);
    snprintf(path, sizeof path, "%s/backup", j.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    closed_to_us = "backup";
    journaled_start(&j);
    int at_start = n_refused, fd = open(j.dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(snapshot_next_sequence(fd, NULL, &sequence, &e), EMBD_OK);
    assert_true(sequence > 0 && n_refused >= at_start);
    close(fd);
    closed_to_us = NULL;
    if (n_refused == 0)
        skip(); /* a kernel without openat2 */
    assert_true(n_refused > at_start);
    image_check(&j.rig, "a", &a);
    image_fini(&a);
    journaled_end(&j);
}

/* Sent, and answered when the journal's thread has it. A base keeps it waiting no more than until
 * it has begun. */
static void push_and_wait(struct rig *rig, float value)
{
    static const uint64_t keys[] = {1, 2, 3, 4};
    const float grads[16] = {value, 2, 3, value};
    struct part part = part_of("a", keys, 4, grads);
    struct exchange *x = ask(rig, &rig->data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, NULL);
    ask_send(x);
    assert_false(hold_is_on(&rig->shard->hold));
    ask_wait(x);
    ask_ok(x);
    ask_free(x);
}

static void a_base_is_written_beside_pushes(void **state)
{
    (void)state;
    struct journaled j;
    struct image a;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    journaled_new(&j);
    j.rig.config.journal_limit = 1024;
    rig_wake(&j.rig);
    create_table(&j.rig, &schema);
    bool is_enough = false; /* the thread that writes them may be slow */
    for (int i = 0; i < 100000 && !is_enough; i++) {
        push_and_wait(&j.rig, (float)(i % 100));
        is_enough = figure(&j.rig, NULL, "journal_bases") > 2;
    }
    assert_true(is_enough);
    image_take(&j.rig, "a", &a);
    journaled_stop(&j);
    assert_false(has_segment(j.dir, 1));
    journaled_start(&j);
    image_check(&j.rig, "a", &a);
    journaled_end(&j);
    image_fini(&a);
}

/* Pushes that each take longer than a turn: those written together are applied one at a time, and
 * what comes between is received, and in the journal when they are. */
static void requests_are_received_between_pushes_that_were_written_together(void **state)
{
    (void)state;
    enum { KEYS = 1 << 17, TOGETHER = 3 };
    struct journaled j;
    struct image a;
    struct exchange *x[TOGETHER + 1];
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_BUFFERED);
    uint64_t *keys = calloc(KEYS, sizeof *keys);
    float *grads = calloc(4 * KEYS, sizeof *grads);
    assert_true(keys != NULL && grads != NULL);
    for (uint32_t i = 0; i < KEYS; i++)
        keys[i] = i;
    for (uint32_t i = 0; i < 4 * KEYS; i++)
        grads[i] = (float)(i % 7);
    const struct part part = part_of("a", keys, KEYS, grads), few = part_of("a", keys, 5, grads);
    journaled_new(&j);
    rig_wake(&j.rig);
    create_table(&j.rig, &schema);
    for (int i = 0; i <= TOGETHER; i++) {
        x[i] = ask(&j.rig, &j.rig.data, METHOD_PUSH);
        embd__push_write(&x[i]->out, i < TOGETHER ? &part : &few, 1, NULL);
    }
    for (int i = 0; i < TOGETHER; i++)
        ask_send(x[i]);
    bool has_more = false;
    while (!x[0]->is_answered)
        has_more = shard_collect(j.rig.shard);
    assert_true(has_more && !x[1]->is_answered);
    ask_send(x[TOGETHER]);
    has_more = shard_collect(j.rig.shard);
    assert_true(has_more && x[1]->is_answered && !x[2]->is_answered && !x[3]->is_answered);
    assert_true(j.rig.data.spent_ns > 0); /* counted to who pushed */
    for (int i = 0; i <= TOGETHER; i++) {
        ask_wait(x[i]);
        ask_ok(x[i]);
        ask_free(x[i]);
    }
    image_take(&j.rig, "a", &a);
    journaled_stop(&j);
    journaled_start(&j);
    image_check(&j.rig, "a", &a);
    journaled_end(&j);
    image_fini(&a);
    free(keys);
    free(grads);
}

static void a_server_without_a_data_directory_refuses_by_name(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema a = kept_schema("a", EMBD_DURABILITY_DURABLE);
    rig_open(&rig, &store_host, 0, 1, NULL);
    struct exchange *x = ask(&rig, &rig.data, METHOD_TABLE_CREATE);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, &a);
    ask_error(x, EMBD_UNSUPPORTED, "'durability' is 'durable'", "no data directory", NULL);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_changes_are_replayed_to_the_same_bits),
        cmocka_unit_test(a_replay_evicts_and_admits_as_the_first_time),
        cmocka_unit_test(what_found_no_memory_is_not_replayed),
        cmocka_unit_test(kept_and_unkept_tables_do_not_change_in_one_request),
        cmocka_unit_test(a_step_of_a_round_is_journaled_and_replayed_to_the_same_bits),
        cmocka_unit_test(a_table_is_durable_by_default_where_there_is_a_journal),
        cmocka_unit_test(a_table_that_cannot_be_made_is_not_in_the_journal),
        cmocka_unit_test(a_journal_that_has_grown_long_begins_anew_and_holds_the_same),
        cmocka_unit_test(a_base_that_is_not_as_it_was_written_is_refused),
        cmocka_unit_test(a_journal_stays_within_its_limit_and_what_the_tables_have),
        cmocka_unit_test(a_segment_is_on_disk_before_there_is_another_one),
        cmocka_unit_test(
            a_directory_that_may_not_be_read_keeps_nobody_from_starting_or_from_snapshots),
        cmocka_unit_test(a_base_is_written_beside_pushes),
        cmocka_unit_test(requests_are_received_between_pushes_that_were_written_together),
        cmocka_unit_test(a_server_without_a_data_directory_refuses_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
