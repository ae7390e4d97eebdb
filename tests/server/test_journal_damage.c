/* test_journal_damage.c - a journal whose tail is torn at any byte is cut, whole records before it
 * stay; a changed byte before the last record refuses to start and says file and offset, or where
 * that is accepted drops what follows; a disk that is full refuses pushes before any effect. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/server/journaled.h"
#include "server/journal/readfile.h"
#include "server/journal/record.h"
#include "server/journal/withdrawn.h"

#define N_PUSHES 4

#ifndef STRIDE /* under sanitizers not every byte */
#define STRIDE 1
#endif

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

/* Nothing says how far it was on disk. */
static void write_journal(const char *dir, const struct bytes *bytes, size_t n)
{
    char path[128];
    forget_reached(dir);
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
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
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
    for (size_t n = s.ends[N_PUSHES]; n >= s.ends[0]; n -= STRIDE) {
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
    for (size_t at = SEGMENT_HEADER_BYTES; at < s.ends[N_PUSHES - 1]; at += STRIDE) {
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

/* Its header is there twice. */
static void a_changed_byte_of_the_header_loses_nothing(void **state)
{
    (void)state;
    static struct sample s;
    sample_new(&s);
    for (size_t at = 0; at < SEGMENT_HEADER_BYTES; at++) {
        struct rig rig;
        s.whole.data[at] ^= (uint8_t)(1u << at % 8);
        write_journal(s.dir, &s.whole, s.whole.n);
        rig_open(&rig, &store_host, 0, 1, s.dir);
        image_check(&rig, "a", &s.images[N_PUSHES]);
        rig_close(&rig);
        s.whole.data[at] ^= (uint8_t)(1u << at % 8);
    }
    s.whole.data[20] ^= 1; /* both of them */
    s.whole.data[SEGMENT_HEADER_BYTES / 2 + 20] ^= 1;
    write_journal(s.dir, &s.whole, s.whole.n);
    expect_damage(&s, 20);
    sample_free(&s);
}

/* So many bytes that they go to the disk past the kernel's cache. */
static void push_large(struct rig *rig, float value)
{
    enum { N = 16384 };
    static uint64_t keys[N];
    static float grads[4 * N];
    for (uint32_t i = 0; i < N; i++) {
        keys[i] = i;
        for (int c = 0; c < 4; c++)
            grads[4 * i + (uint32_t)c] = value + (float)i;
    }
    struct part part = part_of("a", keys, N, grads);
    push(rig, &part, NULL);
}

static off_t size_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_size;
}

static void copy(const char *from, const char *to)
{
    char command[320];
    snprintf(command, sizeof command, "cp %s %s", from, to);
    assert_int_equal(system(command), 0);
}

/* Of the first n bytes, not counting the zeros they end with. */
static off_t without_zeros(const char *path, off_t n)
{
    uint8_t byte = 0;
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    while (n > 0 && byte == 0)
        assert_int_equal(pread(fd, &byte, 1, --n), 1);
    close(fd);
    return n + 1;
}

/* Cut off there, it holds what these images are of, and goes on. */
static void expect_cut(const char *dir, const char *kept, off_t n, const struct image *image)
{
    char path[128];
    struct rig rig;
    struct image after;
    path_of(path, dir);
    copy(kept, path);
    forget_reached(dir);
    assert_int_equal(truncate(path, n), 0);
    rig_open(&rig, &store_host, 0, 1, dir);
    image_check(&rig, "a", image);
    push_two(&rig, "a", 7);
    push_large(&rig, 8);
    push_two(&rig, "a", 9);
    image_take(&rig, "a", &after);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    image_check(&rig, "a", &after);
    rig_close(&rig);
    image_fini(&after);
}

static void large_records_lie_on_blocks_and_zeros_behind_them_are_no_damage(void **state)
{
    (void)state;
    char dir[64], path[128], kept[160];
    struct rig rig;
    struct image images[5];
    off_t ends[5];
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    scratch_new(dir);
    path_of(path, dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    create_table(&rig, &schema);
    for (int i = 0; i <= 4; i++) {
        if (i % 2 == 1)
            push_two(&rig, "a", (float)i);
        else if (i > 0)
            push_large(&rig, (float)i);
        image_take(&rig, "a", &images[i]);
        ends[i] = size_of(path);
    }
    rig_close(&rig);
    snprintf(kept, sizeof kept, "%s/kept", dir);
    copy(path, kept);
    for (int i = 2; i <= 4; i += 2) {
        off_t end = without_zeros(kept, ends[i]);
        expect_cut(dir, kept, ends[i], &images[i]);
        expect_cut(dir, kept, end + (ends[i] - end) / 2, &images[i]);
        expect_cut(dir, kept, end, &images[i]);
        expect_cut(dir, kept, end - 1, &images[i - 1]);
        expect_cut(dir, kept, ends[i - 1] + 4096, &images[i - 1]);
        expect_cut(dir, kept, ends[i - 1], &images[i - 1]);
        expect_cut(dir, kept, ends[i - 1] - 1, &images[i - 2]);
    }
    if (ends[2] % RECORD_BLOCK_BYTES == 0) { /* the file system can do that */
        off_t end = without_zeros(kept, ends[2]);
        assert_true(end < ends[2]);
        for (int i = 0; i < 2; i++) { /* between records: nothing is lost, also not the last one */
            copy(kept, path);
            forget_reached(dir);
            int fd = open(path, O_WRONLY);
            assert_int_equal(pwrite(fd, "x", 1, i == 0 ? end + 1 : ends[3] + 10), 1);
            assert_int_equal(ftruncate(fd, ends[4]), 0);
            close(fd);
            rig_open(&rig, &store_host, 0, 1, dir);
            image_check(&rig, "a", &images[4]);
            rig_close(&rig);
        }
    }
    for (int i = 0; i <= 4; i++)
        image_fini(&images[i]);
    scratch_remove(dir);
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
    static const char *const names[] = {"00000001",      "00000002",      "00000003",
                                        "00000002.base", "00000003.base", "00000004.base",
                                        "damage"};
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
    for (size_t at = SEGMENT_HEADER_BYTES; at < s.ends[N_PUSHES - 1]; at += 5) {
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

static void a_full_disk_refuses_a_push_before_any_effect_and_recovers(void **state)
{
    (void)state;
    static struct sample s;
    static const uint64_t keys[] = {1, 2};
    static const float grads[8] = {1};
    struct part part = part_of("a", keys, 2, grads);
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

/* Of one that found no space, or could not be looked at. */
static void what_an_attempt_to_make_a_segment_has_left_does_not_stand_in_the_way(void **state)
{
    (void)state;
    static const char left[200] = "left";
    char dir[64], path[128];
    struct rig rig;
    struct image image;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    scratch_new(dir);
    path_of(path, dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    assert_int_equal(write(fd, left, sizeof left), sizeof left);
    close(fd);
    create_table(&rig, &schema);
    push_two(&rig, "a", 1);
    image_take(&rig, "a", &image);
    rig_close(&rig);
    rig_open(&rig, &store_host, 0, 1, dir);
    image_check(&rig, "a", &image);
    image_fini(&image);
    rig_close(&rig);
    scratch_remove(dir);
}

/* What a mapped file would tell by SIGBUS. */
static void a_file_that_becomes_shorter_while_it_is_read_is_an_error(void **state)
{
    (void)state;
    enum { BYTES = 3 << 20 };
    char dir[64], path[128];
    struct readfile file;
    scratch_new(dir);
    path_of(path, dir);
    int at = open(dir, O_RDONLY | O_DIRECTORY), fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, BYTES), 0);
    assert_int_equal(pwrite(fd, "end", 3, BYTES - 3), 3);
    assert_int_equal(readfile_open(&file, at, "journal.0.00000001"), 0);
    assert_int_equal(file.n, BYTES);
    assert_non_null(readfile_bytes(&file, 0, 100));
    uint8_t *end = readfile_bytes(&file, 50, BYTES - 50);
    assert_true(end != NULL && end[0] == 0 && memcmp(end + BYTES - 53, "end", 3) == 0);
    assert_null(readfile_bytes(&file, 60, BYTES));
    readfile_close(&file);
    assert_int_equal(readfile_open(&file, at, "journal.0.00000001"), 0);
    assert_non_null(readfile_bytes(&file, 0, 100));
    assert_int_equal(ftruncate(fd, BYTES / 2), 0);
    assert_null(readfile_bytes(&file, 100, BYTES - 100));
    assert_int_equal(errno, EIO);
    readfile_close(&file);
    close(fd);
    close(at);
    scratch_remove(dir);
}

static void keep(const char *dir, const char *from, const char *to)
{
    char paths[2][128];
    snprintf(paths[0], sizeof paths[0], "%s/%s", dir, from);
    snprintf(paths[1], sizeof paths[1], "%s/%s", dir, to);
    copy(paths[0], paths[1]);
}

/* As after a disk's or an operator's mistake: the file is shorter than what was synced. */
static void a_journal_cut_off_at_any_byte_refuses_to_start(void **state)
{
    (void)state;
    static struct sample s;
    static struct bytes after;
    char path[128];
    sample_new(&s);
    path_of(path, s.dir);
    keep(s.dir, "journal.0.reached", "kept");
    for (size_t n = 1; n < s.ends[N_PUSHES]; n += STRIDE) {
        write_journal(s.dir, &s.whole, n);
        keep(s.dir, "kept", "journal.0.reached");
        expect_damage(&s, n);
        read_journal(s.dir, &after);
        assert_int_equal(after.n, n);
    }
    write_journal(s.dir, &s.whole, s.ends[N_PUSHES / 2]);
    keep(s.dir, "kept", "journal.0.reached");
    expect_kept(&s, N_PUSHES / 2, true, 1);
    expect_kept(&s, N_PUSHES / 2 + 1, false, 1); /* it was accepted once and for all */
    sample_free(&s);
    sample_new(&s);
    path_of(path, s.dir);
    assert_int_equal(unlink(path), 0);
    expect_damage(&s, 0);
    sample_free(&s);
}

/* A start beside `journal.0.reached` with n such bytes takes the end for torn, and logs so. */
static void expect_told(const struct sample *s, const char *bytes, size_t n, const char *event)
{
    struct rig rig;
    char path[128], text[4096];
    write_journal(s->dir, &s->whole, s->ends[N_PUSHES] - 1);
    snprintf(path, sizeof path, "%s/journal.0.reached", s->dir);
    int fd = open(path, O_WRONLY | O_CREAT, 0600), was = dup(STDERR_FILENO);
    assert_int_equal(write(fd, bytes, n), n);
    close(fd);
    FILE *log = tmpfile();
    assert_non_null(log);
    assert_int_equal(dup2(fileno(log), STDERR_FILENO), STDERR_FILENO);
    rig_open(&rig, &store_host, 0, 1, s->dir);
    assert_int_equal(dup2(was, STDERR_FILENO), STDERR_FILENO);
    close(was);
    rewind(log);
    text[fread(text, 1, sizeof text - 1, log)] = '\0';
    fclose(log);
    assert_non_null(strstr(text, event));
    image_check(&rig, "a", &s->images[N_PUSHES - 1]);
    rig_close(&rig);
}

static void where_nothing_says_how_far_a_journal_was_its_end_is_torn(void **state)
{
    (void)state;
    static struct sample s;
    static const char blank[24];
    sample_new(&s);
    expect_told(&s, "embdrch1\5\0\0\0\0\0\0\0damaged!", 24, "journal_reached_damaged");
    expect_told(&s, "embd", 4, "journal_reached_damaged");
    expect_told(&s, blank, 24, "journal_reached_blank");
    expect_told(&s, blank, 0, "journal_reached_blank");
    sample_free(&s);
}

/* The list has the same name each time, and is damaged at the same place: it was another list. */
static void a_list_of_withdrawn_records_damaged_again_is_told_again(void **state)
{
    (void)state;
    enum { MAGIC = 8 };
    static struct sample s;
    static const struct record_id ids[] = {{0, 1}, {1, 2}};
    static const uint8_t zeros[WITHDRAWN_BYTES];
    sample_new(&s);
    write_journal(s.dir, &s.whole, s.ends[1]);
    for (int n = 1; n < N_PUSHES; n++) {
        struct embd__error e = {.status = EMBD_OK};
        int at = open(s.dir, O_RDONLY | O_DIRECTORY);
        for (int i = 0; i < 2; i++)
            assert_int_equal(withdrawn_add(at, 0, &ids[i], &e), EMBD_OK);
        int fd = openat(at, "journal.0.withdrawn", O_WRONLY);
        assert_int_equal(pwrite(fd, zeros, sizeof zeros, MAGIC), sizeof zeros);
        close(fd);
        close(at);
        expect_kept(&s, n, true, n);
    }
    sample_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_tail_torn_at_any_byte_is_cut),
        cmocka_unit_test(a_changed_byte_before_the_last_record_refuses_to_start),
        cmocka_unit_test(a_changed_byte_of_the_header_loses_nothing),
        cmocka_unit_test(large_records_lie_on_blocks_and_zeros_behind_them_are_no_damage),
        cmocka_unit_test(where_damage_is_accepted_what_follows_it_goes_and_a_note_stays),
        cmocka_unit_test(a_journal_without_damage_is_read_whole_though_damage_is_accepted),
        cmocka_unit_test(a_journal_cut_off_at_any_byte_refuses_to_start),
        cmocka_unit_test(where_nothing_says_how_far_a_journal_was_its_end_is_torn),
        cmocka_unit_test(a_list_of_withdrawn_records_damaged_again_is_told_again),
        cmocka_unit_test(a_journal_of_another_number_of_shards_refuses_to_start),
        cmocka_unit_test(what_an_attempt_to_make_a_segment_has_left_does_not_stand_in_the_way),
        cmocka_unit_test(a_file_that_becomes_shorter_while_it_is_read_is_an_error),
        cmocka_unit_test(a_full_disk_refuses_a_push_before_any_effect_and_recovers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
