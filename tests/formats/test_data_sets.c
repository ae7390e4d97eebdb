/* test_data_sets.c - readers and writers against files that data_sets.py wrote: rows S2.10, S3.1 to
 * S3.6 and S3.8 of the reference. The samples are described there. */
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "embd/embd.h"
#include "embd/data.h"

#define SLOTS 3
#define WIDE  (UINT64_C(1) << 40)

static const char *folder;

/* ---- opening --------------------------------------------------------------------------------- */

static const char *in_folder(const char *name)
{
    static char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static embd_data_shape norm_shape(bool checksum, bool wide)
{
    return (embd_data_shape)EMBD_DATA_SHAPE(.format = EMBD_DATA_FORMAT_NORM, .label_dim = 1,
                                            .dense_dim = 2, .slots = SLOTS, .checksum = checksum,
                                            .i64_keys = wide);
}

static embd_data_shape raw_shape(bool integers)
{
    return (embd_data_shape)EMBD_DATA_SHAPE(.format = EMBD_DATA_FORMAT_RAW, .label_dim = 1,
                                            .dense_dim = 2, .slots = SLOTS, .integers = integers);
}

static embd_reader_options options_of(uint32_t batch, uint32_t threads)
{
    embd_reader_options o;
    embd_reader_options_init(&o);
    o.batch_samples = batch;
    o.threads = threads;
    return o;
}

static embd_reader *open_reader(const char *name, embd_data_shape shape, embd_reader_options o)
{
    embd_reader *reader;
    const char *why = embd_error_text();
    if (embd_reader_open(in_folder(name), &shape, &o, &reader) != EMBD_OK)
        fail_msg("%s: %s", name, why);
    return reader;
}

/* ---- what sample i is ------------------------------------------------------------------------ */

static void check_keys(const embd_batch *b, uint32_t at, uint64_t i, const embd_data_shape *shape)
{
    for (uint64_t slot = 0; slot < SLOTS; slot++) {
        uint64_t row = at * SLOTS + slot, n = b->offsets[row + 1] - b->offsets[row];
        assert_int_equal(n, shape->format == EMBD_DATA_FORMAT_RAW ? 1 : (i + slot) % 3);
        for (uint64_t k = 0; k < n; k++)
            assert_int_equal(b->keys[b->offsets[row] + k],
                             slot * 1000000 + 10 * i + k + (shape->i64_keys ? WIDE : 0));
    }
}

static void check_sample(const embd_batch *b, uint32_t at, uint64_t i, const embd_data_shape *shape)
{
    float first = shape->integers ? logf((float)i + 1) : (float)i;
    float second = shape->integers ? logf((float)i + 2) : (float)i + 0.5f;
    assert_true(b->labels[at] == (float)(i % 2));
    assert_true(b->dense[2 * at] == first && b->dense[2 * at + 1] == second);
    check_keys(b, at, i, shape);
}

/* Which sample this is, from its dense value. */
static uint64_t number_of(const embd_batch *b, uint32_t at)
{
    return (uint64_t)b->dense[2 * at];
}

/* Reads everything; each sample i must be the next of `expected` [n] (NULL: 0, 1, 2, ...). */
static void expect(const char *name, embd_data_shape shape, embd_reader_options o,
                   const uint64_t *expected, uint64_t n)
{
    embd_reader *reader = open_reader(name, shape, o);
    uint64_t done = 0;
    for (;;) {
        embd_batch *b;
        if (embd_reader_next(reader, &b) != EMBD_OK)
            fail_msg("%s: %s", name, embd_reader_fault(reader));
        if (b == NULL)
            break;
        assert_true(b->n_samples == o.batch_samples || done + b->n_samples == n);
        assert_int_equal(b->n_rows, (uint64_t)b->n_samples * SLOTS);
        assert_int_equal(b->offsets[0], 0);
        assert_int_equal(b->offsets[b->n_rows], b->n_keys);
        for (uint32_t at = 0; at < b->n_samples; at++, done++)
            check_sample(b, at, expected ? expected[done] : done, &shape);
        embd_reader_release(reader, b);
    }
    assert_int_equal(done, n);
    embd_reader_close(reader);
}

static embd_reader_counts counts_at_end(embd_reader *reader)
{
    embd_batch *b;
    embd_reader_counts counts;
    do {
        assert_int_equal(embd_reader_next(reader, &b), EMBD_OK);
        embd_reader_release(reader, b);
    } while (b != NULL);
    embd_reader_count(reader, &counts);
    return counts;
}

/* ---- good files ------------------------------------------------------------------------------ */

static void every_kind_of_norm_file(void **state)
{
    (void)state;
    for (int kind = 0; kind < 4; kind++) {
        char name[32];
        snprintf(name, sizeof name, "good-%d-%d", kind / 2, kind % 2);
        for (uint32_t batch = 1; batch < 40; batch += 3)
            expect(name, norm_shape(kind / 2, kind % 2), options_of(batch, 1), NULL, 28);
    }
}

static void order_is_that_of_the_files(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads <= 64; threads = 2 * threads + 1)
        for (uint32_t batch = 1; batch <= 32; batch *= 2) {
            embd_reader_options o = options_of(batch, threads);
            o.batches_ahead = 1 + threads * batch % 9;
            expect("good-1-0", norm_shape(true, false), o, NULL, 28);
            expect("blocks", norm_shape(true, false), o, NULL, 320);
            expect("raw-long", raw_shape(false), o, NULL, 320);
        }
}

static void paths_are_relative_to_the_list(void **state)
{
    (void)state;
    const uint64_t expected[] = {0, 1, 2, 3, 12};
    expect("deep/list", norm_shape(false, false), options_of(2, 2), expected, 5);
}

/* From the folder above `wdl`, as a job that HugeCTR's generator wrote data for. */
static void paths_are_found_in_the_working_directory(void **state)
{
    (void)state;
    embd_data_shape shape = norm_shape(false, false);
    embd_reader_options o = options_of(4, 1);
    embd_reader *reader;
    assert_int_equal(chdir(folder), 0);
    const char *lists[] = {"wdl/list", "wdl/more"};
    assert_int_equal(embd_reader_open_lists(lists, 2, &shape, &o, &reader), EMBD_OK);
    embd_reader_counts counts = counts_at_end(reader);
    assert_int_equal(counts.samples, 9);
    assert_int_equal(counts.bad_files, 1);
    assert_non_null(strstr(embd_reader_fault(reader), "./wdl/gone.data"));
    embd_reader_close(reader);
    o.paths = EMBD_DATA_PATHS_LIST;
    assert_int_equal(embd_reader_open_lists(lists, 1, &shape, &o, &reader), EMBD_OK);
    embd_batch *b;
    assert_int_equal(embd_reader_next(reader, &b), EMBD_CORRUPT);
    assert_non_null(strstr(embd_reader_fault(reader), "wdl/./wdl/gone.data"));
    embd_reader_close(reader);
    assert_int_equal(chdir("/"), 0);
}

static void a_path_with_two_meanings_is_refused(void **state)
{
    (void)state;
    const uint64_t expected[] = {0, 1, 2, 3, 4};
    embd_data_shape shape = norm_shape(false, false);
    embd_reader_options o = options_of(4, 1);
    embd_reader *reader;
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(embd_reader_open("wdl/two", &shape, &o, &reader), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "wdl/two names 'wdl/twice'"));
    o.paths = EMBD_DATA_PATHS_WORKING_DIRECTORY;
    expect("wdl/two", shape, o, expected, 2);
    o.paths = EMBD_DATA_PATHS_LIST;
    expect("wdl/two", shape, o, expected, 5);
    assert_int_equal(chdir("/"), 0);
}

static void several_lists_are_read_one_after_the_other(void **state)
{
    (void)state;
    char first[512], second[512];
    snprintf(first, sizeof first, "%s", in_folder("good-0-0"));
    snprintf(second, sizeof second, "%s", in_folder("deep/list"));
    const char *lists[] = {first, second, first};
    embd_data_shape shape = norm_shape(false, false), raw = raw_shape(false);
    embd_reader_options o = options_of(7, 2);
    embd_reader *reader;
    embd_batch *b;
    uint64_t done = 0;
    assert_int_equal(embd_reader_open_lists(lists, 3, &shape, &o, &reader), EMBD_OK);
    while (embd_reader_next(reader, &b) == EMBD_OK && b != NULL) {
        for (uint32_t at = 0; at < b->n_samples; at++, done++) {
            uint64_t i = done < 28 ? done : done < 32 ? done - 28 : done == 32 ? 12 : done - 33;
            check_sample(b, at, i, &shape);
        }
        embd_reader_release(reader, b);
    }
    assert_int_equal(done, 61);
    embd_reader_close(reader);
    assert_int_equal(embd_reader_open_lists(lists, 0, &shape, &o, &reader), EMBD_INVALID);
    assert_int_equal(embd_reader_open_lists(lists, 2, &raw, &o, &reader), EMBD_INVALID);
}

/* ---- sparse inputs --------------------------------------------------------------------------- */

/* Rows of `input` are those of its slots in the batch. */
static void check_input(const embd_batch *b, const embd_batch_input *input, uint64_t first,
                        uint64_t slots)
{
    assert_int_equal(input->n_rows, b->n_samples * slots);
    assert_int_equal(input->offsets[0], 0);
    assert_int_equal(input->offsets[input->n_rows], input->n_keys);
    for (uint64_t row = 0; row < input->n_rows; row++) {
        uint64_t whole = row / slots * SLOTS + first + row % slots;
        uint64_t n = b->offsets[whole + 1] - b->offsets[whole];
        assert_int_equal(input->offsets[row + 1] - input->offsets[row], n);
        assert_memory_equal(input->keys + input->offsets[row], b->keys + b->offsets[whole],
                            n * sizeof *b->keys);
    }
}

static uint64_t samples_of_inputs(const char *name, embd_data_shape shape,
                                  const embd_sparse_input *inputs, uint32_t n)
{
    embd_reader_options o = options_of(5, 2);
    o.inputs = inputs;
    o.n_inputs = n;
    embd_reader *reader = open_reader(name, shape, o);
    embd_batch *b;
    uint64_t samples = 0;
    while (embd_reader_next(reader, &b) == EMBD_OK && b != NULL) {
        for (uint32_t i = 0, first = 0; i < n; first += inputs[i++].slots)
            check_input(b, &b->inputs[i], first, inputs[i].slots);
        samples += b->n_samples;
        embd_reader_release(reader, b);
    }
    embd_reader_close(reader);
    return samples;
}

static void batches_are_divided_by_sparse_inputs(void **state)
{
    (void)state;
    const embd_sparse_input wide_and_deep[] = {{.slots = 1, .max_keys = 2}, {.slots = 2}};
    const embd_sparse_input whole[] = {{.slots = 3}}, each[] = {{1, 0, 0}, {1, 2, 0}, {1, 9, 0}};
    for (int kind = 0; kind < 4; kind++) {
        char name[32];
        snprintf(name, sizeof name, "good-%d-%d", kind / 2, kind % 2);
        embd_data_shape shape = norm_shape(kind / 2, kind % 2);
        assert_int_equal(samples_of_inputs(name, shape, wide_and_deep, 2), 28);
        assert_int_equal(samples_of_inputs(name, shape, whole, 1), 28);
        assert_int_equal(samples_of_inputs(name, shape, each, 3), 28);
    }
    const embd_sparse_input one_hot[] = {{2, 1, true}, {1, 1, true}};
    assert_int_equal(samples_of_inputs("raw", raw_shape(false), one_hot, 2), 40);
}

/* Slot 0 of sample i has i % 3 keys: of 28 samples 10 have none, 9 have one, 9 have two. */
static void samples_that_an_input_does_not_allow_are_bad(void **state)
{
    (void)state;
    const embd_sparse_input at_most[] = {{1, 1, false}, {2, 0, false}};
    const embd_sparse_input exactly[] = {{1, 1, true}, {2, 0, false}};
    for (int checksum = 0; checksum < 2; checksum++) {
        const char *name = checksum ? "good-1-0" : "good-0-0";
        assert_int_equal(samples_of_inputs(name, norm_shape(checksum, false), at_most, 2), 19);
        assert_int_equal(samples_of_inputs(name, norm_shape(checksum, false), exactly, 2), 9);
    }
}

/* Two readers of one list at once, each with batches of its own; the trainer's share of the data is
 * the trainer's alone. */
static void training_and_evaluation_are_apart(void **state)
{
    (void)state;
    embd_data_shape shape = norm_shape(false, false);
    embd_reader_options all = options_of(5, 1), share = options_of(7, 2);
    uint64_t seen = 0, n_train = 0; /* samples */
    share.workers = 2;
    share.share = EMBD_DATA_SHARE_BATCHES;
    embd_reader *train = open_reader("good-0-0", shape, share),
                *eval = open_reader("good-0-0", shape, all);
    embd_batch *t, *e;
    do {
        assert_int_equal(embd_reader_next(train, &t), EMBD_OK);
        assert_int_equal(embd_reader_next(eval, &e), EMBD_OK);
        for (uint32_t at = 0; e != NULL && at < e->n_samples; at++, seen++)
            check_sample(e, at, seen, &shape);
        assert_true(e == NULL || e->n_samples == 5 || seen == 28);
        for (uint32_t at = 0; t != NULL && at < t->n_samples; at++, n_train++)
            check_sample(t, at, n_train / 7 * 14 + n_train % 7, &shape);
        embd_reader_release(train, t);
        embd_reader_release(eval, e);
    } while (t != NULL || e != NULL);
    assert_int_equal(seen, 28);
    assert_int_equal(n_train, 14);
    embd_reader_close(eval);
    embd_reader_close(train);
}

static void inputs_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    const struct {
        embd_sparse_input inputs[2];
        const char *says;
    } bad[] = {{{{1, 0, 0}, {1, 0, 0}}, "inputs have 2 slots, and a sample has 3"},
               {{{0, 0, 0}, {3, 0, 0}}, "inputs[0].slots is 0"},
               {{{1, 0, 0}, {4, 0, 0}}, "inputs[1].slots is 4"},
               {{{1, 0, 0}, {2, 0, true}}, "inputs[1].fixed_length needs max_keys"}};
    embd_data_shape shape = norm_shape(false, false);
    embd_reader_options o = options_of(4, 1);
    embd_reader *reader;
    o.n_inputs = 2;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        o.inputs = bad[i].inputs;
        assert_int_equal(embd_reader_open(in_folder("good-0-0"), &shape, &o, &reader),
                         EMBD_INVALID);
        assert_non_null(strstr(embd_error_text(), bad[i].says));
    }
}

static void raw_files(void **state)
{
    (void)state;
    expect("raw", raw_shape(false), options_of(7, 2), NULL, 40);
    expect("raw-integers", raw_shape(true), options_of(1, 3), NULL, 40);
    embd_reader *reader = open_reader("raw-bad", raw_shape(true), options_of(2, 1));
    embd_reader_counts counts = counts_at_end(reader);
    assert_int_equal(counts.samples, 3);
    assert_int_equal(counts.bad_samples, 2);
    assert_non_null(strstr(embd_reader_fault(reader), "sample 2: dense value 0 is -1"));
    embd_reader_close(reader);
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void bad_samples_are_dropped(void **state)
{
    (void)state;
    const uint64_t good[] = {0, 1, 3, 5, 7, 9};
    expect("bad-samples", norm_shape(true, false), options_of(4, 1), good, 6);
    embd_reader *reader = open_reader("bad-samples", norm_shape(true, false), options_of(4, 1));
    embd_reader_counts counts = counts_at_end(reader);
    assert_int_equal(counts.samples, 6);
    assert_int_equal(counts.bad_samples, 4);
    assert_int_equal(counts.files, 1);
    assert_int_equal(counts.bad_files, 0);
    assert_non_null(strstr(embd_reader_fault(reader), "bad-samples.0000, sample 2: the check"));
    embd_reader_close(reader);
    expect("bad-first", norm_shape(true, false), options_of(2, 1), (uint64_t[]){1, 2, 3, 4, 5}, 5);
}

static void broken_files_are_left(void **state)
{
    (void)state;
    for (uint32_t threads = 1; threads < 12; threads += 5) {
        expect("broken", norm_shape(true, false), options_of(4, threads), NULL, 10);
        embd_reader *reader =
            open_reader("broken", norm_shape(true, false), options_of(3, threads));
        embd_reader_counts counts = counts_at_end(reader);
        assert_int_equal(counts.files, 2);
        assert_int_equal(counts.bad_files, 9);
        assert_int_equal(counts.bad_samples, 0);
        assert_non_null(
            strstr(embd_reader_fault(reader), "broken.0001, sample 1: the file ends within"));
        embd_reader_close(reader);
    }
    expect("broken-plain", norm_shape(false, false), options_of(4, 2), NULL, 4);
}

/* The samples before the fault come first, and the error stays. */
static void too_many_faults_are_an_error_in_order(void **state)
{
    (void)state;
    embd_reader_options o = options_of(3, 4);
    o.max_bad_samples = 1;
    embd_reader *reader = open_reader("bad-samples", norm_shape(true, false), o);
    embd_batch *first, *b;
    assert_int_equal(embd_reader_next(reader, &first), EMBD_OK);
    assert_int_equal(first->n_samples, 3);
    assert_int_equal(number_of(first, 2), 3);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(embd_reader_next(reader, &b), EMBD_CORRUPT);
        assert_null(b);
        assert_non_null(strstr(embd_reader_fault(reader), "sample 4"));
    }
    embd_reader_close(reader);
    o.max_bad_files = 0;
    reader = open_reader("broken", norm_shape(true, false), o);
    assert_int_equal(embd_reader_next(reader, &b), EMBD_OK);
    assert_int_equal(b->n_samples, 3);
    assert_int_equal(embd_reader_next(reader, &b), EMBD_CORRUPT);
    assert_non_null(strstr(embd_reader_fault(reader), "broken.0001"));
    embd_reader_close(reader);
}

static void no_good_sample_is_an_error(void **state)
{
    (void)state;
    embd_batch *b;
    embd_reader *reader = open_reader("all-broken", norm_shape(false, false), options_of(3, 1));
    assert_int_equal(embd_reader_next(reader, &b), EMBD_CORRUPT);
    assert_non_null(strstr(embd_reader_fault(reader), "not one good sample"));
    embd_reader_close(reader);
}

/* What is wrong with a whole set when its shape was given wrong, in a sentence with the numbers. */
static void a_wrong_shape_is_told(void **state)
{
    (void)state;
    struct {
        embd_data_shape shape;
        const char *says;
    } cases[] = {
        {norm_shape(false, false), "error_check is "},
        {norm_shape(true, false), "label_dim is 1 in the header; expected 2"},
        {norm_shape(true, false), "dense_dim is 2 in the header; expected 3"},
        {norm_shape(true, false), "slot_num is 3 in the header; expected 26"},
        {norm_shape(true, true), "good-1-0.0000, sample 0"},
    };
    cases[1].shape.label_dim = 2;
    cases[2].shape.dense_dim = 3;
    cases[3].shape.slots = 26;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        embd_batch *b;
        embd_reader_options o = options_of(64, 1);
        o.max_bad_samples = 0;
        embd_reader *reader = open_reader("good-1-0", cases[i].shape, o);
        assert_int_equal(embd_reader_next(reader, &b), EMBD_CORRUPT);
        if (strstr(embd_reader_fault(reader), cases[i].says) == NULL)
            fail_msg("%s", embd_reader_fault(reader));
        embd_reader_close(reader);
    }
}

static void bad_lists_and_options_are_refused(void **state)
{
    (void)state;
    const struct {
        const char *name, *says;
        int status;
    } lists[] = {
        {"list-empty", "line 1", EMBD_CORRUPT}, {"list-word", "line 1", EMBD_CORRUPT},
        {"list-short", "line 4", EMBD_CORRUPT}, {"list-gap", "line 2", EMBD_CORRUPT},
        {"list-long", "line 3", EMBD_CORRUPT},  {"list-huge", "line 1", EMBD_CORRUPT},
        {"nowhere", "nowhere", EMBD_IO},        {"list-fifo", "not a regular file", EMBD_IO},
    };
    embd_reader_options o = options_of(4, 1);
    embd_data_shape norm = norm_shape(false, false), raw = raw_shape(false);
    embd_reader *reader;
    const char *why = embd_error_text();
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        assert_int_equal(embd_reader_open(in_folder(lists[i].name), &norm, &o, &reader),
                         lists[i].status);
        assert_null(reader);
        assert_non_null(strstr(why, lists[i].says));
    }
    assert_int_equal(embd_reader_open(in_folder("raw-odd"), &raw, &o, &reader), EMBD_CORRUPT);
    raw.checksum = true;
    assert_int_equal(embd_reader_open(in_folder("raw"), &raw, &o, &reader), EMBD_INVALID);
    norm.slots = EMBD_SLOTS_MAX + 1;
    assert_int_equal(embd_reader_open(in_folder("good-0-0"), &norm, &o, &reader), EMBD_INVALID);
    assert_non_null(strstr(why, "slots is 1025"));
    o.threads = 65;
    norm.slots = 3;
    assert_int_equal(embd_reader_open(in_folder("good-0-0"), &norm, &o, &reader), EMBD_INVALID);
    assert_non_null(strstr(why, "threads is 65"));
}

/* ---- damage ---------------------------------------------------------------------------------- */

static size_t slurp(const char *name, uint8_t *bytes, size_t room)
{
    FILE *file = fopen(in_folder(name), "r");
    assert_non_null(file);
    size_t n = fread(bytes, 1, room, file);
    fclose(file);
    return n;
}

static void spill(const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    fclose(file);
}

/* A file with a few bytes changed, and now and then cut short. */
static void damage(uint8_t *bytes, size_t *n, uint32_t *random)
{
    for (uint32_t i = 0; i < 1 + *random % 4; i++) {
        *random = *random * 1664525 + 1013904223;
        bytes[(*random >> 8) % *n] = (uint8_t)(*random >> 3);
    }
    if (*random % 5 == 0)
        *n = 1 + (*random >> 7) % *n;
}

/* Whatever the bytes are, reading ends, and what is handed out is a batch. */
static void read_damaged(embd_data_shape shape)
{
    embd_reader_options o = options_of(3, 1);
    embd_reader *reader = open_reader("damaged", shape, o);
    embd_batch *b = NULL;
    int status = EMBD_OK;
    do {
        status = embd_reader_next(reader, &b);
        assert_true(status == EMBD_OK || status == EMBD_CORRUPT);
        for (uint64_t r = 0; b != NULL && r < b->n_rows; r++)
            assert_true(b->offsets[r] <= b->offsets[r + 1]);
        assert_true(b == NULL || b->offsets[b->n_rows] == b->n_keys);
        embd_reader_release(reader, b);
    } while (b != NULL);
    embd_reader_close(reader);
}

static void damaged_files_do_no_harm(void **state)
{
    (void)state;
    static uint8_t whole[4096], bytes[4096];
    const char list[] = "1\ndamaged.0\n";
    uint32_t random = 7;
    spill("damaged", list, sizeof list - 1);
    for (int kind = 0; kind < 4; kind++) {
        char name[32];
        snprintf(name, sizeof name, "good-%d-%d.0004", kind / 2, kind % 2);
        size_t n_whole = slurp(name, whole, sizeof whole);
        for (int round = 0; round < 300; round++) {
            size_t n = n_whole;
            memcpy(bytes, whole, n);
            damage(bytes, &n, &random);
            spill("damaged.0", bytes, n);
            read_damaged(norm_shape(kind / 2, kind % 2));
        }
    }
}

/* ---- slots ----------------------------------------------------------------------------------- */

static void keys_stay_below_their_slots_size(void **state)
{
    (void)state;
    const uint64_t sizes[SLOTS] = {278899, 355877, 203750};
    embd_reader_options o = options_of(4, 1);
    o.slot_sizes = sizes;
    embd_reader *reader = open_reader("sized", norm_shape(true, false), o);
    embd_batch *b;
    embd_reader_counts counts;
    assert_int_equal(embd_reader_next(reader, &b), EMBD_OK);
    assert_int_equal(b->n_samples, 2);
    assert_int_equal(b->keys[1], 355876); /* as it stands in the file: tables add the offsets */
    embd_reader_count(reader, &counts);
    assert_int_equal(counts.bad_samples, 2);
    assert_non_null(strstr(embd_reader_fault(reader), "slot 0 has key 278899; its size is 278899"));
    embd_reader_close(reader);
}

static void overlaps_are_an_error_on_request(void **state)
{
    (void)state;
    embd_reader_options o = options_of(1, 1);
    embd_reader *reader = open_reader("overlap", norm_shape(false, false), o);
    assert_int_equal(counts_at_end(reader).samples, 3);
    embd_reader_close(reader);
    o.refuse_overlap = true;
    embd_batch *b;
    reader = open_reader("overlap", norm_shape(false, false), o);
    assert_int_equal(embd_reader_next(reader, &b), EMBD_OK);
    assert_int_equal(embd_reader_next(reader, &b), EMBD_CORRUPT);
    assert_string_equal(embd_reader_fault(reader), "key 5 is in slot 0 and in slot 2");
    embd_reader_close(reader);
    reader = open_reader("blocks", norm_shape(true, false), o);
    assert_int_equal(counts_at_end(reader).samples, 320);
    embd_reader_close(reader);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void it_can_be_closed_at_any_time(void **state)
{
    (void)state;
    for (uint32_t taken = 0; taken < 40; taken++) {
        embd_reader *reader =
            open_reader("blocks", norm_shape(true, false), options_of(3, 1 + taken % 7));
        embd_batch *held = NULL;
        for (uint32_t i = 0; i < taken; i++)
            assert_int_equal(embd_reader_next(reader, &held), EMBD_OK); /* none is released */
        embd_reader_close(reader);
    }
    embd_reader_close(NULL);
}

static void held_batches_stay_as_they_are(void **state)
{
    (void)state;
    embd_data_shape shape = norm_shape(true, false);
    embd_reader *reader = open_reader("blocks", shape, options_of(8, 3));
    embd_batch *held[41];
    uint32_t n = 0;
    do
        assert_int_equal(embd_reader_next(reader, &held[n]), EMBD_OK);
    while (held[n] != NULL && ++n < 41);
    assert_int_equal(n, 40);
    for (uint32_t i = 0; i < n; i++)
        for (uint32_t at = 0; at < 8; at++)
            check_sample(held[i], at, 8 * i + at, &shape);
    embd_reader_close(reader);
}

/* Each sample goes to one worker; `modulus` samples in a row go to the same. */
static void check_shares(embd_data_share share, uint32_t batch, uint64_t modulus)
{
    for (uint32_t worker = 0; worker < 3; worker++) {
        embd_reader_options o = options_of(batch, 2);
        o.share = share;
        o.worker = worker;
        o.workers = 3;
        uint64_t expected[320], n = 0;
        for (uint64_t i = 0; i < 320; i++)
            if (i / modulus % 3 == worker)
                expected[n++] = i;
        expect("blocks", norm_shape(true, false), o, expected, n);
    }
}

static void workers_share_files_or_batches(void **state)
{
    (void)state;
    check_shares(EMBD_DATA_SHARE_FILES, 16, 8);
    check_shares(EMBD_DATA_SHARE_BATCHES, 16, 16);
    embd_reader_options o = options_of(4, 1);
    o.worker = o.workers = 2;
    embd_reader *reader;
    embd_data_shape shape = raw_shape(false);
    assert_int_equal(embd_reader_open(in_folder("raw"), &shape, &o, &reader), EMBD_INVALID);
    o.worker = 1;
    assert_int_equal(embd_reader_open(in_folder("raw"), &shape, &o, &reader), EMBD_INVALID);
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes what `from` has, six samples a file; the bytes are compared by data_sets.py. */
static void copy_ten(const char *from, const char *to, embd_data_shape shape)
{
    const char *why = embd_error_text();
    embd_reader *reader = open_reader(from, shape, options_of(10, 1));
    embd_writer *writer;
    embd_batch *b;
    assert_int_equal(embd_reader_next(reader, &b), EMBD_OK);
    if (embd_writer_open(in_folder(to), &shape, 6, &writer) != EMBD_OK)
        fail_msg("%s", why);
    assert_int_equal(embd_writer_add(writer, 3, b->labels, b->dense, b->offsets, b->keys), EMBD_OK);
    assert_int_equal(
        embd_writer_add(writer, 7, b->labels + 3, b->dense + 6, b->offsets + 3 * SLOTS, b->keys),
        EMBD_OK);
    assert_int_equal(embd_writer_close(writer), EMBD_OK);
    assert_int_equal(embd_writer_open(in_folder(to), &shape, 6, &writer), EMBD_EXISTS);
    embd_reader_close(reader);
    expect(to, shape, options_of(4, 2), NULL, 10);
}

static void written_sets_are_the_bytes_of_the_format(void **state)
{
    (void)state;
    copy_ten("good-0-0", "written-0-0", norm_shape(false, false));
    copy_ten("good-0-1", "written-0-1", norm_shape(false, true));
    copy_ten("good-1-0", "written-1-0", norm_shape(true, false));
    copy_ten("good-1-1", "written-1-1", norm_shape(true, true));
    copy_ten("raw", "written-raw", raw_shape(false));
    copy_ten("raw-integers", "written-integers", raw_shape(true));
}

static void what_does_not_fit_is_not_written(void **state)
{
    (void)state;
    const float label = 1, dense[2] = {0, 0.6931472f}, odd[2] = {0, 0.5f};
    const uint64_t offsets[] = {0, 1, 2, 3}, two[] = {0, 2, 2, 3}, falls[] = {0, 2, 1, 3};
    const uint64_t keys[] = {1, 2, 3}, large[] = {1, UINT64_C(1) << 32, 3};
    embd_data_shape raw = raw_shape(true), norm = norm_shape(true, false);
    embd_writer *writer;
    assert_int_equal(embd_writer_open(in_folder("odd-raw"), &raw, 0, &writer), EMBD_OK);
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, two, keys), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "slot 0 has 2 keys"));
    assert_int_equal(embd_writer_add(writer, 1, &label, odd, offsets, keys), EMBD_INVALID);
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, offsets, large), EMBD_INVALID);
    assert_int_equal(embd_writer_close(writer), EMBD_OK);
    assert_int_equal(embd_writer_open(in_folder("odd"), &norm, 0, &writer), EMBD_OK);
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, falls, keys), EMBD_INVALID);
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, offsets, large), EMBD_INVALID);
    assert_non_null(strstr(embd_error_text(), "slot 1 has a key"));
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, two, keys), EMBD_OK);
    assert_int_equal(embd_writer_close(writer), EMBD_OK);
    embd_reader *reader = open_reader("odd", norm, options_of(4, 1));
    assert_int_equal(counts_at_end(reader).samples, 1);
    embd_reader_close(reader);
}

static void a_failed_set_leaves_no_files(void **state)
{
    (void)state;
    const float label = 1, dense[2] = {0, 0};
    const uint64_t offsets[] = {0, 1, 2, 3}, keys[] = {1, 2, 3};
    char path[512];
    const char *why = embd_error_text();
    embd_data_shape shape = norm_shape(true, false);
    embd_writer *writer;
    snprintf(path, sizeof path, "%s", in_folder("blocked.0001"));
    fclose(fopen(path, "w"));
    assert_int_equal(embd_writer_open(in_folder("nowhere/x"), &shape, 0, &writer), EMBD_IO);
    assert_non_null(strstr(why, "nowhere/x.0000"));
    assert_int_equal(embd_writer_open(in_folder("blocked"), &shape, 1, &writer), EMBD_OK);
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, offsets, keys), EMBD_OK);
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, offsets, keys), EMBD_EXISTS);
    assert_int_equal(embd_writer_add(writer, 1, &label, dense, offsets, keys), EMBD_EXISTS);
    assert_int_equal(embd_writer_close(writer), EMBD_EXISTS);
    assert_non_null(strstr(why, "blocked.0001"));
    assert_null(fopen(in_folder("blocked.0000"), "r"));
    assert_null(fopen(in_folder("blocked"), "r"));
    assert_int_equal(remove(path), 0);
}

#define TEST(sentence, function)                                                                   \
    {                                                                                              \
        sentence, function, NULL, NULL, NULL                                                       \
    }

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST("S3.1 paths are relative to the list", paths_are_relative_to_the_list),
        TEST("S3.15 paths of a list are found in the working directory",
             paths_are_found_in_the_working_directory),
        TEST("S3.15 a path with two meanings is refused", a_path_with_two_meanings_is_refused),
        TEST("S3.15 several lists are read one after the other",
             several_lists_are_read_one_after_the_other),
        TEST("S3.17 batches are divided by sparse inputs", batches_are_divided_by_sparse_inputs),
        TEST("S3.17 samples that an input does not allow are bad",
             samples_that_an_input_does_not_allow_are_bad),
        TEST(
            "S3.19 training and evaluation have batches of their own, and only a share is filtered",
            training_and_evaluation_are_apart),
        TEST("S3.17 inputs that do not fit are refused", inputs_that_do_not_fit_are_refused),
        TEST("S3.1 S3.5c bad lists and options are refused", bad_lists_and_options_are_refused),
        TEST("S3.1 broken files are left for the next", broken_files_are_left),
        TEST("S3.2 a shape other than the header's is told", a_wrong_shape_is_told),
        TEST("S3.2 data without one good sample are an error", no_good_sample_is_an_error),
        TEST("2c S3.3 S3.5c norm files with and without checksums, u32 and i64",
             every_kind_of_norm_file),
        TEST("2c S3.3 written sets are the bytes of the format",
             written_sets_are_the_bytes_of_the_format),
        TEST("S3.3 what does not fit is not written", what_does_not_fit_is_not_written),
        TEST("S3.3 a set that failed leaves no files", a_failed_set_leaves_no_files),
        TEST("S3.3 damaged files do no harm", damaged_files_do_no_harm),
        TEST("S3.4 keys in two slots are an error on request", overlaps_are_an_error_on_request),
        TEST("S3.5 raw files of floats and of integers", raw_files),
        TEST("S3.6 keys stay below their slot's size", keys_stay_below_their_slots_size),
        TEST("S3.8 bad samples are rolled back and counted", bad_samples_are_dropped),
        TEST("S2.10 one fault too many is an error, in order",
             too_many_faults_are_an_error_in_order),
        TEST("S2.10 the order does not depend on threads", order_is_that_of_the_files),
        TEST("S2.10 a reader can be closed at any time", it_can_be_closed_at_any_time),
        TEST("S2.10 batches that are held stay as they are", held_batches_stay_as_they_are),
        TEST("S2.10 workers share files or batches", workers_share_files_or_batches),
    };
    if (argc != 2)
        return 2;
    folder = argv[1];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
