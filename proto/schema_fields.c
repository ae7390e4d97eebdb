/* schema_fields.c - the table of schema fields, and the defaults. */
#include "proto/schema_fields.h"
#include "proto/assert.h"

#include <float.h>
#include <string.h>

#include "proto/limit.h"
#include "proto/names.h"
#include "proto/structs.h"

#define EVERY_KIND UINT32_MAX
#define BELOW_ONE  0x1.fffffep-1f /* the f32 before 1 */

/* clang-format off */
#define U32(field, min_, max_)                                                                     \
    {.name = #field, .full = #field, .type = SCHEMA_U32, .at = offsetof(embd_schema, field),       \
     .min = min_, .max = max_, .kinds = EVERY_KIND}
/* The same of one that may change. */
#define U32_LIVE(field, min_, max_)                                                                \
    {.name = #field, .full = #field, .type = SCHEMA_U32, .at = offsetof(embd_schema, field),       \
     .min = min_, .max = max_, .kinds = EVERY_KIND, .may_change = true}
#define U64(field, max_)                                                                           \
    {.name = #field, .full = #field, .type = SCHEMA_U64, .at = offsetof(embd_schema, field),       \
     .max = max_, .kinds = EVERY_KIND}
/* The same of one that may change. */
#define U64_LIVE(field, max_)                                                                      \
    {.name = #field, .full = #field, .type = SCHEMA_U64, .at = offsetof(embd_schema, field),       \
     .max = max_, .kinds = EVERY_KIND, .may_change = true}
#define BOOL(field)                                                                                \
    {.name = #field, .full = #field, .type = SCHEMA_BOOL, .at = offsetof(embd_schema, field),      \
     .kinds = EVERY_KIND, .may_change = true}
#define ENUM(name_, field, names_)                                                                 \
    {.name = name_, .full = #field, .type = SCHEMA_ENUM, .at = offsetof(embd_schema, field),       \
     .names = names_, .kinds = EVERY_KIND}
/* The same of one that may change. */
#define ENUM_LIVE(name_, field, names_)                                                            \
    {.name = name_, .full = #field, .type = SCHEMA_ENUM, .at = offsetof(embd_schema, field),       \
     .names = names_, .kinds = EVERY_KIND, .may_change = true}
#define F32(group, field, low_, high_, kinds_)                                                     \
    {.name = #field, .full = #group "." #field, .type = SCHEMA_F32,                                \
     .at = offsetof(embd_schema, group.field), .low = low_, .high = high_, .kinds = kinds_,        \
     .may_change = true}
/* Of embd_regularization: a later field of "optimizer". */
#define MORE(field, low_, high_, preset_, kinds_)                                                  \
    {.name = #field, .full = "optimizer." #field, .type = SCHEMA_F32,                              \
     .at = offsetof(embd_schema, regularization.field), .low = low_, .high = high_,                \
     .kinds = kinds_, .may_change = true, .is_later = true, .preset = preset_}
/* clang-format on */

#define KIND(kind) (1u << (kind))
#define MOMENTUMS  (KIND(EMBD_OPTIMIZER_MOMENTUM) | KIND(EMBD_OPTIMIZER_NESTEROV))
#define ADAGRADS   (KIND(EMBD_OPTIMIZER_ADAGRAD) | KIND(EMBD_OPTIMIZER_ROWWISE_ADAGRAD))
#define ADAMS                                                                                      \
    (KIND(EMBD_OPTIMIZER_ADAM) | KIND(EMBD_OPTIMIZER_AMSGRAD) |                                    \
     KIND(EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM) | KIND(EMBD_OPTIMIZER_LAMB))
#define DECAYS  (ADAMS | KIND(EMBD_OPTIMIZER_RMSPROP))
#define COUNTER KIND(EMBD_OPTIMIZER_COUNTER_ADAGRAD)

static const struct schema_field own_fields[] = {
    U32(dim, 1, EMBD_DIM_MAX),
    U32(slots, 1, EMBD_SLOTS_MAX),
    ENUM("partition", partition, embd__partition_names),
    ENUM("combiner", combiner, embd__combiner_names),
    ENUM("dtype", dtype, embd__dtype_names), /* check_dtype knows which a table may have */
    {.name = "rounding",
     .full = "rounding",
     .type = SCHEMA_ENUM,
     .at = offsetof(embd_schema, rounding),
     .names = embd__rounding_names,
     .kinds = EVERY_KIND,
     .is_later = true},
    U64(seed, UINT64_MAX),
    U64_LIVE(capacity, LIMIT_CAPACITY),
    ENUM_LIVE("on_full", on_full, embd__on_full_names),
    {.name = "ttl",
     .full = "ttl",
     .type = SCHEMA_U64,
     .at = offsetof(embd_schema, ttl),
     .max = UINT64_MAX,
     .kinds = KIND(EMBD_ON_FULL_EVICT_TTL),
     .may_change = true,
     .is_later = true},
    {.name = "ttl_seconds",
     .full = "ttl_seconds",
     .type = SCHEMA_U64,
     .at = offsetof(embd_schema, ttl_seconds),
     .max = UINT64_MAX,
     .kinds = KIND(EMBD_ON_FULL_EVICT_TTL),
     .may_change = true,
     .is_later = true},
    {.name = "lfu_half_life",
     .full = "lfu_half_life",
     .type = SCHEMA_U64,
     .at = offsetof(embd_schema, lfu_half_life),
     .max = UINT64_MAX,
     .kinds = KIND(EMBD_ON_FULL_EVICT_LFU),
     .may_change = true,
     .is_later = true},
    {.name = "lfu_occurrences",
     .full = "lfu_occurrences",
     .type = SCHEMA_BOOL,
     .at = offsetof(embd_schema, lfu_occurrences),
     .kinds = KIND(EMBD_ON_FULL_EVICT_LFU),
     .may_change = true,
     .is_later = true},
    U32_LIVE(admit_after, 0, UINT32_MAX),
    ENUM_LIVE("create_on", create_on, embd__create_on_names),
    BOOL(admit_nonfinite),
    ENUM_LIVE("durability", durability, embd__durability_names),
};

static const struct schema_field optimizer_fields[] = {
    ENUM("kind", optimizer.kind, embd__optimizer_names),
    ENUM("update", optimizer.update, embd__update_names),
    F32(optimizer, lr, -FLT_MAX, FLT_MAX, EVERY_KIND),
    F32(optimizer, scaler, -FLT_MAX, FLT_MAX, EVERY_KIND),
    F32(optimizer, momentum, 0, BELOW_ONE, MOMENTUMS),
    F32(optimizer, beta1, 0, BELOW_ONE, ADAMS),
    F32(optimizer, beta2, 0, BELOW_ONE, DECAYS),
    F32(optimizer, eps, 0, FLT_MAX, ADAGRADS | DECAYS | COUNTER | KIND(EMBD_OPTIMIZER_FTRL)),
    F32(optimizer, initial_accumulator, 0, FLT_MAX, ADAGRADS),
    F32(optimizer, beta, 0, FLT_MAX, KIND(EMBD_OPTIMIZER_FTRL)),
    F32(optimizer, l1, 0, FLT_MAX, KIND(EMBD_OPTIMIZER_FTRL)),
    F32(optimizer, l2, 0, FLT_MAX, KIND(EMBD_OPTIMIZER_FTRL)),
    MORE(clip_value, 0, FLT_MAX, 0, EVERY_KIND),
    MORE(clip_norm, 0, FLT_MAX, 0, EVERY_KIND),
    MORE(weight_decay, 0, FLT_MAX, 0, EVERY_KIND),
    {.name = "decay",
     .full = "optimizer.decay",
     .type = SCHEMA_ENUM,
     .at = offsetof(embd_schema, regularization.decay),
     .names = embd__decay_names,
     .kinds = EVERY_KIND,
     .is_later = true},
    MORE(max_norm, 0, FLT_MAX, 0, EVERY_KIND),
    MORE(weight_min, -FLT_MAX, FLT_MAX, -FLT_MAX, EVERY_KIND),
    MORE(weight_max, -FLT_MAX, FLT_MAX, FLT_MAX, EVERY_KIND),
    MORE(lr_decay, 0, FLT_MAX, 0, ADAGRADS),
    MORE(counter_halflife, 0, FLT_MAX, 0, COUNTER),
};

static const struct schema_field initializer_fields[] = {
    ENUM("kind", initializer.kind, embd__initializer_names),
    F32(initializer, a, -FLT_MAX, FLT_MAX,
        KIND(EMBD_INITIALIZER_UNIFORM) | KIND(EMBD_INITIALIZER_NORMAL) |
            KIND(EMBD_INITIALIZER_CONSTANT)),
    F32(initializer, b, -FLT_MAX, FLT_MAX,
        KIND(EMBD_INITIALIZER_UNIFORM) | KIND(EMBD_INITIALIZER_NORMAL)),
};

#define COUNT(array) (uint32_t)(sizeof(array) / sizeof(array)[0])

const struct schema_group embd__schema_groups[SCHEMA_GROUPS] = {
    {"", own_fields, COUNT(own_fields)},
    {"optimizer", optimizer_fields, COUNT(optimizer_fields)},
    {"initializer", initializer_fields, COUNT(initializer_fields)},
};

/* ---- values ---- */

/* Enums are read and written as the 32 bits they are. */
_Static_assert(sizeof(embd_partition) == 4 && sizeof(embd_optimizer_kind) == 4,
               "an enum has 32 bits");

uint64_t embd__schema_get(const embd_schema *schema, const struct schema_field *field)
{
    const char *at = (const char *)schema + field->at;
    uint64_t u64;
    uint32_t u32;
    bool flag;
    switch (field->type) {
    case SCHEMA_U64:
        memcpy(&u64, at, sizeof u64);
        return u64;
    case SCHEMA_BOOL:
        memcpy(&flag, at, sizeof flag);
        return flag;
    case SCHEMA_U32:
    case SCHEMA_ENUM:
    case SCHEMA_F32:
        break;
    }
    EMBD_ASSERT(field->type != SCHEMA_F32);
    memcpy(&u32, at, sizeof u32);
    return u32;
}

void embd__schema_put(embd_schema *schema, const struct schema_field *field, uint64_t value)
{
    char *at = (char *)schema + field->at;
    uint32_t u32 = (uint32_t)value;
    bool flag = value != 0;
    EMBD_ASSERT(field->type != SCHEMA_F32);
    if (field->type == SCHEMA_U64)
        memcpy(at, &value, sizeof value);
    else if (field->type == SCHEMA_BOOL)
        memcpy(at, &flag, sizeof flag);
    else
        memcpy(at, &u32, sizeof u32);
}

float embd__schema_get_f32(const embd_schema *schema, const struct schema_field *field)
{
    float value;
    memcpy(&value, (const char *)schema + field->at, sizeof value);
    return value;
}

void embd__schema_put_f32(embd_schema *schema, const struct schema_field *field, float value)
{
    memcpy((char *)schema + field->at, &value, sizeof value);
}

bool embd__schema_applies(const struct schema_group *group, const struct schema_field *field,
                          const embd_schema *schema)
{
    if (field->kinds == EVERY_KIND)
        return true;
    uint64_t kind = group->fields == own_fields ? (uint64_t)schema->on_full
                                                : embd__schema_get(schema, &group->fields[0]);
    return kind < 32 && (field->kinds >> kind & 1);
}

static bool is_preset(const struct schema_field *field, const embd_schema *schema)
{
    return field->type == SCHEMA_F32 ? embd__schema_get_f32(schema, field) == field->preset
                                     : embd__schema_get(schema, field) == 0;
}

bool embd__schema_is_written(const struct schema_group *group, const struct schema_field *field,
                             const embd_schema *schema)
{
    return embd__schema_applies(group, field, schema) &&
           !(field->is_later && is_preset(field, schema));
}

/* ---- defaults ---- */

void embd_optimizer_init(embd_optimizer *optimizer, embd_optimizer_kind kind, float lr)
{
    *optimizer = (embd_optimizer){
        .kind = kind,
        .update = EMBD_UPDATE_LOCAL,
        .lr = lr,
        .scaler = 1.0f,
        .momentum = 0.9f,
        .beta1 = 0.9f,
        .beta2 = kind == EMBD_OPTIMIZER_RMSPROP ? 0.9f : 0.999f,
        .eps = kind == EMBD_OPTIMIZER_FTRL ? FLT_EPSILON : 1e-7f,
    };
}

static const embd_regularization no_regularization = {.weight_min = -FLT_MAX,
                                                      .weight_max = FLT_MAX};

static embd_initializer initializer_default(embd_initializer_kind kind)
{
    switch (kind) {
    case EMBD_INITIALIZER_UNIFORM:
        return (embd_initializer){kind, -0.05f, 0.05f};
    case EMBD_INITIALIZER_NORMAL:
        return (embd_initializer){kind, 0.0f, 0.05f};
    case EMBD_INITIALIZER_UNIFORM_SLOT:
    case EMBD_INITIALIZER_CONSTANT:
        break;
    }
    return (embd_initializer){kind, 0.0f, 0.0f};
}

static void set_defaults(embd_schema *schema)
{
    memset(schema, 0, sizeof *schema);
    schema->struct_bytes = sizeof *schema;
    schema->slots = 1;
    schema->partition = EMBD_PARTITION_HASH;
    schema->combiner = EMBD_COMBINER_SUM;
    schema->dtype = EMBD_DTYPE_F32;
    embd_optimizer_init(&schema->optimizer, EMBD_OPTIMIZER_SGD, 0.01f);
    schema->initializer = initializer_default(EMBD_INITIALIZER_UNIFORM);
    schema->regularization = no_regularization;
    schema->on_full = EMBD_ON_FULL_GROW;
    schema->create_on = EMBD_CREATE_ON_PUSH;
    schema->durability = EMBD_DURABILITY_AUTO;
}

void embd_schema_init_sized(embd_schema *schema, uint32_t struct_bytes)
{
    embd_schema own;
    set_defaults(&own);
    embd__struct_give(schema, struct_bytes, &own, sizeof own);
}

int embd__schema_take(embd_schema *own, const embd_schema *given, struct embd__error *e)
{
    set_defaults(own);
    return embd__take(embd_schema, own, given, e);
}

void embd__schema_reset_group(embd_schema *schema, const struct schema_group *group)
{
    if (group->fields == optimizer_fields) {
        embd_optimizer_init(&schema->optimizer, schema->optimizer.kind, schema->optimizer.lr);
        schema->regularization = no_regularization;
    } else if (group->fields == initializer_fields)
        schema->initializer = initializer_default(schema->initializer.kind);
}
