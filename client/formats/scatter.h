/* scatter.h - rows from files to the shards that own them here, gathered into blocks on the way. */
#ifndef EMBD_FORMATS_SCATTER_H
#define EMBD_FORMATS_SCATTER_H

#include "client/formats/batch.h"
#include "client/core/request.h"

struct scatter_sending;

struct scatter {
    embd_client *client;
    const embd_schema *schema; /* the caller's */
    uint64_t staged;           /* the set of staged tables that it is in; 0: none */
    uint32_t n_shards;
    struct batch *batches; /* [n_shards] */
    bool has_gone;         /* they are of keys that lost their rows */
    /* Blocks on their way, in the order in which they were sent; of none each is waited for. */
    struct scatter_sending *window; /* [n_window] a ring */
    uint32_t n_window, first, n_sent;
};

/* `schema` must outlive the scatter. EMBD_NO_MEMORY. */
int embd__scatter_open(struct scatter *s, embd_client *client, const embd_schema *schema,
                       uint64_t staged);

/* From now on some blocks are on their way while the next ones are read: for rows whose keys come
 * once between two calls of embd__scatter_finish. It takes some blocks of memory. EMBD_NO_MEMORY.
 * */
int embd__scatter_widen(struct scatter *s);

/* Sends the rows and candidates of a block, or keeps copies to send later. The client's error names
 * the shard that refuses. */
int embd__scatter_block(struct scatter *s, const struct row_block *block);

/* The same, of a block all of whose arrays lie in `*bytes`: where it is sent as it is, the memory
 * is taken in place of a copy, and *bytes becomes other memory, or NULL. */
int embd__scatter_lent(struct scatter *s, const struct row_block *block, uint8_t **bytes,
                       uint64_t *capacity);

/* Sends what was kept, and waits for all that was sent. */
int embd__scatter_finish(struct scatter *s);

/* Frees, dropping what was kept. Zero is allowed. */
void embd__scatter_close(struct scatter *s);

#endif
