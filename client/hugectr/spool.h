/* spool.h - records of one size, taken in the order they come and given back in any: in a file
 * without a name, so that nothing is left of it whatever happens, which is mapped in the end. */
#ifndef EMBD_SPOOL_H
#define EMBD_SPOOL_H

#include "proto/errors.h"

struct spool {
    size_t record_bytes;
    uint64_t n;
    const char *folder; /* where the file is; the caller's */
    int fd;             /* where chunk is not NULL */
    uint8_t *chunk;     /* on its way to the file */
    size_t fill;        /* of it */
    const uint8_t *map; /* [n][record_bytes], once mapped */
};

/* Zero is a spool that was not opened. All return EMBD_OK, EMBD_IO or EMBD_NO_MEMORY. */
int embd__spool_open(struct spool *spool, const char *folder, size_t record_bytes,
                     struct embd__error *e);
int embd__spool_add(struct spool *spool, const void *record, struct embd__error *e);
/* No more are added. */
int embd__spool_map(struct spool *spool, struct embd__error *e);
void embd__spool_fini(struct spool *spool);

static inline const void *embd__spool_record(const struct spool *spool, uint64_t i)
{
    return spool->map + i * spool->record_bytes;
}

/* Asking for a record ahead of time hides most of the way to memory. */
void embd__spool_prefetch(const struct spool *spool, uint64_t i);

#endif
