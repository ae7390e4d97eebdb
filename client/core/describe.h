/* describe.h - a table as a shard describes it. */
#ifndef EMBD_CORE_DESCRIBE_H
#define EMBD_CORE_DESCRIBE_H

#include "proto/message.h"
#include "proto/schema.h"

/* The answer to table_describe, of that table. After an error there is nothing to free. */
int embd__description_read(struct reader *r, const char *name, struct table_schema *out,
                           uint32_t *id_out);

#endif
