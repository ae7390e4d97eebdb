/* withdrawn.h - records that were refused for lack of memory when their turn came: a list beside a
 * shard's journal, which a replay leaves out. So a caller that got "not applied" finds it so after
 * every start, even with more memory. */
#ifndef EMBD_WITHDRAWN_H
#define EMBD_WITHDRAWN_H

#include "server/journal/record.h"

#define WITHDRAWN_BYTES 48u /* of an entry */

/* Any thread may add, and drop. */
struct withdrawn {
    struct record_id *ids; /* [n], ascending */
    uint64_t n;
    uint64_t n_damaged, damaged_at; /* lost entries; the first begins at this byte */
    bool is_old;                    /* written by an earlier version */
};

/* On disk when this returns EMBD_OK. EMBD_IO, EMBD_NO_MEMORY: it is not known whether the record is
 * withdrawn. */
int withdrawn_add(int data_dir, uint32_t shard, const struct record_id *id, struct embd__error *e);

/* Empty without a list. Damage is not an error, but is logged. EMBD_IO, EMBD_NO_MEMORY. */
int withdrawn_read(int data_dir, uint32_t shard, struct withdrawn *out, struct embd__error *e);
bool withdrawn_meets(const struct withdrawn *list, const struct record_id *id);
/* Removes the entries of records before this position, and damaged ones. If that fails, the list
 * stays unchanged, which does no harm. */
void withdrawn_drop_before(int data_dir, uint32_t shard, uint64_t position);
void withdrawn_fini(struct withdrawn *list);
void withdrawn_name(char out[64], uint32_t shard);

#endif
