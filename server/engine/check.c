/* check.c - pulls, pushes and loads against schemas.
 *
 * Structure (counts, bin lengths, offsets, weights) was checked while reading; here is what needs
 * the table. The loops over keys, slots and gradients are on the data path: each first asks whether
 * anything is wrong, without branches, in blocks of fixed size that compilers turn into vector
 * code; only then is the culprit looked for. */
#include "server/engine/check.h"

#include <stdio.h>

#include "proto/packed.h"
#include "proto/part_name.h"
#include "server/engine/engine.h"
#include "server/store/candidates.h"

#define BLOCK          256u /* values tested before looking at the outcome */
#define ROW_NAME_BYTES 64u

/* ---- finite ----
 * An exponent of all ones, and nothing else, carries into the top bit when its lowest bit is added.
 */

static bool has_bad32(const uint32_t *bits, uint64_t n)
{
    uint32_t carry = 0;
    for (uint64_t i = 0; i < n; i++)
        carry |= (bits[i] & 0x7f800000u) + 0x00800000u;
    return carry >> 31;
}

static bool has_bad16(const uint16_t *bits, uint64_t n, uint16_t exponent, uint16_t lowest)
{
    uint16_t carry = 0;
    for (uint64_t i = 0; i < n; i++)
        carry = (uint16_t)(carry | ((bits[i] & exponent) + lowest));
    return carry >> 15;
}

static bool has_bad(const void *values, embd_dtype dtype, uint64_t at, uint64_t n)
{
    if (dtype == EMBD_DTYPE_F32)
        return has_bad32((const uint32_t *)values + at, n);
    if (dtype == EMBD_DTYPE_F16)
        return has_bad16((const uint16_t *)values + at, n, 0x7c00, 0x0400);
    return has_bad16((const uint16_t *)values + at, n, 0x7f80, 0x0080);
}

/* has_bad for BLOCK values: the compiler knows the count. */
static bool block_has_bad(const void *values, embd_dtype dtype, uint64_t at)
{
    if (dtype == EMBD_DTYPE_F32)
        return has_bad32((const uint32_t *)values + at, BLOCK);
    if (dtype == EMBD_DTYPE_F16)
        return has_bad16((const uint16_t *)values + at, BLOCK, 0x7c00, 0x0400);
    return has_bad16((const uint16_t *)values + at, BLOCK, 0x7f80, 0x0080);
}

uint64_t check_finite(const void *values, embd_dtype dtype, uint64_t n)
{
    uint64_t at = 0;
    while (n - at >= BLOCK && !block_has_bad(values, dtype, at))
        at += BLOCK;
    while (at < n && !has_bad(values, dtype, at, 1))
        at++;
    return at;
}

static double value_at(const void *values, embd_dtype dtype, uint64_t at)
{
    float value;
    embd__to_f32(&value, (const uint8_t *)values + at * embd__dtype_bytes(dtype), dtype, 1);
    return (double)value;
}

/* ---- parts ---- */

int check_is_known(const struct table *table, const struct part *part, uint32_t i,
                   struct embd__error *e)
{
    if (table != NULL)
        return EMBD_OK;
    return embd__error_set(e, EMBD_UNKNOWN_TABLE, "part %u table: no table has the id %u", i,
                           part->table);
}

/* Slots there exactly where rows belong to slots, offsets nowhere but where rows are combined, and
 * scores where rows have some. */
static int check_shape(const struct table *table, const struct part *part, uint32_t i,
                       struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    if (s->partition == EMBD_PARTITION_SLOT && part->slots == NULL && part->n_rows > 0)
        return embd__error_set(e, EMBD_INVALID,
                               "part %u slots: missing, table '%s' has the partition slot", i,
                               s->name);
    if (s->partition != EMBD_PARTITION_SLOT && part->slots != NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "part %u slots: given, but table '%s' has the partition %s", i,
                               s->name, embd_partition_name(s->partition));
    if (s->on_full != EMBD_ON_FULL_EVICT_SCORE && part->scores != NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "part %u scores: given, but table '%s' has on_full '%s', expected "
                               "'evict_score'",
                               i, s->name, embd_on_full_name(s->on_full));
    if (s->combiner == EMBD_COMBINER_CONCAT && part->offsets != NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "part %u offsets: given, but table '%s' has the combiner concat", i,
                               s->name);
    return EMBD_OK;
}

static uint16_t highest(const uint16_t *slots, uint64_t n)
{
    uint16_t high = 0;
    for (uint64_t i = 0; i < n; i++)
        high = slots[i] > high ? slots[i] : high;
    return high;
}

static int check_slots(const embd_schema *s, const uint16_t *slots, uint64_t n, const char *what,
                       struct embd__error *e)
{
    if (slots == NULL || n == 0 || highest(slots, n) < s->slots)
        return EMBD_OK;
    uint64_t at = 0;
    while (slots[at] < s->slots)
        at++;
    return embd__error_set(e, EMBD_INVALID, "%s slots[%llu]: %u, table '%s' has %u slots", what,
                           (unsigned long long)at, slots[at], s->name, s->slots);
}

/* Keys [from, to) of one row between low and high. */
static int check_range(const struct table *table, const uint64_t *keys, uint64_t from, uint64_t to,
                       uint64_t low, uint64_t high, const char *what, struct embd__error *e)
{
    for (uint64_t i = from; i < to; i++)
        if (keys[i] < low || keys[i] >= high)
            return embd__error_set(
                e, EMBD_INVALID,
                "%s keys[%llu]: %llu, slot_sizes of table '%s' allow %llu to below %llu here", what,
                (unsigned long long)i, (unsigned long long)keys[i], table->schema.s.name,
                (unsigned long long)low, (unsigned long long)high);
    return EMBD_OK;
}

/* With slot_sizes: keys below their sum; where the slot of a row is known, in that slot's range. */
static int check_keys(const struct table *table, uint32_t n_rows, uint32_t n_keys,
                      const uint64_t *keys, const uint32_t *offsets, const uint16_t *slots,
                      const char *what, struct embd__error *e)
{
    const uint64_t *starts = table->schema.slot_starts;
    if (starts == NULL)
        return EMBD_OK;
    if (slots == NULL)
        return check_range(table, keys, 0, n_keys, 0, starts[table->schema.s.slots], what, e);
    for (uint32_t r = 0; r < n_rows && e->status == EMBD_OK; r++)
        check_range(table, keys, offsets ? offsets[r] : r, offsets ? offsets[r + 1] : r + 1,
                    starts[slots[r]], starts[slots[r] + 1], what, e);
    return e->status;
}

int check_part_of(const struct table *table, const struct part *part, uint32_t i,
                  struct embd__error *e)
{
    char what[PART_NAME_BYTES];
    embd__part_name(what, i, "");
    if (check_is_known(table, part, i, e) != EMBD_OK || check_shape(table, part, i, e) != EMBD_OK)
        return e->status;
    if (check_slots(&table->schema.s, part->slots, part->n_rows, what, e) != EMBD_OK)
        return e->status;
    return check_keys(table, part->n_rows, part->n_keys, part->keys, part->offsets, part->slots,
                      what, e);
}

int check_part(const struct tables *tables, const struct part *part, uint32_t i,
               struct table **table_out, struct embd__error *e)
{
    struct table *table = tables_by_id(tables, part->table);
    if (check_part_of(table, part, i, e) == EMBD_OK)
        *table_out = table;
    return e->status;
}

int check_tables_differ(const struct op *op, struct embd__error *e)
{
    uint64_t look = op_look(op);
    for (uint32_t i = 0; i < op->n_parts; i++) {
        uint32_t first = tables_first(op->parts[i].table, look, i);
        if (first != i)
            return embd__error_set(e, EMBD_INVALID,
                                   "part %u table: '%s' is the table of part %u already", i,
                                   op->parts[i].table->schema.s.name, first);
    }
    return EMBD_OK;
}

/* ---- gradients ---- */

/* "key 7, row 3", or of a row without keys "row 3, which has no key". */
static void name_row(const struct part *part, uint32_t row, char text[ROW_NAME_BYTES])
{
    uint32_t k = part->offsets != NULL ? part->offsets[row] : row;
    if (part->offsets != NULL && part->offsets[row + 1] == k)
        snprintf(text, ROW_NAME_BYTES, "row %u, which has no key", row);
    else
        snprintf(text, ROW_NAME_BYTES, "key %llu, row %u", (unsigned long long)part->keys[k], row);
}

/* A row without keys has no effect, but its gradient must be a number too. */
static int name_bad(const struct table *table, const struct part *part, uint32_t i, uint64_t at,
                    struct embd__error *e)
{
    uint32_t dim = table->schema.s.dim, row = (uint32_t)(at / dim), column = (uint32_t)(at % dim);
    char name[ROW_NAME_BYTES];
    name_row(part, row, name);
    return embd__error_set(
        e, EMBD_NOT_FINITE,
        "part %u grads: %s, column %u is %g; table '%s' admits finite gradients only", i, name,
        column, value_at(part->grads, part->dtype, at), table->schema.s.name);
}

static int name_bad_scale(const struct part *part, uint32_t i, uint32_t row, float scale,
                          struct embd__error *e)
{
    char name[ROW_NAME_BYTES];
    bool is_finite = (embd__f32_bits(scale) & 0x7f800000u) != 0x7f800000u;
    name_row(part, row, name);
    return embd__error_set(e, is_finite ? EMBD_INVALID : EMBD_NOT_FINITE,
                           "part %u grads: %s: the scale is %g; %s needs a number from 0 to %g", i,
                           name, (double)scale, embd_dtype_name(part->dtype),
                           part->dtype == EMBD_DTYPE_I8 ? (double)EMBD__I8_SCALE_MAX
                                                        : (double)EMBD__I4_SCALE_MAX);
}

static int name_bad_pad(const struct part *part, uint32_t i, uint32_t row, uint32_t half,
                        struct embd__error *e)
{
    char name[ROW_NAME_BYTES];
    name_row(part, row, name);
    return embd__error_set(e, EMBD_INVALID,
                           "part %u grads: %s: the last half byte is %u, expected 0: the table's "
                           "dim is odd",
                           i, name, half);
}

/* Rows of i8 and i4: then all values are finite. */
static int check_packed(const struct part *part, uint32_t i, uint32_t dim, struct embd__error *e)
{
    const uint8_t *row = part->grads;
    for (uint32_t r = 0; r < part->n_rows; r++, row += embd__wire_row_bytes(part->dtype, dim)) {
        float scale = embd__packed_scale(row, part->dtype, dim);
        if (!embd__packed_scale_is_valid(scale, part->dtype))
            return name_bad_scale(part, i, r, scale, e);
        if (!embd__packed_pad_is_zero(row, part->dtype, dim))
            return name_bad_pad(part, i, r, row[dim / 2] >> 4, e);
    }
    return EMBD_OK;
}

int check_grads(const struct table *table, const struct part *part, uint32_t i, uint64_t first,
                struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    uint64_t n = (uint64_t)part->n_rows * s->dim; /* LIMIT_ROWS * EMBD_DIM_MAX is 2^34 */
    uint64_t expected = part->n_rows * embd__wire_row_bytes(part->dtype, s->dim);
    if (part->grads_bytes != expected)
        return embd__error_set(e, EMBD_MALFORMED,
                               "part %u grads: %llu bytes, expected %llu for %u rows of %u %s", i,
                               (unsigned long long)part->grads_bytes, (unsigned long long)expected,
                               part->n_rows, s->dim, embd_dtype_name(part->dtype));
    if (embd__is_packed(part->dtype))
        return check_packed(part, i, s->dim, e);
    if (s->admit_nonfinite)
        return EMBD_OK;
    const uint8_t *grads = (const uint8_t *)part->grads + first * embd__dtype_bytes(part->dtype);
    uint64_t at = first + check_finite(grads, part->dtype, n - first);
    return at == n ? EMBD_OK : name_bad(table, part, i, at, e);
}

/* ---- loads ---- */

static bool is_count(float value)
{
    return value >= 0.0f && value < 16777216.0f && value == (float)(uint32_t)value;
}

/* `at` counts floats of a row's state. */
static int check_count(const float *state, uint32_t row, uint32_t at, const char *what,
                       struct embd__error *e)
{
    if (is_count(state[at]))
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "states[%u][%u]: %g, which counts %s; allowed are whole numbers to "
                           "16777215",
                           row, at, (double)state[at], what);
}

static int check_step(const float *state, uint32_t row, uint32_t at, uint64_t limit,
                      const char *what, struct embd__error *e)
{
    if (check_count(state, row, at, what, e) != EMBD_OK ||
        check_count(state, row, at + 1, what, e) != EMBD_OK)
        return e->status;
    uint64_t step = embd__stamp_get(state + at);
    if (step <= limit)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "states[%u]: %s is %llu, the limit is %llu", row, what,
                           (unsigned long long)step, (unsigned long long)limit);
}

/* The count of evict_lfu, or the score of evict_score. */
static int check_last(const embd_schema *s, const float *state, uint32_t row, uint32_t at,
                      struct embd__error *e)
{
    if (s->on_full == EMBD_ON_FULL_EVICT_LFU)
        return check_count(state, row, at, "pushes", e);
    if (check_finite(state + at, EMBD_DTYPE_F32, 1) == 1)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "states[%u][%u]: %g, the row's score; expected a finite number", row, at,
                           (double)state[at]);
}

static int check_states_to(const struct table *table, const struct row_block *block, uint64_t limit,
                           uint64_t seconds, struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    uint32_t n = embd__schema_state_floats(s), n_use = embd__schema_use_floats(s),
             n_own = embd__schema_optimizer_floats(s);
    bool has_stamp = embd__schema_has_stamp(s), is_timed = embd__schema_is_timed(s);
    for (uint32_t i = 0; n > n_own && i < block->n_rows && e->status == EMBD_OK; i++) {
        const float *state = block->states + (size_t)i * n;
        if (has_stamp)
            check_step(state, i, n_own, limit, "the step of its last push", e);
        if (n_use > 0 && e->status == EMBD_OK)
            check_step(state, i, n - n_use, is_timed ? seconds : limit,
                       is_timed ? "the second of the last push" : "the step of the last push", e);
        if (n_use > EMBD_STAMP_FLOATS && e->status == EMBD_OK)
            check_last(s, state, i, n - 1, e);
    }
    return e->status;
}

int check_states(const struct table *table, const struct row_block *block, struct embd__error *e)
{
    return check_states_to(table, block, LIMIT_STEP, LIMIT_STEP, e);
}

static int check_counts(const struct table *table, const struct row_block *block,
                        struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    if (block->n_candidates > 0 && s->admit_after <= 1)
        return embd__error_set(
            e, EMBD_INVALID,
            "load candidates: %u, but table '%s' has no candidates (admit_after is 0 or 1)",
            block->n_candidates, s->name);
    for (uint32_t i = 0; i < block->n_candidates; i++)
        if (block->candidate_counts[i] == 0 || block->candidate_counts[i] > STORE_SIGHTS_MAX)
            return embd__error_set(e, EMBD_INVALID,
                                   "load candidate counts[%u]: %u, allowed are 1 to %u", i,
                                   block->candidate_counts[i], STORE_SIGHTS_MAX);
    return EMBD_OK;
}

static int check_gone(const struct row_block *block, struct embd__error *e)
{
    if (block->n_rows > 0)
        return embd__error_set(e, EMBD_INVALID, "load rows: %u with 'gone', expected 0",
                               block->n_rows);
    for (uint32_t i = 0; i < block->n_candidates; i++)
        if (block->candidate_counts[i] != 0)
            return embd__error_set(e, EMBD_INVALID,
                                   "load candidate counts[%u]: %u with 'gone', expected 0", i,
                                   block->candidate_counts[i]);
    return EMBD_OK;
}

int check_block(const struct table *table, const struct row_block *block, bool is_gone,
                const struct routed_place *place, struct embd__error *e)
{
    const struct {
        const char *what;
        uint32_t n;
        const uint64_t *keys;
        const uint16_t *slots;
    } lists[] = {
        {"load", block->n_rows, block->keys, block->slots},
        {"load candidate", block->n_candidates, block->candidate_keys, block->candidate_slots},
    };
    for (int l = 0; l < 2; l++) {
        struct store_keys in = {.n_keys = lists[l].n,
                                .n_rows = lists[l].n,
                                .keys = lists[l].keys,
                                .slots = lists[l].slots};
        if (check_slots(&table->schema.s, lists[l].slots, lists[l].n, lists[l].what, e) !=
                EMBD_OK ||
            check_keys(table, lists[l].n, lists[l].n, lists[l].keys, NULL, lists[l].slots,
                       lists[l].what, e) != EMBD_OK ||
            routed_check(table, &in, place, lists[l].what, e) != EMBD_OK)
            return e->status;
    }
    return is_gone ? check_gone(block, e) : check_counts(table, block, e);
}

/* ---- rows by key ---- */

int check_keyed(const struct table *table, const struct row_block *block, const char *what,
                const struct routed_place *place, struct embd__error *e)
{
    const struct store_keys in = {.n_keys = block->n_rows,
                                  .n_rows = block->n_rows,
                                  .keys = block->keys,
                                  .slots = block->slots};
    if (check_slots(&table->schema.s, block->slots, block->n_rows, what, e) != EMBD_OK ||
        check_keys(table, in.n_rows, in.n_keys, in.keys, NULL, in.slots, what, e) != EMBD_OK)
        return e->status;
    return routed_check(table, &in, place, what, e);
}

/* Values of rows first .. first + n_rows of a put. */
struct put_values {
    const char *what;
    const void *values; /* [n_rows][columns] of dtype */
    embd_dtype dtype;
    uint32_t columns, first, n_rows;
};

static int check_put_values(const struct table *table, const struct row_block *block,
                            const struct put_values *p, struct embd__error *e)
{
    uint64_t n = (uint64_t)p->n_rows * p->columns, at = check_finite(p->values, p->dtype, n);
    if (at == n)
        return EMBD_OK;
    uint32_t row = p->first + (uint32_t)(at / p->columns);
    return embd__error_set(e, EMBD_NOT_FINITE,
                           "put %s: key %llu, row %u, column %u is %g; table '%s' admits finite "
                           "numbers only",
                           p->what, (unsigned long long)block->keys[row], row,
                           (uint32_t)(at % p->columns), value_at(p->values, p->dtype, at),
                           table->schema.s.name);
}

/* Coded rows are checked as the values that they stand for. */
static int check_put_codes(const struct table *table, const struct row_block *block,
                           struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    size_t row_bytes = embd__value_bytes(s->dtype, s->dim);
    float values[EMBD_DIM_MAX];
    for (uint32_t i = 0; i < block->n_rows; i++) {
        const struct put_values row = {"rows", values, EMBD_DTYPE_F32, s->dim, i, 1};
        embd__row_to_f32(values, (const uint8_t *)block->rows + i * row_bytes, s->dtype, s->dim);
        if (check_put_values(table, block, &row, e) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

static int check_put_contents(const struct table *table, const struct row_block *block,
                              struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    const struct put_values rows = {"rows", block->rows, s->dtype, s->dim, 0, block->n_rows};
    if (embd__dtype_is_coded(s->dtype))
        return check_put_codes(table, block, e);
    return check_put_values(table, block, &rows, e);
}

int check_put_rows(const struct table *table, const struct row_block *block, uint64_t step,
                   uint64_t seconds, struct embd__error *e)
{
    const embd_schema *s = &table->schema.s;
    uint32_t n_floats = embd__schema_state_floats(s);
    if (!s->admit_nonfinite && check_put_contents(table, block, e) != EMBD_OK)
        return e->status;
    if (block->states == NULL)
        return EMBD_OK;
    const struct put_values states = {"states", block->states, EMBD_DTYPE_F32, n_floats,
                                      0,        block->n_rows};
    if (!s->admit_nonfinite && check_put_values(table, block, &states, e) != EMBD_OK)
        return e->status;
    return check_states_to(table, block, step, seconds, e);
}
