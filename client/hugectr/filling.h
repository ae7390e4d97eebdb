/* filling.h - what imports share after their files are open: passes over the blocks, and the table
 * that is made of them. */
#ifndef EMBD_HUGECTR_FILLING_H
#define EMBD_HUGECTR_FILLING_H

#include "client/hugectr/blocks.h"
#include "embd/admin.h"
#include "proto/stored/ticker.h"

struct filling {
    embd_client *client;
    struct embd__error *e; /* the client's */
    const embd_schema *schema;
    const char *path;          /* where rows come from, for errors */
    const char *keys_path;     /* the file or files of keys */
    uint64_t step;             /* that the table has in the end */
    uint32_t key_bytes;        /* of a row in the files, without its values */
    struct blocks blocks;      /* source and n_rows are set before embd__filling_open */
    struct table_fill *target; /* while rows are sent */
    struct ticker ticker;
};

/* Opens the blocks; embd__filling_close is owed in any case. */
int embd__filling_open(struct filling *f);
void embd__filling_close(struct filling *f);

/* Reads the keys of every block, with `has_values` also the rest, and hands it to `take`, from the
 * first row on. */
int embd__filling_check(struct filling *f, bool has_values,
                        int (*take)(struct filling *f, const struct block *block, void *arg),
                        void *arg, embd_progress *progress, void *progress_arg);

/* Creates the table, sends all rows, and sets its step. A key that is there twice is EMBD_CORRUPT.
 * After a failure the table is dropped again where this call created it. `check_only`: looks only
 * whether a table is in the way. */
int embd__filling_run(struct filling *f, bool check_only, embd_progress *progress, void *arg);

#endif
