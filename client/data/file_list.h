/* file_list.h - the list of the files of a norm data set: their count, then a path a line. */
#ifndef EMBD_DATA_FILE_LIST_H
#define EMBD_DATA_FILE_LIST_H

#include "proto/errors.h"
#include "embd/data.h"

/* Zero is an empty list. */
struct file_list {
    char **paths; /* [room] */
    uint64_t n, room;
};

/* Adds the files of a list, with paths that can be opened. EMBD_IO: cannot be read; EMBD_CORRUPT:
 * the line that is wrong; EMBD_INVALID: `base` does not decide; EMBD_NO_MEMORY. */
int embd__file_list_read(struct file_list *list, const char *path, embd_data_paths base,
                         struct embd__error *e);

/* Adds a copy of `path`. EMBD_NO_MEMORY. */
int embd__file_list_add(struct file_list *list, const char *path, struct embd__error *e);

/* Keeps files f with f % n_workers == worker. */
void embd__file_list_keep(struct file_list *list, uint32_t worker, uint32_t n_workers);

void embd__file_list_free(struct file_list *list);

#endif
