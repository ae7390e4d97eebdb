/* redefine.c - see redefine.h. A row keeps its values, rounded to nearest if the dtype is another
 * one; columns that it did not have begin as those of a new row. Rows of codes are narrowed anew,
 * with all their columns, unless nothing of them changes. Rows that have master values are rounded
 * from these, and rows that get them get what they are rounded from. Its optimizer state stays if
 * the optimizer is the same one, and begins anew with another; so does what it remembers of its
 * use.
 *
 * Rows that still owe something to their state (lazy_global, decoupled_global) are not taken out of
 * it, nor keys out of their slots: such fields are refused. */
#include "client/formats/redefine.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/convert.h"
#include "proto/dtype.h"
#include "proto/partfile.h"
#include "proto/schema_change.h"

/* ---- the definition ---- */

static int refuse(const embd_schema *from, const char *field, const char *why,
                  struct embd__error *e)
{
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "field '%.60s' of table '%s' cannot be set by a load: %s", field,
                           from->name, why);
}

static int refuse_number(const embd_schema *from, const char *field, uint32_t to, uint32_t least,
                         const char *why, struct embd__error *e)
{
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "field '%s' of table '%s' cannot be set to %u by a load: %s; allowed "
                           "are %u and more",
                           field, from->name, to, why, least);
}

static int check_place(const embd_schema *from, const embd_schema *to, struct embd__error *e)
{
    bool was_slot = from->partition == EMBD_PARTITION_SLOT;
    if (was_slot != (to->partition == EMBD_PARTITION_SLOT))
        return refuse(from, "partition",
                      "rows of 'slot' belong to a slot and a key, others to a key; create the "
                      "table and put its rows",
                      e);
    if (to->slots != from->slots && from->slot_sizes != NULL)
        return refuse(from, "slots",
                      "its slot_sizes say how many there are; create the table and put its rows",
                      e);
    if (to->slots < from->slots)
        return refuse_number(from, "slots", to->slots, from->slots, "its rows belong to more", e);
    if (to->dim < from->dim)
        return refuse_number(from, "dim", to->dim, from->dim, "its rows have more columns", e);
    return EMBD_OK;
}

/* Rows of lazy_global wait for the step of their last push, others have had it. */
static int check_debts(const embd_schema *from, const embd_schema *to, struct embd__error *e)
{
    const embd_optimizer *was = &from->optimizer, *is = &to->optimizer;
    if (was->update != is->update &&
        (was->update == EMBD_UPDATE_LAZY_GLOBAL || is->update == EMBD_UPDATE_LAZY_GLOBAL))
        return refuse(from, "optimizer.update",
                      "rows of 'lazy_global' still wait for the step of their last push, and "
                      "others had it; load the table as it is, and put its rows into another",
                      e);
    if (from->regularization.decay != to->regularization.decay &&
        from->regularization.decay == EMBD_DECAY_DECOUPLED_GLOBAL)
        return refuse(from, "optimizer.decay",
                      "rows of 'decoupled_global' owe decay since their last push; load the table "
                      "as it is, and put its rows into another",
                      e);
    return EMBD_OK;
}

static int set_field(const embd_schema *from, const embd_field *set, embd_schema *to,
                     struct embd__error *e)
{
    if (strcmp(set->field, "name") == 0)
        return refuse(from, set->field, "a table keeps its name; put its rows into another", e);
    if (strcmp(set->field, "slot_sizes") == 0)
        return refuse(from, set->field,
                      "they are part of the keys; create the table and put its rows", e);
    int status = embd_schema_set(to, set->field, set->value, NULL);
    if (status != EMBD_OK)
        return embd__error_set(e, status, "table '%s': %s", from->name, embd_error_text());
    to->changed &= ~embd__schema_bits(set->field);
    return EMBD_OK;
}

int embd__redefine_schema(const struct table_schema *from, const embd_field *fields, uint32_t n,
                          embd_schema *to, struct embd__error *e)
{
    const embd_schema *was = &from->s;
    *to = *was;
    for (uint32_t i = 0; i < n; i++)
        if (set_field(was, &fields[i], to, e) != EMBD_OK)
            return e->status;
    if (check_place(was, to, e) != EMBD_OK || check_debts(was, to, e) != EMBD_OK)
        return e->status;
    return embd__schema_check(to, e);
}

/* ---- values ---- */

static size_t value_bytes(const embd_schema *schema)
{
    return embd__value_bytes(schema->dtype, schema->dim);
}

static int refuse_value(const struct redefining *r, uint64_t key, uint32_t column, float value,
                        struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           "field 'dtype' of table '%s' cannot be set to '%s' by a load: column %u "
                           "of key %llu is %.9g, beyond its largest value",
                           r->to->name, embd_dtype_name(r->to->dtype), column,
                           (unsigned long long)key, (double)value);
}

static int refuse_infinite(const struct redefining *r, uint64_t key, const char *what, uint32_t at,
                           float value, struct embd__error *e)
{
    return embd__error_set(
        e, EMBD_NOT_FINITE,
        "field 'admit_nonfinite' of table '%s' cannot be set to false by a load: "
        "%s %u of key %llu is %g",
        r->to->name, what, at, (unsigned long long)key, (double)value);
}

/* Of a table that admitted other numbers than finite ones, and is not to: as a put of the row.
 * `exact`: what the row is rounded from. */
static int check_finite(const struct redefining *r, const uint8_t *row, const float *exact,
                        const float *state, uint64_t key, struct embd__error *e)
{
    const embd_schema *was = &r->from->s;
    bool keeps_state = was->optimizer.kind == r->to->optimizer.kind;
    uint32_t n_state = keeps_state ? embd__schema_optimizer_floats(was) : 0;
    float values[EMBD_DIM_MAX];
    if (!was->admit_nonfinite || r->to->admit_nonfinite)
        return EMBD_OK;
    embd__row_to_f32(values, row, was->dtype, was->dim);
    for (uint32_t c = 0; c < was->dim; c++)
        if (!isfinite(values[c]) || !isfinite(exact[c]))
            return refuse_infinite(r, key, "column", c, isfinite(values[c]) ? exact[c] : values[c],
                                   e);
    for (uint32_t i = 0; i < n_state; i++)
        if (!isfinite(state[i]))
            return refuse_infinite(r, key, "state", i, state[i], e);
    return EMBD_OK;
}

/* Of uniform_slot each slot has its own; a key beyond the last takes the last slot's. */
static struct initializer initializer_of(const struct redefining *r, uint64_t key, uint32_t slot)
{
    struct initializer own = r->initializer;
    if (own.kind != EMBD_INITIALIZER_UNIFORM_SLOT)
        return own;
    if (r->to->partition != EMBD_PARTITION_SLOT)
        slot = embd__schema_slot_of(r->from, key);
    slot = slot < r->to->slots ? slot : r->to->slots - 1;
    own.b = embd__initializer_slot_bound(r->to->slot_sizes[slot]);
    own.a = -own.b;
    return own;
}

/* The values that the new row is rounded from: the row's master values, or its own; then the
 * columns of a new one. */
static void widen(const struct redefining *r, uint32_t i, const uint8_t *row, const float *state,
                  float *values)
{
    const embd_schema *was = &r->from->s;
    uint64_t key = r->block->keys[i];
    uint32_t slot = r->block->slots != NULL ? r->block->slots[i] : 0;
    const struct initializer own = initializer_of(r, key, slot);
    if (r->to->dim > was->dim)
        embd__initializer_row(&own, key, slot, values, r->to->dim);
    if (embd__schema_master_floats(was) > 0)
        memcpy(values, state + embd__schema_master_at(was), was->dim * sizeof *values);
    else
        embd__row_to_f32(values, row, was->dtype, was->dim);
}

/* Finite values stay finite; of the same dtype bits stay. */
static int convert(const struct redefining *r, const uint8_t *from, const float *values,
                   uint64_t key, uint8_t *to, struct embd__error *e)
{
    float rounded[EMBD_DIM_MAX];
    uint32_t was = r->from->s.dim, dim = r->to->dim;
    bool has_dtype = r->from->s.dtype == r->to->dtype;
    if (!has_dtype || was != dim)
        embd__row_from_f32(to, r->to->dtype, values, dim);
    if (has_dtype && (was == dim || !embd__dtype_is_coded(r->to->dtype))) {
        memcpy(to, from, value_bytes(&r->from->s));
        return EMBD_OK;
    }
    embd__row_to_f32(rounded, to, r->to->dtype, dim);
    for (uint32_t c = 0; c < was; c++)
        if (isfinite(values[c]) && !isfinite(rounded[c]))
            return refuse_value(r, key, c, values[c], e);
    return EMBD_OK;
}

/* ---- states ---- */

/* A new row's. */
static float first_state(const embd_optimizer *o)
{
    bool accumulates =
        o->kind == EMBD_OPTIMIZER_ADAGRAD || o->kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    return accumulates ? o->initial_accumulator : 0.0f;
}

/* Columns of m, v and so on; one value a row stands behind them. */
static void convert_columns(const struct redefining *r, const float *from, float *to)
{
    uint32_t was = r->from->s.dim, is = r->to->dim, n = embd__schema_optimizer_floats(&r->from->s);
    float first = first_state(&r->to->optimizer);
    embd_schema one_more = r->from->s;
    one_more.dim++;
    uint32_t vectors = embd__schema_optimizer_floats(&one_more) - n;
    for (uint32_t v = 0; v < vectors; v++, from += was, to += is) {
        memcpy(to, from, was * sizeof *to);
        for (uint32_t c = was; c < is; c++)
            to[c] = first;
    }
    memcpy(to, from, (n - vectors * was) * sizeof *to);
}

static void convert_own(const struct redefining *r, const float *from, float *to)
{
    float first = first_state(&r->to->optimizer);
    if (r->from->s.optimizer.kind == r->to->optimizer.kind) {
        convert_columns(r, from, to);
        return;
    }
    for (uint32_t i = 0; i < embd__schema_optimizer_floats(r->to); i++)
        to[i] = first;
}

/* With another policy the step of the last push stays, what is counted begins anew. Steps do not
 * become seconds, nor seconds steps: such rows count as pushed now. */
static void convert_use(const struct redefining *r, const float *from, float *to)
{
    uint32_t was = embd__schema_use_floats(&r->from->s), is = embd__schema_use_floats(r->to);
    bool is_same = embd__schema_same_use(&r->from->s, r->to);
    bool is_timed = embd__schema_is_timed(r->to);
    if (is == 0)
        return;
    memset(to, 0, is * sizeof *to);
    if (was == 0 || is_timed != embd__schema_is_timed(&r->from->s))
        embd__stamp_put(to, is_timed ? r->second : r->step);
    else
        memcpy(to, from, (is_same ? is : EMBD_STAMP_FLOATS) * sizeof *to);
}

static void convert_state(const struct redefining *r, const float *from, const float *values,
                          float *to)
{
    const embd_schema *was = &r->from->s, *is = r->to;
    bool had_stamp = embd__schema_has_stamp(was), has_stamp = embd__schema_has_stamp(is);
    uint32_t own = embd__schema_optimizer_floats(is), master = embd__schema_master_floats(is);
    convert_own(r, from, to);
    if (has_stamp && had_stamp)
        memcpy(to + own, from + embd__schema_optimizer_floats(was), EMBD_STAMP_FLOATS * sizeof *to);
    else if (has_stamp)
        embd__stamp_put(to + own, r->step);
    memcpy(to + embd__schema_master_at(is), values, master * sizeof *to);
    convert_use(r, from + embd__schema_master_at(was) + embd__schema_master_floats(was),
                to + embd__schema_master_at(is) + master);
}

/* ---- blocks ---- */

/* Rows, states and candidates stay as they are. */
static bool is_same_row(const embd_schema *from, const embd_schema *to)
{
    return from->dim == to->dim && from->dtype == to->dtype &&
           from->optimizer.kind == to->optimizer.kind &&
           embd__schema_master_floats(from) == embd__schema_master_floats(to) &&
           from->regularization.decay == to->regularization.decay && from->on_full == to->on_full &&
           from->admit_after == to->admit_after;
}

int embd__redefine_open(struct redefining *r, const struct table_schema *from,
                        const embd_schema *to, struct embd__error *e)
{
    const embd_initializer *i = &to->initializer;
    uint64_t row_bytes = embd__row_bytes(to);
    *r = (struct redefining){.from = from, .to = to, .is_same = is_same_row(&from->s, to)};
    r->initializer = (struct initializer){i->kind, i->a, i->b, to->seed};
    if (r->is_same)
        return EMBD_OK;
    r->max_rows =
        row_bytes < PARTFILE_BLOCK_BYTES ? (uint32_t)(PARTFILE_BLOCK_BYTES / row_bytes) : 1;
    r->rows = malloc(r->max_rows * value_bytes(to));
    r->states = malloc(r->max_rows * embd__schema_state_floats(to) * sizeof *r->states + 1);
    if (r->rows != NULL && r->states != NULL)
        return EMBD_OK;
    embd__redefine_close(r);
    return embd__error_set(e, EMBD_NO_MEMORY, "no memory to load table '%s'", to->name);
}

void embd__redefine_close(struct redefining *r)
{
    free(r->rows);
    free(r->states);
    *r = (struct redefining){.from = NULL};
}

void embd__redefine_begin(struct redefining *r, const struct row_block *block, uint64_t step)
{
    r->block = block;
    r->step = step;
    r->second = (uint64_t)time(NULL);
    r->at = 0;
    r->is_begun = false;
}

static int convert_row(const struct redefining *r, uint32_t i, uint32_t at, struct embd__error *e)
{
    static const float none;
    const struct row_block *b = r->block;
    uint32_t n_state = embd__schema_state_floats(&r->from->s);
    uint8_t *row = r->rows + at * value_bytes(r->to);
    const uint8_t *old = (const uint8_t *)b->rows + i * value_bytes(&r->from->s);
    const float *old_state = n_state > 0 ? b->states + (size_t)i * n_state : &none;
    float values[EMBD_DIM_MAX];
    widen(r, i, old, old_state, values);
    if (check_finite(r, old, values, old_state, b->keys[i], e) != EMBD_OK ||
        convert(r, old, values, b->keys[i], row, e) != EMBD_OK)
        return e->status;
    convert_state(r, old_state, values, r->states + (size_t)at * embd__schema_state_floats(r->to));
    return EMBD_OK;
}

/* They come with the first piece. Keys that lost their rows are no candidates. */
static void take_candidates(const struct redefining *r, struct row_block *piece)
{
    bool counts = r->to->admit_after > 1 || embd__block_is_gone(r->block);
    if (r->is_begun || !counts)
        piece->n_candidates = 0;
}

static int convert_rows(struct redefining *r, struct row_block *piece, struct embd__error *e)
{
    uint32_t left = r->block->n_rows - r->at, n = left < r->max_rows ? left : r->max_rows;
    for (uint32_t i = 0; i < n; i++)
        if (convert_row(r, r->at + i, i, e) != EMBD_OK)
            return e->status;
    piece->n_rows = n;
    piece->keys += r->at;
    piece->slots = piece->slots != NULL ? piece->slots + r->at : NULL;
    piece->rows = r->rows;
    piece->states = r->states;
    r->at += n;
    return EMBD_OK;
}

int embd__redefine_next(struct redefining *r, struct row_block *piece_out, struct embd__error *e)
{
    if (r->is_begun && (r->is_same || r->at == r->block->n_rows))
        return 0;
    *piece_out = *r->block;
    if (!r->is_same) {
        take_candidates(r, piece_out);
        if (convert_rows(r, piece_out, e) != EMBD_OK)
            return e->status;
    }
    r->is_begun = true;
    return 1;
}
