/* json_values.c - members of JSON objects, strictly. */
#include "proto/json_values.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "proto/reading.h"

static const char *type_name(const json_t *value)
{
    switch (json_typeof(value)) {
    case JSON_OBJECT:
        return "an object";
    case JSON_ARRAY:
        return "an array";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a real";
    case JSON_TRUE:
    case JSON_FALSE:
        return "a boolean";
    case JSON_NULL:
        break;
    }
    return "null";
}

void embd__members_open(struct members *m, const json_t *object, const char *what,
                        struct embd__error *e)
{
    *m = (struct members){.object = object, .what = what, .error = e};
    if (e->status == EMBD_OK && !json_is_object(object))
        embd__error_set(e, EMBD_CORRUPT, "%s is %s, expected an object", what,
                        object == NULL ? "missing" : type_name(object));
}

const json_t *embd__member(struct members *m, const char *name, bool required)
{
    if (m->error->status != EMBD_OK)
        return NULL;
    const json_t *value = json_object_get(m->object, name);
    m->n_taken += value != NULL;
    if (value == NULL && required)
        embd__error_set(m->error, EMBD_CORRUPT, "%s has no '%s', which is required", m->what, name);
    return value;
}

static void wrong_type(struct members *m, const char *name, const json_t *value,
                       const char *expected)
{
    embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is %s, expected %s", m->what, name,
                    type_name(value), expected);
}

static bool parse_digits(const char *text, uint64_t *value_out)
{
    uint64_t value = 0;
    if (text[0] == '\0')
        return false;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || __builtin_mul_overflow(value, 10u, &value) ||
            __builtin_add_overflow(value, (uint64_t)(*text - '0'), &value))
            return false;
    }
    *value_out = value;
    return true;
}

/* False: it is not such an integer. */
static bool to_u64(const json_t *value, uint64_t *out)
{
    if (json_is_string(value))
        return parse_digits(json_string_value(value), out);
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return false;
    *out = (uint64_t)json_integer_value(value);
    return true;
}

uint64_t embd__json_to_u64(struct members *m, const char *name, const json_t *value, uint64_t max)
{
    uint64_t number = 0;
    if (!to_u64(value, &number)) {
        embd__error_set(m->error, EMBD_CORRUPT,
                        "%s '%s' is %s that is not an unsigned 64-bit integer", m->what, name,
                        type_name(value));
        return 0;
    }
    if (number > max) {
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is %llu, the limit is %llu", m->what, name,
                        (unsigned long long)number, (unsigned long long)max);
        return 0;
    }
    return number;
}

uint64_t embd__member_u64(struct members *m, const char *name, uint64_t max)
{
    const json_t *value = embd__member(m, name, true);
    return value == NULL ? 0 : embd__json_to_u64(m, name, value, max);
}

void embd__member_str(struct members *m, const char *name, char *out, size_t out_bytes)
{
    out[0] = '\0';
    const json_t *value = embd__member(m, name, true);
    if (value == NULL)
        return;
    if (!json_is_string(value)) {
        wrong_type(m, name, value, "a string");
        return;
    }
    size_t bytes = json_string_length(value);
    if (bytes == 0 || bytes >= out_bytes) {
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' has %zu bytes, allowed are 1 to %zu",
                        m->what, name, bytes, out_bytes - 1);
        return;
    }
    strcpy(out, json_string_value(value)); /* the parser refuses zero bytes in strings */
}

bool embd__json_to_hex(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    bool is_hex = text != NULL && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16;
    if (is_hex)
        *out = strtoull(text, NULL, 16);
    return is_hex;
}

uint64_t embd__member_hex(struct members *m, const char *name)
{
    uint64_t number = 0;
    const json_t *value = embd__member(m, name, true);
    if (value != NULL && !embd__json_to_hex(value, &number))
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' is not a number of 16 hexadecimal digits",
                        m->what, name);
    return number;
}

const json_t *embd__member_array(struct members *m, const char *name, size_t max, size_t *n_out)
{
    *n_out = 0;
    const json_t *value = embd__member(m, name, true);
    if (value == NULL)
        return NULL;
    if (!json_is_array(value)) {
        wrong_type(m, name, value, "an array");
        return NULL;
    }
    if (json_array_size(value) > max) {
        embd__error_set(m->error, EMBD_CORRUPT, "%s '%s' has %zu elements, the limit is %zu",
                        m->what, name, json_array_size(value), max);
        return NULL;
    }
    *n_out = json_array_size(value);
    return value;
}

int embd__members_end(struct members *m)
{
    if (m->error->status == EMBD_OK && json_object_size(m->object) != m->n_taken)
        embd__error_set(m->error, EMBD_CORRUPT, "%s has %zu members, %zu of them unknown", m->what,
                        json_object_size(m->object), json_object_size(m->object) - m->n_taken);
    return m->error->status;
}

json_t *embd__json_u64(uint64_t value)
{
    if (value <= INT64_MAX)
        return json_integer((json_int_t)value);
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    return json_string(digits);
}

json_t *embd__json_hex(uint64_t value)
{
    char digits[17];
    snprintf(digits, sizeof digits, "%016" PRIx64, value);
    return json_string(digits);
}
