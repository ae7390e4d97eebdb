/* foreignfiles.h - the tables of a folder of another system, by its files' names and sizes. */
#ifndef EMBCTL_FOREIGNFILES_H
#define EMBCTL_FOREIGNFILES_H

#include "client/embctl/foreign.h"
#include "client/embctl/jobreading.h"

#define FOREIGN_SLOTS_MAX 6

/* A part of the optimizer's state, as its system calls it. */
struct foreign_slot {
    const char *name;            /* "m"; "": all of the state in one file */
    const char **values, **keys; /* [n_files] paths; keys NULL: rows are the table's */
    embd_dtype dtype;
    uint32_t width; /* of a row; 0: dim */
};

struct foreign_table {
    const char *name; /* there */
    uint32_t n_files;
    const char **keys, **values, **scores; /* [n_files] paths; scores NULL: none */
    uint32_t head_bytes;
    embd_arrays_key key;
    embd_dtype dtype;
    uint64_t n_rows;
    uint32_t dim; /* 0: no row says it */
    struct foreign_slot slots[FOREIGN_SLOTS_MAX];
    size_t n_slots;
    bool has_score_kind; /* it is known what scores say */
    embd_arrays_score score;
    uint64_t score_now;
    uint64_t step;
    bool has_lr; /* the files say the learning rate */
};

/* A folder that is read. Table i is job.tables[i], with its name and fields here, and tables[i]. */
struct foreign_folder {
    const struct foreign_arguments *a;
    struct job_reading r; /* faults, what is ignored */
    struct job_file job;
    struct foreign_table *tables;
    char **names; /* [n_names] of the files, sorted */
    size_t n_names;
    void **memory; /* [n_memory] strings and lists, freed with the folder */
    size_t n_memory;
    int status; /* EMBD_OK, or why reading failed: the sentence is in r.why */
};

/* Reads the folder by its format. foreign_folder_fini is due in any case. */
int foreign_folder_read(struct foreign_folder *f, const struct foreign_arguments *a, char *why,
                        size_t why_bytes);
void foreign_folder_fini(struct foreign_folder *f);

/* ---- for the readers of the formats; after a failure f->status is set, and NULL returned ---- */

/* Fills in the names. */
void foreign_list(struct foreign_folder *f);
/* Memory of the folder's. */
void *foreign_memory(struct foreign_folder *f, size_t bytes);
char *foreign_text(struct foreign_folder *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* FOLDER/NAME. */
char *foreign_path(struct foreign_folder *f, const char *name);
bool foreign_has(const struct foreign_folder *f, const char *name);
/* Fails where `name` (NULL: a failure before) is missing beside the file `other`. */
void foreign_beside(struct foreign_folder *f, const char *name, const char *other);
/* A list of one path. */
const char **foreign_one(struct foreign_folder *f, const char *name);

/* Sets the status and the sentence, which begins with the folder's path. Returns the status. */
int foreign_fail(struct foreign_folder *f, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Names what is not read. */
void foreign_ignore(struct foreign_folder *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Whether the table of this name is wanted. */
bool foreign_wants(const struct foreign_folder *f, const char *name);
/* A new last table. */
struct foreign_table *foreign_add(struct foreign_folder *f, const char *name);
/* Adds a field to its definition. */
#define foreign_set(f, t, ...) job_set(&(f)->job.tables[(t) - (f)->tables], __VA_ARGS__)

/* Of a regular file; false: it is missing, or none. */
bool foreign_size(struct foreign_folder *f, const char *path, uint64_t *bytes_out);
/* Finds n_rows and dim by the sizes of the files of keys and values. */
void foreign_measure(struct foreign_folder *f, struct foreign_table *t);
/* Floats of a row of the slot's files. */
uint32_t foreign_width(struct foreign_folder *f, const struct foreign_table *t,
                       const struct foreign_slot *slot);

/* Whether `name` is STEM followed by `end`; STEM is copied to the folder's memory. */
char *foreign_stem(struct foreign_folder *f, const char *name, const char *end);

void foreign_read_sok(struct foreign_folder *f);
void foreign_read_tfra(struct foreign_folder *f);
void foreign_read_hkv(struct foreign_folder *f);
void foreign_read_dynamicemb(struct foreign_folder *f);

#endif
