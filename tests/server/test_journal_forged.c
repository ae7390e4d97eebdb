/* test_journal_forged.c - a push whose keys are records and marks of a journal, made by who knows
 * all of the format, the position and the checksum before, but not the secret: torn at any byte, it
 * is cut, nothing of it is executed, and no start is refused. What is hashed to find that out is
 * bounded by the bytes there are. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/server/journaled.h"
#include "proto/little.h"
#include "tests/server/old_journal.h"

/* The linker hands these to this file: they count. */
bool __real_record_header_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                               struct record *out);
bool __wrap_record_header_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                               struct record *out);
bool __real_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out);
bool __wrap_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out);
bool __real_mark_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                      struct mark *out);
bool __wrap_mark_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                      struct mark *out);

static uint64_t n_hashed;

bool __wrap_record_header_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                               struct record *out)
{
    n_hashed += memcmp(bytes, "EBDJ", 4) == 0 ? RECORD_HEADER_BYTES : 0;
    return __real_record_header_read(key, bytes, n, out);
}

bool __wrap_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out)
{
    n_hashed += memcmp(bytes, "EBDJ", 4) == 0 ? n : 0;
    return __real_record_read(key, bytes, n, out);
}

bool __wrap_mark_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                      struct mark *out)
{
    n_hashed += memcmp(bytes, "EBDM", 4) == 0 ? MARK_BYTES : 0;
    return __real_mark_read(key, bytes, n, out);
}

#ifndef STRIDE /* under sanitizers not every byte */
#define STRIDE 1
#endif

/* ---- files ---- */

enum { FILE_BYTES = 2 << 20, KEYS_MAX = 48 << 10 };

struct bytes {
    uint8_t data[FILE_BYTES];
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
    int fd = open(path, O_RDONLY);
    ssize_t n = fd < 0 ? -1 : read(fd, out->data, sizeof out->data);
    assert_true(n > 0 && n < (ssize_t)sizeof out->data);
    out->n = (size_t)n;
    close(fd);
}

static void write_journal(const char *dir, const struct bytes *bytes, size_t n)
{
    char path[128];
    path_of(path, dir);
    forget_reached(dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0 && write(fd, bytes->data, n) == (ssize_t)n);
    close(fd);
}

/* ---- forging ---- */

/* Who makes the checksums: with those of earlier versions, which anybody can make; with a secret of
 * zeros; with that of another journal; with this one's, which nobody has. */
enum forger { FORGER_OLD, FORGER_ZERO, FORGER_OTHER, FORGER_KNOWS, FORGERS };

/* What stands where, as in a file that somebody could read. */
struct cut_history {
    struct record_key key;
    uint64_t position, chain; /* of the record to come */
};

static const struct record_key *key_of(enum forger forger, const struct cut_history *known)
{
    static struct record_key key;
    if (forger == FORGER_KNOWS)
        return &known->key;
    if (forger == FORGER_OTHER)
        assert_int_equal(record_key_new(&key), 0);
    else
        key = (struct record_key){.is_keyed = forger == FORGER_ZERO};
    return &key;
}

/* [0, 9, "table_drop", [{"name": "a"}]] as a whole record. */
static size_t forge_record(uint8_t *out, enum forger forger, const struct cut_history *known,
                           uint64_t position, uint64_t synced)
{
    static uint8_t request[] = "\x94\x00\x09\xaatable_drop\x91\x81\xa4name\xa1"
                               "a";
    static uint8_t operation[] = "\x93\x02\xaatable_drop\x91\x81\xa4name\xa1"
                                 "a";
    bool is_old = forger == FORGER_OLD;
    const struct frame_scanner frame = {.head = is_old ? request : operation,
                                        .head_bytes =
                                            (is_old ? sizeof request : sizeof operation) - 1};
    uint64_t n;
    record_write(out, &frame);
    if (is_old)
        embd__put_u32(out + 12, RECORD_REQUEST);
    if (is_old)
        old_record_seal(out, position, synced, known->chain, &n);
    else
        record_seal(out, key_of(forger, known), position, synced, known->chain, &n);
    return (size_t)n;
}

/* Of the very record that would be torn; of one that says that all before was synced; and a mark
 * that says so. */
static size_t forge(uint8_t *out, enum forger forger, const struct cut_history *known)
{
    const uint64_t far = (uint64_t)1 << 60;
    size_t n = forge_record(out, forger, known, known->position, known->position);
    n += forge_record(out + n, forger, known, known->position + 1, known->position + 1);
    mark_write(out + n, key_of(forger, known), far, known->chain);
    return n + MARK_BYTES;
}

static size_t forge_next(uint8_t *out, enum forger forger, const struct cut_history *known)
{
    return forge_record(out, forger, known, known->position, known->position);
}

/* ---- a journal with such a push ---- */

struct sample {
    char dir[64];
    struct bytes whole;
    size_t begin, end; /* of the push's record */
    struct cut_history known;
    struct image before;
};

static void push_keys(struct rig *rig, const uint64_t *keys, uint32_t n)
{
    static float grads[4 * KEYS_MAX];
    struct part part = part_of("a", keys, n, grads);
    push(rig, &part, NULL);
}

static void find_known(struct sample *s)
{
    struct segment_header header;
    struct record record;
    size_t at = segment_header_read(s->whole.data, s->whole.n, &header);
    s->known.key = header.key;
    while (at < s->whole.n &&
           record_read(&header.key, s->whole.data + at, s->whole.n - at, &record)) {
        at += RECORD_HEADER_BYTES + record.body_bytes;
        s->known.position = record.position + 1;
        s->known.chain = record.checksum;
    }
}

/* `fill`: what the keys are, of so many bytes or fewer; returns how many. */
static void sample_new(struct sample *s, enum forger forger,
                       size_t (*fill)(uint8_t *, enum forger, const struct cut_history *))
{
    static uint64_t keys[KEYS_MAX + 64]; /* what is forged last may end behind them */
    struct rig rig;
    embd_schema schema = kept_schema("a", EMBD_DURABILITY_DURABLE);
    memset(keys, 0xee, sizeof keys);
    scratch_new(s->dir);
    rig_open(&rig, &store_host, 0, 1, s->dir);
    create_table(&rig, &schema);
    push_two(&rig, "a", 1);
    image_take(&rig, "a", &s->before);
    read_journal(s->dir, &s->whole);
    find_known(s);
    size_t n = fill((uint8_t *)keys, forger, &s->known);
    assert_true(n <= (size_t)KEYS_MAX * 8);
    push_keys(&rig, keys, (uint32_t)((n + 7) / 8));
    read_journal(s->dir, &s->whole);
    rig_close(&rig);
    s->end = s->whole.n;
    struct record record;
    for (s->begin = SEGMENT_HEADER_BYTES; s->begin < s->end; s->begin++)
        if (__real_record_read(&s->known.key, s->whole.data + s->begin, s->end - s->begin,
                               &record) &&
            record.position == s->known.position && record.n_bins > 0)
            return;
    fail_msg("there is no such push");
}

static void sample_free(struct sample *s)
{
    image_fini(&s->before);
    scratch_remove(s->dir);
}

/* What a start on these first bytes finds: the table as it was before the push, or no table. */
static bool has_table(const struct sample *s, const struct bytes *bytes, size_t n)
{
    struct rig rig;
    write_journal(s->dir, bytes, n);
    rig_open(&rig, &store_host, 0, 1, s->dir);
    bool found = figure(&rig, NULL, "tables") == 1;
    if (found)
        image_check(&rig, "a", &s->before);
    rig_close(&rig);
    return found;
}

/* ---- cases ---- */

/* Its header is whole, or a piece of it: then the rest of it is missing. */
static void a_push_of_records_and_marks_is_cut_where_its_end_is_torn(void **state)
{
    static struct sample s;
    (void)state;
    for (enum forger forger = 0; forger < FORGERS; forger++) {
        sample_new(&s, forger, forge);
        for (size_t n = s.begin; n < s.end; n += STRIDE)
            assert_true(
                has_table(&s, &s.whole, n)); /* who has the secret too: the span is not looked at */
        sample_free(&s);
    }
}

static size_t place_of_forged(const struct sample *s)
{
    size_t at = s->begin + 1;
    while (memcmp(s->whole.data + at, "EBDJ", 4) != 0)
        at++;
    return at;
}

/* Pieces of a write come to the disk in any order: the header and what is behind it are zeros yet,
 * or other bytes. */
static void a_push_of_records_and_marks_is_cut_where_its_beginning_is_torn(void **state)
{
    static struct sample s;
    static struct bytes torn;
    (void)state;
    for (enum forger forger = 0; forger < FORGER_KNOWS; forger++) {
        sample_new(&s, forger, forge);
        for (int other = 0; other < 2; other++) {
            torn = s.whole;
            for (size_t n = 1; n < s.end - s.begin; n += STRIDE) {
                memset(torn.data + s.begin, other == 0 ? 0 : 0xa5, n);
                assert_true(has_table(&s, &torn, s.end));
            }
        }
        sample_free(&s);
    }
}

/* What the two before would find, were the secret none. */
static void who_had_the_secret_could_write_records(void **state)
{
    static struct sample s;
    struct rig rig;
    struct embd__error e = {.status = EMBD_OK};
    (void)state;
    sample_new(&s, FORGER_KNOWS, forge_next);
    memset(s.whole.data + s.begin, 0, place_of_forged(&s) - s.begin);
    assert_false(has_table(&s, &s.whole, s.end));
    sample_free(&s);
    sample_new(&s, FORGER_KNOWS, forge);
    memset(s.whole.data + s.begin, 0, place_of_forged(&s) + RECORD_HEADER_BYTES - s.begin);
    write_journal(s.dir, &s.whole, s.end);
    rig_open(&rig, &store_host, 0, 1, NULL);
    struct shard_config config = rig.config;
    rig_close(&rig);
    config.data_dir = s.dir;
    assert_int_equal(shard_open(&config, &rig.shard, &e), EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "what was written later follows"));
    sample_free(&s);
}

/* Headers that claim all that follows, and nothing but the first bytes of headers. */
static size_t claim(uint8_t *out, enum forger forger, const struct cut_history *known)
{
    const size_t n = (size_t)KEYS_MAX * 8;
    for (size_t at = 0; at + RECORD_HEADER_BYTES <= n; at += RECORD_HEADER_BYTES) {
        forge_record(out + at, forger, known, known->position, known->position);
        embd__put_u64(out + at + 16, n - at - RECORD_HEADER_BYTES);
    }
    return n;
}

static size_t fill_with_magic(uint8_t *out, enum forger forger, const struct cut_history *known)
{
    (void)known;
    for (size_t at = 0; at < (size_t)KEYS_MAX * 8; at += 4)
        memcpy(out + at, forger == FORGER_OLD ? "EBDJ" : "EBDM", 4);
    return (size_t)KEYS_MAX * 8;
}

static void what_is_hashed_grows_with_the_bytes_alone(void **state)
{
    static struct sample s;
    (void)state;
    for (enum forger forger = 0; forger < FORGER_KNOWS; forger++)
        for (int i = 0; i < 2; i++) {
            sample_new(&s, forger, i == 0 ? claim : fill_with_magic);
            for (size_t lost = 0; lost <= RECORD_HEADER_BYTES; lost += RECORD_HEADER_BYTES) {
                memset(s.whole.data + s.begin, 0, lost);
                n_hashed = 0;
                assert_true(has_table(&s, &s.whole, s.end - 10000)); /* into the last gradients */
                if (n_hashed > 17 * s.end)
                    fail_msg("%llu bytes of %zu were hashed", (unsigned long long)n_hashed, s.end);
            }
            sample_free(&s);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_push_of_records_and_marks_is_cut_where_its_end_is_torn),
        cmocka_unit_test(a_push_of_records_and_marks_is_cut_where_its_beginning_is_torn),
        cmocka_unit_test(who_had_the_secret_could_write_records),
        cmocka_unit_test(what_is_hashed_grows_with_the_bytes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
