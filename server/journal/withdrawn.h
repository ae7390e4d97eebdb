/* withdrawn.h - records that were refused, for want of memory, when their turn came: a list beside a shard's
 * journal, which a replay leaves out. So who was told that nothing was applied finds it so after every
 * start, also where there is memory then. */
#ifndef EMBD_WITHDRAWN_H
#define EMBD_WITHDRAWN_H

#include "record.h"

struct withdrawn {
    struct record_id *ids; /* [n], ascending */
    uint64_t n;
    uint64_t n_met; /* that withdrawn_meets found */
};

/* On disk when this returns EMBD_OK. EMBD_IO: it is not known whether the record is withdrawn. */
int withdrawn_add(int data_dir, uint32_t shard, const struct record_id *id, struct embd__error *e);

/* None where there is no list. EMBD_CORRUPT naming file and offset, EMBD_IO, EMBD_NO_MEMORY. */
int withdrawn_read(int data_dir, uint32_t shard, struct withdrawn *out, struct embd__error *e);
bool withdrawn_meets(struct withdrawn *list, const struct record_id *id);
/* After a journal was read to its end: a list of which none was met is of records that are gone, and goes. */
void withdrawn_drop_old(int data_dir, uint32_t shard, const struct withdrawn *list);
void withdrawn_fini(struct withdrawn *list);

#endif
