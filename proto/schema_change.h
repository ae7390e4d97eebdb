/* schema_change.h - fields of a table's definition that are set while the table lives: as text, as
 * fields of a message, and made. What may change is marked in schema_fields.c.
 *
 * A definition remembers which of its fields were set (embd_schema.changed). Creating the table
 * again does not compare these: a script that says lr 0.1 starts again beside a table whose lr was
 * set to 0.05. */
#ifndef EMBD_PROTO_SCHEMA_CHANGE_H
#define EMBD_PROTO_SCHEMA_CHANGE_H

#include "proto/schema_fields.h"
#include "proto/schema.h"

struct schema_change {
    embd_schema to; /* the values of the fields named */
    uint64_t named; /* bit n: the n-th field of all groups */
};

/* The bits of all fields that may change. */
uint64_t embd__schema_may_change(void);
/* A field's and, of an optimizer's or initializer's kind, its parameters'. 0: there is no such
 * field. */
uint64_t embd__schema_bits(const char *field);

/* Of no field. */
void embd__schema_change_init(struct schema_change *change);

/* One more field, as embd_schema_set takes it. EMBD_INVALID: it is unknown, named twice, no such
 * value; EMBD_UNSUPPORTED: it may not change. */
int embd__schema_change_add(struct schema_change *change, const char *field, const char *value,
                            struct embd__error *e);

/* A map of fields, as a schema's but for what is left out. Errors as above, EMBD_MALFORMED for a
 * wrong type, and EMBD_INVALID for a map without fields. */
void embd__schema_change_write(struct msg *m, const struct schema_change *change);
int embd__schema_change_read(struct fields *map, struct schema_change *out);

/* `schema` with the change made, into *out, which may be the same. EMBD_INVALID, EMBD_UNSUPPORTED:
 * the table has no such parameter, or cannot become that; *out is as it was. */
int embd__schema_change_make(const struct schema_change *change, const embd_schema *schema,
                             embd_schema *out, struct embd__error *e);
/* Copies the values of all fields that may change, and no others: another thread may read those. */
void embd__schema_take_changes(embd_schema *to, const embd_schema *from);
/* Whether it names one of the initializer's fields, or the capacity: rows may show otherwise. */
bool embd__schema_change_shows(const struct schema_change *change);

/* The durability that it names; NULL: none. */
const embd_durability *embd__schema_change_durability(const struct schema_change *change);

/* ---- what was set before ---- */

#define SCHEMA_CHANGED_BYTES 1024u
/* The names of embd_schema.changed, with commas between. False: there are none. */
bool embd__schema_changed_names(uint64_t changed, char out[SCHEMA_CHANGED_BYTES]);
/* The reverse. EMBD_INVALID: a name of no field that may change. */
int embd__schema_changed_read(const char *names, uint64_t *out, struct embd__error *e);

#endif
