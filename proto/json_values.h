/* json_values.h - strict reading of a manifest's JSON objects: a sticky error, and each member
 * typed, ranged and asked for, as struct fields does it for messages. And a schema as a JSON
 * object. */
#ifndef EMBD_PROTO_JSON_VALUES_H
#define EMBD_PROTO_JSON_VALUES_H

#include <jansson.h>

#include "proto/schema.h"

/* An object being read. */
struct members {
    const json_t *object;
    const char *what; /* "tables[3]"; must outlive this */
    size_t n_taken;   /* members that were present and asked for, each once */
    struct embd__error *error;
};

/* Sets the error where `object` is NULL or no object. */
void embd__members_open(struct members *m, const json_t *object, const char *what,
                        struct embd__error *e);
/* NULL: absent, an error where `required`; or an error is set already. */
const json_t *embd__member(struct members *m, const char *name, bool required);
/* An integer 0 or above, or its decimal digits as a string. Absent: an error. */
uint64_t embd__member_u64(struct members *m, const char *name, uint64_t max);
/* The same of a value already found, which `name` is for the error. */
uint64_t embd__json_to_u64(struct members *m, const char *name, const json_t *value, uint64_t max);
/* A number of 64 bits as embd__json_hex writes it. Absent: an error. */
uint64_t embd__member_hex(struct members *m, const char *name);
/* Copied and terminated; at least one byte. Absent: an error. */
void embd__member_str(struct members *m, const char *name, char *out, size_t out_bytes);
/* Absent: an error. Elements in *n_out. NULL with an error. */
const json_t *embd__member_array(struct members *m, const char *name, size_t max, size_t *n_out);
/* Error for a member that was not asked for. */
int embd__members_end(struct members *m);

/* A JSON integer where it fits, else a string of digits: JSON's own integers end at 2^63 - 1 here.
 */
json_t *embd__json_u64(uint64_t value);
/* A string of 16 hexadecimal digits, for identifiers and checksums. NULL: out of memory. */
json_t *embd__json_hex(uint64_t value);
/* False: `value` is not such a string; *out is not set. */
bool embd__json_to_hex(const json_t *value, uint64_t *out);

/* NULL: out of memory. */
json_t *embd__schema_to_json(const embd_schema *schema);
/* Checks everything; on error *out is zero. */
int embd__schema_from_json(const json_t *object, const char *what, struct table_schema *out,
                           struct embd__error *e);

#endif
