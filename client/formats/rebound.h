/* rebound.h - the bound of a table that is loaded on another number of shards. */
#ifndef EMBD_FORMATS_REBOUND_H
#define EMBD_FORMATS_REBOUND_H

#include "client/formats/load.h"

/* Notes that the load makes this table, and gives it room for all rows that the directory's bound
 * allows, where it is of another number of shards. Nothing for a table without a bound. */
void embd__rebound_begin(const struct load *l, struct definition *d);
/* The table is loaded: its capacity becomes its share of the directory's bound, or the rows of the
 * fullest shard if these are more. Counts as set: the table is created again with any capacity. */
int embd__rebound_end(struct load *l, const struct definition *d);

#endif
