/* fields.c - maps read field by field, strictly: a field may be absent, but a field that is present
 * must have the right type, be in range, occur once, and be asked for before embd__fields_end.
 *
 * All functions do nothing once the reader has an error, and then return a value that is safe to go
 * on with: the smallest allowed number, an empty string, the first name of an enum. */
#include "proto/message.h"
#include "proto/part_check.h"
#include "proto/reading.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define MAP_FIELDS (64 * FIELDS_WORDS) /* bits of struct fields.seen */

static int fault(const struct fields *f, int status)
{
    return embd__reader_fault(f->reader, status);
}

static bool is_failed(const struct fields *f)
{
    return f->reader->error->status != EMBD_OK;
}

static bool has_name(const msgpack_object *key, const char *name, size_t bytes)
{
    return key->via.str.size == bytes && (bytes == 0 || key->via.str.ptr[0] == name[0]) &&
           memcmp(key->via.str.ptr, name, bytes) == 0;
}

/* ---- opening maps ---- */

/* Keys are strings and differ. */
static int check_keys(struct fields *f)
{
    for (uint32_t i = 0; i < f->map->size; i++) {
        const msgpack_object *key = &f->map->ptr[i].key;
        if (key->type != MSGPACK_OBJECT_STR)
            return embd__error_set(f->reader->error, fault(f, EMBD_MALFORMED),
                                   "%s has %s as a field name, expected a str", f->what,
                                   embd__type_name(key));
        for (uint32_t j = 0; j < i; j++)
            if (has_name(&f->map->ptr[j].key, key->via.str.ptr, key->via.str.size)) {
                char shown[SHOWN_TEXT];
                embd__show_text(shown, key->via.str.ptr, key->via.str.size);
                return embd__error_set(f->reader->error, fault(f, EMBD_MALFORMED),
                                       "%s has the field '%s' twice", f->what, shown);
            }
    }
    return EMBD_OK;
}

static void open_map(struct fields *f, struct reader *r, const msgpack_object *o, const char *what)
{
    *f = (struct fields){.reader = r, .what = what};
    if (o == NULL || r->error->status != EMBD_OK)
        return;
    if (o->type != MSGPACK_OBJECT_MAP) {
        embd__error_set(r->error, fault(f, EMBD_MALFORMED), "%s is %s, expected a map", what,
                        embd__type_name(o));
        return;
    }
    if (o->via.map.size > MAP_FIELDS) {
        embd__error_set(r->error, fault(f, EMBD_TOO_LARGE), "%s has %u fields, the limit is %u",
                        what, o->via.map.size, MAP_FIELDS);
        return;
    }
    f->map = &o->via.map;
    if (check_keys(f) != EMBD_OK)
        f->map = NULL;
}

void embd__read_fields(struct fields *f, struct reader *r, const char *what)
{
    bool has_map = r->n_items > 0 && r->items[0].type == MSGPACK_OBJECT_MAP;
    open_map(f, r, has_map ? &r->items[0] : NULL, what);
}

/* ---- finding fields ---- */

static const msgpack_object *find(const struct fields *f, const char *name, uint32_t *index_out)
{
    if (f->map == NULL)
        return NULL;
    size_t bytes = strlen(name);
    for (uint32_t i = 0; i < f->map->size; i++)
        if (has_name(&f->map->ptr[i].key, name, bytes)) {
            *index_out = i;
            return &f->map->ptr[i].val;
        }
    return NULL;
}

bool embd__field_has(const struct fields *f, const char *name)
{
    uint32_t index;
    return find(f, name, &index) != NULL;
}

/* The field's value, marked as asked for. NULL: absent, which is an error if it is required. */
static const msgpack_object *take(struct fields *f, const char *name, bool required)
{
    uint32_t index;
    if (is_failed(f))
        return NULL;
    const msgpack_object *value = find(f, name, &index);
    if (value != NULL)
        f->seen[index / 64] |= 1ull << index % 64;
    else if (required)
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s has no field '%s', which is required", f->what, name);
    return value;
}

static void wrong_type(struct fields *f, const char *name, const msgpack_object *value,
                       const char *expected)
{
    embd__error_set(f->reader->error, fault(f, EMBD_MALFORMED), "%s field '%s' is %s, expected %s",
                    f->what, name, embd__type_name(value), expected);
}

/* ---- values ---- */

uint64_t embd__field_uint(struct fields *f, const char *name, uint64_t min, uint64_t max,
                          uint64_t absent)
{
    const msgpack_object *value = take(f, name, absent == FIELD_REQUIRED);
    if (value == NULL)
        return is_failed(f) ? min : absent;
    if (value->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s field '%s' is %lld, below the minimum of %llu", f->what, name,
                        (long long)value->via.i64, (unsigned long long)min);
    else if (value->type != MSGPACK_OBJECT_POSITIVE_INTEGER)
        wrong_type(f, name, value, "an unsigned integer");
    else if (value->via.u64 < min)
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s field '%s' is %llu, below the minimum of %llu", f->what, name,
                        (unsigned long long)value->via.u64, (unsigned long long)min);
    else if (value->via.u64 > max)
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s field '%s' is %llu, the limit is %llu", f->what, name,
                        (unsigned long long)value->via.u64, (unsigned long long)max);
    else
        return value->via.u64;
    return min;
}

uint32_t embd__field_count(struct fields *f, const char *name, uint32_t limit, uint64_t absent)
{
    uint64_t count = embd__field_uint(f, name, 0, UINT64_MAX - 1, absent);
    if (count <= limit)
        return (uint32_t)count;
    embd__error_set(f->reader->error, fault(f, EMBD_TOO_LARGE),
                    "%s field '%s' is %llu, the limit is %u", f->what, name,
                    (unsigned long long)count, limit);
    return 0;
}

float embd__field_f32(struct fields *f, const char *name, float absent)
{
    const msgpack_object *value = take(f, name, false);
    if (value == NULL)
        return is_failed(f) ? 0.0f : absent;
    double number = NAN;
    if (value->type == MSGPACK_OBJECT_POSITIVE_INTEGER)
        number = (double)value->via.u64;
    else if (value->type == MSGPACK_OBJECT_NEGATIVE_INTEGER)
        number = (double)value->via.i64;
    else if (value->type == MSGPACK_OBJECT_FLOAT32 || value->type == MSGPACK_OBJECT_FLOAT64)
        number = value->via.f64;
    else
        wrong_type(f, name, value, "a number");
    if (isnan(number))
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID), "%s field '%s' is not a number",
                        f->what, name);
    else if (isfinite(number) && fabs(number) > (double)FLT_MAX)
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s field '%s' is %g, the limit is %g", f->what, name, number,
                        (double)FLT_MAX);
    return is_failed(f) ? 0.0f : (float)number;
}

float embd__field_lr(struct fields *f)
{
    float lr = embd__field_f32(f, "lr", 0.0f);
    if (embd__field_has(f, "lr") && !embd__is_lr(lr))
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s field 'lr' is %g, expected a finite number above 0", f->what,
                        (double)lr);
    return lr;
}

bool embd__field_bool(struct fields *f, const char *name, bool absent)
{
    const msgpack_object *value = take(f, name, false);
    if (value == NULL)
        return is_failed(f) ? false : absent;
    if (value->type == MSGPACK_OBJECT_BOOLEAN)
        return value->via.boolean;
    wrong_type(f, name, value, "a bool");
    return false;
}

void embd__field_str(struct fields *f, const char *name, char *out, size_t out_bytes,
                     const char *absent)
{
    out[0] = '\0';
    const msgpack_object *value = take(f, name, absent == NULL);
    if (value == NULL) {
        if (!is_failed(f))
            snprintf(out, out_bytes, "%s", absent);
        return;
    }
    if (value->type != MSGPACK_OBJECT_STR) {
        wrong_type(f, name, value, "a str");
        return;
    }
    const msgpack_object_str *str = &value->via.str;
    if (str->size >= out_bytes) {
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s field '%s' has %u bytes, the limit is %zu", f->what, name, str->size,
                        out_bytes - 1);
        return;
    }
    if (memchr(str->ptr, '\0', str->size) != NULL) {
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID), "%s field '%s' has a zero byte",
                        f->what, name);
        return;
    }
    memcpy(out, str->ptr, str->size);
    out[str->size] = '\0';
}

void embd__field_name(struct fields *f, const char *name, char *out, size_t out_bytes)
{
    embd__field_str(f, name, out, out_bytes, NULL);
    if (!is_failed(f) && out[0] == '\0')
        embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                        "%s field '%s' has 0 bytes, allowed are 1 to %zu", f->what, name,
                        out_bytes - 1);
}

int embd__field_enum(struct fields *f, const char *name, const char *const *names, int n,
                     int absent)
{
    const msgpack_object *value = take(f, name, absent < 0);
    if (value == NULL)
        return is_failed(f) ? 0 : absent;
    if (value->type != MSGPACK_OBJECT_STR) {
        wrong_type(f, name, value, "a str");
        return 0;
    }
    for (int i = 0; i < n; i++)
        if (has_name(value, names[i], strlen(names[i])))
            return i;
    char shown[SHOWN_TEXT], known[160] = "";
    for (int i = 0; i < n; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "",
                 names[i]);
    embd__show_text(shown, value->via.str.ptr, value->via.str.size);
    embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                    "%s field '%s' is '%s', expected one of %s", f->what, name, shown, known);
    return 0;
}

/* ---- nested ---- */

void embd__field_map(struct fields *f, const char *name, struct fields *out, const char *what)
{
    open_map(out, f->reader, take(f, name, false), what);
}

static uint32_t read_list(struct fields *f, const char *name, uint32_t max, bool required,
                          const msgpack_object **items_out)
{
    *items_out = NULL;
    const msgpack_object *value = take(f, name, required);
    if (value == NULL)
        return 0;
    if (value->type != MSGPACK_OBJECT_ARRAY) {
        wrong_type(f, name, value, "an array");
        return 0;
    }
    if (value->via.array.size > max) {
        embd__error_set(f->reader->error, fault(f, EMBD_TOO_LARGE),
                        "%s field '%s' has %u elements, the limit is %u", f->what, name,
                        value->via.array.size, max);
        return 0;
    }
    *items_out = value->via.array.ptr;
    return value->via.array.size;
}

uint32_t embd__field_list(struct fields *f, const char *name, uint32_t max,
                          const msgpack_object **items_out)
{
    return read_list(f, name, max, false, items_out);
}

uint32_t embd__field_list_required(struct fields *f, const char *name, uint32_t max,
                                   const msgpack_object **items_out)
{
    return read_list(f, name, max, true, items_out);
}

void embd__list_map(struct reader *r, const msgpack_object *item, struct fields *out,
                    const char *what)
{
    open_map(out, r, item, what);
}

/* ---- the end ---- */

int embd__fields_end(struct fields *f)
{
    if (is_failed(f) || f->map == NULL)
        return f->reader->error->status;
    for (uint32_t i = 0; i < f->map->size; i++)
        if (!(f->seen[i / 64] >> i % 64 & 1)) {
            char shown[SHOWN_TEXT];
            const msgpack_object_str *key = &f->map->ptr[i].key.via.str;
            embd__show_text(shown, key->ptr, key->size);
            return embd__error_set(f->reader->error, fault(f, EMBD_INVALID),
                                   "%s has the unknown field '%s'", f->what, shown);
        }
    return EMBD_OK;
}
