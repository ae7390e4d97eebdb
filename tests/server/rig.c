/* rig.c - see rig.h. */
#include "tests/server/rig.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/opening.h"
#include "proto/schema.h"

/* ---- the shard ---- */

static void on_drain(void *arg)
{
    struct rig *rig = arg;
    rig->n_drains++;
}

void rig_open(struct rig *rig, const struct store_ops *ops, uint32_t index, uint32_t n_shards,
              const char *data_dir)
{
    rig_open_damaged(rig, ops, index, n_shards, data_dir, false);
}

static void open_shard(struct rig *rig)
{
    struct embd__error e = {.status = EMBD_OK};
    if (shard_open(&rig->config, &rig->shard, &e) != EMBD_OK)
        fail_msg("%s", e.text);
}

void rig_open_limited(struct rig *rig, const char *data_dir, uint64_t journal_limit)
{
    rig_open(rig, &store_host, 0, 1, data_dir);
    rig_close(rig);
    rig->config.journal_limit = journal_limit;
    open_shard(rig);
}

static void nobody(void *arg)
{
    (void)arg;
}

void rig_wake(struct rig *rig)
{
    shard_close(rig->shard);
    rig->config.wake = nobody;
    open_shard(rig);
}

void rig_open_damaged(struct rig *rig, const struct store_ops *ops, uint32_t index,
                      uint32_t n_shards, const char *data_dir, bool accepts_damage)
{
    static const char *const addresses[] = {"127.0.0.1:7700", "127.0.0.1:7701", "127.0.0.1:7702"};
    static const char *const admin_addresses[] = {"/run/embd/0.sock", "/run/embd/1.sock", ""};
    memset(rig, 0, sizeof *rig);
    rig->config = (struct shard_config){
        .index = index,
        .n_shards = n_shards,
        .cluster_name = "test",
        .map_version = 7,
        .addresses = addresses,
        .admin_addresses = admin_addresses,
        .store = ops,
        .data_dir = data_dir,
        .accepts_journal_damage = accepts_damage,
        .is_first = index == 0,
        .drain = on_drain,
        .drain_arg = rig,
    };
    rig->admin.is_admin = true;
    rig->now_ns = 1000000000;
    open_shard(rig);
}

void rig_close(struct rig *rig)
{
    shard_session_end(rig->shard, &rig->data);
    shard_session_end(rig->shard, &rig->admin);
    shard_close(rig->shard);
}

/* ---- requests ---- */

static void on_answer(struct request *request)
{
    struct exchange *x = (struct exchange *)((char *)request - offsetof(struct exchange, request));
    assert_false(x->is_answered);
    assert_int_equal(request->state, REQUEST_ANSWERED);
    x->is_answered = true;
    x->answer_bytes = request->has_answer ? embd__msg_bytes(&request->answer) : 0;
    x->answer = malloc(x->answer_bytes + 1);
    assert_non_null(x->answer);
}

static struct exchange *exchange_new(struct rig *rig, struct shard_session *session)
{
    struct exchange *x = calloc(1, sizeof *x);
    assert_non_null(x);
    x->rig = rig;
    embd__msg_init(&x->out);
    embd__msg_init(&x->request.answer);
    x->request.listener = session->is_admin ? LISTENER_ADMIN : LISTENER_DATA;
    x->request.session = session;
    x->request.frame = &x->frame;
    x->request.on_answer = on_answer;
    embd__frame_init(&x->frame, x->head, sizeof x->head, LIMIT_FRAME_BYTES);
    assert_true(msgpack_zone_init(&x->zone, 1024));
    return x;
}

struct exchange *ask(struct rig *rig, struct shard_session *session, enum method method)
{
    static uint32_t msgid = 40;
    struct exchange *x = exchange_new(rig, session);
    embd__msg_request(&x->out, msgid++, method);
    return x;
}

static uint8_t *bin_new(uint32_t bytes)
{
    uint8_t *data = aligned_alloc(64, (bytes + 63) / 64 * 64 + 64);
    assert_non_null(data);
    return data;
}

/* Scans up to the next bin, whose memory is made, or to the end: then NULL. */
static struct frame_bin *scan_to_bin(struct frame_scanner *frame, const uint8_t **p, size_t *n)
{
    struct embd__error e = {.status = EMBD_OK};
    size_t used;
    int event = embd__frame_scan(frame, *p, *n, &used, &e);
    if (event < 0)
        fail_msg("scanner: %s", e.text);
    *p += used;
    *n -= used;
    if (event == FRAME_DONE)
        return NULL;
    assert_int_equal(event, FRAME_BIN);
    struct frame_bin *bin = &frame->bins[frame->n_bins - 1];
    assert_true(*n >= bin->bytes);
    bin->data = bin_new(bin->bytes);
    return bin;
}

/* Scans bytes with bins in place, as they come from a socket. Returns when the message is done. */
static void scan(struct frame_scanner *frame, const uint8_t *p, size_t n)
{
    struct frame_bin *bin;
    while ((bin = scan_to_bin(frame, &p, &n)) != NULL) {
        memcpy(bin->data, p, bin->bytes);
        p += bin->bytes;
        n -= bin->bytes;
    }
    assert_int_equal(n, 0);
}

static void free_bins(struct frame_scanner *frame)
{
    for (uint32_t i = 0; i < frame->n_bins; i++)
        free(frame->bins[i].data);
}

static uint8_t *flatten(const struct msg *m, size_t *bytes_out)
{
    *bytes_out = embd__msg_bytes(m);
    uint8_t *bytes = malloc(*bytes_out + 1);
    size_t at = 0;
    assert_non_null(bytes);
    for (uint32_t i = 0; i < embd__msg_n_pieces(m); i++) {
        struct msg_piece piece = embd__msg_piece(m, i);
        if (piece.bytes > 0)
            memcpy(bytes + at, piece.data, piece.bytes);
        at += piece.bytes;
    }
    return bytes;
}

static void hand_over(struct exchange *x, const uint8_t *bytes, size_t n)
{
    scan(&x->frame, bytes, n);
    x->request.received_ns = x->rig->now_ns;
    shard_handle(x->rig->shard, &x->request);
}

void ask_send(struct exchange *x)
{
    size_t n;
    assert_int_equal(embd__msg_end(&x->out), EMBD_OK);
    uint8_t *bytes = flatten(&x->out, &n);
    hand_over(x, bytes, n);
    free(bytes);
}

void ask_arrive(struct exchange *x, uint32_t arrived, uint32_t chunk)
{
    size_t n;
    assert_int_equal(embd__msg_end(&x->out), EMBD_OK);
    uint8_t *bytes = flatten(&x->out, &n);
    const uint8_t *p = bytes;
    struct frame_bin *bin = scan_to_bin(&x->frame, &p, &n);
    for (; n > bin->bytes; bin = scan_to_bin(&x->frame, &p, &n)) {
        memcpy(bin->data, p, bin->bytes);
        p += bin->bytes;
        n -= bin->bytes;
    }
    x->arriving = malloc(n);
    assert_non_null(x->arriving);
    memcpy(x->arriving, p, n);
    memset(bin->data, 0xff, n); /* NaN: what is not there yet is not looked at */
    assert_in_range(arrived, 0, n - 1);
    for (uint32_t at = 0, end; at <= arrived; at = end + (end == arrived)) {
        end = arrived - at < chunk ? arrived : at + chunk;
        memcpy(bin->data + at, p + at, end - at);
        shard_arriving(x->rig->shard, &x->request, end);
    }
    free(bytes);
}

void ask_arrive_all(struct exchange *x)
{
    struct embd__error e = {.status = EMBD_OK};
    struct frame_bin *bin = &x->frame.bins[x->frame.n_bins - 1];
    size_t used;
    memcpy(bin->data, x->arriving, bin->bytes);
    assert_int_equal(embd__frame_scan(&x->frame, NULL, 0, &used, &e), FRAME_DONE);
    x->request.received_ns = x->rig->now_ns;
    shard_handle(x->rig->shard, &x->request);
}

struct exchange *ask_bytes(struct rig *rig, struct shard_session *session, const void *bytes,
                           size_t n)
{
    struct exchange *x = exchange_new(rig, session);
    hand_over(x, bytes, n);
    return x;
}

/* ---- answers ---- */

/* The next bytes of a piece: copied, or made by the shard. */
static uint64_t take_piece(struct exchange *x, const struct msg_piece *piece, uint64_t bytes,
                           size_t chunk)
{
    uint64_t left = piece->bytes - x->piece_at;
    uint8_t *to = x->answer + x->n_taken;
    if (piece->data != NULL) {
        uint64_t n = left < bytes ? left : bytes;
        memcpy(to, (const uint8_t *)piece->data + x->piece_at, n);
        return n;
    }
    size_t capacity = left < chunk ? (size_t)left : chunk;
    uint8_t *made = aligned_alloc(64, (capacity + 63) / 64 * 64);
    assert_non_null(made);
    size_t n = shard_fill(x->rig->shard, &x->request, x->piece / 2, made, capacity);
    assert_in_range(n, 1, capacity);
    memcpy(to, made, n);
    free(made);
    return n;
}

void ask_take(struct exchange *x, uint64_t bytes, size_t chunk)
{
    assert_true(x->is_answered);
    while (x->n_taken < x->answer_bytes && bytes > 0) {
        struct msg_piece piece = embd__msg_piece(&x->request.answer, x->piece);
        if (x->piece_at == piece.bytes) {
            x->piece++;
            x->piece_at = 0;
            continue;
        }
        uint64_t n = take_piece(x, &piece, bytes, chunk);
        x->piece_at += n;
        x->n_taken += n;
        bytes = bytes > n ? bytes - n : 0;
    }
}

void ask_read(struct exchange *x)
{
    ask_take(x, UINT64_MAX, LIMIT_FRAME_BYTES);
    assert_true(x->request.has_answer);
    uint32_t head_bytes = x->answer_bytes < LIMIT_ANSWER_HEADER_BYTES ? (uint32_t)x->answer_bytes
                                                                      : LIMIT_ANSWER_HEADER_BYTES;
    x->answer_head = malloc(head_bytes);
    embd__frame_init(&x->answer_frame, x->answer_head, head_bytes, LIMIT_FRAME_BYTES);
    scan(&x->answer_frame, x->answer, x->answer_bytes);
    assert_int_equal(embd__reader_init(&x->reader, &x->answer_frame, &x->zone, &x->error), EMBD_OK);
    if (x->reader.type == 1)
        assert_int_equal(x->reader.msgid, x->frame.msgid);
}

void ask_free(struct exchange *x)
{
    shard_request_fini(x->rig->shard, &x->request);
    embd__msg_fini(&x->request.answer);
    embd__msg_fini(&x->out);
    free_bins(&x->frame);
    free_bins(&x->answer_frame);
    msgpack_zone_destroy(&x->zone);
    free(x->answer_head);
    free(x->answer);
    free(x->arriving);
    free(x);
}

void ask_wait(struct exchange *x)
{
    while (!x->is_answered)
        shard_collect(x->rig->shard);
}

/* Also what a thread has to write first. */
static void send_and_read(struct exchange *x, bool is_sent)
{
    if (!is_sent)
        ask_send(x);
    if (x->rig->config.wake != NULL)
        ask_wait(x);
    ask_read(x);
}

void ask_ok(struct exchange *x)
{
    send_and_read(x, x->request.state != REQUEST_RECEIVED || x->is_answered);
    if (x->reader.answer_status != EMBD_OK)
        fail_msg("%.*s", (int)x->reader.answer_text_bytes, x->reader.answer_text);
}

void check_error(struct exchange *x, int status, const char *const *fragments)
{
    char text[LIMIT_ERROR_TEXT];
    assert_true(x->reader.answer_text_bytes < sizeof text);
    snprintf(text, sizeof text, "%.*s", (int)x->reader.answer_text_bytes,
             x->reader.answer_text ? x->reader.answer_text : "no error");
    if (x->reader.answer_status != status)
        fail_msg("status %d, expected %d: %s", x->reader.answer_status, status, text);
    for (; *fragments != NULL; fragments++)
        if (strstr(text, *fragments) == NULL)
            fail_msg("'%s' is not in: %s", *fragments, text);
}

void ask_error(struct exchange *x, int status, ...)
{
    const char *fragments[16] = {NULL};
    va_list args;
    va_start(args, status);
    for (int i = 0; i < 15 && (fragments[i] = va_arg(args, const char *)) != NULL; i++)
        ;
    va_end(args);
    send_and_read(x, x->is_answered);
    check_error(x, status, fragments);
    ask_free(x);
}

/* ---- the usual requests ---- */

void create_table(struct rig *rig, const embd_schema *schema)
{
    struct exchange *x = ask(rig, &rig->data, METHOD_TABLE_CREATE);
    embd__msg_map(&x->out, 1);
    embd__msg_str(&x->out, "schema");
    embd__schema_write(&x->out, schema);
    ask_ok(x);
    ask_free(x);
}

struct exchange *ask_parts(struct rig *rig, enum method method, const struct part *parts,
                           uint32_t n)
{
    struct exchange *x = ask(rig, &rig->data, method);
    embd__parts_write(&x->out, parts, n, method == METHOD_PUSH ? PARTS_PUSH : PARTS_PULL);
    return x;
}

void pull(struct rig *rig, const struct part *part, void *values, uint8_t *statuses)
{
    struct part_answer answer;
    struct exchange *x = ask_parts(rig, METHOD_PULL, part, 1);
    ask_ok(x);
    assert_int_equal(embd__pull_answer_read(&x->reader, &answer, 1), 1);
    assert_int_equal(answer.n_rows, part->n_rows);
    assert_int_equal(answer.dtype, part->dtype);
    uint64_t bytes =
        (uint64_t)answer.n_rows * answer.dim * (answer.dtype == EMBD_DTYPE_F32 ? 4 : 2);
    memcpy(values, answer.values, bytes);
    assert_int_equal(answer.has_status, part->want_status);
    if (part->want_status) {
        assert_int_equal(answer.n_keys, part->n_keys);
        memcpy(statuses, answer.statuses, part->n_keys);
    }
    ask_free(x);
}

struct exchange *ask_opening(struct rig *rig, const struct push_number *stream, bool is_journaled)
{
    const struct stream_opening opening = {.stream = *stream, .is_journaled = is_journaled};
    struct exchange *x = ask(rig, &rig->data, METHOD_STREAM_OPEN);
    embd__opening_write(&x->out, &opening, false);
    return x;
}

bool open_stream(struct rig *rig, const struct push_number *stream, bool is_journaled)
{
    uint64_t last;
    bool opened;
    struct exchange *x = ask_opening(rig, stream, is_journaled);
    ask_ok(x);
    assert_int_equal(embd__opened_read(&x->reader, &last, &opened), EMBD_OK);
    ask_free(x);
    return opened;
}

struct push_answer push(struct rig *rig, const struct part *part, uint8_t *statuses)
{
    struct push_answer answer;
    struct exchange *x = ask_parts(rig, METHOD_PUSH, part, 1);
    ask_ok(x);
    bool again;
    assert_int_equal(embd__push_answer_read(&x->reader, &answer, 1, &again), 1);
    if (part->want_status)
        memcpy(statuses, answer.statuses, part->n_keys);
    ask_free(x);
    answer.statuses = NULL;
    return answer;
}

/* ---- images ---- */

static void hold(struct rig *rig, bool begins)
{
    struct exchange *x = ask(rig, &rig->admin, begins ? METHOD_HOLD : METHOD_RELEASE);
    embd__msg_map(&x->out, 0);
    ask_ok(x);
    ask_free(x);
}

static void describe(struct rig *rig, const char *table, struct table_schema *out)
{
    struct fields f, map;
    struct exchange *x = ask(rig, &rig->data, METHOD_TABLE_DESCRIBE);
    embd__msg_map(&x->out, 1);
    embd__msg_field_str(&x->out, "name", table);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "table_describe");
    embd__field_map(&f, "schema", &map, "schema");
    assert_int_equal(embd__schema_read(&map, out), EMBD_OK);
    ask_free(x);
}

/* A record: key, slot, sights (0: it has a row), row, states. */
static void add_record(struct image *image, uint64_t i, uint64_t key, const uint16_t *slot,
                       uint32_t sights)
{
    uint8_t *record = image->records + i * image->record_bytes;
    memset(record, 0, image->record_bytes);
    memcpy(record, &key, 8);
    if (slot != NULL)
        memcpy(record + 8, slot, 2);
    memcpy(record + 10, &sights, 4);
}

static void add_block(struct image *image, const embd_schema *schema, const struct row_block *block)
{
    uint64_t n = image->rows + image->candidates, added = block->n_rows + block->n_candidates;
    size_t state_bytes = 4 * embd__schema_state_floats(schema);
    size_t value_bytes = image->record_bytes - 14 - state_bytes;
    image->records = realloc(image->records, (n + added) * image->record_bytes + 1);
    assert_non_null(image->records);
    for (uint32_t i = 0; i < block->n_rows; i++, n++) {
        uint8_t *values = image->records + n * image->record_bytes + 14;
        add_record(image, n, block->keys[i], block->slots ? &block->slots[i] : NULL, 0);
        memcpy(values, (const uint8_t *)block->rows + i * value_bytes, value_bytes);
        if (state_bytes > 0)
            memcpy(values + value_bytes, (const uint8_t *)block->states + i * state_bytes,
                   state_bytes);
    }
    for (uint32_t i = 0; i < block->n_candidates; i++, n++)
        add_record(image, n, block->candidate_keys[i],
                   block->candidate_slots ? &block->candidate_slots[i] : NULL,
                   block->candidate_counts[i]);
    image->rows += block->n_rows;
    image->candidates += block->n_candidates;
}

/* One block of a scan; returns whether there is another. */
static bool scan_block(struct rig *rig, const embd_schema *schema, uint64_t *cursor,
                       struct image *image)
{
    struct fields f;
    struct row_block block;
    struct exchange *x = ask(rig, &rig->admin, METHOD_SCAN);
    embd__msg_map(&x->out, 2);
    embd__msg_field_str(&x->out, "table", schema->name);
    embd__msg_field_uint(&x->out, "cursor", *cursor);
    ask_ok(x);
    embd__read_fields(&f, &x->reader, "scan");
    uint32_t n_rows = (uint32_t)embd__field_uint(&f, "rows", 0, LIMIT_ROWS, FIELD_REQUIRED);
    uint32_t n_candidates =
        (uint32_t)embd__field_uint(&f, "candidates", 0, LIMIT_ROWS, FIELD_REQUIRED);
    *cursor = embd__field_uint(&f, "next", 0, UINT64_MAX, FIELD_REQUIRED);
    bool done = embd__field_bool(&f, "done", false);
    image->step = embd__field_uint(&f, "step", 0, UINT64_MAX, FIELD_REQUIRED);
    assert_int_equal(embd__row_block_read(&x->reader, schema, n_rows, n_candidates, &block),
                     EMBD_OK);
    add_block(image, schema, &block);
    ask_free(x);
    return !done;
}

/* In any order that is always the same. Most keys differ in their first bytes, which are not worth
 * a call of memcmp: under sanitizers that takes most of a test. */
static int compare(const void *a, const void *b, void *bytes)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    if (x != y)
        return x < y ? -1 : 1;
    return memcmp(a, b, *(const size_t *)bytes);
}

void image_take(struct rig *rig, const char *table, struct image *image)
{
    struct table_schema schema;
    uint64_t cursor = 0;
    describe(rig, table, &schema);
    memset(image, 0, sizeof *image);
    image->record_bytes = 14 + 4 * embd__schema_state_floats(&schema.s) +
                          schema.s.dim * (schema.s.dtype == EMBD_DTYPE_F32 ? 4 : 2);
    hold(rig, true);
    while (scan_block(rig, &schema.s, &cursor, image))
        ;
    hold(rig, false);
    qsort_r(image->records, image->rows + image->candidates, image->record_bytes, compare,
            &image->record_bytes);
    embd__schema_fini(&schema);
}

void image_fini(struct image *image)
{
    free(image->records);
}

void image_check(struct rig *rig, const char *table, const struct image *before)
{
    struct image now;
    image_take(rig, table, &now);
    assert_int_equal(now.rows, before->rows);
    assert_int_equal(now.candidates, before->candidates);
    assert_int_equal(now.step, before->step);
    assert_int_equal(now.record_bytes, before->record_bytes);
    assert_memory_equal(now.records, before->records,
                        (now.rows + now.candidates) * now.record_bytes);
    image_fini(&now);
}

/* ---- figures ---- */

uint64_t figure(struct rig *rig, const char *table, const char *name)
{
    struct exchange *x = ask(rig, &rig->admin, METHOD_STATS);
    embd__msg_map(&x->out, 0);
    ask_ok(x);
    struct fields f, stats;
    const msgpack_object *items;
    embd__read_fields(&f, &x->reader, "stats");
    embd__field_map(&f, "stats", &stats, "stats");
    uint32_t n = embd__field_list(&f, "tables", LIMIT_TABLES, &items);
    for (uint32_t i = 0; table != NULL && i < n; i++) {
        struct fields one;
        char found[EMBD_NAME_MAX + 1];
        embd__list_map(&x->reader, &items[i], &one, "table");
        embd__field_str(&one, "table", found, sizeof found, NULL);
        if (strcmp(found, table) == 0)
            embd__field_map(&one, "stats", &stats, "table stats");
    }
    uint64_t value = embd__field_uint(&stats, name, 0, UINT64_MAX - 1, FIELD_REQUIRED);
    assert_int_equal(x->error.status, EMBD_OK);
    ask_free(x);
    return value;
}

/* ---- files ---- */

void scratch_new(char out[64])
{
    strcpy(out,
           access("/dev/shm", W_OK) == 0 ? "/dev/shm/embd-test-XXXXXX" : "/tmp/embd-test-XXXXXX");
    assert_non_null(mkdtemp(out));
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    return remove(path);
}

void scratch_remove(const char *dir)
{
    nftw(dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}
