/* golden_job.c - the four phases that an asker of a snapshot sends, as golden_messages.c has the
 * other messages. */
#include "tests/unit/golden_job.h"

#include <string.h>

#include "proto/scope.h"

#define JOB          UINT64_C(1787922613096031)
#define FAILURE_TEXT "write nightly.tmp/items.1.part: No space left on device"

static const char ca[] = "-----BEGIN CERTIFICATE-----\n";

static void begin(struct msg *m, uint32_t msgid, const char *name, const char *phase,
                  uint32_t n_more)
{
    embd__msg_request(m, msgid, METHOD_SNAPSHOT);
    embd__msg_map(m, 2 + n_more);
    embd__msg_field_str(m, "name", name);
    embd__msg_field_str(m, "phase", phase);
}

static void expect_str(struct fields *f, const char *field, const char *expected)
{
    char text[128];
    embd__field_str(f, field, text, sizeof text, NULL);
    if (f->reader->error->status == EMBD_OK && strcmp(text, expected) != 0)
        embd__error_set(f->reader->error, EMBD_INVALID, "%s is '%s', expected '%s'", field, text,
                        expected);
}

static void expect_uint(struct fields *f, const char *field, uint64_t expected)
{
    embd__field_uint(f, field, expected, expected, FIELD_REQUIRED);
}

static void expect_bool(struct fields *f, const char *field, bool expected)
{
    if (embd__field_bool(f, field, !expected) != expected)
        embd__error_set(f->reader->error, EMBD_INVALID, "%s has the other value", field);
}

static void expect_phase(struct fields *f, struct reader *r, const char *name, const char *phase)
{
    embd__read_fields(f, r, "snapshot");
    expect_str(f, "name", name);
    expect_str(f, "phase", phase);
}

static void expect_end(struct fields *f)
{
    embd__fields_end(f);
    embd__reader_end(f->reader);
}

/* ---- start ---- */

void build_snapshot_start_request(struct msg *m)
{
    begin(m, 28, "nightly", "start", 2);
    embd__msg_field_uint(m, "keep", 3);
    embd__msg_field_bool(m, "files", true);
    embd__msg_end(m);
}

void read_snapshot_start_request(struct reader *r)
{
    struct fields f;
    expect_phase(&f, r, "nightly", "start");
    expect_uint(&f, "keep", 3);
    expect_bool(&f, "files", true);
    expect_end(&f);
}

void build_snapshot_tables_request(struct msg *m)
{
    struct table_scope scope = {.job = "ranker", .n_names = 2, .names = {"items", "rec-*"}};
    begin(m, 28, "ranker-9000", "start", 1 + embd__scope_fields(&scope));
    embd__msg_field_uint(m, "keep", 3);
    embd__scope_write(m, &scope);
    embd__msg_end(m);
}

void read_snapshot_tables_request(struct reader *r)
{
    struct fields f;
    struct table_scope scope;
    const struct table_scope expected = {
        .job = "ranker", .n_names = 2, .names = {"items", "rec-*"}};
    expect_phase(&f, r, "ranker-9000", "start");
    expect_uint(&f, "keep", 3);
    embd__scope_read(&f, &scope);
    if (r->error->status == EMBD_OK && !embd__scope_is_same(&scope, &expected))
        embd__error_set(r->error, EMBD_INVALID, "the scope is another one");
    expect_end(&f);
}

/* ---- reports: answers to start and progress ---- */

struct figures {
    uint64_t shards_done, rows, bytes, pause_us, elapsed_us;
};

static const struct figures begun = {.elapsed_us = 41};
static const struct figures failed = {1, 1000000, 1 << 28, 3127, 5200000};

static void build_report(struct msg *m, const char *state, const char *phase,
                         const struct figures *figures)
{
    embd__msg_field_uint(m, "job", JOB);
    embd__msg_field_str(m, "name", "nightly");
    embd__msg_field_str(m, "state", state);
    embd__msg_field_str(m, "phase", phase);
    embd__msg_field_bool(m, "read", false);
    embd__msg_field_uint(m, "shards_done", figures->shards_done);
    embd__msg_field_uint(m, "rows", figures->rows);
    embd__msg_field_uint(m, "bytes", figures->bytes);
    embd__msg_field_uint(m, "pause_us", figures->pause_us);
    embd__msg_field_uint(m, "elapsed_us", figures->elapsed_us);
}

static void read_report(struct fields *f, struct reader *r, const char *state, const char *phase,
                        const struct figures *figures)
{
    embd__read_fields(f, r, "snapshot");
    expect_uint(f, "job", JOB);
    expect_str(f, "name", "nightly");
    expect_str(f, "state", state);
    expect_str(f, "phase", phase);
    expect_bool(f, "read", false);
    expect_uint(f, "shards_done", figures->shards_done);
    expect_uint(f, "rows", figures->rows);
    expect_uint(f, "bytes", figures->bytes);
    expect_uint(f, "pause_us", figures->pause_us);
    expect_uint(f, "elapsed_us", figures->elapsed_us);
}

void build_snapshot_start_result(struct msg *m)
{
    embd__msg_result(m, 28);
    embd__msg_map(m, 10);
    build_report(m, "running", "begin", &begun);
    embd__msg_end(m);
}

void read_snapshot_start_result(struct reader *r)
{
    struct fields f;
    read_report(&f, r, "running", "begin", &begun);
    expect_end(&f);
}

void build_snapshot_progress_request(struct msg *m)
{
    begin(m, 29, "", "progress", 0);
    embd__msg_end(m);
}

void read_snapshot_progress_request(struct reader *r)
{
    struct fields f;
    expect_phase(&f, r, "", "progress");
    expect_end(&f);
}

void build_snapshot_progress_result(struct msg *m)
{
    embd__msg_result(m, 29);
    embd__msg_map(m, 12);
    build_report(m, "failed", "write", &failed);
    embd__msg_field_uint(m, "error", (uint64_t)-EMBD_IO);
    embd__msg_field_str(m, "text", FAILURE_TEXT);
    embd__msg_end(m);
}

void read_snapshot_progress_result(struct reader *r)
{
    struct fields f;
    read_report(&f, r, "failed", "write", &failed);
    expect_uint(&f, "error", (uint64_t)-EMBD_IO);
    expect_str(&f, "text", FAILURE_TEXT);
    expect_end(&f);
}

/* ---- go and cancel ---- */

void build_snapshot_go_request(struct msg *m)
{
    begin(m, 30, "nightly", "go", 1);
    embd__msg_field_uint(m, "job", JOB);
    embd__msg_end(m);
}

void read_snapshot_go_request(struct reader *r)
{
    struct fields f;
    expect_phase(&f, r, "nightly", "go");
    expect_uint(&f, "job", JOB);
    expect_end(&f);
}

void build_snapshot_cancel_request(struct msg *m)
{
    begin(m, 31, "nightly", "cancel", 2);
    embd__msg_field_str(m, "token", "operator-7f3a");
    embd__msg_field_bool(m, "ca", true);
    embd__msg_bin(m, ca, sizeof ca - 1);
    embd__msg_end(m);
}

void read_snapshot_cancel_request(struct reader *r)
{
    struct fields f;
    expect_phase(&f, r, "nightly", "cancel");
    expect_str(&f, "token", "operator-7f3a");
    expect_bool(&f, "ca", true);
    embd__fields_end(&f);
    const void *data = embd__read_bin(r, "ca", sizeof ca - 1);
    if (data != NULL && memcmp(data, ca, sizeof ca - 1) != 0)
        embd__error_set(r->error, EMBD_INVALID, "ca has other bytes");
    embd__reader_end(r);
}

void build_snapshot_fetch_request(struct msg *m)
{
    begin(m, 32, "nightly", "fetch", 2);
    embd__msg_field_str(m, "file", "items.0.part");
    embd__msg_field_uint(m, "offset", 0);
    embd__msg_end(m);
}

void read_snapshot_fetch_request(struct reader *r)
{
    struct fields f;
    expect_phase(&f, r, "nightly", "fetch");
    expect_str(&f, "file", "items.0.part");
    expect_uint(&f, "offset", 0);
    expect_end(&f);
}

void build_snapshot_fetch_result(struct msg *m)
{
    embd__msg_result(m, 32);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "bytes", 100000);
    embd__msg_bin(m, "EMBD", 4);
    embd__msg_end(m);
}

void read_snapshot_fetch_result(struct reader *r)
{
    struct fields f;
    embd__read_fields(&f, r, "snapshot fetch");
    expect_uint(&f, "bytes", 100000);
    embd__fields_end(&f);
    const void *data = embd__read_bin(r, "fetch", 4);
    if (data != NULL && memcmp(data, "EMBD", 4) != 0)
        embd__error_set(r->error, EMBD_INVALID, "fetch has other bytes");
    embd__reader_end(r);
}
