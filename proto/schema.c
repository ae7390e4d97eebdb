/* schema.c - the questions both sides ask of a schema: is it sound, are two the same, how much
 * optimizer state has a row. And copies that own their slot_sizes.
 *
 * A check goes from the plain to the particular: each field's own range, then what this version
 * does not do, then what fields say about each other. */
#include "proto/schema.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/dtype.h"
#include "proto/names.h"
#include "proto/reading.h"
#include "proto/schema_fields.h"

/* ---- checking ---- */

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
}

static int check_name(const char name[EMBD_NAME_MAX + 1], struct embd__error *e)
{
    size_t bytes = strnlen(name, EMBD_NAME_MAX + 1), valid = 0;
    while (valid < bytes && is_name_byte(name[valid]))
        valid++;
    bool starts_well = valid > 0 && name[0] != '_' && name[0] != '-';
    if (bytes <= EMBD_NAME_MAX && valid == bytes && starts_well)
        return EMBD_OK;
    char shown[SHOWN_TEXT];
    embd__show_text(shown, name, bytes);
    return embd__error_set(
        e, EMBD_INVALID,
        "schema field 'name' is '%s', expected 1 to %u bytes of a-z, 0-9, '_' and '-', "
        "beginning with a letter or digit",
        shown, EMBD_NAME_MAX);
}

static int check_field(const embd_schema *schema, const struct schema_field *field,
                       struct embd__error *e)
{
    if (field->type == SCHEMA_F32) {
        float value = embd__schema_get_f32(schema, field);
        if (value >= field->low && value <= field->high)
            return EMBD_OK;
        return embd__error_set(e, EMBD_INVALID,
                               "schema field '%s' is %.9g, allowed are %.9g to %.9g", field->full,
                               (double)value, (double)field->low, (double)field->high);
    }
    uint64_t value = embd__schema_get(schema, field);
    uint64_t min = field->min, max = field->max;
    if (field->type == SCHEMA_ENUM)
        max = (uint64_t)embd__names_count(field->names) - 1;
    if (field->type == SCHEMA_BOOL || (value >= min && value <= max))
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "schema field '%s' is %llu, allowed are %llu to %llu",
                           field->full, (unsigned long long)value, (unsigned long long)min,
                           (unsigned long long)max);
}

static int check_ranges(const embd_schema *schema, struct embd__error *e)
{
    for (const struct schema_group *g = embd__schema_groups;
         g < embd__schema_groups + SCHEMA_GROUPS; g++)
        for (const struct schema_field *f = g->fields; f < g->fields + g->n_fields; f++)
            if (embd__schema_applies(g, f, schema) && check_field(schema, f, e) != EMBD_OK)
                return e->status;
    return EMBD_OK;
}

static int check_supported(const embd_schema *schema, struct embd__error *e)
{
    if (embd__durability_is_journaled(schema->durability) &&
        schema->create_on == EMBD_CREATE_ON_PULL)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "schema field 'durability' is '%s' and 'create_on' is 'pull': pulls "
                               "are not journaled",
                               embd_durability_name(schema->durability));
    if (schema->rounding == EMBD_ROUNDING_STOCHASTIC &&
        schema->optimizer.update == EMBD_UPDATE_GLOBAL)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "schema field 'rounding' is 'stochastic' and 'optimizer.update' is "
                               "'global'; use local, or lazy_global with adam");
    return EMBD_OK;
}

static int check_slot_sizes(const embd_schema *schema, struct embd__error *e)
{
    uint64_t sum = 0;
    for (uint32_t s = 0; s < schema->slots; s++) {
        uint64_t size = schema->slot_sizes[s];
        if (size == 0)
            return embd__error_set(e, EMBD_INVALID,
                                   "schema field 'slot_sizes[%u]' is 0, below the minimum of 1", s);
        if (__builtin_add_overflow(sum, size, &sum))
            return embd__error_set(
                e, EMBD_INVALID,
                "schema field 'slot_sizes[%u]' is %llu, which brings the sum over %llu", s,
                (unsigned long long)size, (unsigned long long)UINT64_MAX);
    }
    return EMBD_OK;
}

static int check_capacity(const embd_schema *schema, struct embd__error *e)
{
    if (embd__schema_use_floats(schema) == 0 || schema->capacity > 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "schema field 'capacity' is 0; on_full '%s' needs a capacity",
                           embd_on_full_name(schema->on_full));
}

static int check_ttl(const embd_schema *schema, struct embd__error *e)
{
    if (schema->on_full != EMBD_ON_FULL_EVICT_TTL || (schema->ttl > 0) != (schema->ttl_seconds > 0))
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "schema fields 'ttl' and 'ttl_seconds' are %llu and %llu; on_full "
                           "'evict_ttl' needs one of them, 1 or more, and the other 0",
                           (unsigned long long)schema->ttl,
                           (unsigned long long)schema->ttl_seconds);
}

static int check_optimizer(const embd_optimizer *o, struct embd__error *e)
{
    if (o->update == EMBD_UPDATE_LAZY_GLOBAL && o->kind != EMBD_OPTIMIZER_ADAM)
        return embd__error_set(
            e, EMBD_INVALID,
            "schema field 'optimizer.update' is 'lazy_global', which adam supports and %s does not",
            embd_optimizer_name(o->kind));
    if (o->scaler == 0.0f)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'optimizer.scaler' is 0; gradients are divided by it");
    if (o->kind == EMBD_OPTIMIZER_FTRL && o->lr == 0.0f)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'optimizer.lr' is 0; ftrl divides by it");
    return EMBD_OK;
}

static int check_dtype(const embd_schema *schema, struct embd__error *e)
{
    if (schema->dtype == EMBD_DTYPE_I4)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'dtype' is 'i4', which values have on the wire only; "
                               "expected f32, f16, bf16, i8 or e4m3");
    if (!embd__dtype_is_coded(schema->dtype) || schema->optimizer.update == EMBD_UPDATE_LOCAL)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "schema field 'optimizer.update' is '%s', which dtype %s does not "
                           "support; use 'local'",
                           embd_update_name(schema->optimizer.update),
                           embd_dtype_name(schema->dtype));
}

static int check_rounding(const embd_schema *schema, struct embd__error *e)
{
    if (schema->rounding == EMBD_ROUNDING_NEAREST || schema->dtype != EMBD_DTYPE_F32)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_INVALID, "schema field 'rounding' is '%s', which needs dtype f16, bf16, i8 or e4m3",
        embd_rounding_name(schema->rounding));
}

/* A step of weight decay must not turn a row around. lr of a push may be another one. */
static int check_decay(const embd_schema *schema, struct embd__error *e)
{
    const embd_regularization *r = &schema->regularization;
    float decay = schema->optimizer.lr * r->weight_decay;
    if (r->decay == EMBD_DECAY_DECOUPLED_GLOBAL && schema->optimizer.kind == EMBD_OPTIMIZER_LAMB)
        return embd__error_set(
            e, EMBD_INVALID,
            "schema field 'optimizer.decay' is 'decoupled_global', which lamb does "
            "not support; use 'decoupled'");
    if (r->decay == EMBD_DECAY_DECOUPLED_GLOBAL &&
        schema->optimizer.kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'optimizer.decay' is 'decoupled_global', which "
                               "counter_adagrad does not support; use 'decoupled'");
    if (r->decay != EMBD_DECAY_L2 && schema->optimizer.kind == EMBD_OPTIMIZER_FTRL)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'optimizer.decay' is '%s', but ftrl computes each w "
                               "from its state; use 'l2'",
                               embd_decay_name(r->decay));
    if (r->weight_decay > 0.0f && r->decay != EMBD_DECAY_L2 && !(decay <= 1.0f && decay >= 0.0f))
        return embd__error_set(
            e, EMBD_INVALID,
            "schema field 'optimizer.weight_decay' is %.9g; times optimizer.lr it "
            "is %.9g, allowed are 0 to 1 with decay '%s'",
            (double)r->weight_decay, (double)decay, embd_decay_name(r->decay));
    return EMBD_OK;
}

static int check_regularization(const embd_schema *schema, struct embd__error *e)
{
    const embd_regularization *r = &schema->regularization;
    if (r->weight_min > r->weight_max)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'optimizer.weight_min' is %.9g, above "
                               "optimizer.weight_max, %.9g",
                               (double)r->weight_min, (double)r->weight_max);
    if (r->counter_halflife > 0.0f && r->counter_halflife < 1.0f &&
        schema->optimizer.kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD)
        return embd__error_set(
            e, EMBD_INVALID,
            "schema field 'optimizer.counter_halflife' is %.9g, allowed are 0 and "
            "1 to %.9g",
            (double)r->counter_halflife, (double)FLT_MAX);
    if (schema->optimizer.update != EMBD_UPDATE_LOCAL && embd__schema_is_wholerow(schema))
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'optimizer.update' is '%s', which %s, clipping, "
                               "weight decay, weight_min, "
                               "weight_max and max_norm do not support; use 'local'",
                               embd_update_name(schema->optimizer.update),
                               embd_optimizer_name(schema->optimizer.kind));
    return check_decay(schema, e);
}

static int check_initializer(const embd_schema *schema, struct embd__error *e)
{
    const embd_initializer *i = &schema->initializer;
    if (i->kind == EMBD_INITIALIZER_UNIFORM_SLOT && schema->slot_sizes == NULL)
        return embd__error_set(
            e, EMBD_INVALID,
            "schema field 'initializer.kind' is 'uniform_slot', which needs slot_sizes");
    if (i->kind == EMBD_INITIALIZER_UNIFORM && i->a > i->b)
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'initializer.a' is %.9g, above initializer.b, %.9g",
                               (double)i->a, (double)i->b);
    if (i->kind == EMBD_INITIALIZER_UNIFORM && !isfinite(i->b - i->a))
        return embd__error_set(e, EMBD_INVALID,
                               "schema field 'initializer.b' is %.9g, more than the largest f32 "
                               "above initializer.a, %.9g",
                               (double)i->b, (double)i->a);
    if (i->kind == EMBD_INITIALIZER_NORMAL && i->b < 0.0f)
        return embd__error_set(
            e, EMBD_INVALID,
            "schema field 'initializer.b', the standard deviation, is %.9g, below 0", (double)i->b);
    return EMBD_OK;
}

int embd__schema_check(const embd_schema *schema, struct embd__error *e)
{
    int status = check_name(schema->name, e);
    if (status == EMBD_OK)
        status = check_ranges(schema, e);
    if (status == EMBD_OK)
        status = check_supported(schema, e);
    if (status == EMBD_OK && schema->slot_sizes != NULL)
        status = check_slot_sizes(schema, e);
    if (status == EMBD_OK)
        status = check_capacity(schema, e);
    if (status == EMBD_OK)
        status = check_ttl(schema, e);
    if (status == EMBD_OK)
        status = check_optimizer(&schema->optimizer, e);
    if (status == EMBD_OK)
        status = check_dtype(schema, e);
    if (status == EMBD_OK)
        status = check_regularization(schema, e);
    if (status == EMBD_OK)
        status = check_initializer(schema, e);
    if (status == EMBD_OK)
        status = check_rounding(schema, e);
    return status;
}

/* ---- owning ---- */

int embd__schema_copy(struct table_schema *to, const embd_schema *from, struct embd__error *e)
{
    memset(to, 0, sizeof *to);
    if (from->slot_sizes != NULL) {
        uint64_t *sizes = malloc(from->slots * sizeof *sizes);
        uint64_t *starts = malloc((from->slots + 1ull) * sizeof *starts);
        if (sizes == NULL || starts == NULL) {
            free(sizes);
            free(starts);
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %u slot sizes", from->slots);
        }
        starts[0] = 0;
        for (uint32_t s = 0; s < from->slots; s++) {
            sizes[s] = from->slot_sizes[s];
            starts[s + 1] = starts[s] + sizes[s];
        }
        to->sizes = sizes;
        to->slot_starts = starts;
    }
    to->s = *from;
    to->s.slot_sizes = to->sizes;
    return EMBD_OK;
}

void embd__schema_fini(struct table_schema *schema)
{
    free(schema->sizes);
    free(schema->slot_starts);
    memset(schema, 0, sizeof *schema);
}

/* ---- what follows from a schema ---- */

uint32_t embd__schema_optimizer_floats(const embd_schema *schema)
{
    switch (schema->optimizer.kind) {
    case EMBD_OPTIMIZER_SGD:
        return 0;
    case EMBD_OPTIMIZER_ROWWISE_ADAGRAD:
        return 1;
    case EMBD_OPTIMIZER_MOMENTUM:
    case EMBD_OPTIMIZER_NESTEROV:
    case EMBD_OPTIMIZER_ADAGRAD:
    case EMBD_OPTIMIZER_RMSPROP:
        return schema->dim;
    case EMBD_OPTIMIZER_ADAM:
    case EMBD_OPTIMIZER_FTRL:
    case EMBD_OPTIMIZER_LAMB:
        break;
    case EMBD_OPTIMIZER_AMSGRAD:
        return 3 * schema->dim;
    case EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM:
        return schema->dim + 1;
    case EMBD_OPTIMIZER_COUNTER_ADAGRAD:
        return 2;
    }
    return 2 * schema->dim;
}

bool embd__schema_has_stamp(const embd_schema *schema)
{
    return schema->optimizer.update == EMBD_UPDATE_LAZY_GLOBAL ||
           schema->optimizer.kind == EMBD_OPTIMIZER_COUNTER_ADAGRAD ||
           schema->regularization.decay == EMBD_DECAY_DECOUPLED_GLOBAL;
}

uint32_t embd__schema_master_floats(const embd_schema *schema)
{
    return schema->rounding == EMBD_ROUNDING_MASTER ? schema->dim : 0;
}

uint32_t embd__schema_master_at(const embd_schema *schema)
{
    return embd__schema_optimizer_floats(schema) +
           (embd__schema_has_stamp(schema) ? EMBD_STAMP_FLOATS : 0);
}

bool embd__schema_is_wholerow(const embd_schema *schema)
{
    const embd_regularization *r = &schema->regularization;
    bool clips = r->clip_value > 0.0f || r->clip_norm > 0.0f || r->max_norm > 0.0f ||
                 r->weight_min > -FLT_MAX || r->weight_max < FLT_MAX;
    return clips || embd__dtype_is_coded(schema->dtype) || r->weight_decay > 0.0f ||
           r->decay == EMBD_DECAY_DECOUPLED_GLOBAL || schema->optimizer.kind > EMBD_OPTIMIZER_FTRL;
}

uint32_t embd__schema_use_floats(const embd_schema *schema)
{
    if (schema->on_full == EMBD_ON_FULL_GROW || schema->on_full == EMBD_ON_FULL_ERROR)
        return 0;
    return EMBD_STAMP_FLOATS + (schema->on_full == EMBD_ON_FULL_EVICT_LFU ||
                                schema->on_full == EMBD_ON_FULL_EVICT_SCORE);
}

uint64_t embd__schema_bound(const embd_schema *schema)
{
    bool is_bounded = schema->on_full != EMBD_ON_FULL_GROW && schema->capacity != 0;
    return is_bounded ? schema->capacity : UINT64_MAX;
}

/* A policy that keeps the same of each row. */
static embd_on_full use_like(embd_on_full on_full)
{
    if (on_full == EMBD_ON_FULL_ERROR)
        return EMBD_ON_FULL_GROW;
    return on_full == EMBD_ON_FULL_EVICT_TTL ? EMBD_ON_FULL_EVICT_LRU : on_full;
}

bool embd__schema_same_use(const embd_schema *a, const embd_schema *b)
{
    return use_like(a->on_full) == use_like(b->on_full) &&
           embd__schema_is_timed(a) == embd__schema_is_timed(b);
}

uint32_t embd__schema_state_floats(const embd_schema *schema)
{
    return embd__schema_master_at(schema) + embd__schema_master_floats(schema) +
           embd__schema_use_floats(schema);
}

uint32_t embd__schema_slot_of(const struct table_schema *schema, uint64_t key)
{
    const uint64_t *starts = schema->slot_starts;
    uint32_t low = 0,
             high =
                 schema->s.slots; /* starts[low] <= key, always; key < starts[high], if anywhere */
    if (key >= starts[high])
        return high;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (starts[middle] <= key)
            low = middle;
        else
            high = middle;
    }
    return low;
}
