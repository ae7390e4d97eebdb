/* note.h - `follow.SHARD` in a data directory: whose records a shard's journal has, and which epoch
 * of them.
 *
 * A follower's journal has the positions of the one that it follows: a record there is a record
 * here. The file says where the records of both are the same by the other's chain; that is some
 * moments old, so a start asks for the last records again, and passes over those that it has. */
#ifndef EMBD_FOLLOW_NOTE_H
#define EMBD_FOLLOW_NOTE_H

#include <stdbool.h>

#include "proto/errors.h"

enum note_state {
    NOTE_NONE,     /* there is no file: the journal is this server's own, of epoch 1 */
    NOTE_BEGINS,   /* what there is of a journal is of no use: it begins with the other's base */
    NOTE_FOLLOWS,  /* the journal is the other's up to its end */
    NOTE_PROMOTED, /* it was, and goes on by itself, in this epoch */
    NOTE_DEPOSED,  /* it was this server's own, and another one was promoted in its place */
    NOTE_STATES,
};

struct note {
    enum note_state state;
    uint64_t epoch;
    uint64_t cut;             /* position of the base that it began with */
    uint64_t lineage;         /* number of the cluster that it all began with; 0: not known */
    uint64_t who;             /* the start that was promoted in this epoch; 0: not known */
    uint64_t position, chain; /* a place of the other's journal that this one has on disk */
};

/* NOTE_NONE without a file. EMBD_IO; EMBD_CORRUPT: it does not verify. */
int note_read(int data_dir, uint32_t shard, struct note *out, struct embd__error *e);
/* On disk when this returns EMBD_OK. EMBD_IO. */
int note_write(int data_dir, uint32_t shard, const struct note *note, struct embd__error *e);
/* A later place of the same, which may come to the disk later, or not. */
void note_move(int data_dir, uint32_t shard, const struct note *note);

#endif
