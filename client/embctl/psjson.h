/* psjson.h - the tables that a parameter server's configuration file of HugeCTR (HPS, ps.json)
 * names. */
#ifndef EMBCTL_PSJSON_H
#define EMBCTL_PSJSON_H

#include <stdbool.h>
#include <stddef.h>

#include "embd/embd.h"

struct ps_table {
    char name[EMBD_NAME_MAX + 1]; /* "MODEL-TABLE", in letters that a name of ours can have */
    char *folder;
    uint32_t dim;
    float default_value; /* of keys without a row */
};

struct ps_file {
    bool u32_keys;
    struct ps_table *tables;
    size_t n_tables;
    char **ignored; /* members that have no meaning here: "models[0].gpucache" */
    size_t n_ignored;
};

/* EMBD_IO, EMBD_CORRUPT (no JSON), EMBD_INVALID (a member is missing or does not fit the others):
 * `why` gets a sentence that names the member. ps_fini is due in any case. */
int ps_read(const char *path, struct ps_file *out, char *why, size_t why_bytes);
void ps_fini(struct ps_file *ps);

#endif
