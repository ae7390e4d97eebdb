/* jobreading.h - what the readers of both job files share: faults, members, names. */
#ifndef EMBCTL_JOBREADING_H
#define EMBCTL_JOBREADING_H

#include <jansson.h>

#include "client/embctl/jobfile.h"

struct job_reading {
    struct job_file *job;
    const char *path, *model;
    char *why;
    size_t why_bytes;
};

/* Writes the file's name and a sentence to `why`. Returns `status`. */
int job_fail(const struct job_reading *r, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The file's content. NULL: *status, and the sentence. */
json_t *job_load(const struct job_reading *r, int *status_out);

/* Names what is ignored. EMBD_NO_MEMORY. */
int job_ignore(struct job_reading *r, const char *prefix, const char *what);

/* Names the members of an object that are not among `known`, which ends with NULL. */
int job_ignore_others(struct job_reading *r, const char *prefix, json_t *object,
                      const char *const *known);

/* A new last table of that name, in our letters, after MODEL- where the model is not empty; not
 * counted before n_tables is. NULL: *status. */
struct job_table *job_add(struct job_reading *r, const char *model, const char *name, int *status);

/* Adds a field to the table's definition. */
void job_set(struct job_table *table, const char *field, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The tables of each kind of file. */
int job_read_ps(struct job_reading *r, json_t *root);
int job_read_graph(struct job_reading *r, json_t *root);

#endif
