/* What a restore of a moment is made of: which records of several shards count, beside a rule that
 * looks at every push; files of records; moments as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/backup/agree.h"
#include "client/backup/resized.h"
#include "client/backup/segment.h"
#include "client/backup/when.h"
#include "proto/little.h"

#define SHARDS  3u
#define CLIENTS 4u
#define PUSHES  12u
#define RECORDS 64u

static uint64_t seed;

static uint32_t draw(uint32_t n)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(seed >> 33) % n;
}

/* ---- which records count ---- */

/* A record is a step of one or two clients' pushes. */
struct line {
    uint32_t client[2], push[2], n;
};
struct world {
    struct line lines[SHARDS][RECORDS];
    uint32_t n[SHARDS];
    bool left[SHARDS][RECORDS];
};

static bool is_there(const struct world *w, uint32_t shard, uint32_t client, uint32_t push)
{
    for (uint32_t i = 0; i < w->n[shard]; i++)
        for (uint32_t k = 0; k < w->lines[shard][i].n; k++)
            if (w->lines[shard][i].client[k] == client && w->lines[shard][i].push[k] == push)
                return !w->left[shard][i];
    return false;
}

/* All shards have it, and all before it of that client. */
static bool counts(const struct world *w, uint32_t client, uint32_t push)
{
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        for (uint32_t before = 1; before <= push; before++)
            if (!is_there(w, shard, client, before))
                return false;
    return true;
}

static void leave_out(struct world *w)
{
    for (bool changes = true; changes;) {
        changes = false;
        for (uint32_t shard = 0; shard < SHARDS; shard++)
            for (uint32_t i = 0; i < w->n[shard]; i++) {
                const struct line *line = &w->lines[shard][i];
                bool stays = true;
                for (uint32_t k = 0; k < line->n; k++)
                    stays = stays && counts(w, line->client[k], line->push[k]);
                changes = changes || (!stays && !w->left[shard][i]);
                w->left[shard][i] = w->left[shard][i] || !stays;
            }
    }
}

/* Each shard has the pushes of each client in their order, up to where it was cut. Steps of two
 * clients are the same records on all shards. */
static void make(struct world *w)
{
    uint32_t next[CLIENTS][SHARDS] = {{0}};
    *w = (struct world){.n = {0}};
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        for (uint32_t end = draw(CLIENTS * PUSHES); w->n[shard] < end; w->n[shard]++) {
            struct line *line = &w->lines[shard][w->n[shard]];
            uint32_t client = draw(CLIENTS - 1);
            *line = (struct line){.client = {client}, .push = {++next[client][shard]}, .n = 1};
            if (client == 0) { /* together with the last one */
                line->client[1] = CLIENTS - 1;
                line->push[1] = ++next[CLIENTS - 1][shard];
                line->n = 2;
            }
        }
    leave_out(w);
}

static void add_all(const struct world *w, struct agree *agree, bool is_numbered)
{
    struct embd__error e = {0};
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        for (uint32_t i = 0; i < w->n[shard]; i++) {
            const struct line *line = &w->lines[shard][i];
            struct archived_deed deed = {.n_sources = line->n};
            for (uint32_t k = 0; k < line->n; k++)
                deed.sources[k] = (struct push_source){1000 + line->client[k], line->push[k]};
            if (is_numbered && line->n == 1)
                deed.number = (struct push_number){7, line->client[0], line->push[0], 3};
            assert_int_equal(agree_add(agree, shard, 100 + i, &deed, &e), EMBD_OK);
        }
}

static void check(const struct world *w, bool is_numbered)
{
    struct embd__error e = {0};
    struct agree agree = {.n_shards = SHARDS};
    struct agree_left *left;
    uint64_t n, expected = 0;
    add_all(w, &agree, is_numbered);
    assert_int_equal(agree_end(&agree, &left, &n, &e), EMBD_OK);
    for (uint64_t i = 0; i < n; i++)
        assert_true(w->left[left[i].shard][left[i].position - 100]);
    for (uint32_t shard = 0; shard < SHARDS; shard++)
        for (uint32_t i = 0; i < w->n[shard]; i++)
            expected += w->left[shard][i];
    assert_int_equal(n, expected);
    free(left);
    agree_fini(&agree);
}

static void what_some_shards_lack_counts_nowhere(void **state)
{
    struct world w;
    uint32_t n_left = 0, n_kept = 0;
    (void)state;
    for (seed = 1; seed < 2000; seed++) {
        uint64_t kept = seed;
        make(&w);
        check(&w, false);
        check(&w, true);
        for (uint32_t i = 0; i < w.n[0]; i++) {
            n_left += w.left[0][i];
            n_kept += !w.left[0][i];
        }
        seed = kept;
    }
    assert_true(n_left > 1000 && n_kept > 1000);
}

static void what_names_no_client_counts(void **state)
{
    struct embd__error e = {0};
    struct agree agree = {.n_shards = 2};
    struct archived_deed deed = {.n_sources = 1}; /* client 0 */
    struct agree_left *left;
    uint64_t n = 1;
    (void)state;
    agree_add(&agree, 1, 5, &deed, &e);
    assert_int_equal(agree_end(&agree, &left, &n, &e), EMBD_OK);
    assert_int_equal(n, 0);
    agree_fini(&agree);
}

static void add_push(struct agree *agree, uint32_t shard, uint64_t position, uint64_t client,
                     uint32_t place, struct push_number number)
{
    struct embd__error e = {0};
    struct archived_deed deed = {.n_sources = 1, .sources = {{client, place}}, .number = number};
    assert_int_equal(agree_add(agree, shard, position, &deed, &e), EMBD_OK);
}

/* The records that are left out are so many, and the first of them is this one. */
static void expect_left(struct agree *agree, uint64_t expected, uint32_t shard, uint64_t position)
{
    struct embd__error e = {0};
    struct agree_left *left;
    uint64_t n;
    assert_int_equal(agree_end(agree, &left, &n, &e), EMBD_OK);
    assert_int_equal(n, expected);
    if (n > 0) {
        assert_int_equal(left[0].shard, shard);
        assert_int_equal(left[0].position, position);
    }
    free(left);
    agree_fini(agree);
}

/* As of libembd, on a shard that was added, or refused a push: the client's order counts. */
static void numbers_of_a_stream_for_each_shard_are_not_compared(void **state)
{
    struct agree agree = {.n_shards = 2};
    (void)state;
    for (uint32_t push = 1; push <= 5; push++) {
        add_push(&agree, 0, push, 77, push, (struct push_number){7, 1, push, 1});
        if (push < 5)
            add_push(&agree, 1, push, 77, push, (struct push_number){7, 1, push + 10, 99});
    }
    expect_left(&agree, 1, 0, 5);
}

/* The second client sends again what one shard had of the first. */
static void a_stream_that_another_client_goes_on_with_counts_by_its_numbers(void **state)
{
    struct agree agree = {.n_shards = 2};
    (void)state;
    for (uint32_t push = 1; push <= 4; push++)
        add_push(&agree, 0, push, 77, push, (struct push_number){7, 1, push, 1});
    for (uint32_t push = 1; push <= 3; push++)
        add_push(&agree, 1, push, 77, push, (struct push_number){7, 1, push, 1});
    add_push(&agree, 1, 4, 88, 1, (struct push_number){7, 1, 4, 1});
    for (uint32_t shard = 0; shard < 2; shard++)
        add_push(&agree, shard, 5, 88, 2, (struct push_number){7, 1, 5, 1});
    add_push(&agree, 1, 6, 88, 3, (struct push_number){7, 1, 6, 1});
    expect_left(&agree, 1, 1, 6);
}

/* ---- maps of keys in records ---- */

static uint64_t put_text(uint8_t *at, const char *text)
{
    size_t n = strlen(text);
    *at = (uint8_t)(0xa0 | n);
    memcpy(at + 1, text, n);
    return n + 1;
}

/* A journal's record: [2, method, [map, bins...]], its bins of `bin_bytes` each. */
static uint64_t put_record(uint8_t *out, const char *method, uint32_t n_bins, uint32_t bin_bytes)
{
    uint8_t *head = out + ARCHIVED_RECORD_BYTES + 8 * n_bins;
    uint64_t n = 0;
    memset(out, 0, ARCHIVED_RECORD_BYTES + 8 * n_bins);
    head[n++] = 0x93;
    head[n++] = 2;
    n += put_text(head + n, method);
    head[n++] = (uint8_t)(0x91 + n_bins);
    head[n++] = 0x82; /* a map of two fields */
    n += put_text(head + n, "decision");
    head[n++] = 5;
    n += put_text(head + n, "shards");
    head[n++] = 3;
    for (uint32_t i = 0; i < n_bins; i++) {
        embd__put_u32(out + ARCHIVED_RECORD_BYTES + 8 * i + 4, bin_bytes);
        head[n++] = 0xc4;
        head[n++] = (uint8_t)bin_bytes;
    }
    memcpy(out, "EBDJ", 4);
    embd__put_u32(out + 4, (uint32_t)n);
    embd__put_u32(out + 8, n_bins);
    embd__put_u32(out + 12, 2);
    uint64_t body = 8 * n_bins + n + n_bins * bin_bytes;
    embd__put_u64(out + 16, body);
    memset(head + n, 0xff, n_bins * bin_bytes);
    return ARCHIVED_RECORD_BYTES + body;
}

/* In pieces of `piece` bytes: how many maps of three shards there are, and where records begin. */
static uint32_t count_maps(const uint8_t *bytes, uint64_t n, uint64_t piece, uint32_t *begins_out)
{
    struct resized r = {.n_head = 0};
    struct archived_deed deed;
    uint32_t n_maps = 0;
    *begins_out = 0;
    for (uint64_t at = 0; at < n;) {
        *begins_out += resized_begins(&r);
        at += resized_take(&r, bytes + at, n - at < piece ? n - at : piece, &deed);
        n_maps += deed.move == MOVE_MADE && deed.n_shards == 3 && deed.decision == 5;
    }
    return n_maps;
}

static void a_later_map_is_found_in_records_in_pieces_of_any_length(void **state)
{
    uint8_t bytes[4096];
    uint64_t n = 0;
    uint32_t begins;
    (void)state;
    n += put_record(bytes + n, "push", 2, 100);
    n += put_record(bytes + n, "table_replace", 1, 0);
    n += put_record(bytes + n, "erase", 1, 7);
    n += put_record(bytes + n, "table_replace", 1, 80);
    n += put_record(bytes + n, "table_replace", 3, 1); /* no record of a map has so many */
    for (uint64_t piece = 1; piece <= n; piece++) {
        assert_int_equal(count_maps(bytes, n, piece, &begins), 2);
        assert_int_equal(begins, 5);
    }
}

/* ---- files ---- */

static void a_file_of_records_is_what_was_written_or_refused(void **state)
{
    static const struct segment_time times[] = {{1800000000000, 7}, {1800000000500, 9}};
    static const uint64_t skips[] = {8};
    static const uint8_t records[] = "0123456789";
    const struct segment s = {.shard = 2,
                              .n_shards = 4,
                              .number = 11,
                              .run = 5,
                              .lineage = 6,
                              .from = {7, 70, 3, 0, 0},
                              .to = {9, 90, 4, 0, 0},
                              .first = 2,
                              .times = times,
                              .skips = skips,
                              .bytes = records,
                              .n_times = 2,
                              .n_skips = 1,
                              .n_bytes = 10};
    char name[PLACE_NAME_BYTES];
    size_t n;
    struct segment out;
    struct embd__error e = {0};
    struct segment_name says;
    (void)state;
    segment_name(name, &s);
    assert_string_equal(name, "journal.records/2/1800000000500-0000000000000005-00000011");
    assert_true(segment_name_read(name, &says) && says.shard == 2 && says.number == 11);
    uint8_t *bytes = segment_write(&s, &n);
    assert_int_equal(segment_read(name, bytes, n, &out, &e), EMBD_OK);
    assert_true(segment_joins(&out.from, &s.from) && segment_joins(&out.to, &s.to));
    assert_true(out.first == 2 && out.lineage == 6 && out.skips[0] == 8 &&
                out.times[1].position == 9);
    assert_memory_equal(out.bytes, records, 10);
    for (size_t i = 0; i < n; i++) {
        bytes[i] ^= 1;
        assert_int_not_equal(segment_read(name, bytes, n, &out, &(struct embd__error){0}), EMBD_OK);
        bytes[i] ^= 1;
        assert_int_not_equal(segment_read(name, bytes, i, &out, &(struct embd__error){0}), EMBD_OK);
    }
    name[strlen(name) - 1]++;
    assert_int_equal(segment_read(name, bytes, n, &out, &e), EMBD_CORRUPT);
    assert_false(segment_name_read("journal.records/2/1-5-11", &says));
    assert_false(
        segment_name_read("journal.records/2/1800000000500-0000000000000005-00000011x", &says));
    free(bytes);
}

/* ---- moments ---- */

static void a_moment_is_read_as_it_is_written(void **state)
{
    static const struct {
        const char *text;
        uint64_t ms;
    } times[] = {{"@12", 12000},
                 {"@12.5", 12500},
                 {"@12.0019", 12001},
                 {"1970-01-02", 86400000},
                 {"1970-01-02Z", 86400000},
                 {"1970-01-02T01:00", 90000000},
                 {"1970-01-02T00:00:01.250Z", 86401250},
                 {"26-11-23", 0}};
    static const char *const wrong[] = {"",
                                        "@",
                                        "@x",
                                        "@1x",
                                        "@1.",
                                        "yesterday",
                                        "1970-01-02T00:00.5",
                                        "records:",
                                        "records:1,",
                                        "records:1,x",
                                        "records:-1"};
    struct when when;
    (void)state;
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        assert_true(when_read(times[i].text, &when));
        assert_int_equal(when.ms, times[i].ms);
        assert_int_equal(when.n_positions, 0);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(when_read(wrong[i], &when));
    assert_true(when_read("records:3,4", &when));
    assert_true(when.n_positions == 2 && when.positions[1] == 4 &&
                when_seconds(&when) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_some_shards_lack_counts_nowhere),
        cmocka_unit_test(what_names_no_client_counts),
        cmocka_unit_test(numbers_of_a_stream_for_each_shard_are_not_compared),
        cmocka_unit_test(a_stream_that_another_client_goes_on_with_counts_by_its_numbers),
        cmocka_unit_test(a_later_map_is_found_in_records_in_pieces_of_any_length),
        cmocka_unit_test(a_file_of_records_is_what_was_written_or_refused),
        cmocka_unit_test(a_moment_is_read_as_it_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
