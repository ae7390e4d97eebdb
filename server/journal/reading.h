/* reading.h - what the files that read a journal at start share: where to begin (beginning.c),
 * what comes then (recover.c), and the next record (next_record.c). */
#ifndef EMBD_JOURNAL_READING_H
#define EMBD_JOURNAL_READING_H

#include "server/journal/journal.h"
#include "server/journal/readfile.h"

struct journal_reading {
    struct journal_config config;
    struct journal_end end;
    struct embd__error *e; /* of the call that is being made */
    char name[64];
    struct readfile file;     /* the segment or base being read */
    struct record_key key;    /* of that file */
    uint64_t at, next;        /* next: where another record may begin, if there is none at `at` */
    uint64_t base_bytes;      /* of the segment: before them nothing can be torn */
    uint64_t least, greatest; /* numbers of segments there are, or are behind a base; 0: none */
    uint64_t first;           /* that is read */
    uint64_t bases[2];        /* least and greatest number of a base's file; 0: none */
    bool reads_base;          /* that comes next */
    bool is_in_base;          /* the file being read is one, */
    uint64_t position, chain; /* behind which the records go on from these */
    uint64_t from;            /* position of the first record after the base */
    bool has_later;           /* what follows was written when this was on disk */
    uint64_t reached;         /* records that were on disk: fewer are damage */
    uint64_t done_bytes, total_bytes;
    struct withdrawn withdrawn;
    bool is_over;
};

int reading_failed(struct journal_reading *r);
/* EMBD_CORRUPT; or where damage is accepted, nothing of the file and of those behind it is read any
 * more. */
int reading_damaged(struct journal_reading *r, uint64_t offset, const char *what);
int reading_open_file(struct journal_reading *r);
void reading_close_file(struct journal_reading *r);
/* NULL with r->e set: they cannot be read. */
uint8_t *reading_bytes(struct journal_reading *r, uint64_t at, uint64_t n);
/* A whole record's bytes; NULL: there is none, or with r->e set. */
uint8_t *reading_record(struct journal_reading *r, uint64_t at, struct record *out);

/* The next record of the segment; false: none follows, and r->has_later says whether what was
 * written later does; or with r->e set. */
bool next_record(struct journal_reading *r, uint8_t **bytes_out, struct record *out);

/* ---- beginning ---- */

int beginning_find(struct journal_reading *r);
/* Removes files before the beginning, and incomplete bases. */
int beginning_drop_others(struct journal_reading *r);

#endif
