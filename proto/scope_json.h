/* scope_json.h - the members `job` and `scope` of a manifest. */
#ifndef EMBD_PROTO_SCOPE_JSON_H
#define EMBD_PROTO_SCOPE_JSON_H

#include "proto/json_values.h"
#include "proto/scope.h"

/* Adds those that the scope needs. 0, or negative: out of memory. */
int embd__scope_to_json(const struct table_scope *scope, json_t *manifest);
/* Absent: all tables, of no job. The error is the members'. */
void embd__scope_from_json(struct members *m, struct table_scope *out);

#endif
