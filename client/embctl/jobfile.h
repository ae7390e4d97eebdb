/* jobfile.h - the tables of a HugeCTR job, as one of its two files describes them: a model's graph
 * (model.graph_to_json) or a parameter server's configuration (HPS, ps.json). */
#ifndef EMBCTL_JOBFILE_H
#define EMBCTL_JOBFILE_H

#include <stdbool.h>
#include <stddef.h>

#include "embd/embd.h"

#define JOB_SETTINGS_MAX 20

/* A field of a table's definition. */
struct job_setting {
    const char *field;
    char value[40];
};

struct job_table {
    char name[EMBD_NAME_MAX + 1]; /* "MODEL-TABLE", in letters that a name of ours can have */
    char *folder;                 /* its rows; NULL: PREFIX<I>_sparse_<N>.model, I its number */
    struct job_setting own[JOB_SETTINGS_MAX]; /* [n_own] */
    size_t n_own;
    /* Its bound in HugeCTR; 0 and NULL: the file does not say. */
    uint64_t workspace_mb, global_rows;
    uint64_t *slot_sizes; /* [n_slot_sizes] */
    size_t n_slot_sizes;
};

struct job_file {
    bool is_graph; /* else a ps.json */
    bool u32_keys;
    struct job_table *tables;
    size_t n_tables;
    char **ignored; /* members that have no meaning here: "models[0].gpucache" */
    size_t n_ignored;
};

/* `model` begins the names of a graph's tables. EMBD_IO, EMBD_CORRUPT (no JSON), EMBD_INVALID (a
 * member is missing or does not fit the others): `why` gets a sentence that names the member.
 * job_fini is due in any case. */
int job_read(const char *path, const char *model, struct job_file *out, char *why,
             size_t why_bytes);
void job_fini(struct job_file *job);

#endif
