/* record.h - backup.json, the last file of a backup: what it is, and each of its files with size
 * and checksum. Read strictly, since what it says decides what a restore does; sealed with a
 * checksum of its own text. */
#ifndef EMBD_BACKUP_RECORD_H
#define EMBD_BACKUP_RECORD_H

#include "client/backup/place.h"
#include "proto/partfile.h"

#define RECORD_FILE "backup.json"

struct record_file {
    char name[PLACE_NAME_BYTES]; /* below the backup: SHARD/FILE */
    uint64_t bytes, xxh3;
};

struct record {
    char name[SNAPSHOT_NAME_MAX + 1];
    char base[SNAPSHOT_NAME_MAX + 1]; /* "": it has all rows */
    uint64_t id, base_id;             /* of the cuts; base_id 0: none */
    uint64_t cluster;                 /* its number (snapshot_files.h); 0: not known */
    uint64_t time_s;                  /* when it was begun, since 1970 */
    uint64_t sequence;                /* of the cut */
    uint64_t rows;
    uint32_t n_shards;
    struct table_scope scope;
    struct record_file *files; /* [n_files], malloc'd */
    uint32_t n_files;
};

/* EMBD_NO_MEMORY. */
int record_add(struct record *r, const char *name, uint64_t bytes, uint64_t xxh3,
               struct embd__error *e);
uint64_t record_bytes(const struct record *r);

/* Sealed text, malloc'd; NULL: no memory. */
char *record_write(const struct record *r);
/* EMBD_CORRUPT, EMBD_UNSUPPORTED (a later format), EMBD_NO_MEMORY: *out is zero. */
int record_read(const char *text, size_t bytes, struct record *out, struct embd__error *e);
void record_fini(struct record *r);

/* NAME/FILE; false: too long. */
bool record_path(char out[PLACE_NAME_BYTES], const char *backup, const char *file);

#endif
