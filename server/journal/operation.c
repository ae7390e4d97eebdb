/* operation.c - see operation.h. */
#include "server/journal/operation.h"

#include <stdlib.h>
#include <string.h>

#include "proto/streamsfile.h"
#include "server/engine/check.h"
#include "server/engine/foreign.h"
#include "server/engine/joining.h"
#include "server/engine/unpack.h"
#include "server/journal/replace_record.h"
#include "server/journal/row_record.h"
#include "server/journal/table_record.h"

_Static_assert(sizeof(struct push_stream) == STREAM_BYTES, "a stream in memory is one in a record");

/* That a record may name: more than there are today. */
#define TABLES_MOST (1u << 16)

/* ---- writing ---- */

static const enum method method_of[] = {
    [OP_PUSH] = METHOD_PUSH,
    [OP_ERASE] = METHOD_ERASE,
    [OP_TABLE_CREATE] = METHOD_TABLE_CREATE,
    [OP_TABLE_DROP] = METHOD_TABLE_DROP,
    [OP_LOAD] = METHOD_LOAD,
    [OP_STREAM_OPEN] = METHOD_STREAM_OPEN,
    [OP_STREAMS] = METHOD_WRITERS,
    [OP_TABLE_SET] = METHOD_TABLE_SET,
    [OP_STAGE] = METHOD_TABLE_STAGE,
    [OP_UNSTAGE] = METHOD_TABLE_STAGE,
    [OP_REPLACE] = METHOD_TABLE_REPLACE,
    [OP_PREPARE] = METHOD_TABLE_REPLACE,
    [OP_PUT] = METHOD_PUT,
};

/* As clients do: maps cost less where there is one part, and room for them in a record's head is
 * only for few. */
static int write_parts(struct msg *m, const struct op *op, struct embd__error *e)
{
    struct push_extra extra = {.round.n_workers = 0,
                               .number = op->number,
                               .seconds = op->kind == OP_PUSH ? op->seconds : 0};
    extra.sources = op_sources(op, &extra.n_sources);
    extra.is_foreign = op->is_foreign;
    const struct part_list list = {&op->parts->in, sizeof *op->parts, op->n_parts};
    for (uint32_t i = 0; i < op->n_parts; i++)
        if (op->parts[i].in.grads_bytes > UINT32_MAX)
            return embd__error_set(e, EMBD_TOO_LARGE,
                                   "part %u: the gradients have %llu bytes together, the limit of "
                                   "a journal is %u",
                                   i, (unsigned long long)op->parts[i].in.grads_bytes, UINT32_MAX);
    if (op->n_parts > 1)
        embd__columns_write(m, &list, op->kind == OP_PUSH ? PARTS_PUSH : PARTS_ERASE, &extra);
    else if (op->kind == OP_PUSH)
        embd__push_write(m, &op->parts->in, op->n_parts, &extra);
    else
        embd__parts_write(m, &op->parts->in, op->n_parts, PARTS_ERASE);
    return EMBD_OK;
}

static void write_streams(struct msg *m, const struct op_streams *streams)
{
    bool has_sets = streams->sets != NULL && streams->n_ids > 0;
    embd__msg_map(m, 2u + has_sets + (streams->n_clients > 0) + !streams->is_journaled);
    embd__msg_field_uint(m, "writers", streams->n);
    embd__msg_field_bool(m, "principals", true);
    if (!streams->is_journaled)
        embd__msg_field_bool(m, "journaled", false);
    if (has_sets)
        embd__msg_field_uint(m, "tables", streams->n_ids);
    if (streams->n_clients > 0)
        embd__msg_field_uint(m, "clients", streams->n_clients);
    embd__msg_bin(m, streams->list, streams->n * sizeof *streams->list);
    if (has_sets) {
        embd__msg_bin(m, streams->ids, streams->n_ids * sizeof *streams->ids);
        embd__msg_bin(m, streams->packed,
                      (streams->n_ids / 64 + 1) * streams->n * sizeof(uint64_t));
    }
    if (streams->n_clients > 0) {
        embd__msg_bin(m, streams->clients, streams->n_clients * sizeof *streams->clients);
        embd__msg_bin(m, streams->places, streams->n_clients * sizeof *streams->places);
    }
}

/* A push of nothing. */
static void write_number(struct msg *m, const struct op *op)
{
    const struct push_extra extra = {.number = op->number};
    embd__push_write(m, NULL, 0, &extra);
}

static int write_fields(struct msg *m, const struct op *op, struct embd__error *e)
{
    switch (op->kind) {
    case OP_PUSH:
    case OP_ERASE:
        return write_parts(m, op, e);
    case OP_TABLE_CREATE:
        table_record_create_write(m, &op->as.create);
        break;
    case OP_TABLE_DROP:
        embd__msg_map(m, 1);
        embd__msg_field_str(m, "name", op->as.dropped->schema.s.name);
        break;
    case OP_LOAD:
        row_record_load_write(m, &op->as.load);
        break;
    case OP_PUT:
        row_record_put_write(m, op);
        break;
    case OP_STREAM_OPEN:
        embd__opening_write(m, &op->as.opening, true);
        break;
    case OP_STREAMS:
        write_streams(m, &op->as.streams);
        break;
    case OP_TABLE_SET:
        table_record_set_write(m, &op->as.set);
        break;
    case OP_STAGE:
        table_record_stage_write(m, &op->as.stage);
        break;
    case OP_UNSTAGE:
        table_record_unstage_write(m, op->as.unstaged);
        break;
    case OP_REPLACE:
    case OP_PREPARE:
        replace_record_write(m, &op->as.replace);
        break;
    case OP_PULL:
        break;
    }
    return EMBD_OK;
}

int operation_write(struct msg *m, const struct op *op, struct frame_scanner *frame,
                    struct embd__error *e)
{
    bool is_number = foreign_is_number_alone(op);
    embd__msg_notice(m, is_number ? METHOD_PUSH : method_of[op->kind]);
    if (is_number)
        write_number(m, op);
    else if (write_fields(m, op, e) != EMBD_OK)
        return e->status;
    if (embd__msg_end(m) != EMBD_OK)
        return embd__error_set(e, m->status, "an operation for the journal: %s",
                               m->status == EMBD_NO_MEMORY ? "no memory"
                                                           : "it is longer than a record may be");
    embd__msg_frame(m, frame);
    return EMBD_OK;
}

int operation_nothing(struct msg *m, struct frame_scanner *frame, struct embd__error *e)
{
    const struct push_extra extra = {.round.n_workers = 0};
    embd__msg_notice(m, METHOD_PUSH);
    embd__push_write(m, NULL, 0, &extra);
    if (embd__msg_end(m) != EMBD_OK)
        return embd__error_set(e, m->status, "no memory for a record");
    embd__msg_frame(m, frame);
    return EMBD_OK;
}

static bool is_of(const struct frame_scanner *frame, enum method method)
{
    enum { AT_NAME = 3 }; /* behind the array, the type of the message and the name's length */
    const char *name = embd__method_name(method);
    size_t n = strlen(name);
    return frame->head_bytes > AT_NAME + n && frame->head[AT_NAME - 1] == (0xa0 | n) &&
           memcmp(frame->head + AT_NAME, name, n) == 0;
}

bool operation_shares(const struct frame_scanner *frame)
{
    return is_of(frame, METHOD_PUSH) || is_of(frame, METHOD_STREAM_OPEN);
}

/* What cannot be read is told of when it is applied. */
bool operation_moves(const struct frame_scanner *frame, struct operation_map *out)
{
    msgpack_zone zone;
    struct reader r;
    struct op_replace replace;
    struct placement place;
    struct embd__error e = {.status = EMBD_OK};
    struct frame_scanner copy = *frame;
    if (!is_of(frame, METHOD_TABLE_REPLACE) || !msgpack_zone_init(&zone, MSGPACK_ZONE_CHUNK_SIZE))
        return false;
    bool is_map = embd__reader_init(&r, &copy, &zone, &e) == EMBD_OK &&
                  replace_record_look(&r, &replace, &place) == EMBD_OK && replace.place != NULL &&
                  replace.step == REPLACE_DONE;
    if (is_map)
        *out = (struct operation_map){place.version, replace.decision, place.n_shards};
    msgpack_zone_destroy(&zone);
    return is_map;
}

/* ---- reading ---- */

static bool is_kept(const struct operation_reader *reader, uint32_t i)
{
    return i < OPERATION_KEPT && reader->frame.bins[i].data == reader->kept[i].data;
}

static void free_kept(struct operation_reader *reader, struct operation_buffer *kept)
{
    if (kept->data != NULL)
        reader->op.engine->tables.ops->buffer_free(kept->data, kept->bytes);
    *kept = (struct operation_buffer){.data = NULL};
}

/* Of bin i. NULL: no memory. */
static void *buffer_for(struct operation_reader *reader, uint32_t i, uint64_t bytes)
{
    const struct store_ops *ops = reader->op.engine->tables.ops;
    struct operation_buffer *kept = i < OPERATION_KEPT ? &reader->kept[i] : NULL;
    if (kept == NULL || bytes > OPERATION_KEPT_BYTES)
        return ops->buffer_new(bytes);
    if (kept->bytes >= bytes)
        return kept->data;
    free_kept(reader, kept);
    kept->data = ops->buffer_new(bytes);
    kept->bytes = kept->data != NULL ? bytes : 0;
    return kept->data;
}

static void free_buffers(struct operation_reader *reader)
{
    for (uint32_t i = 0; i < reader->n_buffers; i++)
        if (!is_kept(reader, i))
            reader->op.engine->tables.ops->buffer_free(reader->frame.bins[i].data,
                                                       reader->frame.bins[i].bytes + 1u);
    reader->n_buffers = 0;
    free(reader->streams);
    free(reader->sets);
    reader->streams = NULL;
    reader->sets = NULL;
    if (reader->op.kind == OP_TABLE_CREATE)
        embd__schema_fini(&reader->op.as.create.schema);
    if (reader->op.kind == OP_STAGE)
        embd__schema_fini(&reader->op.as.stage.schema);
}

void operation_reader_fini(struct operation_reader *reader)
{
    free_buffers(reader);
    for (uint32_t i = 0; i < OPERATION_KEPT; i++)
        free_kept(reader, &reader->kept[i]);
    op_fini(&reader->op);
    free(reader->parts);
    reader->parts = NULL;
    if (reader->has_zone)
        msgpack_zone_destroy(&reader->zone);
    reader->has_zone = false;
}

/* Stores take keys and gradients at addresses that suit them, which a journal's bytes do not have.
 */
static int copy_bins(struct operation_reader *reader, struct embd__error *e)
{
    for (uint32_t i = 0; i < reader->frame.n_bins; i++) {
        struct frame_bin *bin = &reader->frame.bins[i];
        uint8_t *data = buffer_for(reader, i, bin->bytes + 1u);
        if (data == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read a record");
        memcpy(data, bin->data, bin->bytes);
        bin->data = data;
        reader->n_buffers = i + 1;
    }
    return EMBD_OK;
}

/* Drops the parts of a table that is left out. Returns how many there are then. */
static uint32_t leave_out(struct op *op, struct part *parts, uint32_t n)
{
    struct tables *tables = &op->engine->tables;
    uint32_t n_left = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct left_out *left_out = tables_left_out(tables, parts[i].table);
        if (left_out != NULL && op->kind == OP_PUSH)
            left_out->pushed_keys += parts[i].n_keys;
        op->is_number_alone = op->is_number_alone || joining_is_apart_id(tables, parts[i].table);
        if (!tables_skip(tables, parts[i].table))
            parts[n_left++] = parts[i];
    }
    return n_left;
}

static int read_parts(struct operation_reader *reader, struct reader *r)
{
    struct op *op = &reader->op;
    struct push_extra extra = {.round.n_workers = 0};
    struct embd__error *e = r->error;
    struct part *parts =
        reader->parts != NULL ? reader->parts : malloc(LIMIT_PARTS * sizeof *parts);
    reader->parts = parts;
    if (parts == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read a record");
    int n = op->kind == OP_PUSH ? embd__push_read_record(r, parts, LIMIT_PARTS, &extra,
                                                         reader->sources, &op->n_sources)
                                : embd__parts_read(r, parts, LIMIT_PARTS, PARTS_ERASE);
    if (n < 0 || op_size_parts(op, (uint32_t)n, e) != EMBD_OK)
        return e->status;
    op->number = extra.number;
    op->is_foreign = extra.is_foreign;
    op->is_number_alone = n == 0 && op->kind == OP_PUSH;
    op->sources = reader->sources;
    op->seconds = extra.seconds;
    op->n_parts = leave_out(op, parts, op->n_parts);
    op->is_left_out = op->n_parts < (uint32_t)n || op->is_number_alone;
    for (uint32_t i = 0; i < op->n_parts; i++) {
        struct op_part *part = &op->parts[i];
        part->in = parts[i];
        if (check_part(&op->engine->tables, &part->in, i, &part->table, e) != EMBD_OK ||
            (op->kind == OP_PUSH && check_grads(part->table, &part->in, i, 0, e) != EMBD_OK))
            return e->status;
    }
    if (op->kind == OP_PUSH &&
        (check_tables_differ(op, e) != EMBD_OK || unpack_push(op, LIMIT_PUSH_BYTES, e) != EMBD_OK))
        return e->status;
    return op_size_statuses(op, e);
}

/* A table that is left out has no number. */
static void add_id(struct table_set *set, const struct tables *tables, uint32_t id)
{
    const struct table *table = tables_by_id(tables, id);
    if (table != NULL)
        table_set_add(set, table->number);
}

/* The numbers that its tables have now, and what was known of each stream. */
static int read_sets(struct operation_reader *reader, struct reader *r, uint64_t n_streams,
                     uint32_t n_tables)
{
    const struct tables *tables = &reader->op.engine->tables;
    uint32_t n_words = (n_tables + 63) / 64 + 1;
    const uint32_t *ids = embd__read_bin(r, "tables", n_tables * sizeof *ids);
    const uint64_t *words = embd__read_bin(r, "sets", n_streams * n_words * sizeof *words);
    if (r->error->status != EMBD_OK)
        return r->error->status;
    reader->sets = calloc(n_streams + 1, sizeof *reader->sets);
    if (reader->sets == NULL)
        return embd__error_set(r->error, EMBD_NO_MEMORY, "no memory to read a record");
    for (uint64_t i = 0; i < n_streams; i++, words += n_words) {
        for (uint32_t t = 0; t < n_tables; t++)
            if ((words[t / 64] >> t % 64 & 1) != 0)
                add_id(&reader->sets[i], tables, ids[t]);
        reader->sets[i].may_have_others = words[n_words - 1] & (TABLES_UNKNOWN | TABLES_BEYOND);
    }
    return EMBD_OK;
}

static int read_streams(struct operation_reader *reader, struct reader *r)
{
    struct op_streams *streams = &reader->op.as.streams;
    struct fields f;
    embd__read_fields(&f, r, "writers");
    uint64_t n = embd__field_uint(&f, "writers", 0, PUSHER_STREAMS_MAX, FIELD_REQUIRED);
    bool is_journaled = embd__field_bool(&f, "journaled", true);
    bool has_principals = embd__field_bool(&f, "principals", false);
    uint32_t n_tables = (uint32_t)embd__field_uint(&f, "tables", 0, TABLES_MOST, 0);
    uint32_t n_clients = (uint32_t)embd__field_uint(&f, "clients", 0, SOURCES_MAX, 0);
    if (embd__fields_end(&f) != EMBD_OK)
        return r->error->status;
    const uint8_t *bytes =
        embd__read_bin(r, "writers", n * (has_principals ? STREAM_BYTES : STREAM_BYTES_OLD));
    if (n_tables > 0 && read_sets(reader, r, n, n_tables) != EMBD_OK)
        return r->error->status;
    const uint64_t *clients =
        n_clients == 0 ? NULL : embd__read_bin(r, "clients", n_clients * sizeof *clients);
    const uint32_t *places =
        n_clients == 0 ? NULL : embd__read_bin(r, "places", n_clients * sizeof *places);
    if (embd__reader_end(r) != EMBD_OK)
        return r->error->status;
    reader->streams = embd__streams_take(bytes, n, has_principals, r->error);
    *streams = (struct op_streams){.list = reader->streams,
                                   .sets = reader->sets,
                                   .n = (uint32_t)n,
                                   .clients = clients,
                                   .places = places,
                                   .n_clients = n_clients,
                                   .is_journaled = is_journaled,
                                   .may_replace = reader->op.begins_old};
    return r->error->status;
}

static int read_fields(struct operation_reader *reader, struct reader *r)
{
    struct op *op = &reader->op;
    switch (r->method) {
    case METHOD_PUSH:
        op->kind = OP_PUSH;
        return read_parts(reader, r);
    case METHOD_ERASE:
        op->kind = OP_ERASE;
        return read_parts(reader, r);
    case METHOD_TABLE_CREATE:
        op->kind = OP_TABLE_CREATE;
        return table_record_create_read(op, r);
    case METHOD_TABLE_DROP:
        op->kind = OP_TABLE_DROP;
        return table_record_drop_read(op, r);
    case METHOD_TABLE_SET:
        op->kind = OP_TABLE_SET;
        return table_record_set_read(op, r);
    case METHOD_LOAD:
        op->kind = OP_LOAD;
        return row_record_load_read(op, r);
    case METHOD_PUT:
        op->kind = OP_PUT;
        return row_record_put_read(op, r);
    case METHOD_STREAM_OPEN:
        op->kind = OP_STREAM_OPEN;
        return embd__opening_read(r, true, &op->as.opening);
    case METHOD_WRITERS:
        op->kind = OP_STREAMS;
        return read_streams(reader, r);
    case METHOD_TABLE_STAGE:
        return table_record_stage_read(op, r);
    case METHOD_TABLE_REPLACE:
        return replace_record_read(op, r, &reader->streams, &reader->place);
    default:
        return embd__error_set(r->error, EMBD_UNSUPPORTED, "'%s' is not an operation",
                               r->method_name);
    }
}

int operation_read(struct operation_reader *reader, struct engine *engine, uint8_t *bytes,
                   const struct record *record, struct embd__error *e)
{
    struct reader r;
    if (reader->op.engine != NULL)
        free_buffers(reader);
    op_begin(&reader->op, engine, OP_PULL); /* of nothing, until it is read */
    if (!reader->has_zone)
        reader->has_zone = msgpack_zone_init(&reader->zone, MSGPACK_ZONE_CHUNK_SIZE);
    if (!reader->has_zone)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read a record");
    if (record->version > RECORD_OPERATION)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "the record has version %u, this program reads up to %d",
                               record->version, RECORD_OPERATION);
    record_frame(bytes, record, &reader->frame);
    reader->op.begins_old = record->version == RECORD_REQUEST_OLD;
    if (copy_bins(reader, e) != EMBD_OK ||
        embd__reader_init(&r, &reader->frame, &reader->zone, e) != EMBD_OK)
        return e->status;
    return read_fields(reader, &r);
}
