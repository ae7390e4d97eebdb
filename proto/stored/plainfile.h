/* plainfile.h - files without a header or checksum of their own: there is their size to check, and
 * a checksum where somebody else keeps it. */
#ifndef EMBD_STORED_PLAINFILE_H
#define EMBD_STORED_PLAINFILE_H

#include "proto/errors.h"

/* `directory`/`name`, malloc'd; NULL: out of memory, and the error is set. */
char *embd__plain_path(const char *directory, const char *name, struct embd__error *e);

struct plain_file {
    int fd; /* -1: closed */
    char *path;
    uint64_t bytes; /* its size when it was opened */
};

/* Opens for reading. `directory` NULL: `name` is the whole path. A file that is missing or no
 * regular file is EMBD_CORRUPT; the error names it. On failure the file is closed. */
int embd__plain_open(struct plain_file *file, const char *directory, const char *name,
                     struct embd__error *e);

/* The bytes from `at` on. A file that has become shorter is EMBD_CORRUPT. */
int embd__plain_read(const struct plain_file *file, uint64_t at, void *to, uint64_t bytes,
                     struct embd__error *e);

/* A whole file, malloc'd, with a zero byte behind it; NULL: the error is set. One that has not
 * `bytes` and the checksum `xxh3`, both of the manifest, is EMBD_CORRUPT. */
uint8_t *embd__plain_load(const char *directory, const char *name, uint64_t bytes, uint64_t xxh3,
                          struct embd__error *e);

/* Closed already is allowed, zero is not. */
void embd__plain_close(struct plain_file *file);

#endif
