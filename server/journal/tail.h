/* tail.h - reads the files of a journal that is in use, for followers: records from a position on,
 * or those of the base.
 *
 * Nothing is locked: the journal goes on meanwhile, and a base may remove what was to be read. So
 * the caller says up to which position records are whole, and hears where they are gone. A thread
 * of its own (server/files/errand.h) makes these calls, since they wait for the disk. */
#ifndef EMBD_JOURNAL_TAIL_H
#define EMBD_JOURNAL_TAIL_H

#include "proto/errors.h"
#include "server/journal/record.h"

struct recent;

#define TAIL_SKIPS_MOST 64u /* records of one piece that were withdrawn */

/* A place between two records of a journal: how many are before it, and the checksum of the last,
 * which is chained to all of them. */
struct tail_place {
    uint64_t position, chain;
    uint64_t offset; /* bytes of the record at `position` that are before it, too */
};

struct tail_ask {
    int data_dir;
    uint32_t shard;
    uint64_t until;         /* records before this position are whole, and have been applied */
    struct tail_place from; /* the first byte that is wanted */
    /* Where that is, or may be: number of the segment, 0: not known, or of the base, 0: from the
     * beginning of the last one; and offset in that file. */
    uint64_t file, at;
    uint64_t most;         /* bytes */
    struct recent *recent; /* of the journal, which outlives the call; NULL: its files are read */
};

/* Owner: who asked. */
struct tail_piece {
    uint8_t
        *bytes; /* [n] of memory for ask.most: records as they stand in the file, without what is
                       between them; the first may begin, and the last may end, in the middle */
    uint64_t n;
    uint64_t skips[TAIL_SKIPS_MOST]; /* positions of records that were withdrawn: not applied */
    uint32_t n_skips;
    struct tail_place to;     /* behind the bytes */
    uint64_t file, at;        /* as of the ask, behind the bytes */
    uint64_t left;            /* bytes behind that, about; of a base, 0: that was all */
    struct tail_place behind; /* of a base: where the records go on behind it */
    char gone[160]; /* what was asked for is not there any more, or never was: why; "": it is */
};

/* Into piece->bytes. EMBD_IO, EMBD_NO_MEMORY, EMBD_CORRUPT. */
int tail_records(const struct tail_ask *ask, struct tail_piece *piece, struct embd__error *e);
/* The records of a base have positions and a chain of their own. */
int tail_base(const struct tail_ask *ask, struct tail_piece *piece, struct embd__error *e);

/* Position of the last base, 0: there is none. */
int tail_base_position(int data_dir, uint32_t shard, uint64_t *position_out, struct embd__error *e);

/* Whether the shard has a journal; also where that is not known. */
bool tail_has_files(int data_dir, uint32_t shard);

/* Removes all files of the shard's journal: what it had is no longer wanted. EMBD_IO. */
int tail_remove(int data_dir, uint32_t shard, struct embd__error *e);

#endif
