/* parts.c - one table's share of a pull, push or erase: written by the client, read and checked by
 * the server.
 *
 * Everything that needs no schema is checked here, so that later stages index without looking:
 * counts are within their limits, bins have exactly the length the counts ask for, offsets begin at
 * 0, never fall and end at n_keys, weights and scores are numbers that the stores can take
 * (part_check.c). Parts are maps, or columns (columns.c); both are read into struct part. */
#include "proto/columns.h"
#include "proto/message.h"
#include "proto/names.h"
#include "proto/packed.h"
#include "proto/part_check.h"
#include "proto/part_name.h"
#include "proto/reading.h"
#include "embd/sync.h"

#include <string.h>

/* ---- writing ---- */

static uint32_t count_fields(const struct part *p)
{
    return 2u + (p->offsets != NULL) + (p->dtype != EMBD_DTYPE_F32) + (p->slots != NULL) +
           (p->weights != NULL) + (p->scores != NULL) + p->want_status + p->zero_missing +
           p->scale + (p->lr != 0.0f) + (p->into > 0);
}

static void write_flag(struct msg *m, const char *name, bool value)
{
    if (value)
        embd__msg_field_bool(m, name, true);
}

static void write_map(struct msg *m, const struct part *p)
{
    embd__msg_map(m, count_fields(p));
    embd__msg_field_wide(m, "table", p->table);
    embd__msg_field_uint(m, "keys", p->n_keys);
    if (p->offsets != NULL)
        embd__msg_field_uint(m, "rows", p->n_rows);
    if (p->dtype != EMBD_DTYPE_F32)
        embd__msg_field_str(m, "dtype", embd_dtype_name(p->dtype));
    write_flag(m, "slots", p->slots != NULL);
    write_flag(m, "weights", p->weights != NULL);
    write_flag(m, "scores", p->scores != NULL);
    write_flag(m, "status", p->want_status);
    write_flag(m, "zero", p->zero_missing);
    write_flag(m, "scale", p->scale);
    if (p->lr != 0.0f)
        embd__msg_field_f32(m, "lr", p->lr);
    if (p->into > 0)
        embd__msg_field_uint(m, "into", p->into);
}

static void write_bins(struct msg *m, const struct part *p, enum parts_kind kind)
{
    embd__msg_bin(m, p->keys, 8ull * p->n_keys);
    if (p->offsets != NULL)
        embd__msg_bin(m, p->offsets, 4 * ((uint64_t)p->n_rows + 1));
    if (p->slots != NULL)
        embd__msg_bin(m, p->slots, 2ull * p->n_rows);
    if (p->weights != NULL)
        embd__msg_bin(m, p->weights, 4ull * p->n_keys);
    if (p->scores != NULL)
        embd__msg_bin(m, p->scores, 4ull * p->n_keys);
    if (kind == PARTS_PUSH)
        embd__msg_bin(m, p->grads, p->grads_bytes);
}

static void write_parts(struct msg *m, const struct part *parts, uint32_t n)
{
    embd__msg_str(m, "parts");
    embd__msg_array(m, n);
    for (uint32_t i = 0; i < n; i++)
        write_map(m, &parts[i]);
}

static void write_round(struct msg *m, const struct push_round *round)
{
    embd__msg_str(m, "round");
    embd__msg_map(m, 7);
    embd__msg_field_str(m, "job", round->job);
    embd__msg_field_uint(m, "worker", round->worker);
    embd__msg_field_uint(m, "workers", round->n_workers);
    embd__msg_field_uint(m, "clock", round->clock);
    embd__msg_field_uint(m, "lease_ms", round->lease_ms);
    embd__msg_field_uint(m, "incarnation", round->incarnation);
    embd__msg_field_uint(m, "epoch", round->epoch);
}

void embd__push_number_write(struct msg *m, const struct push_number *number)
{
    embd__msg_str(m, "writer");
    embd__msg_map(m, 3u + (number->stream > 0));
    embd__msg_field_wide(m, "high", number->high);
    embd__msg_field_wide(m, "low", number->low);
    if (number->stream > 0)
        embd__msg_field_uint(m, "stream", number->stream);
    embd__msg_field_uint(m, "sequence", number->sequence);
}

static uint32_t count_extra(const struct push_extra *extra)
{
    if (extra == NULL)
        return 0;
    return 0u + (extra->round.n_workers > 0) + (extra->number.sequence > 0) + (extra->order > 0) +
           (extra->n_sources > 0) + (extra->seconds > 0) + extra->is_foreign +
           (extra->placement > 0) + extra->asks_lag;
}

/* client, place, client, place, ... */
static void write_sources(struct msg *m, const struct push_extra *extra)
{
    embd__msg_str(m, "sources");
    embd__msg_array(m, 2 * extra->n_sources);
    for (uint32_t i = 0; i < extra->n_sources; i++) {
        embd__msg_wide(m, extra->sources[i].client);
        embd__msg_uint(m, extra->sources[i].place);
    }
}

static void write_extra(struct msg *m, const struct push_extra *extra)
{
    if (extra == NULL)
        return;
    if (extra->round.n_workers > 0)
        write_round(m, &extra->round);
    if (extra->number.sequence > 0)
        embd__push_number_write(m, &extra->number);
    if (extra->order > 0)
        embd__msg_field_uint(m, "order", extra->order);
    if (extra->n_sources > 0)
        write_sources(m, extra);
    if (extra->seconds > 0)
        embd__msg_field_uint(m, "seconds", extra->seconds);
    if (extra->is_foreign)
        embd__msg_field_bool(m, "foreign", true);
    if (extra->placement > 0)
        embd__msg_field_uint(m, "placement", extra->placement);
    if (extra->asks_lag)
        embd__msg_field_uint(m, "max_behind", extra->max_behind_ms);
}

void embd__parts_write_split(struct msg *m, const struct part *parts, uint32_t n,
                             enum parts_kind kind, const struct push_extra *extra)
{
    embd__msg_map(m, 1u + count_extra(extra));
    write_parts(m, parts, n);
    write_extra(m, extra);
    for (uint32_t i = 0; i < n; i++)
        write_bins(m, &parts[i], kind);
}

void embd__parts_write(struct msg *m, const struct part *parts, uint32_t n, enum parts_kind kind)
{
    embd__parts_write_split(m, parts, n, kind, NULL);
}

void embd__push_write(struct msg *m, const struct part *parts, uint32_t n,
                      const struct push_extra *extra)
{
    embd__parts_write_split(m, parts, n, PARTS_PUSH, extra);
}

void embd__columns_write(struct msg *m, const struct part_list *list, enum parts_kind kind,
                         const struct push_extra *extra)
{
    embd__msg_map(m, 1u + count_extra(extra));
    embd__msg_field_uint(m, "columns", list->n);
    write_extra(m, extra);
    embd__columns_write_bins(m, list, kind);
}

/* ---- reading maps ---- */

/* The fields of a part's map that struct part lacks. */
struct promise {
    bool offsets, slots, weights, scores;
};

static void check_promise(struct fields *f, const struct part *p, const struct promise *promise)
{
    struct embd__error *e = f->reader->error;
    if (promise->weights && !promise->offsets)
        embd__error_set(e, EMBD_INVALID, "%s has weights, which need 'rows' and offsets", f->what);
    if (p->scale && !promise->offsets)
        embd__error_set(e, EMBD_INVALID, "%s has 'scale', which needs 'rows' and offsets", f->what);
}

static void read_map(struct reader *r, const msgpack_object *item, uint32_t i, enum parts_kind kind,
                     struct part *p, struct promise *promise)
{
    struct fields f;
    char what[PART_NAME_BYTES];
    embd__part_name(what, i, "");
    embd__list_map(r, item, &f, what);
    promise->offsets = kind != PARTS_ERASE && embd__field_has(&f, "rows");
    p->table = (uint32_t)embd__field_uint(&f, "table", 1, UINT32_MAX, FIELD_REQUIRED);
    p->n_keys = embd__field_count(&f, "keys", LIMIT_KEYS, FIELD_REQUIRED);
    p->n_rows = p->n_keys;
    promise->slots = embd__field_bool(&f, "slots", false);
    promise->weights = promise->scores = false;
    p->want_status = embd__field_bool(&f, "status", false);
    if (kind != PARTS_ERASE) {
        p->n_rows = embd__field_count(&f, "rows", LIMIT_ROWS, p->n_keys);
        p->dtype = (embd_dtype)embd__field_enum(&f, "dtype", embd__dtype_names, PART_DTYPES,
                                                EMBD_DTYPE_F32);
        promise->weights = embd__field_bool(&f, "weights", false);
    }
    if (kind != PARTS_ERASE)
        p->scale = embd__field_bool(&f, "scale", false);
    if (kind == PARTS_PULL) {
        p->zero_missing = embd__field_bool(&f, "zero", false);
        p->into = embd__field_uint(&f, "into", 0, UINT64_MAX - 1, 0);
    }
    if (kind == PARTS_PUSH) {
        p->lr = embd__field_lr(&f);
        promise->scores = embd__field_bool(&f, "scores", false);
    }
    if (promise->weights || p->scale)
        check_promise(&f, p, promise);
    embd__fields_end(&f);
}

/* ---- reading bins ---- */

static const void *read_array(struct reader *r, uint32_t i, const char *suffix, uint64_t bytes)
{
    char what[PART_NAME_BYTES];
    embd__part_name(what, i, suffix);
    return embd__read_bin(r, what, bytes);
}

static void read_bins(struct reader *r, uint32_t i, enum parts_kind kind,
                      const struct promise *promise, struct part *p)
{
    char what[PART_NAME_BYTES];
    p->keys = read_array(r, i, " keys", 8ull * p->n_keys);
    if (promise->offsets)
        p->offsets = read_array(r, i, " offsets", 4 * ((uint64_t)p->n_rows + 1));
    if (promise->slots)
        p->slots = read_array(r, i, " slots", 2ull * p->n_rows);
    if (promise->weights)
        p->weights = read_array(r, i, " weights", 4ull * p->n_keys);
    if (promise->scores)
        p->scores = read_array(r, i, " scores", 4ull * p->n_keys);
    if (kind == PARTS_PUSH) {
        embd__part_name(what, i, " grads");
        uint32_t unit = embd__is_packed(p->dtype) ? 1 : (uint32_t)embd__dtype_bytes(p->dtype);
        p->grads = embd__read_bin_any(r, what, unit, UINT32_MAX, &p->grads_bytes);
    }
    if (r->error->status == EMBD_OK)
        embd__part_check(r->error, i, p);
}

static void read_round(struct fields *message, struct push_round *round)
{
    struct fields f;
    embd__field_map(message, "round", &f, "the round");
    embd__field_name(&f, "job", round->job, sizeof round->job);
    round->worker =
        (uint32_t)embd__field_uint(&f, "worker", 0, EMBD_WORKERS_MAX - 1, FIELD_REQUIRED);
    round->n_workers =
        (uint32_t)embd__field_uint(&f, "workers", 1, EMBD_WORKERS_MAX, FIELD_REQUIRED);
    round->clock = embd__field_uint(&f, "clock", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    round->lease_ms =
        (uint32_t)embd__field_uint(&f, "lease_ms", LEASE_MIN_MS, LEASE_MAX_MS, LEASE_DEFAULT_MS);
    round->incarnation = embd__field_uint(&f, "incarnation", 0, UINT64_MAX, 0);
    round->epoch = embd__field_uint(&f, "epoch", 0, UINT64_MAX - 1, 0);
    embd__fields_end(&f);
    if (round->worker >= round->n_workers)
        embd__error_set(message->reader->error, EMBD_INVALID,
                        "the round's worker is %u, the job has %u workers", round->worker,
                        round->n_workers);
}

void embd__push_number_read(struct fields *message, struct push_number *number)
{
    struct fields f;
    embd__field_map(message, "writer", &f, "the writer");
    number->high = embd__field_uint(&f, "high", 0, UINT64_MAX, FIELD_REQUIRED);
    number->low = embd__field_uint(&f, "low", 0, UINT64_MAX, FIELD_REQUIRED);
    number->stream = embd__field_uint(&f, "stream", 0, UINT32_MAX, 0);
    number->sequence = embd__field_uint(&f, "sequence", 1, UINT64_MAX - 1, FIELD_REQUIRED);
    embd__fields_end(&f);
}

static void read_extra(struct fields *message, struct push_extra *extra)
{
    extra->round.n_workers = 0;
    extra->number.sequence = 0;
    extra->order = embd__field_uint(message, "order", 1, UINT64_MAX - 1, 0);
    extra->seconds = extra->placement = 0;
    extra->is_foreign = false;
    bool has_round = embd__field_has(message, "round"),
         has_number = embd__field_has(message, "writer");
    if (has_round)
        read_round(message, &extra->round);
    if (has_number)
        embd__push_number_read(message, &extra->number);
    if (has_round && has_number)
        embd__error_set(message->reader->error, EMBD_INVALID,
                        "a push has both 'round' and 'writer'; it may have one of them");
}

static void read_lag(struct fields *message)
{
    message->reader->lag = (struct lag){
        .is_told = true,
        .ms = embd__field_uint(message, "max_behind", 0, LIMIT_BEHIND_MS, 0),
    };
}

static uint64_t uint_of(const msgpack_object *item)
{
    return item->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? item->via.u64 : 0;
}

void embd__push_sources_read(struct fields *message, struct push_source *out, uint32_t *n_out)
{
    const msgpack_object *items;
    *n_out = embd__field_list(message, "sources", 2 * PUSH_SOURCES_MAX, &items) / 2;
    for (uint32_t i = 0; i < *n_out; i++)
        out[i] = (struct push_source){uint_of(&items[2 * i]), (uint32_t)uint_of(&items[2 * i + 1])};
}

static void read_maps(struct reader *r, const msgpack_object *items, struct part *parts, uint32_t n,
                      enum parts_kind kind)
{
    struct promise promises[LIMIT_PART_MAPS];
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++) {
        parts[i] = (struct part){0};
        read_map(r, &items[i], i, kind, &parts[i], &promises[i]);
    }
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++)
        read_bins(r, i, kind, &promises[i], &parts[i]);
}

/* Where they go; NULL: the message may have none. */
struct sources_out {
    struct push_source *list;
    uint32_t *n;
};

static int read_message(struct reader *r, struct part *parts, uint32_t capacity,
                        enum parts_kind kind, struct push_extra *extra, struct sources_out sources)
{
    struct fields f;
    const msgpack_object *items;
    uint32_t n, max = capacity < LIMIT_PART_MAPS ? capacity : LIMIT_PART_MAPS;
    embd__read_fields(&f, r, "the message");
    bool has_columns = embd__field_has(&f, "columns");
    if (has_columns)
        n = (uint32_t)embd__field_uint(&f, "columns", 1, capacity, FIELD_REQUIRED);
    else
        n = embd__field_list_required(&f, "parts", max, &items);
    if (extra != NULL)
        read_extra(&f, extra);
    embd__request_placement_read(&f);
    if (kind == PARTS_PULL && embd__field_has(&f, "max_behind"))
        read_lag(&f);
    if (sources.list != NULL) {
        embd__push_sources_read(&f, sources.list, sources.n);
        extra->seconds = embd__field_uint(&f, "seconds", 1, UINT64_MAX - 1, 0);
        extra->is_foreign = embd__field_bool(&f, "foreign", false);
    }
    embd__fields_end(&f);
    if (has_columns)
        embd__columns_read_bins(r, parts, n, kind);
    else
        read_maps(r, items, parts, n, kind);
    int status = embd__reader_end(r);
    return status == EMBD_OK ? (int)n : status;
}

int embd__parts_read(struct reader *r, struct part *parts, uint32_t capacity, enum parts_kind kind)
{
    return read_message(r, parts, capacity, kind, NULL, (struct sources_out){NULL, NULL});
}

int embd__push_read(struct reader *r, struct part *parts, uint32_t capacity,
                    struct push_extra *extra_out)
{
    int n =
        read_message(r, parts, capacity, PARTS_PUSH, extra_out, (struct sources_out){NULL, NULL});
    if (n < 0 || embd__push_check_keys(r->error, parts, (uint32_t)n) == EMBD_OK)
        return n;
    return r->error->status;
}

int embd__push_read_record(struct reader *r, struct part *parts, uint32_t capacity,
                           struct push_extra *extra_out, struct push_source *sources_out,
                           uint32_t *n_sources_out)
{
    return read_message(r, parts, capacity, PARTS_PUSH, extra_out,
                        (struct sources_out){sources_out, n_sources_out});
}

uint64_t embd__push_order(const struct reader *r)
{
    if (r->error->status != EMBD_OK || r->n_items == 0 || r->items[0].type != MSGPACK_OBJECT_MAP)
        return 0;
    const msgpack_object_map *map = &r->items[0].via.map;
    for (uint32_t i = 0; i < map->size; i++) {
        const msgpack_object *key = &map->ptr[i].key, *value = &map->ptr[i].val;
        if (key->type == MSGPACK_OBJECT_STR && key->via.str.size == 5 &&
            memcmp(key->via.str.ptr, "order", 5) == 0)
            return value->type == MSGPACK_OBJECT_POSITIVE_INTEGER ? value->via.u64 : 0;
    }
    return 0;
}
