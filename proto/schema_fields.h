/* schema_fields.h - the fields of a schema as a table: name, type, place, range. Checking,
 * comparing, setting from text, messages and manifests all walk it, so that a field is described
 * once.
 *
 * Not in the table, since they are no plain values: name, and slot_sizes. */
#ifndef EMBD_PROTO_SCHEMA_FIELDS_H
#define EMBD_PROTO_SCHEMA_FIELDS_H

#include <stddef.h>

#include "embd/embd.h"
#include "proto/errors.h"

enum schema_type { SCHEMA_U32, SCHEMA_U64, SCHEMA_F32, SCHEMA_BOOL, SCHEMA_ENUM };

struct schema_field {
    const char *name; /* inside its group: "lr" */
    const char *full; /* "optimizer.lr" */
    enum schema_type type;
    size_t at;                /* offset in embd_schema */
    uint64_t min, max;        /* SCHEMA_U32, SCHEMA_U64 */
    float low, high;          /* SCHEMA_F32; both allowed */
    const char *const *names; /* SCHEMA_ENUM, ended by NULL */
    uint32_t kinds;           /* bit k: a parameter of the group's kind k; in the first group, of
                                 on_full k */
    bool may_change;          /* while the table lives: schema_change.h */
    bool is_later;            /* unknown to older versions: messages and files leave it out where
                                 it is its default: */
    float preset;             /* of SCHEMA_F32; 0 of others */
};

/* A map of fields. Except in the first group the first field is `kind`, which decides about the
 * others. */
struct schema_group {
    const char *name; /* "" for the schema itself, "optimizer", "initializer" */
    const struct schema_field *fields;
    uint32_t n_fields;
};

#define SCHEMA_GROUPS 3
extern const struct schema_group embd__schema_groups[SCHEMA_GROUPS];

/* By its full name; "optimizer" and "initializer" are their kinds. NULL: there is none. */
const struct schema_field *embd__schema_find(const char *name,
                                             const struct schema_group **group_out);
/* Sets it from text, whatever the schema's kind. EMBD_INVALID names it as `name`. */
int embd__schema_parse(embd_schema *schema, const struct schema_field *field, const char *name,
                       const char *text, struct embd__error *e);

/* Whether the schema's kind has this parameter. */
bool embd__schema_applies(const struct schema_group *group, const struct schema_field *field,
                          const embd_schema *schema);

/* The same, and it stands in messages and files. */
bool embd__schema_is_written(const struct schema_group *group, const struct schema_field *field,
                             const embd_schema *schema);

/* Reading and setting a value of any type but SCHEMA_F32; SCHEMA_BOOL is 0 or 1. */
uint64_t embd__schema_get(const embd_schema *schema, const struct schema_field *field);
void embd__schema_put(embd_schema *schema, const struct schema_field *field, uint64_t value);
float embd__schema_get_f32(const embd_schema *schema, const struct schema_field *field);
void embd__schema_put_f32(embd_schema *schema, const struct schema_field *field, float value);

/* After `kind` of a group was set: its parameters take the kind's defaults. lr stays. */
void embd__schema_reset_group(embd_schema *schema, const struct schema_group *group);

/* A caller's schema, whatever its struct_bytes, over the defaults. EMBD_INVALID: see structs.h. */
int embd__schema_take(embd_schema *own, const embd_schema *given, struct embd__error *e);

#endif
