/* test_manifest.c - manifest.json: its golden text, 64-bit numbers beyond what JSON's readers keep,
 * and everything in it that must not be believed. */
#include "tests/unit/cmocka_all.h"

#include <stdlib.h>
#include <string.h>

#include "proto/partfile.h"
#include "embd/admin.h"

static char sealed[4096], golden[4096]; /* with its checksum, as it is written; and without */

static int load_golden(void **state)
{
    (void)state;
    FILE *file = fopen(GOLDEN_DIR "/manifest.json", "r");
    if (file == NULL)
        return -1;
    sealed[fread(sealed, 1, sizeof sealed - 1, file)] = '\0';
    const char *seal = strstr(sealed, ",\n \"xxh3\"");
    if (seal == NULL)
        return -1;
    snprintf(golden, sizeof golden, "%.*s\n}\n", (int)(seal - sealed), sealed);
    return fclose(file);
}

static void make(struct manifest *m, struct manifest_table *table, struct manifest_part parts[2])
{
    static uint64_t sizes[2] = {100, 1ull << 63};
    memset(m, 0, sizeof *m);
    memset(table, 0, sizeof *table);
    memset(parts, 0, 2 * sizeof *parts);
    strcpy(m->kind, "dump");
    strcpy(m->embd_version, "0.1.0");
    m->n_shards = 2;
    m->tables = table;
    m->n_tables = 1;
    embd_schema *s = &table->schema.s;
    embd_schema_init(s);
    s->durability = EMBD_DURABILITY_SNAPSHOT;
    strcpy(s->name, "items");
    s->dim = 3;
    s->slots = 2;
    s->slot_sizes = sizes;
    s->partition = EMBD_PARTITION_SLOT;
    s->combiner = EMBD_COMBINER_MEAN;
    s->dtype = EMBD_DTYPE_F16;
    s->seed = UINT64_MAX;
    s->admit_after = 2;
    embd_optimizer_init(&s->optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);
    s->optimizer.initial_accumulator = 0.5f;
    s->initializer.kind = EMBD_INITIALIZER_UNIFORM_SLOT;
    table->step = 1ull << 63;
    table->parts = parts;
    table->n_parts = 2;
    parts[0] =
        (struct manifest_part){"items.0.part", 0, 3, 1, 248, 0xdeadbeef, false, 1ull << 63, 0};
    parts[1] = (struct manifest_part){"items.1.part",     1,     0,          0, 88,
                                      0xfedcba9876543210, false, 1ull << 63, 0};
}

static void a_manifest_has_its_golden_text(void **state)
{
    struct manifest m;
    struct manifest_table table;
    struct manifest_part parts[2];
    (void)state;
    make(&m, &table, parts);
    char *text = embd__manifest_write(&m);
    assert_non_null(text);
    size_t n = strlen(text);
    assert_int_equal(strlen(sealed), n + 1);
    assert_memory_equal(text, sealed, n);
    free(text);
}

static void a_manifest_keeps_the_regularization_of_a_table(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    embd_regularization *r = &table.schema.s.regularization;
    r->clip_norm = 0.5f;
    r->decay = EMBD_DECAY_DECOUPLED_GLOBAL;
    r->weight_max = 2.0f;
    r->lr_decay = 0.25f;
    char *text = embd__manifest_write(&m);
    assert_non_null(strstr(text, "\"decoupled_global\""));
    assert_null(strstr(text, "clip_value"));
    char *whole = malloc(strlen(text) + 2);
    strcat(strcpy(whole, text), "\n");
    assert_int_equal(embd__manifest_read(whole, strlen(whole), &out, &e), EMBD_OK);
    assert_null(embd__schema_difference(&out.tables[0].schema.s, &table.schema.s));
    embd__manifest_fini(&out);
    free(whole);
    free(text);
}

static void a_manifest_keeps_the_id_of_a_part_s_table(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    parts[1].table_id = 4000000000;
    char *text = embd__manifest_write(&m), whole[8192];
    assert_in_range(snprintf(whole, sizeof whole, "%s\n", text), 1, sizeof whole - 1);
    assert_int_equal(embd__manifest_read(whole, strlen(whole), &out, &e), EMBD_OK);
    assert_int_equal(out.tables[0].parts[0].table_id, 0);
    assert_int_equal(out.tables[0].parts[1].table_id, 4000000000);
    embd__manifest_fini(&out);
    free(text);
}

static void reads_back(const char *text)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    make(&m, &table, parts);
    if (embd__manifest_read(text, strlen(text), &out, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    assert_string_equal(out.kind, "dump");
    assert_string_equal(out.embd_version, "0.1.0");
    assert_int_equal(out.n_shards, 2);
    assert_int_equal(out.n_tables, 1);
    assert_null(embd__schema_difference(&out.tables[0].schema.s, &table.schema.s));
    assert_true(out.tables[0].step == 1ull << 63);
    assert_int_equal(out.tables[0].n_parts, 2);
    for (int i = 0; i < 2; i++) {
        const struct manifest_part *a = &out.tables[0].parts[i], *b = &parts[i];
        assert_string_equal(a->file, b->file);
        assert_true(a->shard == b->shard && a->rows == b->rows && a->candidates == b->candidates);
        assert_true(a->bytes == b->bytes && a->xxh3 == b->xxh3);
    }
    embd__manifest_fini(&out);
}

static void a_manifest_reads_back(void **state)
{
    (void)state;
    reads_back(sealed);
}

static void a_manifest_without_a_checksum_reads_back(void **state)
{
    (void)state;
    reads_back(golden);
}

static void an_id_and_writers_make_it_format_2_and_are_read_back(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct manifest_streams streams[2] = {{1, 64, UINT64_MAX}, {0, 96, 1}};
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    m.id = 0xfedcba9876543210;
    m.streams = streams;
    m.n_streams = 2;
    char *text = embd__manifest_write(&m);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"format\": 2"));
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_OK);
    assert_true(out.id == m.id);
    assert_int_equal(out.n_streams, 2);
    for (int i = 0; i < 2; i++)
        assert_true(out.streams[i].shard == streams[i].shard &&
                    out.streams[i].bytes == streams[i].bytes &&
                    out.streams[i].xxh3 == streams[i].xxh3);
    embd__manifest_fini(&out);
    free(text);
    streams[0].shard = 0;
    text = embd__manifest_write(&m);
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "occurs twice"));
    free(text);
}

static void a_base_makes_it_format_3_and_is_read_back_with_what_changed(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    m.id = 7;
    m.base = (struct manifest_base){"monday", UINT64_MAX, 0x123};
    parts[1].has_changes = true;
    char *text = embd__manifest_write(&m);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"format\": 3"));
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_OK);
    assert_string_equal(out.base.name, "monday");
    assert_true(out.base.id == UINT64_MAX && out.base.xxh3 == 0x123 && out.xxh3 != 0);
    assert_true(!out.tables[0].parts[0].has_changes && out.tables[0].parts[1].has_changes);
    embd__manifest_fini(&out);
    free(text);
    strcpy(m.base.name, "../monday");
    text = embd__manifest_write(&m);
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "manifest base 'name'"));
    free(text);
}

static void a_sequence_makes_it_format_4_and_is_read_back(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    m.id = 7;
    m.sequence = UINT64_MAX;
    for (int i = 0; i < 2; i++) {
        char *text = embd__manifest_write(&m);
        assert_non_null(strstr(text, "\"format\": 4"));
        assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_OK);
        assert_true(out.id == 7 && out.sequence == UINT64_MAX);
        assert_string_equal(out.base.name, i == 0 ? "" : "monday");
        embd__manifest_fini(&out);
        free(text);
        m.base = (struct manifest_base){"monday", 5, 0x123};
    }
}

/* The first is ahead of the second; then with an id, then with a base too. */
static void a_job_or_tables_make_it_format_5_and_are_read_back(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    assert_int_equal(embd__scope_set_job(&m.scope, "ranker", 6, &e), EMBD_OK);
    assert_int_equal(embd__scope_add(&m.scope, "users", 5, &e), EMBD_OK);
    assert_int_equal(embd__scope_add(&m.scope, "it*", 3, &e), EMBD_OK);
    assert_int_equal(embd__scope_add(&m.scope, "it*", 3, &e), EMBD_OK);
    char *text = embd__manifest_write(&m);
    assert_non_null(text);
    assert_non_null(strstr(text, "\"format\": 5"));
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_OK);
    assert_true(embd__scope_is_same(&out.scope, &m.scope));
    assert_string_equal(out.scope.names[0], "it*");
    assert_int_equal(out.scope.n_names, 2);
    embd__manifest_fini(&out);
    free(text);
}

/* The even map needs no word. */
static void an_uneven_map_makes_it_format_6_and_is_read_back(void **state)
{
    static const uint32_t weights[] = {5, 3};
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    struct placement even, uneven;
    (void)state;
    embd__placement_even(&even, 9, 2);
    embd__placement_weighted(&uneven, 9, 2, weights);
    for (int i = 0; i < 2; i++) {
        make(&m, &table, parts);
        m.placement = i == 0 ? &even : &uneven;
        char *text = embd__manifest_write(&m);
        assert_non_null(text);
        assert_non_null(strstr(text, i == 0 ? "\"format\": 1" : "\"format\": 6"));
        assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_OK);
        assert_true(embd__manifest_is_placed(&out, m.placement));
        assert_false(embd__manifest_is_placed(&out, i == 0 ? &uneven : &even));
        assert_true(i == 0 || out.placement->version == 9);
        embd__manifest_fini(&out);
        free(text);
    }
}

static struct table_scope scope_of(const char *job, const char *a, const char *b)
{
    struct table_scope scope = {.n_names = 0};
    struct embd__error e = {0};
    if (job[0] != '\0')
        embd__scope_set_job(&scope, job, strlen(job), &e);
    if (a[0] != '\0')
        embd__scope_add(&scope, a, strlen(a), &e);
    if (b[0] != '\0')
        embd__scope_add(&scope, b, strlen(b), &e);
    assert_int_equal(e.status, EMBD_OK);
    return scope;
}

static void a_scope_covers_names_and_prefixes(void **state)
{
    struct table_scope all = scope_of("", "", ""), some = scope_of("", "a", "rec-*"),
                       wider = scope_of("", "a*", "r*"), ours = scope_of("j", "a*", "r*");
    char text[SCOPE_TEXT];
    (void)state;
    assert_true(embd__scope_covers(&all, "b"));
    assert_true(embd__scope_covers(&some, "a") && embd__scope_covers(&some, "rec-"));
    assert_false(embd__scope_covers(&some, "ab") || embd__scope_covers(&some, "rec"));
    assert_true(embd__scope_hides(&all, &some) && embd__scope_hides(&wider, &some));
    assert_false(embd__scope_hides(&some, &all) || embd__scope_hides(&some, &wider));
    assert_true(embd__scope_hides(&ours, &some));
    assert_false(embd__scope_includes(&ours, &some));
    embd__scope_text(&ours, text);
    assert_string_equal(text, "tables a*,r* of job 'j'");
    embd__scope_text(&all, text);
    assert_string_equal(text, "all tables");
}

static void a_scope_has_a_limit(void **state)
{
    struct table_scope scope = {.n_names = 0};
    struct embd__error e = {0};
    char name[16];
    (void)state;
    for (unsigned i = 0; i < SCOPE_NAMES_MAX; i++) {
        snprintf(name, sizeof name, "t%u", i);
        assert_int_equal(embd__scope_add(&scope, name, strlen(name), &e), EMBD_OK);
    }
    assert_int_equal(embd__scope_add(&scope, "t5", 2, &e), EMBD_OK);
    assert_int_equal(embd__scope_add(&scope, "u", 1, &e), EMBD_TOO_LARGE);
    assert_int_equal(scope.n_names, SCOPE_NAMES_MAX);
}

static void steps_that_differ_make_it_format_4_and_are_read_back(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    parts[1].step = (1ull << 63) - 1;
    for (int i = 0; i < 3; i++) {
        m.id = i > 0 ? 7 : 0;
        m.base = (struct manifest_base){"monday", i == 2, 5};
        char *text = embd__manifest_write(&m);
        assert_non_null(text);
        assert_non_null(strstr(text, "\"format\": 4"));
        if (embd__manifest_read(text, strlen(text), &out, &e) != EMBD_OK)
            fail_msg("%s", e.text);
        assert_true(out.tables[0].step == 1ull << 63 && out.tables[0].parts[0].step == 1ull << 63);
        assert_true(out.tables[0].parts[1].step == (1ull << 63) - 1);
        assert_true(out.id == m.id && out.base.id == m.base.id);
        embd__manifest_fini(&out);
        free(text);
    }
    m.id = 0;
    char *text = embd__manifest_write(&m);
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "the manifest has no 'id', which is required"));
    free(text);
}

static void a_shard_is_not_ahead_of_its_tables_step(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    table.step = 4;
    parts[0].step = 5;
    parts[1].step = 4;
    char *text = embd__manifest_write(&m);
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "parts[0] 'step' is 5, the limit is 4"));
    free(text);
}

static void blobs_are_written_and_read_back(void **state)
{
    struct manifest m, out;
    struct manifest_table table;
    struct manifest_part parts[2];
    struct manifest_blob blobs[2] = {{"dense", EMBD_BLOB_BYTES_MAX, UINT64_MAX}, {"0-step_", 0, 1}};
    struct embd__error e = {0};
    (void)state;
    make(&m, &table, parts);
    m.blobs = blobs;
    m.n_blobs = 2;
    char *text = embd__manifest_write(&m);
    assert_non_null(text);
    if (embd__manifest_read(text, strlen(text), &out, &e) != EMBD_OK)
        fail_msg("%s", e.text);
    free(text);
    assert_int_equal(out.n_blobs, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(out.blobs[i].name, blobs[i].name);
        assert_true(out.blobs[i].bytes == blobs[i].bytes && out.blobs[i].xxh3 == blobs[i].xxh3);
    }
    embd__manifest_fini(&out);
}

static void a_blob_has_a_file_name_that_no_part_has(void **state)
{
    char file[MANIFEST_BLOB_FILE], name[66];
    (void)state;
    memset(name, 'z', sizeof name);
    name[64] = '\0';
    const char *const bad[] = {"", "-a", "_a", "A", "a.b", "a/b", "..", "a b", "\xc3\xa4", name};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_false(embd__manifest_blob_file(file, bad[i]));
        assert_string_equal(file, "");
    }
    assert_true(embd__manifest_blob_file(file, name + 1));
    assert_int_equal(strlen(file), 68);
    assert_true(embd__manifest_blob_file(file, "dense-1_b"));
    assert_string_equal(file, "dense-1_b.blob");
}

/* Reads the golden text with one place changed. */
static void refused(const char *from, const char *to, int status, const char *why)
{
    char text[8192];
    struct manifest out;
    struct embd__error e = {0};
    const char *at = strstr(golden, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - golden), golden, to, at + strlen(from));
    assert_int_equal(embd__manifest_read(text, strlen(text), &out, &e), status);
    if (strstr(e.text, why) == NULL)
        fail_msg("'%s' does not say '%s'", e.text, why);
    assert_int_equal(out.n_tables, 0);
}

static void what_a_manifest_says_is_checked(void **state)
{
    (void)state;
    refused("\"format\": 1", "\"format\": 2", EMBD_CORRUPT,
            "the manifest has no 'id', which is required");
    refused("\"format\": 1", "\"format\": 7", EMBD_UNSUPPORTED,
            "'format' is 7, this version reads 1 to 6");
    refused("\"format\": 1", "\"format\": 6", EMBD_CORRUPT, "no 'placement', which is required");
    refused("\"format\": 1,", "\"format\": 6, \"placement\": 1,", EMBD_CORRUPT, "version is 0");
    refused("\"format\": 1,",
            "\"format\": 6, \"placement\": {\"version\": 1, \"base\": 2, \"runs\": [0, 1023]},",
            EMBD_CORRUPT, "of 1023 vshards together");
    refused("\"format\": 1,",
            "\"format\": 6, \"placement\": {\"version\": 1, \"base\": 2, \"runs\": [9, 1024]},",
            EMBD_CORRUPT, "vshards of shard 9");
    refused("\"format\": 1,",
            "\"format\": 6, \"placement\": {\"version\": 1, \"base\": 2, \"runs\": [-1, 1024]},",
            EMBD_CORRUPT, "a shard that is not a number");
    refused("\"format\": 1,",
            "\"format\": 5, \"placement\": {\"version\": 1, \"base\": 2, \"runs\": [1, 1024]},",
            EMBD_CORRUPT, "1 of them unknown");
    refused("\"format\": 1,", "\"format\": 4, \"job\": \"j\",", EMBD_CORRUPT, "1 of them unknown");
    refused("\"format\": 1,", "\"format\": 5, \"job\": \"J\",", EMBD_CORRUPT,
            "snapshot job: 'J', expected a name of 1 to 63 bytes");
    refused("\"format\": 1,", "\"format\": 5, \"scope\": [],", EMBD_CORRUPT,
            "'scope' has no names");
    refused("\"format\": 1,", "\"format\": 5, \"scope\": [1],", EMBD_CORRUPT, "is not a string");
    refused("\"format\": 1,", "\"format\": 5, \"scope\": [\"*\"],", EMBD_CORRUPT,
            "snapshot tables: '*', expected a name, or PREFIX*,");
    refused("\"format\": 1,", "\"format\": 5, \"scope\": [\"users\"],", EMBD_CORRUPT,
            "'scope' does not cover table 'items'");
    refused("\"format\": 1,", "\"format\": 4, \"sequence\": 0,", EMBD_CORRUPT,
            "the manifest 'sequence' is 0, below the minimum of 1");
    refused("\"format\": 1,", "\"format\": 1, \"sequence\": 1,", EMBD_CORRUPT, "1 of them unknown");
    refused("\"format\": 1", "\"format\": 0", EMBD_UNSUPPORTED, "'format' is 0");
    refused("\"rows\": 3", "\"rows\": 3, \"step\": 1", EMBD_CORRUPT,
            "parts[0] has 7 members, 1 of them unknown");
    refused("\"rows\": 3", "\"rows\": 3, \"table_id\": 4294967296", EMBD_CORRUPT,
            "'table_id' is 4294967296, the limit is 4294967295");
    refused("\"format\": 1,", "", EMBD_CORRUPT, "the manifest has no 'format', which is required");
    refused("\"dump\"", "\"dumb\"", EMBD_CORRUPT, "'kind' is 'dumb'");
    refused("\"shards\": 2", "\"shards\": 0", EMBD_CORRUPT, "'shards' is 0");
    refused("\"shards\": 2", "\"shards\": 2000", EMBD_CORRUPT,
            "'shards' is 2000, the limit is 1024");
    refused("\"shards\": 2", "\"shards\": 2, \"color\": 1", EMBD_CORRUPT,
            "6 members, 1 of them unknown");
    refused("\"shards\": 2", "\"shards\": 2, \"shards\": 2", EMBD_CORRUPT, "is not JSON");
    refused("\"shards\": 2", "\"shards\": 1", EMBD_CORRUPT,
            "parts[1] 'shard' is 1, the limit is 0");
    refused("\"rows\": 3", "\"rows\": -3", EMBD_CORRUPT,
            "'rows' is an integer that is not an unsigned 64-bit integer");
    refused("\"rows\": 3", "\"rows\": 3.0", EMBD_CORRUPT, "'rows' is a real");
    refused("\"9223372036854775808\",", "\"18446744073709551616\",", EMBD_CORRUPT,
            "'step' is a string");
    refused("items.1.part", "items.0.part", EMBD_CORRUPT,
            "manifest file 'items.0.part' occurs twice");
    refused("items.1.part", "../items", EMBD_CORRUPT, "parts[1] 'file' is not a plain file name");
    refused("items.1.part", "..", EMBD_CORRUPT, "not a plain file name");
    refused("items.1.part", "", EMBD_CORRUPT, "'file' has 0 bytes");
    refused("00000000deadbeef", "deadbeef", EMBD_CORRUPT,
            "'xxh3' is not a number of 16 hexadecimal digits");
    refused("00000000deadbeef", "00000000DEADBEEF", EMBD_CORRUPT, "'xxh3' is not a number");
    refused("\"dim\": 3", "\"dim\": 4097", EMBD_CORRUPT, "'dim' is 4097, the limit is 4096");
    refused("\"dim\": 3", "\"dim\": 0", EMBD_INVALID, "'dim' is 0");
    refused("\"mean\"", "\"median\"", EMBD_CORRUPT, "'combiner' is 'median', which is unknown");
    refused("\"local\"", "\"lazy_global\"", EMBD_INVALID, "'optimizer.update' is 'lazy_global'");
    refused("\"eps\"", "\"beta1\"", EMBD_CORRUPT, "optimizer has no 'eps'");
    refused("0.5", "\"0.5\"", EMBD_CORRUPT, "'initial_accumulator' is not a number");
    refused("0.5", "1e300", EMBD_CORRUPT, "'initial_accumulator' is 1e+300, beyond f32");
    refused("\"tables\": [", "\"tables\": [{},", EMBD_CORRUPT,
            "manifest tables[0] has no 'schema'");
#define BLOBS(text) "\"shards\": 2, \"blobs\": [" text "]"
#define BLOB(name, bytes)                                                                          \
    "{\"name\": \"" name "\", \"bytes\": " bytes ", \"xxh3\": \"0000000000000001\"}"
    refused("\"shards\": 2", "\"shards\": 2, \"blobs\": {}", EMBD_CORRUPT,
            "'blobs' is an object, expected an array");
    refused("\"shards\": 2", BLOBS("{}"), EMBD_CORRUPT, "manifest blobs[0] has no 'name'");
    refused("\"shards\": 2", BLOBS(BLOB("../x", "1")), EMBD_CORRUPT,
            "manifest blobs[0] 'name' is not of the form");
    refused("\"shards\": 2", BLOBS(BLOB("a", "1073741825")), EMBD_CORRUPT,
            "'bytes' is 1073741825, the limit is 1073741824");
    refused("\"shards\": 2", BLOBS(BLOB("a", "1") "," BLOB("a", "2")), EMBD_CORRUPT,
            "manifest blob 'a' occurs twice");
    refused("\"shards\": 2", BLOBS("1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17"), EMBD_CORRUPT,
            "'blobs' has 17 elements, the limit is 16");
#undef BLOBS
#undef BLOB
}

static void every_flipped_bit_of_a_manifest_is_refused(void **state)
{
    char text[sizeof sealed];
    size_t n = strlen(sealed);
    (void)state;
    for (size_t bit = 0; bit < 8 * n; bit++) {
        struct manifest out;
        struct embd__error e = {0};
        memcpy(text, sealed, n);
        text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
        if (embd__manifest_read(text, n, &out, &e) == EMBD_OK)
            fail_msg("bit %zu, of '%c', is not missed", bit, sealed[bit / 8]);
    }
}

static void a_checksum_stands_at_the_end_or_nowhere(void **state)
{
    (void)state;
    refused("\"shards\": 2", "\"xxh3\": \"0123456789abcdef\", \"shards\": 2", EMBD_CORRUPT,
            "last member is not 'xxh3'");
    refused("\n}\n", ",\n \"xxh3\": \"0123456789abcdef\"\n}\n", EMBD_CORRUPT,
            "checksum is '0123456789abcdef', its text has");
    refused("\n}\n", ",\n \"xxh3\": \"0123\"\n}\n", EMBD_CORRUPT, "last member is not 'xxh3'");
}

static void slot_sizes_of_another_number_are_refused(void **state)
{
    (void)state;
    refused("\"slots\": 2", "\"slots\": 3", EMBD_CORRUPT,
            "'slot_sizes' has 2 elements, 'slots' is 3");
    refused("\"slots\": 2", "\"slots\": 1", EMBD_CORRUPT,
            "'slot_sizes' has 2 elements, 'slots' is 1");
}

static void text_that_is_no_manifest_is_refused_with_its_place(void **state)
{
    struct manifest out;
    struct embd__error e = {0};
    (void)state;
    assert_int_equal(embd__manifest_read("{\n \"a\": }", 9, &out, &e), EMBD_CORRUPT);
    assert_non_null(strstr(e.text, "line 2, column"));
    memset(&e, 0, sizeof e);
    assert_int_equal(embd__manifest_read("[]", 2, &out, &e), EMBD_CORRUPT);
    assert_string_equal(e.text, "the manifest is an array, expected an object");
}

static void every_truncation_of_a_manifest_is_refused(void **state)
{
    (void)state;
    for (size_t cut = 0; cut + 2 < strlen(sealed); cut++) {
        struct manifest out;
        struct embd__error e = {0};
        assert_int_equal(embd__manifest_read(golden, cut < strlen(golden) - 2 ? cut : 0, &out, &e),
                         EMBD_CORRUPT);
        memset(&e, 0, sizeof e);
        assert_int_equal(embd__manifest_read(sealed, cut, &out, &e), EMBD_CORRUPT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_manifest_has_its_golden_text),
        cmocka_unit_test(a_manifest_keeps_the_regularization_of_a_table),
        cmocka_unit_test(a_manifest_keeps_the_id_of_a_part_s_table),
        {"S2.6 a manifest reads back", a_manifest_reads_back, NULL, NULL, NULL},
        cmocka_unit_test(a_manifest_without_a_checksum_reads_back),
        cmocka_unit_test(an_id_and_writers_make_it_format_2_and_are_read_back),
        cmocka_unit_test(a_base_makes_it_format_3_and_is_read_back_with_what_changed),
        cmocka_unit_test(a_sequence_makes_it_format_4_and_is_read_back),
        cmocka_unit_test(a_job_or_tables_make_it_format_5_and_are_read_back),
        cmocka_unit_test(an_uneven_map_makes_it_format_6_and_is_read_back),
        cmocka_unit_test(a_scope_covers_names_and_prefixes),
        cmocka_unit_test(a_scope_has_a_limit),
        cmocka_unit_test(steps_that_differ_make_it_format_4_and_are_read_back),
        cmocka_unit_test(a_shard_is_not_ahead_of_its_tables_step),
        cmocka_unit_test(blobs_are_written_and_read_back),
        cmocka_unit_test(every_flipped_bit_of_a_manifest_is_refused),
        cmocka_unit_test(a_checksum_stands_at_the_end_or_nowhere),
        cmocka_unit_test(a_blob_has_a_file_name_that_no_part_has),
        cmocka_unit_test(what_a_manifest_says_is_checked),
        {"S0.8 slot sizes of another number than slots are refused",
         slot_sizes_of_another_number_are_refused, NULL, NULL, NULL},
        cmocka_unit_test(text_that_is_no_manifest_is_refused_with_its_place),
        cmocka_unit_test(every_truncation_of_a_manifest_is_refused),
    };
    return cmocka_run_group_tests(tests, load_golden, NULL);
}
