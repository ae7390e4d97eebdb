/* check_empty.h - whether a table may be filled from files: it must not exist, or be empty. */
#ifndef EMBD_FORMATS_CHECK_EMPTY_H
#define EMBD_FORMATS_CHECK_EMPTY_H

#include "client/core/request.h"

/* 1: no shard has a table of the schema's name; 0: the shards that have it have it empty and of
 * this definition. EMBD_EXISTS: a shard has rows or another definition; the client's error names
 * both and `source`, the directory to load. Negative: a shard failed. */
int embd__check_empty(embd_client *client, const embd_schema *schema, const char *source);

#endif
