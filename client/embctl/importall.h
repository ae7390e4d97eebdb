/* importall.h - several tables made and filled from files by one command: all of them, or none. */
#ifndef EMBCTL_IMPORTALL_H
#define EMBCTL_IMPORTALL_H

#include "client/embctl/jobfile.h"
#include "client/embctl/listing.h"
#include "client/embctl/settings.h"
#include "embd/admin.h"

/* One table on its way. */
struct import_table {
    struct settings all; /* the files' fields, then those of the command line */
    embd_schema schema;
    uint64_t slot_sizes[EMBD_SLOTS_MAX];
    const char *place, *state_file; /* of its files; NULL: none */
    uint32_t n_gpus;                /* that wrote them */
    bool is_new;                    /* import_all finds out */
};

struct import_all {
    embd_client *client;
    const char *path; /* what is imported */
    const struct job_file *file;
    bool is_empty; /* tables without rows: a table that is there is in the way */
    bool is_dry;   /* checks and tells, and changes nothing */
    /* Makes the file's tables known to `table`. Returns a status. */
    int (*prepare)(void *arg);
    struct import_table *(*table)(void *arg, size_t i);
    /* Checks the table's files, or imports them; the library's error says what is wrong. */
    int (*run)(void *arg, size_t i, bool checks, embd_dump_report *report, uint64_t *elapsed_us);
    void *arg;
    char *why; /* [why_bytes], gets a sentence on errors */
    size_t why_bytes;
};

/* Checks all tables, then imports them, one after the other, and prints them and what the file has
 * without a meaning here. After a failure those that this call made are dropped. Returns a status.
 */
int import_all(const struct import_all *a);

#endif
