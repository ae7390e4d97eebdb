/* jobs.h - embctl import --job: all tables of a HugeCTR job. */
#ifndef EMBCTL_JOBS_H
#define EMBCTL_JOBS_H

#include "client/embctl/settings.h"
#include "embd/hugectr.h"

struct job_arguments {
    const char *file, *prefix, *model; /* prefix and model may be NULL: from the file's name */
    uint64_t iteration;
    bool has_iteration, has_gpus, has_step;
    bool is_empty;    /* tables without rows */
    bool skips_state; /* rows without their optimizer state */
    bool is_dry;      /* check and tell, change nothing */
    embd_hugectr_options options;
    struct settings settings; /* of all tables, after what the file says */
};

/* Returns an exit code. */
int jobs_import(const struct job_arguments *a);

/* One folder into one table, with its progress on a terminal. */
int jobs_import_folder(embd_client *client, const embd_schema *schema, const char *folder,
                       const embd_hugectr_options *options, embd_dump_report *report,
                       uint64_t *elapsed_us);

#endif
