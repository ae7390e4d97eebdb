/* answers.c - the answers to a pull, a push and an erase: written by the server, read and checked
 * by the client, which compares the counts with its request. */
#include "proto/packed.h"
#include "proto/message.h"
#include "proto/names.h"
#include "proto/part_name.h"
#include "proto/reading.h"

static void begin_parts(struct msg *m, uint32_t n, uint32_t n_more, uint64_t map)
{
    embd__msg_map(m, 1u + n_more + (map > 0));
    if (map > 0)
        embd__msg_field_uint(m, "map", map);
    embd__msg_str(m, "parts");
    embd__msg_array(m, n);
}

static void read_lag(struct fields *f)
{
    f->reader->lag = (struct lag){
        .is_told = embd__field_has(f, "behind_ms"),
        .ms = embd__field_uint(f, "behind_ms", 0, UINT64_MAX - 1, 0),
        .position = embd__field_uint(f, "position", 0, INT64_MAX, 0),
    };
}

/* The list of part maps; 0 of them after an error. `again` NULL: the answer cannot have that. */
static uint32_t read_list(struct reader *r, uint32_t capacity, const msgpack_object **items_out,
                          bool *again, bool is_pull)
{
    struct fields f;
    embd__read_fields(&f, r, "the answer");
    uint32_t n = embd__field_list(&f, "parts", capacity, items_out);
    r->map = embd__field_uint(&f, "map", 1, UINT64_MAX - 1, 0);
    if (is_pull)
        read_lag(&f);
    if (again != NULL)
        *again = embd__field_bool(&f, "again", false);
    if (again != NULL && *again && n > 0)
        embd__error_set(r->error, EMBD_PROTOCOL,
                        "the answer to a push says 'again' and has parts, expected none");
    return embd__fields_end(&f) == EMBD_OK ? n : 0;
}

static int end_list(struct reader *r, uint32_t n)
{
    int status = embd__reader_end(r);
    return status == EMBD_OK ? (int)n : status;
}

/* ---- pull ---- */

static uint64_t value_bytes(const struct part_answer *a)
{
    return (uint64_t)a->n_rows * embd__wire_row_bytes(a->dtype, a->dim);
}

void embd__pull_answer_write(struct msg *m, const struct part_answer *answers, uint32_t n,
                             uint64_t map, const struct lag *lag)
{
    begin_parts(m, n, lag != NULL ? 2 : 0, map);
    for (uint32_t i = 0; i < n; i++) {
        const struct part_answer *a = &answers[i];
        embd__msg_map(m, 3u + a->has_status);
        embd__msg_field_uint(m, "rows", a->n_rows);
        embd__msg_field_uint(m, "dim", a->dim);
        embd__msg_field_str(m, "dtype", embd__dtype_names[a->dtype]);
        if (a->has_status)
            embd__msg_field_bool(m, "status", true);
    }
    if (lag != NULL) {
        embd__msg_field_uint(m, "behind_ms", lag->ms);
        embd__msg_field_uint(m, "position", lag->position);
    }
    for (uint32_t i = 0; i < n; i++) {
        if (answers[i].into > 0)
            embd__msg_bin_shared(m, answers[i].into, value_bytes(&answers[i]));
        else
            embd__msg_bin(m, answers[i].values, value_bytes(&answers[i]));
        if (answers[i].has_status)
            embd__msg_bin(m, answers[i].statuses, answers[i].n_keys);
    }
}

static void read_pull_map(struct reader *r, const msgpack_object *item, const char *what,
                          struct part_answer *a)
{
    struct fields f;
    embd__list_map(r, item, &f, what);
    a->n_rows = (uint32_t)embd__field_uint(&f, "rows", 0, LIMIT_KEYS, FIELD_REQUIRED);
    a->dim = (uint32_t)embd__field_uint(&f, "dim", 1, EMBD_DIM_MAX, FIELD_REQUIRED);
    a->dtype =
        (embd_dtype)embd__field_enum(&f, "dtype", embd__dtype_names, PART_DTYPES, EMBD_DTYPE_F32);
    a->has_status = embd__field_bool(&f, "status", false);
    embd__fields_end(&f);
}

int embd__pull_answer_read(struct reader *r, struct part_answer *answers, uint32_t capacity)
{
    const msgpack_object *items;
    uint32_t n = read_list(r, capacity, &items, NULL, true);
    char what[PART_NAME_BYTES];
    for (uint32_t i = 0; i < n; i++) {
        answers[i] = (struct part_answer){0};
        embd__part_name(what, i, "");
        read_pull_map(r, &items[i], what, &answers[i]);
    }
    for (uint32_t i = 0; i < n; i++) {
        struct part_answer *a = &answers[i];
        embd__part_name(what, i, " values");
        a->values = embd__read_bin(r, what, value_bytes(a));
        if (!a->has_status)
            continue;
        uint64_t n_keys;
        embd__part_name(what, i, " statuses");
        a->statuses = embd__read_bin_any(r, what, 1, LIMIT_KEYS, &n_keys);
        a->n_keys = (uint32_t)n_keys;
    }
    return end_list(r, n);
}

/* ---- push ---- */

static const uint8_t *read_statuses(struct reader *r, uint32_t part, uint32_t n_keys)
{
    char what[PART_NAME_BYTES];
    embd__part_name(what, part, " statuses");
    return embd__read_bin(r, what, n_keys);
}

void embd__push_answer_write(struct msg *m, const struct push_answer *answers, uint32_t n,
                             uint64_t map)
{
    begin_parts(m, n, 0, map);
    for (uint32_t i = 0; i < n; i++) {
        const struct push_answer *a = &answers[i];
        bool has_status = a->statuses != NULL;
        embd__msg_map(m, 5u + has_status + (a->n_evicted > 0));
        embd__msg_field_uint(m, "step", a->step);
        embd__msg_field_uint(m, "inserted", a->n_inserted);
        embd__msg_field_uint(m, "full", a->n_full);
        embd__msg_field_uint(m, "filtered", a->n_filtered);
        if (a->n_evicted > 0)
            embd__msg_field_uint(m, "evicted", a->n_evicted);
        embd__msg_field_uint(m, "keys", a->n_keys);
        if (has_status)
            embd__msg_field_bool(m, "status", true);
    }
    for (uint32_t i = 0; i < n; i++)
        if (answers[i].statuses != NULL)
            embd__msg_bin(m, answers[i].statuses, answers[i].n_keys);
}

static bool read_push_map(struct reader *r, const msgpack_object *item, const char *what,
                          struct push_answer *a)
{
    struct fields f;
    embd__list_map(r, item, &f, what);
    a->step = embd__field_uint(&f, "step", 0, UINT64_MAX, 0);
    a->n_inserted = (uint32_t)embd__field_uint(&f, "inserted", 0, LIMIT_KEYS, 0);
    a->n_full = (uint32_t)embd__field_uint(&f, "full", 0, LIMIT_KEYS, 0);
    a->n_filtered = (uint32_t)embd__field_uint(&f, "filtered", 0, LIMIT_KEYS, 0);
    a->n_evicted = (uint32_t)embd__field_uint(&f, "evicted", 0, LIMIT_CAPACITY, 0);
    a->n_keys = (uint32_t)embd__field_uint(&f, "keys", 0, LIMIT_KEYS, FIELD_REQUIRED);
    bool has_status = embd__field_bool(&f, "status", false);
    embd__fields_end(&f);
    return has_status;
}

void embd__push_again_write(struct msg *m, uint64_t map)
{
    begin_parts(m, 0, 1, map);
    embd__msg_field_bool(m, "again", true);
}

int embd__push_answer_read(struct reader *r, struct push_answer *answers, uint32_t capacity,
                           bool *again_out)
{
    const msgpack_object *items;
    bool has_status[LIMIT_PARTS];
    uint32_t n =
        read_list(r, capacity < LIMIT_PARTS ? capacity : LIMIT_PARTS, &items, again_out, false);
    char what[PART_NAME_BYTES];
    for (uint32_t i = 0; i < n; i++) {
        answers[i] = (struct push_answer){0};
        embd__part_name(what, i, "");
        has_status[i] = read_push_map(r, &items[i], what, &answers[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (has_status[i])
            answers[i].statuses = read_statuses(r, i, answers[i].n_keys);
    return end_list(r, n);
}

/* ---- erase ---- */

void embd__erase_answer_write(struct msg *m, const struct erase_answer *answers, uint32_t n,
                              uint64_t map)
{
    begin_parts(m, n, 0, map);
    for (uint32_t i = 0; i < n; i++) {
        const struct erase_answer *a = &answers[i];
        embd__msg_map(m, 2u + (a->statuses != NULL));
        embd__msg_field_uint(m, "erased", a->n_erased);
        embd__msg_field_uint(m, "keys", a->n_keys);
        if (a->statuses != NULL)
            embd__msg_field_bool(m, "status", true);
    }
    for (uint32_t i = 0; i < n; i++)
        if (answers[i].statuses != NULL)
            embd__msg_bin(m, answers[i].statuses, answers[i].n_keys);
}

static bool read_erase_map(struct reader *r, const msgpack_object *item, const char *what,
                           struct erase_answer *a)
{
    struct fields f;
    embd__list_map(r, item, &f, what);
    a->n_erased = (uint32_t)embd__field_uint(&f, "erased", 0, LIMIT_KEYS, 0);
    a->n_keys = (uint32_t)embd__field_uint(&f, "keys", 0, LIMIT_KEYS, FIELD_REQUIRED);
    bool has_status = embd__field_bool(&f, "status", false);
    embd__fields_end(&f);
    return has_status;
}

int embd__erase_answer_read(struct reader *r, struct erase_answer *answers, uint32_t capacity)
{
    const msgpack_object *items;
    bool has_status[LIMIT_PARTS];
    uint32_t n = read_list(r, capacity < LIMIT_PARTS ? capacity : LIMIT_PARTS, &items, NULL, false);
    char what[PART_NAME_BYTES];
    for (uint32_t i = 0; i < n; i++) {
        answers[i] = (struct erase_answer){0};
        embd__part_name(what, i, "");
        has_status[i] = read_erase_map(r, &items[i], what, &answers[i]);
    }
    for (uint32_t i = 0; i < n; i++)
        if (has_status[i])
            answers[i].statuses = read_statuses(r, i, answers[i].n_keys);
    return end_list(r, n);
}
