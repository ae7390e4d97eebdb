/* withdrawn.h - records that were refused, for want of memory, when their turn came: a list beside
 * a shard's journal, which a replay leaves out. So who was told that nothing was applied finds it
 * so after every start, also where there is memory then. */
#ifndef EMBD_WITHDRAWN_H
#define EMBD_WITHDRAWN_H

#include "server/journal/record.h"

#define WITHDRAWN_BYTES 48u /* of an entry */

/* Any thread may add, and drop. */
struct withdrawn {
    struct record_id *ids; /* [n], ascending */
    uint64_t n;
    uint64_t n_damaged,
        damaged_at; /* entries that are lost, of which the first begins at this byte */
    bool is_old;    /* written by an earlier version */
};

/* On disk when this returns EMBD_OK. EMBD_IO, EMBD_NO_MEMORY: it is not known whether the record is
 * withdrawn. */
int withdrawn_add(int data_dir, uint32_t shard, const struct record_id *id, struct embd__error *e);

/* None where there is no list. Damage is no error, but told. EMBD_IO, EMBD_NO_MEMORY. */
int withdrawn_read(int data_dir, uint32_t shard, struct withdrawn *out, struct embd__error *e);
bool withdrawn_meets(const struct withdrawn *list, const struct record_id *id);
/* Records before this position are gone: so are their entries, and what is damaged. Where that
 * fails, the list stays as it is, which does no harm. */
void withdrawn_drop_before(int data_dir, uint32_t shard, uint64_t position);
void withdrawn_fini(struct withdrawn *list);
void withdrawn_name(char out[64], uint32_t shard);

#endif
