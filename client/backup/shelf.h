/* shelf.h - the files of records that lie in a place (segment.h). */
#ifndef EMBD_BACKUP_SHELF_H
#define EMBD_BACKUP_SHELF_H

#include "client/backup/record.h"
#include "client/backup/segment.h"

struct shelf_file {
    char name[PLACE_NAME_BYTES];
    struct segment_name says;
};

struct shelf {
    struct place *place;
    struct shelf_file *files; /* [n], by shard, then by time */
    uint32_t n;
};

/* EMBD_IO, EMBD_NO_MEMORY: *out is empty then. */
int shelf_read(struct place *place, struct shelf *out, struct embd__error *e);
void shelf_fini(struct shelf *shelf);

/* One of them, read and checked: *bytes_out is malloc'd, and what `out` points into. EMBD_CORRUPT
 * names the file. */
int shelf_open(const struct shelf *shelf, const struct shelf_file *file, struct segment *out,
               uint8_t **bytes_out, struct embd__error *e);

/* Where the journal of each shard was at the cut of a backup: places[record->n_shards], which
 * `SHARD.writers` says. EMBD_CORRUPT: one lacks, or is not right. */
int shelf_cut(struct place *place, const struct record *record, struct records_place *places,
              struct embd__error *e);

#endif
