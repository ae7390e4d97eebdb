/* check.h - what a peer sends, against the schema it is meant for. All functions return EMBD_OK, or
 * a negative status with `e` naming part, field, position, value and limit. */
#ifndef EMBD_ENGINE_CHECK_H
#define EMBD_ENGINE_CHECK_H

#include "server/engine/op.h"
#include "server/engine/routed.h"
#include "server/engine/tables.h"

/* EMBD_UNKNOWN_TABLE: `table`, the part's, is NULL. */
int check_is_known(const struct table *table, const struct part *part, uint32_t i,
                   struct embd__error *e);

/* Table (NULL: unknown), slots, offsets and keys of part `i`. */
int check_part_of(const struct table *table, const struct part *part, uint32_t i,
                  struct embd__error *e);
/* The same, of the table that the part names. */
int check_part(const struct tables *tables, const struct part *part, uint32_t i,
               struct table **table_out, struct embd__error *e);

/* Two parts of a push for one table would be two steps in one operation, which no refusal could
 * take back. */
int check_tables_differ(const struct op *op, struct embd__error *e);

/* Length of the gradients, and that all from number `first` on are finite unless the table admits
 * others. */
int check_grads(const struct table *table, const struct part *part, uint32_t i, uint64_t first,
                struct embd__error *e);

/* The steps and counts in a load's states (EMBD_STAMP_FLOATS, embd__schema_use_floats): whole
 * numbers in range. */
int check_states(const struct table *table, const struct row_block *block, struct embd__error *e);

/* Rows and candidates of a load: slots, keys in range, keys of this shard, counts. `is_gone`: keys
 * to forget, as candidates with count 0. */
int check_block(const struct table *table, const struct row_block *block, bool is_gone,
                const struct routed_place *place, struct embd__error *e);

/* Keys of a get or put: slots, keys in range, keys of this shard. `what`: "get" or "put". */
int check_keyed(const struct table *table, const struct row_block *block, const char *what,
                const struct routed_place *place, struct embd__error *e);
/* Values and states of a put: numbers that are finite, unless the table admits others; steps and
 * seconds in the states up to the table's, and counts that are whole. */
int check_put_rows(const struct table *table, const struct row_block *block, uint64_t step,
                   uint64_t seconds, struct embd__error *e);

/* The index of the first of n values that is NaN or infinite; n when there is none. */
uint64_t check_finite(const void *values, embd_dtype dtype, uint64_t n);

#endif
