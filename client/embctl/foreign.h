/* foreign.h - embctl import --format: all tables of a folder that another system wrote. */
#ifndef EMBCTL_FOREIGN_H
#define EMBCTL_FOREIGN_H

#include "client/embctl/settings.h"
#include "embd/arrays.h"

enum foreign_format {
    FOREIGN_NONE, /* HugeCTR's model folders, which models.c imports */
    FOREIGN_SOK,
    FOREIGN_TFRA,
    FOREIGN_HKV,
    FOREIGN_DYNAMICEMB,
};

struct foreign_arguments {
    const char *folder;
    enum foreign_format format;
    const char *only;  /* the table of this name there alone; NULL: all */
    const char *table; /* what it is called here; NULL: as there */
    embd_arrays_key key;
    embd_dtype dtype; /* of values, where no file says it */
    bool counts;      /* hkv: scores are counts */
    bool skips_state, is_dry;
    uint64_t step;
    bool has_step;
    struct settings settings; /* of all tables, after what the files say */
};

/* FOREIGN_NONE: no such format. */
enum foreign_format foreign_format_of(const char *name);

/* The format whose file names are in a folder; FOREIGN_NONE: none, or more than one. */
enum foreign_format foreign_detect(const char *folder);

/* Returns an exit code. */
int foreign_import(const struct foreign_arguments *a);

#endif
