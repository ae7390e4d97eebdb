/* test_journal.c - a shard that starts on the journal of another: the same tables, whatever changed
 * them; a tail torn at any byte is cut, whole records before it stay; a changed byte before the
 * last record refuses to start and says file and offset; a disk that is full refuses pushes before
 * any effect. */
#include "rig.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "batch.h"
#include "journal.h"
#include "route.h"
#include "schema.h"

#define N_PUSHES 4

static embd_schema kept_schema(const char *name, embd_durability durability)
{
    embd_schema schema;
    embd_schema_init(&schema);
    snprintf(schema.name, sizeof schema.name, "%s", name);
    schema.dim = 4;
    schema.durability = durability;
    embd_optimizer_init(&schema.optimizer, EMBD_ADAM, 0.01f);
    return schema;
}

static void push_batch(struct rig *rig, const embd_schema *schema)
{
    static struct batch batch;
    batch_fill(&batch, schema);
    struct part part = batch_part(&batch, schema, EMBD_F32, false);
    part.want_status = false;
    push(rig, &part, NULL);
}

/* Gradients for keys 1 and 2. */
static void push_two(struct rig *rig, const char *name, float value)
{
    static const uint64_t keys[] = {1, 2};
    const float grads[] = {value, 1, 2, 3, -value, 5, 6, 7};
    struct part part = {.table = embd__table_id(name),
                        .n_keys = 2,
                        .n_rows = 2,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads,
                        .dtype = EMBD_F32};
    push(rig, &part, NULL);
}

static void erase_one(struct rig *rig, const char *name)
{
    static const uint64_t keys[] = {1};
    struct part part = {.table = embd__table_id(name), .n_keys = 1, .n_rows = 1, .keys = keys};
    struct exchange *x = ask_parts(rig, METHOD_ERASE, &part, 1);
    ask_ok(x);
    ask_free(x);
}

static void drop_table(struct rig *rig, const char *name)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_TABLE_DROP);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", name);
    ask_ok(x);
    ask_free(x);
}

static void all_changes_are_replayed_to_the_same_bits(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    struct image a, b;
    embd_schema durable = kept_schema("a", EMBD_DURABLE),
                buffered = kept_schema("b", EMBD_BUFFERED),
                dropped = kept_schema("c", EMBD_DURABLE), unkept = kept_schema("d", EMBD_SNAPSHOT);
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create_table(&rig, &durable);
    create_table(&rig, &buffered);
    create_table(&rig, &dropped);
    create_table(&rig, &unkept);
    for (int i = 0; i < N_PUSHES; i++) {
        push_batch(&rig, &durable);
        push_batch(&rig, &buffered);
        push_two(&rig, "a", 0.5f);
        push_two(&rig, "c", 0.5f);
        push_two(&rig, "d", 0.5f);
    }
    erase_one(&rig, "a");
    drop_table(&rig, "c");
    image_take(&rig, "a", &a);
    image_take(&rig, "b", &b);
    assert_true(a.rows > 2 && b.rows > 2);
    rig_close(&rig);
    for (int starts = 0; starts < 2; starts++) {
        rig_open(&rig, &store_host, 0, 1, dir);
        image_check(&rig, "a", &a);
        image_check(&rig, "b", &b);
        create_table(&rig, &dropped); /* not there: its old rows would be seen */
        assert_int_equal(figure(&rig, "c", "rows"), 0);
        drop_table(&rig, "c");
        push_two(&rig, "a", 0.25f);
        image_fini(&a);
        image_take(&rig, "a", &a);
        rig_close(&rig);
    }
    image_fini(&a);
    image_fini(&b);
    scratch_remove(dir);
}

static void a_replay_evicts_and_admits_as_the_first_time(void **state)
{
    (void)state;
    for (int policy = EMBD_EVICT_LRU; policy <= EMBD_EVICT_TTL; policy++) {
        char dir[64];
        struct rig rig;
        struct image image;
        embd_schema schema = kept_schema("a", EMBD_BUFFERED);
        schema.on_full = (embd_on_full)policy;
        schema.capacity = 600;
        schema.ttl = 1;
        schema.admit_after = 2;
        scratch_new(dir);
        rig_open(&rig, &store_host, 0, 1, dir);
        create_table(&rig, &schema);
        for (int i = 0; i < 12; i++)
            push_batch(&rig, &schema);
        image_take(&rig, "a", &image);
        uint64_t n_evicted = figure(&rig, "a", "evicted");
        assert_true(n_evicted > 0 && figure(&rig, "a", "candidates") > 0);
        rig_close(&rig);
        rig_open(&rig, &store_host, 0, 1, dir);
        image_check(&rig, "a", &image);
        assert_int_equal(figure(&rig, "a", "evicted"), n_evicted);
        rig_close(&rig);
        image_fini(&image);
        scratch_remove(dir);
    }
}

/* ---- damage ---- */

struct bytes {
    uint8_t data[1 << 16];
    size_t n;
};

static void path_of(char out[128], const char *dir)
{
    snprintf(out, 128, "%s/journal.0.00000001", dir);
}

static void read_journal(const char *dir, struct bytes *out)
{
    char path[128];
    path_of(path, dir);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    out->n = fread(out->data, 1, sizeof out->data, file);
    assert_true(out->n < sizeof out->data);
    fclose(file);
}

static void write_journal(const char *dir, const struct bytes *bytes, size_t n)
{
    char path[128];
    path_of(path, dir);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes->data, 1, n, file), n);
    fclose(file);
}

/* A journal of one table and N_PUSHES pushes; ends[i]: its length, and images[i] the table, after i
 * pushes. */
struct sample {
    char dir[64];
    struct bytes whole;
    size_t ends[N_PUSHES + 1];
    struct image images[N_PUSHES + 1];
};

static void sample_new(struct sample *s)
{
    struct rig rig;
    embd_schema schema = kept_schema("a", EMBD_DURABLE);
    scratch_new(s->dir);
    rig_open(&rig, &store_host, 0, 1, s->dir);
    create_table(&rig, &schema);
    for (int i = 0; i <= N_PUSHES; i++) {
        if (i > 0)
            push_two(&rig, "a", (float)i);
        image_take(&rig, "a", &s->images[i]);
        read_journal(s->dir, &s->whole);
        s->ends[i] = s->whole.n;
    }
    rig_close(&rig);
}

static void sample_free(struct sample *s)
{
    for (int i = 0; i <= N_PUSHES; i++)
        image_fini(&s->images[i]);
    scratch_remove(s->dir);
}

static void a_tail_torn_at_any_byte_is_cut(void **state)
{
    (void)state;
    static struct sample s;
    struct rig rig;
    sample_new(&s);
    int whole = N_PUSHES;
    for (size_t n = s.ends[N_PUSHES]; n >= s.ends[0]; n--) {
        while (s.ends[whole] > n)
            whole--;
        write_journal(s.dir, &s.whole, n);
        rig_open(&rig, &store_host, 0, 1, s.dir);
        image_check(&rig, "a", &s.images[whole]);
        push_two(&rig, "a", (float)(whole + 1)); /* it goes on from there */
        if (whole < N_PUSHES)
            image_check(&rig, "a", &s.images[whole + 1]);
        rig_close(&rig);
        rig_open(&rig, &store_host, 0, 1, s.dir);
        if (whole < N_PUSHES)
            image_check(&rig, "a", &s.images[whole + 1]);
        rig_close(&rig);
    }
    sample_free(&s);
}

static void expect_damage(struct sample *s, size_t at)
{
    struct shard *shard = NULL;
    struct embd__error e = {.status = EMBD_OK};
    struct shard_config config = {
        .n_shards = 1, .cluster_name = "test", .store = &store_host, .data_dir = s->dir};
    if (shard_open(&config, &shard, &e) != EMBD_CORRUPT)
        fail_msg("byte %zu: status %d '%s'", at, e.status, e.text);
    assert_non_null(strstr(e.text, "journal.0.00000001"));
    assert_non_null(strstr(e.text, "offset"));
}

static void a_changed_byte_before_the_last_record_refuses_to_start(void **state)
{
    (void)state;
    static struct sample s;
    static struct bytes after;
    sample_new(&s);
    for (size_t at = 0; at < s.ends[N_PUSHES - 1]; at++) {
        for (int bit = 0; bit < 8; bit++) {
            s.whole.data[at] ^= (uint8_t)(1 << bit);
            write_journal(s.dir, &s.whole, s.whole.n);
            expect_damage(&s, at);
            read_journal(s.dir, &after);
            assert_int_equal(after.n, s.whole.n);
            assert_memory_equal(after.data, s.whole.data, after.n);
            s.whole.data[at] ^= (uint8_t)(1 << bit);
        }
    }
    sample_free(&s);
}

static void expect_note(const char *dir, int n)
{
    char path[128], line[320];
    snprintf(path, sizeof path, "%s/journal.0.damage", dir);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (int i = 0; i < n; i++) {
        assert_non_null(fgets(line, sizeof line, file));
        assert_non_null(strstr(line, "damage of journal 'journal.0.0000000"));
        assert_non_null(strstr(line, "was accepted at offset "));
        assert_non_null(strstr(line, " bytes were dropped"));
    }
    assert_null(fgets(line, sizeof line, file));
    fclose(file);
}

static void remove_journals(const char *dir)
{
    static const char *const names[] = {"00000001", "00000002", "00000003", "damage"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[128];
        snprintf(path, sizeof path, "%s/journal.0.%s", dir, names[i]);
        unlink(path);
    }
}

/* The pushes before the damage and no others, whatever is there the next time. */
static void expect_kept(struct sample *s, int n_kept, bool accepts, int n_damages)
{
    struct rig rig;
    rig_open_damaged(&rig, &store_host, 0, 1, s->dir, accepts);
    assert_int_equal(figure(&rig, NULL, "journal_damages"), n_damages);
    assert_int_equal(figure(&rig, NULL, "tables"), n_kept >= 0);
    if (n_kept >= 0) {
        image_check(&rig, "a", &s->images[n_kept]);
        push_two(&rig, "a", (float)(n_kept + 1));
        image_check(&rig, "a", &s->images[n_kept + 1]);
    }
    rig_close(&rig);
}

static void where_damage_is_accepted_what_follows_it_goes_and_a_note_stays(void **state)
{
    (void)state;
    static struct sample s;
    sample_new(&s);
    for (size_t at = 0; at < s.ends[N_PUSHES - 1]; at += 5) {
        int n_kept = -1;
        while (s.ends[n_kept + 1] <= at)
            n_kept++;
        remove_journals(s.dir);
        s.whole.data[at] ^= 4;
        write_journal(s.dir, &s.whole, s.whole.n);
        s.whole.data[at] ^= 4;
        expect_damage(&s, at);
        expect_kept(&s, n_kept, true, 1);
        expect_note(s.dir, 1);
        if (n_kept >= 0 && n_kept + 2 <= N_PUSHES)
            expect_kept(&s, n_kept + 1, false, 1);
    }
    sample_free(&s);
}

/* What was torn is no damage, and what is whole is kept. */
static void a_journal_without_damage_is_read_whole_though_damage_is_accepted(void **state)
{
    (void)state;
    static struct sample s;
    struct rig rig;
    sample_new(&s);
    write_journal(s.dir, &s.whole, s.ends[N_PUSHES] - 1);
    expect_kept(&s, N_PUSHES - 1, true, 0);
    sample_free(&s);
    sample_new(&s);
    rig_open_damaged(&rig, &store_host, 0, 1, s.dir, true);
    image_check(&rig, "a", &s.images[N_PUSHES]);
    rig_close(&rig);
    sample_free(&s);
}

static void a_journal_of_another_number_of_shards_refuses_to_start(void **state)
{
    (void)state;
    static struct sample s;
    struct shard *shard = NULL;
    struct embd__error e = {.status = EMBD_OK};
    sample_new(&s);
    struct shard_config config = {
        .n_shards = 2, .cluster_name = "test", .store = &store_host, .data_dir = s.dir};
    assert_int_equal(shard_open(&config, &shard, &e), EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "is of shard 0 of 1, this is shard 0 of 2"));
    sample_free(&s);
}

/* ---- refusals ---- */

static void a_full_disk_refuses_a_push_before_any_effect_and_recovers(void **state)
{
    (void)state;
    static struct sample s;
    static const uint64_t keys[] = {1, 2};
    static const float grads[8] = {1};
    struct part part = {.table = embd__table_id("a"),
                        .n_keys = 2,
                        .n_rows = 2,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads,
                        .dtype = EMBD_F32};
    struct rig rig;
    struct rlimit before, full;
    sample_new(&s);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full = before;
    full.rlim_cur = s.whole.n + 20; /* of the next record only a piece fits */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
    ask_error(ask_parts(&rig, METHOD_PUSH, &part, 1), EMBD_IO, "journal", "nothing was changed",
              NULL);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    image_check(&rig, "a", &s.images[N_PUSHES]);
    push_two(&rig, "a", 9);
    struct image image;
    image_take(&rig, "a", &image);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    image_check(&rig, "a", &image);
    image_fini(&image);
    rig_close(&rig);
    sample_free(&s);
}

static void kept_and_unkept_tables_do_not_change_in_one_request(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    static const uint64_t keys[] = {1};
    static const float grads[4] = {1};
    embd_schema a = kept_schema("a", EMBD_DURABLE), d = kept_schema("d", EMBD_SNAPSHOT);
    struct part parts[2];
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create_table(&rig, &a);
    create_table(&rig, &d);
    for (int i = 0; i < 2; i++)
        parts[i] = (struct part){.table = embd__table_id(i == 0 ? "a" : "d"),
                                 .n_keys = 1,
                                 .n_rows = 1,
                                 .keys = keys,
                                 .grads = grads,
                                 .grads_bytes = sizeof grads,
                                 .dtype = EMBD_F32};
    ask_error(ask_parts(&rig, METHOD_PUSH, parts, 2), EMBD_INVALID, "part 1", "'d' is 'snapshot'",
              "'a' is 'durable'", NULL);
    rig_close(&rig);
    scratch_remove(dir);
}

/* Worker w of 2 for the clock; it waits until the other one has pushed. */
static struct exchange *push_in_round(struct rig *rig, struct shard_session *session, uint32_t w,
                                      uint64_t clock, const char *table)
{
    const uint64_t keys[] = {1, 2 + w};
    const float third = 1.0f / 3, grads[] = {third, 1, 2, (float)clock, (float)w, 5, 6, third};
    struct part part = {.table = embd__table_id(table),
                        .n_keys = 2,
                        .n_rows = 2,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads,
                        .dtype = EMBD_F32,
                        .want_status = w == 1};
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
    char dir[64];
    struct rig rig;
    struct image kept;
    struct shard_session workers[2] = {0};
    embd_schema a = kept_schema("a", EMBD_BUFFERED), b = kept_schema("b", EMBD_SNAPSHOT);
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create_table(&rig, &a);
    create_table(&rig, &b);
    for (uint64_t clock = 0; clock < 5; clock++)
        for (int i = 0; i < 2; i++) {
            struct exchange *x = push_in_round(&rig, &workers[clock % 2], 0, clock, i ? "b" : "a");
            assert_false(x->is_answered);
            struct exchange *y =
                push_in_round(&rig, &workers[(clock + 1) % 2], 1, clock, i ? "b" : "a");
            ask_ok(y);
            ask_ok(x);
            ask_free(x);
            ask_free(y);
        }
    assert_int_equal(figure(&rig, "a", "steps"), 5);
    image_take(&rig, "a", &kept);
    assert_int_equal(kept.rows, 3);
    image_check(&rig, "b", &kept);
    shard_session_end(rig.shard, &workers[0]);
    shard_session_end(rig.shard, &workers[1]);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    image_check(&rig, "a", &kept);
    assert_int_equal(figure(&rig, "a", "steps"), 5);
    rig_close(&rig);
    image_fini(&kept);
    scratch_remove(dir);
}

/* Of that many rows no store can make room: a journal with its creation could not be replayed. */
static void a_table_that_cannot_be_made_is_not_in_the_journal(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    embd_schema a = kept_schema("a", EMBD_DURABLE), huge = kept_schema("huge", EMBD_DURABLE);
    huge.dim = EMBD_DIM_MAX;
    huge.capacity = LIMIT_CAPACITY;
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create_table(&rig, &a);
    struct exchange *x = ask(&rig, &rig.data, METHOD_TABLE_CREATE);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, &huge);
    ask_error(x, EMBD_NO_MEMORY, "huge", NULL);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    assert_int_equal(figure(&rig, NULL, "tables"), 1);
    rig_close(&rig);
    scratch_remove(dir);
}

/* Whether the push had been applied before. */
static bool pushed_again(struct rig *rig, uint64_t sequence)
{
    static const uint64_t keys[] = {1};
    const float grads[4] = {1};
    struct part part = {.table = embd__table_id("a"),
                        .n_keys = 1,
                        .n_rows = 1,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads,
                        .dtype = EMBD_F32};
    struct push_extra extra = {.writer = {7, 9, sequence, 3}};
    struct push_answer answer;
    bool again;
    struct exchange *x = ask(rig, &rig->data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, &extra);
    ask_ok(x);
    embd__push_answer_read(&x->reader, &answer, 1, &again);
    ask_free(x);
    return again;
}

/* Sets bytes_since beyond what a base is made at. */
static void push_much(struct rig *rig, const char *name)
{
    static uint64_t keys[65536];
    static float grads[65536 * 4];
    struct part part = {.table = embd__table_id(name),
                        .n_keys = 65536,
                        .n_rows = 65536,
                        .keys = keys,
                        .grads = grads,
                        .grads_bytes = sizeof grads,
                        .dtype = EMBD_F32};
    for (uint32_t i = 0; i < 65536; i++) {
        keys[i] = i % 1000;
        grads[4 * i] = (float)i;
    }
    for (uint64_t n = 0; n * sizeof grads < JOURNAL_BASE_MIN_BYTES; n++)
        push(rig, &part, NULL);
}

static bool has_segment(const char *dir, uint64_t number)
{
    char path[160], name[64];
    journal_file_name(name, 0, number);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return access(path, F_OK) == 0;
}

static void copy_segment(const char *dir, uint64_t from, uint64_t to)
{
    char command[400], a[64], b[64];
    journal_file_name(a, 0, from);
    journal_file_name(b, 0, to);
    snprintf(command, sizeof command, "cp %s/%s %s/%s", dir, a, dir, b);
    assert_int_equal(system(command), 0);
}

static void damage(const char *dir, uint64_t number, off_t offset)
{
    char path[160], name[64], byte = 0x55;
    journal_file_name(name, 0, number);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int fd = open(path, O_WRONLY);
    assert_true(fd >= 0);
    if (offset < 0)
        offset += lseek(fd, 0, SEEK_END);
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

/* The start after the pushes begins the journal anew, and goes on in it. */
static void a_journal_that_has_grown_long_begins_anew_and_holds_the_same(void **state)
{
    (void)state;
    char dir[64];
    struct rig rig;
    struct image a, empty;
    embd_schema first = kept_schema("a", EMBD_BUFFERED), none = kept_schema("empty", EMBD_DURABLE);
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create_table(&rig, &first);
    create_table(&rig, &none);
    push_two(&rig, "empty", 1);
    erase_one(&rig, "empty");
    for (uint64_t n = 1; n <= 3; n++)
        assert_false(pushed_again(&rig, n));
    push_much(&rig, "a");
    image_take(&rig, "a", &a);
    image_take(&rig, "empty", &empty);
    rig_close(&rig);
    assert_true(has_segment(dir, 1));
    for (int i = 0; i < 3; i++) {
        rig_open(&rig, &store_host, 0, 1, dir);
        image_check(&rig, "a", &a);
        image_check(&rig, "empty", &empty);
        assert_false(has_segment(dir, 1));
        assert_true(has_segment(dir, 2));
        assert_false(has_segment(dir, 3));
        assert_true(pushed_again(&rig, 3));
        image_check(&rig, "a", &a);
        push_two(&rig, "a", (float)i);
        image_fini(&a);
        image_take(&rig, "a", &a);
        rig_close(&rig);
    }
    copy_segment(dir, 2, 1); /* as if the server had ended before it removed it */
    rig_open(&rig, &store_host, 0, 1, dir);
    image_check(&rig, "a", &a);
    assert_false(has_segment(dir, 1));
    rig_close(&rig);
    copy_segment(dir, 2, 4);
    check_refused(dir, "it is missing; others behind it are there");
    rig_open_damaged(&rig, &store_host, 0, 1, dir, true);
    image_check(&rig, "a", &a);
    assert_false(has_segment(dir, 4));
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    image_check(&rig, "a", &a);
    assert_false(has_segment(dir, 2));
    rig_close(&rig);
    damage(dir, 5, 200);
    check_refused(dir, "in the base");
    damage(dir, 5, 20);
    check_refused(dir, "no base");
    image_fini(&a);
    image_fini(&empty);
    scratch_remove(dir);
}

static void a_server_without_a_data_directory_refuses_by_name(void **state)
{
    (void)state;
    struct rig rig;
    embd_schema a = kept_schema("a", EMBD_DURABLE);
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
        cmocka_unit_test(a_tail_torn_at_any_byte_is_cut),
        cmocka_unit_test(a_changed_byte_before_the_last_record_refuses_to_start),
        cmocka_unit_test(where_damage_is_accepted_what_follows_it_goes_and_a_note_stays),
        cmocka_unit_test(a_journal_without_damage_is_read_whole_though_damage_is_accepted),
        cmocka_unit_test(a_journal_of_another_number_of_shards_refuses_to_start),
        cmocka_unit_test(a_full_disk_refuses_a_push_before_any_effect_and_recovers),
        cmocka_unit_test(kept_and_unkept_tables_do_not_change_in_one_request),
        cmocka_unit_test(a_step_of_a_round_is_journaled_and_replayed_to_the_same_bits),
        cmocka_unit_test(a_table_that_cannot_be_made_is_not_in_the_journal),
        cmocka_unit_test(a_journal_that_has_grown_long_begins_anew_and_holds_the_same),
        cmocka_unit_test(a_server_without_a_data_directory_refuses_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
