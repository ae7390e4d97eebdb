/* test_journal_flips.c - a bit of every fourth byte of a journal is flipped, of its base, of what
 * follows it to the last record, and of its list of withdrawn records: the start is refused, naming
 * the file, or the tables are the same. Where damage is accepted it is told once, and what is kept
 * stays. EMBD_FAULT_BITS=8: every bit. */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/service/state.h"
#include "server/journal/journal.h"
#include "tests/server/journaled.h"

enum { N_FILES = 3, N_IMAGES = 5 };

static const char *const names[N_FILES] = {"journal.0.00000002.base", "journal.0.00000002",
                                           "journal.0.withdrawn"};

struct bytes {
    uint8_t data[8192];
    size_t n;
};

/* A base of a table with one push, then pushes of which the second was refused in its turn;
 * images[i]: after i + 1 of those that were applied. */
struct sample {
    char dir[64];
    struct bytes files[N_FILES];
    struct image images[N_IMAGES];
    int n_images;
};

static void path_of(char out[160], const struct sample *s, const char *name)
{
    snprintf(out, 160, "%s/%s", s->dir, name);
}

static void read_file(const struct sample *s, const char *name, struct bytes *out)
{
    char path[160];
    path_of(path, s, name);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    out->n = (size_t)read(fd, out->data, sizeof out->data);
    if (out->n == 0 || out->n >= sizeof out->data)
        fail_msg("%s has %zu bytes", path, out->n);
    close(fd);
}

static void write_file(const struct sample *s, const char *name, const struct bytes *bytes)
{
    char path[160];
    path_of(path, s, name);
    forget_reached(s->dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, bytes->data, bytes->n) == (ssize_t)bytes->n);
    close(fd);
}

/* ---- making ---- */

static bool has_no_memory;

static void scarce_push(struct store *store, struct store_change *push, struct store_done *done)
{
    if (!has_no_memory)
        store_host.apply(store, push, done);
    else
        done->fn(done, embd__error_set(&done->error, EMBD_NO_MEMORY, "no memory for a push"));
}

static struct store_ops scarce_ops(void)
{
    struct store_ops ops = store_host;
    ops.apply = scarce_push;
    return ops;
}

static void refused_push(struct rig *rig)
{
    static const uint64_t keys[] = {1, 9};
    static const float grads[8] = {1, 2, 3};
    struct part part = part_of("a", keys, 2, grads);
    has_no_memory = true;
    ask_error(ask_parts(rig, METHOD_PUSH, &part, 1), EMBD_NO_MEMORY, "no memory", NULL);
    has_no_memory = false;
}

static void push_one(struct sample *s, struct rig *rig)
{
    push_two(rig, "a", (float)(s->n_images + 1));
    image_take(rig, "a", &s->images[s->n_images++]);
}

static void sample_new(struct sample *s, int n_refused)
{
    struct rig rig;
    const struct store_ops ops = scarce_ops();
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    struct embd__error e = {.status = EMBD_OK};
    s->n_images = 0;
    scratch_new(s->dir);
    rig_open(&rig, &ops, 0, 1, s->dir);
    create_table(&rig, &schema);
    push_one(s, &rig);
    assert_int_equal(compaction_make_now(&rig.shard->commit, &e), EMBD_OK);
    push_one(s, &rig);
    for (int i = 0; i < n_refused; i++)
        refused_push(&rig);
    push_one(s, &rig);
    rig_close(&rig);
    for (int i = 0; i < N_FILES; i++)
        read_file(s, names[i], &s->files[i]);
}

static void sample_free(struct sample *s)
{
    for (int i = 0; i < s->n_images; i++)
        image_fini(&s->images[i]);
    scratch_remove(s->dir);
}

/* As it was left, and nothing else. */
static void restore(const struct sample *s)
{
    static const char *const others[] = {"journal.0.damage", "journal.0.00000003.base",
                                         "journal.0.00000003", "journal.0.00000004.base"};
    char path[160];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        path_of(path, s, others[i]);
        unlink(path);
    }
    for (int i = 0; i < N_FILES; i++)
        write_file(s, names[i], &s->files[i]);
}

/* ---- starting ---- */

static int start(const struct sample *s, bool accepts, struct rig *rig, struct embd__error *e)
{
    rig_open(rig, &store_host, 0, 1, NULL);
    struct shard_config config = rig->config;
    rig_close(rig);
    config.data_dir = s->dir;
    config.accepts_journal_damage = accepts;
    rig->config = config;
    return shard_open(&rig->config, &rig->shard, e);
}

/* Which image the table is; -1: there is none. */
static int kept(struct rig *rig, const struct sample *s)
{
    if (figure(rig, NULL, "tables") == 0)
        return -1;
    uint64_t steps = figure(rig, "a", "steps");
    assert_true(steps <= (uint64_t)s->n_images);
    if (steps > 0)
        image_check(rig, "a", &s->images[steps - 1]);
    return (int)steps - 1;
}

/* Refuses, or keeps all. Returns whether it refuses. */
static bool is_refused(const struct sample *s, const char *name)
{
    struct rig rig;
    struct embd__error e = {.status = EMBD_OK};
    if (start(s, false, &rig, &e) == EMBD_OK) {
        assert_int_equal(kept(&rig, s), s->n_images - 1);
        rig_close(&rig);
        return false;
    }
    assert_int_equal(e.status, EMBD_CORRUPT);
    if (strstr(e.text, name) == NULL || strstr(e.text, "offset") == NULL ||
        strstr(e.text, "--accept-journal-damage") == NULL)
        fail_msg("%s: %s", name, e.text);
    return true;
}

/* What is kept where it is accepted, and at the start after that, which accepts nothing. */
static int keep_rest(const struct sample *s)
{
    struct rig rig;
    struct embd__error e = {.status = EMBD_OK};
    int n_kept = -1;
    for (int i = 0; i < 2; i++) {
        if (start(s, i == 0, &rig, &e) != EMBD_OK)
            fail_msg("%s", e.text);
        assert_int_equal(figure(&rig, NULL, "journal_damages"), 1);
        int n = kept(&rig, s);
        assert_true(i == 0 || n == n_kept);
        n_kept = n;
        rig_close(&rig);
    }
    return n_kept;
}

/* ---- cases ---- */

static int bits(void)
{
    const char *text = getenv("EMBD_FAULT_BITS");
    return text != NULL ? atoi(text) : 1;
}

/* Where the last mark begins; zeros may stand behind it. */
static size_t last_mark(const struct bytes *segment)
{
    struct mark mark;
    struct segment_header header;
    size_t at = segment->n - MARK_BYTES;
    assert_int_equal(segment_header_read(segment->data, segment->n, &header), SEGMENT_HEADER_BYTES);
    while (at > 0 && !mark_read(&header.key, segment->data + at, MARK_BYTES, &mark))
        at--;
    assert_true(at > 0);
    return at;
}

static void a_flipped_bit_refuses_or_loses_nothing(void **state)
{
    static struct sample s;
    (void)state;
    sample_new(&s, 1);
    for (int f = 0; f < N_FILES; f++) {
        struct bytes *file = &s.files[f];
        size_t harmless_from = f == 0 ? file->n : f == 1 ? last_mark(file) : 0;
        for (size_t at = 0; at < file->n; at += bits() == 1 ? 4 : 1)
            for (int i = 0; i < bits(); i++) {
                uint8_t bit = (uint8_t)(1u << (at / 4 + (size_t)i) % 8);
                file->data[at] ^= bit;
                restore(&s);
                bool refused = is_refused(&s, names[f]);
                if (refused != (at >= SEGMENT_HEADER_BYTES &&
                                at < harmless_from)) /* a header is there twice */
                    fail_msg("%s, byte %zu", names[f], at);
                if (refused)
                    keep_rest(&s);
                file->data[at] ^= bit;
            }
    }
    sample_free(&s);
}

/* Nothing says any more what it was. */
static void a_base_without_header_is_dropped_where_that_is_accepted(void **state)
{
    static struct sample s;
    struct rig rig;
    (void)state;
    sample_new(&s, 1);
    s.files[0].data[3] ^= 1;
    s.files[0].data[SEGMENT_HEADER_BYTES - 1] ^= 1;
    restore(&s);
    assert_true(is_refused(&s, names[0]));
    assert_int_equal(keep_rest(&s), -1);
    rig_open(&rig, &store_host, 0, 1, s.dir); /* it goes on, with another journal */
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    create_table(&rig, &schema);
    push_two(&rig, "a", 1);
    image_check(&rig, "a", &s.images[0]);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    image_check(&rig, "a", &s.images[0]);
    rig_close(&rig);
    sample_free(&s);
}

/* Both copies of an entry: a push that was refused would be applied. */
static void a_lost_entry_of_what_was_withdrawn_is_accepted_too(void **state)
{
    static struct sample s;
    struct rig rig;
    struct embd__error e = {.status = EMBD_OK};
    (void)state;
    sample_new(&s, 2);
    s.files[2].data[8 + 3] ^= 1;
    s.files[2].data[8 + 24 + 3] ^= 1;
    restore(&s);
    assert_true(is_refused(&s, names[2]));
    if (start(&s, true, &rig, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    assert_int_equal(figure(&rig, NULL, "journal_damages"), 1);
    assert_int_equal(figure(&rig, "a", "steps"), s.n_images + 1);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    assert_int_equal(figure(&rig, "a", "steps"), s.n_images + 1);
    rig_close(&rig);
    sample_free(&s);
}

/* The disk has room for the line that tells of it, and for nothing more. */
static void damage_that_is_accepted_again_and_again_is_told_once(void **state)
{
    static struct sample s;
    struct rig rig;
    struct rlimit before, full;
    (void)state;
    sample_new(&s, 1);
    s.files[1].data[SEGMENT_HEADER_BYTES + 70] ^= 1;
    restore(&s);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    full = before;
    for (int i = 0; i < 4; i++) {
        struct embd__error e = {.status = EMBD_OK};
        full.rlim_cur = i % 2 == 0 ? 250 : 40; /* or of that line a piece */
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &full), 0);
        assert_int_not_equal(start(&s, true, &rig, &e), EMBD_OK);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    }
    assert_int_equal(keep_rest(&s), 0);
    sample_free(&s);
}

/* What was refused is forgotten with the records that a base takes the place of. */
static void what_was_withdrawn_goes_with_a_base(void **state)
{
    static struct sample s;
    struct rig rig;
    struct embd__error e = {.status = EMBD_OK};
    char path[160];
    (void)state;
    sample_new(&s, 1);
    path_of(path, &s, names[2]);
    const struct store_ops ops = scarce_ops();
    rig_open(&rig, &ops, 0, 1, s.dir);
    refused_push(&rig);
    assert_int_equal(compaction_make_now(&rig.shard->commit, &e), EMBD_OK);
    assert_int_not_equal(access(path, F_OK), 0);
    refused_push(&rig);
    assert_int_equal(access(path, F_OK), 0);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    assert_int_equal(kept(&rig, &s), s.n_images - 1);
    rig_close(&rig);
    sample_free(&s);
}

/* It says of its own accord that its last records were synced: then they cannot be torn any more,
 * also where the process has not ended. Until then they can. */
static void a_journal_at_rest_is_marked(void **state)
{
    static struct sample s;
    static struct bytes before, after;
    static const uint64_t keys[] = {1, 2};
    static const float grads[8] = {1};
    struct rig rig;
    (void)state;
    sample_new(&s, 1);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    rig_wake(&rig);
    struct part part = part_of("a", keys, 2, grads);
    struct exchange *x = ask(&rig, &rig.data, METHOD_PUSH);
    embd__push_write(&x->out, &part, 1, NULL);
    ask_send(x);
    ask_wait(x);
    ask_ok(x);
    ask_free(x);
    read_file(&s, names[1], &before);
    read_file(&s, names[1], &after);
    for (int i = 0; i < 500 && last_mark(&after) == last_mark(&before); i++) {
        usleep(20000);
        read_file(&s, names[1], &after);
    }
    size_t end = last_mark(&after);
    assert_true(end > last_mark(&before) + MARK_BYTES);
    uint64_t steps = figure(&rig, "a", "steps");
    rig_close(&rig);
    s.files[1] = after;
    s.files[1].data[end - 3] ^= 1;
    restore(&s);
    assert_true(is_refused(&s, names[1]));
    s.files[1] = before;
    s.files[1].data[end - 3] ^= 1;
    restore(&s);
    rig_open(&rig, &store_host, 0, 1, s.dir);
    assert_int_equal(figure(&rig, "a", "steps"), steps - 1);
    rig_close(&rig);
    sample_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flipped_bit_refuses_or_loses_nothing),
        cmocka_unit_test(a_base_without_header_is_dropped_where_that_is_accepted),
        cmocka_unit_test(a_lost_entry_of_what_was_withdrawn_is_accepted_too),
        cmocka_unit_test(damage_that_is_accepted_again_and_again_is_told_once),
        cmocka_unit_test(what_was_withdrawn_goes_with_a_base),
        cmocka_unit_test(a_journal_at_rest_is_marked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
