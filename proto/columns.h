/* columns.h - many parts in few bins: a record of each part, and of each kind of array one bin with
 * the arrays of all parts. The map of such a message has "columns", the number of parts. */
#ifndef EMBD_PROTO_COLUMNS_H
#define EMBD_PROTO_COLUMNS_H

#include "proto/message.h"

void embd__columns_write_bins(struct msg *m, const struct part_list *list, enum parts_kind kind);
/* Reads and checks as embd__parts_read does. */
void embd__columns_read_bins(struct reader *r, struct part *parts, uint32_t n,
                             enum parts_kind kind);

#endif
