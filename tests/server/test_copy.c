/* test_copy.c - a snapshot is a directory that a reader of manifests and part files takes; what
 * goes wrong with files is told and leaves nothing behind. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "tests/server/copying.h"
#include "proto/partfile.h"
#include "proto/route.h"
#include "server/snapshot/written.h"

static struct exchange *ask_phase_on(struct rig *rig, struct shard_session *session,
                                     const char *name, const char *phase)
{
    struct exchange *x = ask(rig, session, METHOD_SNAPSHOT);
    embd__msg_map(&x->out, 2);
    embd__msg_field_str(&x->out, "name", name);
    embd__msg_field_str(&x->out, "phase", phase);
    return x;
}

static struct exchange *ask_phase(struct rig *rig, const char *name, const char *phase)
{
    return ask_phase_on(rig, &rig->admin, name, phase);
}

static void phase(struct rig *rig, const char *name, const char *what)
{
    struct exchange *x = ask_phase(rig, name, what);
    ask_ok(x);
    ask_free(x);
}

/* Pushes go on behind it. */
static void cut(struct rig *rig, const char *name)
{
    copying_simple(rig, METHOD_HOLD);
    phase(rig, name, "cut");
    copying_simple(rig, METHOD_RELEASE);
}

/* Answered when the thread has written all. */
static struct exchange *ask_write(struct rig *rig, const char *name)
{
    struct exchange *x = ask_phase(rig, name, "write");
    ask_send(x);
    ask_wait(x);
    return x;
}

struct told {
    char table[EMBD_NAME_MAX + 1];
    struct manifest_part part;
    uint64_t step;
};

static uint32_t write_phase_with(struct rig *rig, const char *name, struct told *told,
                                 struct manifest_streams *streams)
{
    struct fields f, one;
    const msgpack_object *items;
    struct exchange *x = ask_write(rig, name);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "write");
    embd__field_map(&f, "writers", &one, "writers");
    streams->shard = (uint32_t)embd__field_uint(&one, "shard", 0, 9, FIELD_REQUIRED);
    streams->bytes = embd__field_uint(&one, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
    streams->xxh3 = embd__field_uint(&one, "xxh3", 0, UINT64_MAX, FIELD_REQUIRED);
    uint32_t n = embd__field_list(&f, "parts", 8, &items);
    for (uint32_t i = 0; i < n; i++) {
        struct manifest_part *part = &told[i].part;
        embd__list_map(&x->reader, &items[i], &one, "part");
        embd__field_str(&one, "table", told[i].table, sizeof told[i].table, NULL);
        embd__field_str(&one, "file", part->file, sizeof part->file, NULL);
        part->shard = (uint32_t)embd__field_uint(&one, "shard", 0, 9, FIELD_REQUIRED);
        part->rows = embd__field_uint(&one, "rows", 0, UINT64_MAX, FIELD_REQUIRED);
        part->candidates = embd__field_uint(&one, "candidates", 0, UINT64_MAX, FIELD_REQUIRED);
        part->bytes = embd__field_uint(&one, "bytes", 0, UINT64_MAX, FIELD_REQUIRED);
        part->xxh3 = embd__field_uint(&one, "xxh3", 0, UINT64_MAX, FIELD_REQUIRED);
        told[i].step = embd__field_uint(&one, "step", 0, UINT64_MAX, FIELD_REQUIRED);
        assert_int_equal(embd__fields_end(&one), EMBD_OK);
    }
    ask_free(x);
    return n;
}

static uint32_t write_phase(struct rig *rig, const char *name, struct told told[8])
{
    struct manifest_streams streams;
    return write_phase_with(rig, name, told, &streams);
}

static struct exchange *ask_commit_with(struct rig *rig, const char *name, const struct told *told,
                                        uint32_t n, bool more,
                                        const struct manifest_streams *streams, uint32_t n_streams)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_SNAPSHOT);
    embd__msg_map(&x->out, 5);
    embd__msg_str(&x->out, "writers");
    embd__msg_array(&x->out, n_streams);
    for (uint32_t i = 0; i < n_streams; i++) {
        embd__msg_map(&x->out, 3);
        embd__msg_field_uint(&x->out, "shard", streams[i].shard);
        embd__msg_field_uint(&x->out, "bytes", streams[i].bytes);
        embd__msg_field_uint(&x->out, "xxh3", streams[i].xxh3);
    }
    embd__msg_field_str(&x->out, "name", name);
    embd__msg_field_str(&x->out, "phase", "commit");
    embd__msg_field_bool(&x->out, "more", more);
    embd__msg_str(&x->out, "parts");
    embd__msg_array(&x->out, n);
    for (uint32_t i = 0; i < n; i++) {
        embd__msg_map(&x->out, 8);
        embd__msg_field_str(&x->out, "table", told[i].table);
        embd__msg_field_str(&x->out, "file", told[i].part.file);
        embd__msg_field_uint(&x->out, "shard", told[i].part.shard);
        embd__msg_field_uint(&x->out, "rows", told[i].part.rows);
        embd__msg_field_uint(&x->out, "candidates", told[i].part.candidates);
        embd__msg_field_uint(&x->out, "bytes", told[i].part.bytes);
        embd__msg_field_uint(&x->out, "xxh3", told[i].part.xxh3);
        embd__msg_field_uint(&x->out, "step", told[i].step);
    }
    return x;
}

static struct exchange *ask_commit(struct rig *rig, const char *name, const struct told *told,
                                   uint32_t n, bool more)
{
    return ask_commit_with(rig, name, told, n, more, NULL, 0);
}

static uint8_t *read_file(const char *dir, const char *file, size_t *bytes_out)
{
    char path[256];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, file);
    int fd = open(path, O_RDONLY);
    assert_true(fd >= 0);
    assert_int_equal(fstat(fd, &st), 0);
    uint8_t *data = aligned_alloc(64, ((size_t)st.st_size + 64) / 64 * 64);
    assert_int_equal(read(fd, data, (size_t)st.st_size), st.st_size);
    close(fd);
    *bytes_out = (size_t)st.st_size;
    return data;
}

/* Loads a part file as any reader would. */
static void load_part(struct rig *to, const char *dir, const struct manifest_table *table,
                      const struct manifest_part *part)
{
    struct embd__error e = {.status = EMBD_OK};
    const embd_schema *schema = &table->schema.s;
    size_t bytes, at = PARTFILE_HEADER_BYTES;
    uint8_t *data = read_file(dir, part->file, &bytes);
    assert_int_equal(bytes, part->bytes);
    assert_int_equal(XXH3_64bits(data, bytes), part->xxh3);
    assert_int_equal(embd__partfile_check_header(data, schema, &e), EMBD_OK);
    uint64_t rows = 0;
    for (;;) {
        uint32_t n_rows, n_candidates;
        uint64_t n_bytes, xxh3;
        struct row_block block;
        assert_int_equal(embd__partfile_block_header(data + at, schema, &n_rows, &n_candidates,
                                                     &n_bytes, &xxh3, &e),
                         EMBD_OK);
        at += PARTFILE_BLOCK_HEADER_BYTES;
        assert_int_equal(embd__partfile_block_arrays(data + at, schema, n_rows, n_candidates,
                                                     n_bytes, xxh3, &block, &e),
                         EMBD_OK);
        at += n_bytes;
        if (n_rows + n_candidates == 0)
            break;
        rows += n_rows;
        copying_load(to, schema, &block, table->step);
    }
    assert_int_equal(at, bytes);
    assert_int_equal(rows, part->rows);
    free(data);
}

static void a_snapshot_restores_every_table(void **state)
{
    (void)state;
    struct rig rig, to;
    struct image images[2];
    struct told told[8];
    struct manifest manifest;
    struct embd__error e = {.status = EMBD_OK};
    char dir[64], path[80];
    const embd_schema schemas[2] = {copying_plain(), copying_slotted()};
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    rig_wake(&rig);
    rig_open(&to, &store_host, 0, 1, NULL);
    for (int i = 0; i < 2; i++) {
        copying_fill(&rig, &schemas[i]);
        image_take(&rig, schemas[i].name, &images[i]);
    }
    phase(&rig, "daily", "begin");
    cut(&rig, "daily");
    for (uint64_t i = 0; i < 2; i++)
        copying_push_again(&rig, &schemas[i], 77 + i);
    assert_int_equal(write_phase(&rig, "daily", told), 2);
    struct exchange *x = ask_commit(&rig, "daily", told, 1, true);
    ask_ok(x);
    ask_free(x);
    x = ask_commit(&rig, "daily", told + 1, 1, false);
    ask_ok(x);
    ask_free(x);

    size_t bytes;
    snprintf(path, sizeof path, "%s/daily", dir);
    char *json = (char *)read_file(path, "manifest.json", &bytes);
    assert_int_equal(embd__manifest_read(json, bytes, &manifest, &e), EMBD_OK);
    assert_string_equal(manifest.kind, "snapshot");
    assert_int_equal(manifest.n_tables, 2);
    for (uint32_t i = 0; i < 2; i++) {
        const struct manifest_table *table = &manifest.tables[i];
        assert_null(embd__schema_difference(&table->schema.s, &schemas[i]));
        assert_int_equal(table->n_parts, 1);
        create_table(&to, &table->schema.s);
        load_part(&to, path, table, &table->parts[0]);
        image_check(&to, schemas[i].name, &images[i]);
        image_fini(&images[i]);
    }
    ask_error(ask_phase(&rig, "daily", "begin"), EMBD_EXISTS, "'daily'", NULL);
    assert_int_equal(figure(&rig, NULL, "snapshots"), 1);
    embd__manifest_fini(&manifest);
    free(json);
    rig_close(&rig);
    rig_close(&to);
    scratch_remove(dir);
}

/* A snapshot of no table; 0: without a sequence, as of a client of an earlier version. Returns what
 * `begin` answered, and the exchange of its commit. */
static uint64_t begin_numbered(struct rig *rig, const char *name, uint64_t sequence,
                               struct exchange **commit_out)
{
    struct fields f;
    struct told told[8];
    struct exchange *x = ask_phase(rig, name, "begin");
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "begin");
    uint64_t next = embd__field_uint(&f, "sequence", 1, UINT64_MAX, FIELD_REQUIRED);
    assert_int_equal(embd__fields_end(&f), EMBD_OK);
    ask_free(x);
    cut(rig, name);
    assert_int_equal(write_phase(rig, name, told), 0);
    x = ask(rig, &rig->admin, METHOD_SNAPSHOT);
    embd__msg_map(&x->out, sequence != 0 ? 4 : 3);
    embd__msg_field_str(&x->out, "name", name);
    embd__msg_field_str(&x->out, "phase", "commit");
    if (sequence != 0)
        embd__msg_field_uint(&x->out, "sequence", sequence);
    embd__msg_str(&x->out, "parts");
    embd__msg_array(&x->out, 0);
    *commit_out = x;
    return next;
}

static uint64_t sequence_of(const char *dir, const char *name)
{
    struct manifest manifest;
    struct embd__error e = {.status = EMBD_OK};
    char path[80];
    size_t bytes;
    snprintf(path, sizeof path, "%s/%s", dir, name);
    char *json = (char *)read_file(path, "manifest.json", &bytes);
    assert_int_equal(embd__manifest_read(json, bytes, &manifest, &e), EMBD_OK);
    uint64_t sequence = manifest.sequence;
    embd__manifest_fini(&manifest);
    free(json);
    return sequence;
}

static void each_snapshot_has_a_greater_sequence_than_all_there_are(void **state)
{
    (void)state;
    const uint64_t far = (uint64_t)1 << 62; /* of a clock that was wrong */
    const struct {
        const char *name;
        uint64_t told, expected; /* 0: any, of now */
    } cases[] = {{"a", 0, 0},
                 {"b", far, far},
                 {"c", 0, far + 1},
                 {"d", far + 9, far + 9},
                 {"e", 0, far + 10}};
    struct rig rig;
    struct exchange *commit;
    char dir[64];
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    rig_wake(&rig);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        uint64_t next = begin_numbered(&rig, cases[i].name, cases[i].told, &commit);
        ask_ok(commit);
        ask_free(commit);
        uint64_t found = sequence_of(dir, cases[i].name);
        if (cases[i].expected != 0)
            assert_true(found == cases[i].expected);
        assert_true(cases[i].told != 0 || found >= next);
    }
    assert_true(begin_numbered(&rig, "f", far + 10, &commit) == far + 11);
    ask_error(commit, EMBD_INVALID, "sequence: 4611686018427387914",
              "minimum of 4611686018427387915", NULL);
    phase(&rig, "f", "abort");
    begin_numbered(&rig, "g", UINT64_MAX, &commit);
    ask_ok(commit);
    ask_free(commit);
    ask_error(ask_phase(&rig, "h", "begin"), EMBD_UNSUPPORTED, "'g'", "2^64 - 1", NULL);
    rig_close(&rig);
    scratch_remove(dir);
}

static void names_cannot_leave_the_data_directory(void **state)
{
    (void)state;
    struct rig rig;
    char dir[64], long_name[80];
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    memset(long_name, 'a', 65);
    long_name[65] = '\0';
    const char *const names[] = {"",   "..",    "../x", "a/b", "A",      "-a",
                                 "_a", "a.tmp", "/etc", "a b", long_name};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ask_error(ask_phase(&rig, names[i], "begin"), EMBD_INVALID, "name", "1 to 64 of a-z", NULL);
    long_name[64] = '\0'; /* the longest there may be */
    phase(&rig, long_name, "begin");
    ask_error(ask_phase(&rig, long_name, "begin"), EMBD_EXISTS, "exists", NULL);
    phase(&rig, long_name, "abort");
    ask_error(ask_phase(&rig, "a", "finish"), EMBD_INVALID, "phase", "finish", "commit", NULL);
    rig_close(&rig);
    assert_int_equal(rmdir(dir), 0); /* empty */
}

static void phases_out_of_order_are_refused(void **state)
{
    (void)state;
    struct rig rig, second;
    struct shard_session other = {.is_admin = true};
    struct told told[8];
    char dir[64];
    embd_schema schema = copying_plain();
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 2, dir);
    rig_wake(&rig);
    rig_open(&second, &store_host, 1, 2, dir);
    create_table(&rig, &schema);
    ask_error(ask_phase(&second, "a", "cut"), EMBD_UNSUPPORTED, "cannot be woken", NULL);
    ask_error(ask_phase(&rig, "a", "cut"), EMBD_INVALID, "hold first", NULL);
    copying_simple(&rig, METHOD_HOLD);
    ask_error(ask_phase(&rig, "a", "cut"), EMBD_INVALID, "'a' was not begun", NULL);
    ask_error(ask_phase(&rig, "a", "commit"), EMBD_INVALID, "'parts'", "required", NULL);
    ask_error(ask_commit(&rig, "a", NULL, 0, false), EMBD_INVALID, "'a' was not begun", NULL);
    ask_error(ask_phase(&second, "a", "begin"), EMBD_INVALID, "shard 1", "first", NULL);
    phase(&rig, "a", "begin");
    ask_error(ask_phase(&rig, "a", "begin"), EMBD_EXISTS, "'a.tmp'", "--cancel a", NULL);
    ask_error(ask_phase(&rig, "a", "write"), EMBD_INVALID, "shard 0", "'a'", "cut comes first",
              NULL);
    phase(&rig, "a", "cut");
    ask_error(ask_phase(&rig, "a", "cut"), EMBD_BUSY, "'a'", "still being written", NULL);
    ask_error(ask_phase(&rig, "b", "write"), EMBD_INVALID, "'b'", "cut comes first", NULL);
    ask_error(ask_phase(&second, "a", "write"), EMBD_INVALID, "shard 1", "'a'", "cut comes first",
              NULL);
    ask_error(ask_phase_on(&rig, &other, "a", "write"), EMBD_BUSY, "belongs to another connection",
              NULL);
    assert_int_equal(write_phase(&rig, "a", told), 1);
    phase(&rig, "a", "cut");
    ask_error(ask_write(&rig, "a"), EMBD_IO, "0.writers", "exists", NULL);
    ask_error(ask_phase(&rig, "a", "write"), EMBD_INVALID, "'a'", "cut comes first", NULL);
    told[1] = told[0];
    ask_error(ask_commit(&rig, "a", told, 2, false), EMBD_INVALID, "plain.0.part", "twice", NULL);
    told[1].part.bytes++;
    ask_error(ask_commit(&rig, "a", told + 1, 1, false), EMBD_INVALID, "plain.0.part", "bytes",
              NULL);
    strcpy(told[1].part.file, "../x");
    ask_error(ask_commit(&rig, "a", told + 1, 1, false), EMBD_INVALID, "../x", "plain.0.part",
              NULL);
    strcpy(told[1].table, "nowhere");
    ask_error(ask_commit(&rig, "a", told + 1, 1, false), EMBD_UNKNOWN_TABLE, "nowhere", NULL);
    phase(&rig, "a", "abort");
    phase(&rig, "a", "abort");
    shard_session_end(rig.shard, &other);
    rig_close(&rig);
    rig_close(&second);
    assert_int_equal(rmdir(dir), 0);
}

/* Two shards of one process, each with a table, have written "s". */
struct process {
    struct rig rigs[2];
    struct written *written;
    struct told told[2];
    struct manifest_streams streams[2];
    char dir[64];
};

static void write_both(struct process *p)
{
    phase(&p->rigs[0], "s", "begin");
    for (uint32_t i = 0; i < 2; i++) {
        cut(&p->rigs[i], "s");
        assert_int_equal(write_phase_with(&p->rigs[i], "s", &p->told[i], &p->streams[i]), 1);
    }
}

static void open_process(struct process *p)
{
    embd_schema schema = copying_plain();
    scratch_new(p->dir);
    p->written = written_new(0, 2);
    for (uint32_t i = 0; i < 2; i++) {
        rig_open(&p->rigs[i], &store_host, i, 2, p->dir);
        p->rigs[i].config.written = p->written;
        rig_wake(&p->rigs[i]);
        create_table(&p->rigs[i], &schema);
    }
    write_both(p);
}

static void close_process(struct process *p)
{
    for (uint32_t i = 0; i < 2; i++)
        rig_close(&p->rigs[i]);
    written_free(p->written);
    scratch_remove(p->dir);
}

/* A refused commit ends what was told, and may be made again. */
static void a_commit_of_anything_but_what_was_written_is_refused(void **state)
{
    static struct process p;
    struct rig *first = &p.rigs[0];
    (void)state;
    open_process(&p);
    struct told *told = p.told;
    struct manifest_streams *streams = p.streams;
#define REFUSED(n, n_streams, ...)                                                                 \
    ask_error(ask_commit_with(first, "s", told, n, false, streams, n_streams), EMBD_INVALID,       \
              __VA_ARGS__, NULL)
    REFUSED(2, 0, "writers", "shard 0", "missing");
    REFUSED(2, 1, "writers", "shard 1", "missing");
    REFUSED(1, 2, "parts", "plain.1.part", "missing");
    uint64_t *const counts[] = {&told[1].part.rows, &told[1].part.candidates, &told[1].step};
    const char *const names[] = {"rows: 1", "candidates: 1", "step: 1"};
    for (int i = 0; i < 3; i++) {
        ++*counts[i];
        REFUSED(2, 2, "'plain.1.part'", names[i], "written was 0");
        --*counts[i];
    }
    told[0].part.xxh3 ^= 1;
    REFUSED(2, 2, "'plain.0.part'", "xxh3: ", "written was ");
    told[0].part.xxh3 ^= 1;
    streams[1].xxh3 ^= 1;
    REFUSED(2, 2, "'1.writers'", "xxh3: ", "written was ");
    streams[1].xxh3 ^= 1;
#undef REFUSED
    struct exchange *x = ask_commit_with(first, "s", told, 2, false, streams, 2);
    ask_ok(x);
    ask_free(x);
    assert_int_equal(figure(first, NULL, "snapshots"), 1);
    close_process(&p);
}

/* What was written before a snapshot of that name was begun anew is none of it. */
static void a_commit_of_what_was_written_before_is_refused(void **state)
{
    static struct process p;
    (void)state;
    open_process(&p);
    phase(&p.rigs[1], "s", "abort");
    phase(&p.rigs[0], "s", "abort");
    phase(&p.rigs[0], "s", "begin");
    ask_error(ask_commit_with(&p.rigs[0], "s", NULL, 0, false, NULL, 0), EMBD_INVALID, "shard 0",
              "written nothing for 's'", NULL);
    close_process(&p);
}

struct piece {
    const char *blob;
    uint64_t offset;
    const char *data;
    uint64_t bytes;
    const uint64_t *xxh3; /* NULL: more is to come */
};

static struct exchange *ask_blob(struct rig *rig, const char *name, const struct piece *p)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_SNAPSHOT);
    embd__msg_map(&x->out, p->xxh3 ? 5 : 4);
    embd__msg_field_str(&x->out, "name", name);
    embd__msg_field_str(&x->out, "phase", "blob");
    embd__msg_field_str(&x->out, "blob", p->blob);
    embd__msg_field_uint(&x->out, "offset", p->offset);
    if (p->xxh3)
        embd__msg_field_uint(&x->out, "xxh3", *p->xxh3);
    embd__msg_bin(&x->out, p->data, p->bytes);
    return x;
}

static void give(struct rig *rig, const char *name, struct piece piece)
{
    struct exchange *x = ask_blob(rig, name, &piece);
    ask_ok(x);
    ask_free(x);
}

static void S0_23_blobs_come_in_pieces_and_stand_in_the_manifest(void **state)
{
    (void)state;
    struct rig rig;
    struct manifest manifest;
    struct embd__error e = {.status = EMBD_OK};
    char dir[64], path[96];
    size_t bytes;
    const uint64_t whole = XXH3_64bits("abcdef", 6), nothing = XXH3_64bits("", 0);
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    copying_simple(&rig, METHOD_HOLD);
    phase(&rig, "s", "begin");
    give(&rig, "s", (struct piece){"dense", 0, "abc", 3, NULL});
    ask_error(ask_commit(&rig, "s", NULL, 0, false), EMBD_INVALID, "'dense'", "not complete", NULL);
    phase(&rig, "s", "abort");
    phase(&rig, "s", "begin");
    give(&rig, "s", (struct piece){"dense", 0, "abc", 3, NULL});
    give(&rig, "s", (struct piece){"dense", 3, "def", 3, &whole});
    give(&rig, "s", (struct piece){"step", 0, "", 0, &nothing});
    struct exchange *x = ask_commit(&rig, "s", NULL, 0, false);
    ask_ok(x);
    ask_free(x);
    snprintf(path, sizeof path, "%s/s", dir);
    char *json = (char *)read_file(path, "manifest.json", &bytes);
    assert_int_equal(embd__manifest_read(json, bytes, &manifest, &e), EMBD_OK);
    assert_int_equal(manifest.n_blobs, 2);
    assert_string_equal(manifest.blobs[0].name, "dense");
    assert_true(manifest.blobs[0].bytes == 6 && manifest.blobs[0].xxh3 == whole);
    assert_true(manifest.blobs[1].bytes == 0 && manifest.blobs[1].xxh3 == nothing);
    uint8_t *blob = read_file(path, "dense.blob", &bytes);
    assert_int_equal(bytes, 6);
    assert_memory_equal(blob, "abcdef", 6);
    free(blob);
    free(json);
    embd__manifest_fini(&manifest);
    rig_close(&rig);
    scratch_remove(dir);
}

static void S0_23_blobs_out_of_turn_are_refused(void **state)
{
    (void)state;
    struct rig rig, second;
    char dir[64], path[96];
    const uint64_t a = XXH3_64bits("a", 1), wrong = a + 1;
    const struct piece one = {"a", 0, "a", 1, &a}, more = {"b", 0, "b", 1, NULL};
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 2, dir);
    rig_open(&second, &store_host, 1, 2, dir);
    ask_error(ask_blob(&rig, "s", &one), EMBD_INVALID, "'s' was not begun", NULL);
    ask_error(ask_blob(&second, "s", &one), EMBD_INVALID, "shard 1", "first", NULL);
    phase(&rig, "s", "begin");
    const char *const names[] = {"", "..", "../x", "a/b", "A", "a.b"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        ask_error(ask_blob(&rig, "s", &(struct piece){names[i], 0, "a", 1, &a}), EMBD_INVALID,
                  "blob", "[a-z0-9]", NULL);
    ask_error(ask_blob(&rig, "s", &(struct piece){"a", 1, "a", 1, &a}), EMBD_INVALID, "'a'",
              "not begun", NULL);
    give(&rig, "s", one);
    ask_error(ask_blob(&rig, "s", &one), EMBD_EXISTS, "'a'", NULL);
    give(&rig, "s", more);
    ask_error(ask_blob(&rig, "s", &(struct piece){"c", 0, "c", 1, &a}), EMBD_INVALID, "'b'",
              "not complete", NULL);
    ask_error(ask_blob(&rig, "s", &(struct piece){"b", 2, "b", 1, &a}), EMBD_INVALID, "offset: 2",
              "1 bytes", NULL);
    ask_error(ask_blob(&rig, "s", &(struct piece){"b", 1ull << 30, "b", 1, &a}), EMBD_TOO_LARGE,
              "limit is 1073741824", NULL);
    ask_error(ask_blob(&rig, "s", &(struct piece){"b", 1, "b", 1, &wrong}), EMBD_CORRUPT, "'b'",
              "checksum", NULL);
    ask_error(ask_commit(&rig, "s", NULL, 0, false), EMBD_INVALID, "'b'", "not complete", NULL);
    phase(&rig, "s", "abort");
    phase(&rig, "s", "begin");
    give(&rig, "s", one);
    snprintf(path, sizeof path, "%s/s.tmp/a.blob", dir);
    assert_int_equal(unlink(path), 0);
    ask_error(ask_commit(&rig, "s", NULL, 0, false), EMBD_IO, "a.blob", NULL);
    phase(&rig, "s", "abort");
    rig_close(&rig);
    rig_close(&second);
    assert_int_equal(rmdir(dir), 0);
}

/* Where everything may be written (as root), a file in the way fails just as well. */
static void what_the_file_system_refuses_is_told(void **state)
{
    (void)state;
    struct rig rig;
    char dir[64], path[96];
    embd_schema schema = copying_plain();
    scratch_new(dir);
    rig_open(&rig, &store_host, 0, 1, dir);
    rig_wake(&rig);
    copying_fill(&rig, &schema);
    assert_int_equal(chmod(dir, 0500), 0);
    if (geteuid() != 0)
        ask_error(ask_phase(&rig, "a", "begin"), EMBD_IO, "a.tmp", "Permission denied", NULL);
    assert_int_equal(chmod(dir, 0700), 0);
    phase(&rig, "a", "begin");
    snprintf(path, sizeof path, "%s/a.tmp/plain.0.part", dir);
    assert_int_equal(symlink("/dev/full", path), 0);
    cut(&rig, "a");
    ask_error(ask_write(&rig, "a"), EMBD_IO, "plain.0.part", NULL);
    phase(&rig, "a", "abort");
    assert_int_equal(rmdir(dir), 0);
    ask_error(ask_phase(&rig, "a", "begin"), EMBD_IO, "a.tmp", "No such file", NULL);
    rig_close(&rig);
}

static void a_shard_without_a_data_directory_refuses_snapshots(void **state)
{
    (void)state;
    struct rig rig;
    struct shard *shard = NULL;
    struct embd__error e = {.status = EMBD_OK};
    rig_open(&rig, &store_host, 0, 1, NULL);
    ask_error(ask_phase(&rig, "a", "begin"), EMBD_UNSUPPORTED, "data directory", NULL);
    rig.config.data_dir = "/nowhere/at/all";
    assert_int_equal(shard_open(&rig.config, &shard, &e), EMBD_IO);
    assert_non_null(strstr(e.text, "/nowhere/at/all"));
    assert_null(shard);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_snapshot_restores_every_table),
        cmocka_unit_test(each_snapshot_has_a_greater_sequence_than_all_there_are),
        cmocka_unit_test(names_cannot_leave_the_data_directory),
        cmocka_unit_test(phases_out_of_order_are_refused),
        cmocka_unit_test(a_commit_of_anything_but_what_was_written_is_refused),
        cmocka_unit_test(a_commit_of_what_was_written_before_is_refused),
        cmocka_unit_test(S0_23_blobs_come_in_pieces_and_stand_in_the_manifest),
        cmocka_unit_test(S0_23_blobs_out_of_turn_are_refused),
        cmocka_unit_test(what_the_file_system_refuses_is_told),
        cmocka_unit_test(a_shard_without_a_data_directory_refuses_snapshots),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
