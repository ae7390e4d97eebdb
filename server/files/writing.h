/* writing.h - a thread that writes the parts of a shard, one table after the other, from blocks of
 * rows that another thread hands over. */
#ifndef EMBD_FILES_WRITING_H
#define EMBD_FILES_WRITING_H

#include "server/files/part.h"

#define WRITING_BLOCKS 2u

/* Rows on their way to a file. */
struct writing_block {
    struct row_block rows;    /* the arrays stay as they are until the block is empty again */
    bool is_last;             /* of its table */
    struct embd__error error; /* not EMBD_OK: there are no rows, and writing ends with this */
};

/* A small file that goes along with the parts. */
struct writing_file {
    const char *name;
    const void *bytes; /* [n] */
    uint64_t n;
};

struct writing_config {
    int dir;
    struct writing_file file;
    uint32_t shard, n_tables;
    const embd_schema *const *schemas; /* [n_tables] */
    void (*wake)(void *arg);           /* a block is empty, or all is written; from the thread */
    void *wake_arg;
};

struct writing;

/* `config` and what it points to outlive the writing. EMBD_NO_MEMORY. */
int writing_start(const struct writing_config *config, struct writing **out, struct embd__error *e);

/* An empty block, to be filled and handed over, in the order of tables; NULL: none now. */
struct writing_block *writing_empty(struct writing *writing, uint32_t *number_out);
void writing_hand_over(struct writing *writing);

bool writing_has_ended(struct writing *writing);
/* Asks it to end early; call writing_end nevertheless. */
void writing_stop(struct writing *writing);
/* Waits for the end, frees, and copies what was written, [n_tables]. EMBD_OK or e->status. */
int writing_end(struct writing *writing, struct manifest_part *parts_out, struct embd__error *e);

#endif
