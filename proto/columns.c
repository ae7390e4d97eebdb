/* columns.c - see columns.h.
 *
 * Bins: records [n] of 24 bytes, keys, offsets, slots, weights, and of a push gradients, also where
 * no part has such an array. Before the gradients there are scores, if any part has such. A record
 * says how long each array of its part is; in its bin the array begins at a multiple of 8, behind
 * that of the part before. So the bins are as long as the records say, or the message is refused.
 */
#include "proto/columns.h"

#include <string.h>

#include "proto/dtype.h"
#include "proto/part_check.h"
#include "proto/part_name.h"
#include "proto/reading.h"

/* As it travels: little-endian, like every array. */
struct record {
    uint32_t table, n_keys, n_rows;
    uint16_t flags, dtype;
    float lr;
    uint32_t grads_bytes; /* of a pull with HAS_INTO: where its rows go, in units of 8 bytes */
};
_Static_assert(sizeof(struct record) == 24, "a record in memory is one on the wire");

enum {
    HAS_OFFSETS = 1,
    HAS_SLOTS = 2,
    HAS_WEIGHTS = 4,
    WANT_STATUS = 8,
    ZERO_MISSING = 16,
    SCALE = 32,
    HAS_SCORES = 64,
    HAS_INTO = 128,
};

static const uint16_t flags_of[] = {
    [PARTS_PULL] =
        HAS_OFFSETS | HAS_SLOTS | HAS_WEIGHTS | WANT_STATUS | ZERO_MISSING | SCALE | HAS_INTO,
    [PARTS_PUSH] = HAS_OFFSETS | HAS_SLOTS | HAS_WEIGHTS | WANT_STATUS | SCALE | HAS_SCORES,
    [PARTS_ERASE] = HAS_SLOTS | WANT_STATUS,
};

enum { INTO_UNIT = 8 };

enum column { KEYS, OFFSETS, SLOTS, WEIGHTS, SCORES, GRADS, COLUMNS };

static const char *const names[] = {" keys", " offsets", " slots", " weights", " scores", " grads"};

/* Whether messages of this kind have the column's bin. */
static bool has_column(enum parts_kind kind, bool has_scores, enum column column)
{
    return column == SCORES ? has_scores : column != GRADS || kind == PARTS_PUSH;
}

static uint64_t padded(uint64_t bytes)
{
    return (bytes + 7) / 8 * 8;
}

/* ---- writing ---- */

struct array {
    const void *data;
    uint64_t bytes;
};

static struct array array_of(const struct part *p, enum column column)
{
    switch (column) {
    case KEYS:
        return (struct array){p->keys, 8ull * p->n_keys};
    case OFFSETS:
        return (struct array){p->offsets, p->offsets != NULL ? 4 * ((uint64_t)p->n_rows + 1) : 0};
    case SLOTS:
        return (struct array){p->slots, p->slots != NULL ? 2ull * p->n_rows : 0};
    case WEIGHTS:
        return (struct array){p->weights, p->weights != NULL ? 4ull * p->n_keys : 0};
    case SCORES:
        return (struct array){p->scores, p->scores != NULL ? 4ull * p->n_keys : 0};
    case GRADS:
    case COLUMNS:
        break;
    }
    return (struct array){p->grads, p->grads_bytes};
}

static const struct part *part_at(const struct part_list *list, uint32_t i)
{
    return (const void *)((const uint8_t *)list->first + i * list->stride);
}

static void write_column(struct msg *m, const struct part_list *list, enum column column)
{
    static const uint64_t zeros;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < list->n; i++)
        bytes += padded(array_of(part_at(list, i), column).bytes);
    embd__msg_bin_begin(m, bytes);
    if (bytes == 0)
        embd__msg_bin_piece(m, &zeros, 0);
    for (uint32_t i = 0; i < list->n && bytes > 0; i++) {
        struct array a = array_of(part_at(list, i), column);
        if (a.bytes > 0)
            embd__msg_bin_piece(m, a.data, a.bytes);
        if (a.bytes % 8 > 0)
            embd__msg_bin_piece(m, &zeros, 8 - a.bytes % 8);
    }
}

static struct record record_of(const struct part *p)
{
    return (struct record){
        .table = p->table,
        .n_keys = p->n_keys,
        .n_rows = p->n_rows,
        .flags =
            (uint16_t)((p->offsets != NULL ? HAS_OFFSETS : 0) | (p->slots != NULL ? HAS_SLOTS : 0) |
                       (p->weights != NULL ? HAS_WEIGHTS : 0) | (p->want_status ? WANT_STATUS : 0) |
                       (p->zero_missing ? ZERO_MISSING : 0) | (p->scale ? SCALE : 0) |
                       (p->scores != NULL ? HAS_SCORES : 0) | (p->into > 0 ? HAS_INTO : 0)),
        .dtype = (uint16_t)p->dtype,
        .lr = p->lr,
        .grads_bytes = p->into > 0 ? (uint32_t)(p->into / INTO_UNIT) : (uint32_t)p->grads_bytes,
    };
}

void embd__columns_write_bins(struct msg *m, const struct part_list *list, enum parts_kind kind)
{
    uint32_t bytes = list->n * (uint32_t)sizeof(struct record);
    struct record *records = embd__msg_own(m, bytes);
    bool has_scores = false;
    if (records == NULL)
        return;
    for (uint32_t i = 0; i < list->n; i++) {
        records[i] = record_of(part_at(list, i));
        has_scores = has_scores || (records[i].flags & HAS_SCORES) != 0;
    }
    embd__msg_bin(m, records, bytes);
    for (uint32_t c = 0; c < COLUMNS; c++)
        if (has_column(kind, has_scores, (enum column)c))
            write_column(m, list, (enum column)c);
}

/* ---- reading ---- */

struct source {
    const uint8_t *at;
    uint64_t left, bytes;
};

/* The next share, of one part. */
static const void *take(struct reader *r, struct source *source, uint32_t i, enum column column,
                        uint64_t bytes)
{
    const uint8_t *at = source->at;
    if (padded(bytes) > source->left) {
        embd__error_set(r->error, EMBD_MALFORMED,
                        "part %u%s: %llu bytes, the bin of all parts' has %llu left of %llu", i,
                        names[column], (unsigned long long)bytes, (unsigned long long)source->left,
                        (unsigned long long)source->bytes);
        return NULL;
    }
    source->at += padded(bytes);
    source->left -= padded(bytes);
    return at;
}

static void too_large(struct reader *r, uint32_t i, const char *field, uint32_t value,
                      uint32_t limit)
{
    if (value > limit)
        embd__error_set(r->error, EMBD_TOO_LARGE, "part %u field '%s' is %u, the limit is %u", i,
                        field, value, limit);
}

static void check_flags(struct reader *r, uint32_t i, const struct record *record,
                        enum parts_kind kind)
{
    uint32_t flags = record->flags, unknown = flags & ~(uint32_t)flags_of[kind];
    if (unknown != 0)
        embd__error_set(r->error, EMBD_INVALID, "part %u flags: 0x%x has unknown bits 0x%x", i,
                        flags, unknown);
    else if ((flags & (HAS_WEIGHTS | SCALE)) != 0 && !(flags & HAS_OFFSETS))
        embd__error_set(r->error, EMBD_INVALID, "part %u has %s, which needs 'rows' and offsets", i,
                        flags & HAS_WEIGHTS ? "weights" : "'scale'");
}

static void check_record(struct reader *r, uint32_t i, const struct record *record,
                         enum parts_kind kind)
{
    struct embd__error *e = r->error;
    bool is_push = kind == PARTS_PUSH;
    check_flags(r, i, record, kind);
    too_large(r, i, "keys", record->n_keys, LIMIT_KEYS);
    too_large(r, i, "rows", record->n_rows, LIMIT_ROWS);
    if (record->table == 0)
        embd__error_set(e, EMBD_INVALID, "part %u field 'table' is 0, expected 1 or more", i);
    if (record->n_rows != record->n_keys && !(record->flags & HAS_OFFSETS))
        embd__error_set(e, EMBD_INVALID,
                        "part %u field 'rows' is %u, expected %u, as many as keys: it has no "
                        "offsets",
                        i, record->n_rows, record->n_keys);
    if (record->dtype >= PART_DTYPES || (kind == PARTS_ERASE && record->dtype != EMBD_DTYPE_F32))
        embd__error_set(e, EMBD_INVALID, "part %u field 'dtype' is %u, which is not known", i,
                        record->dtype);
    if (record->lr != 0.0f && !(is_push && embd__is_lr(record->lr)))
        embd__error_set(e, EMBD_INVALID,
                        "part %u field 'lr' is %g, expected 0 or, in a push, a finite number "
                        "above 0",
                        i, (double)record->lr);
    if (record->grads_bytes > 0 && !is_push && !(record->flags & HAS_INTO))
        embd__error_set(e, EMBD_INVALID, "part %u has %u bytes of gradients, only a push may", i,
                        record->grads_bytes);
}

static void read_part(struct reader *r, uint32_t i, const struct record *record,
                      struct source sources[COLUMNS], struct part *p)
{
    uint32_t flags = record->flags;
    *p = (struct part){.table = record->table,
                       .dtype = (embd_dtype)record->dtype,
                       .n_keys = record->n_keys,
                       .n_rows = record->n_rows,
                       .want_status = flags & WANT_STATUS,
                       .zero_missing = flags & ZERO_MISSING,
                       .scale = flags & SCALE,
                       .lr = record->lr,
                       .grads_bytes = record->grads_bytes};
    if (flags & HAS_INTO) {
        p->into = (uint64_t)INTO_UNIT * record->grads_bytes;
        p->grads_bytes = 0;
    }
    p->keys = take(r, &sources[KEYS], i, KEYS, 8ull * p->n_keys);
    if (flags & HAS_OFFSETS)
        p->offsets = take(r, &sources[OFFSETS], i, OFFSETS, 4 * ((uint64_t)p->n_rows + 1));
    if (flags & HAS_SLOTS)
        p->slots = take(r, &sources[SLOTS], i, SLOTS, 2ull * p->n_rows);
    if (flags & HAS_WEIGHTS)
        p->weights = take(r, &sources[WEIGHTS], i, WEIGHTS, 4ull * p->n_keys);
    if (flags & HAS_SCORES)
        p->scores = take(r, &sources[SCORES], i, SCORES, 4ull * p->n_keys);
    if (sources[GRADS].at != NULL)
        p->grads = take(r, &sources[GRADS], i, GRADS, record->grads_bytes);
}

static void check_rest(struct reader *r, const struct source *sources)
{
    for (uint32_t c = 0; c < COLUMNS; c++)
        if (sources[c].left > 0)
            embd__error_set(r->error, EMBD_MALFORMED,
                            "the bin of all parts'%s has %llu bytes, the parts have %llu", names[c],
                            (unsigned long long)sources[c].bytes,
                            (unsigned long long)(sources[c].bytes - sources[c].left));
}

/* `records` NULL: they could not be read. */
static bool any_has_scores(const struct record *records, uint32_t n)
{
    uint32_t flags = 0;
    for (uint32_t i = 0; i < n && records != NULL; i++)
        flags |= records[i].flags;
    return (flags & HAS_SCORES) != 0;
}

void embd__columns_read_bins(struct reader *r, struct part *parts, uint32_t n, enum parts_kind kind)
{
    struct source sources[COLUMNS] = {{0}};
    const struct record *records = embd__read_bin(r, "the records of parts", n * sizeof *records);
    bool has_scores = kind == PARTS_PUSH && any_has_scores(records, n);
    for (uint32_t c = 0; c < COLUMNS; c++) {
        if (!has_column(kind, has_scores, (enum column)c))
            continue;
        sources[c].at = embd__read_bin_any(r, names[c] + 1, 8, UINT32_MAX, &sources[c].bytes);
        sources[c].left = sources[c].bytes;
    }
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++) {
        check_record(r, i, &records[i], kind);
        if (r->error->status == EMBD_OK)
            read_part(r, i, &records[i], sources, &parts[i]);
        if (r->error->status == EMBD_OK)
            embd__part_check(r->error, i, &parts[i]);
    }
    if (r->error->status == EMBD_OK)
        check_rest(r, sources);
}
