/* safe_open.h - opening files of the data directory by their names. */
#ifndef EMBD_FILES_SAFE_OPEN_H
#define EMBD_FILES_SAFE_OPEN_H

/* Opens, or with O_CREAT makes, a regular file, or with O_DIRECTORY a directory, right below `dir`:
 * no link leads to it, and a fifo that has its name is not waited for. `flags` as openat has them,
 * `mode` 0 without O_CREAT. A descriptor, or -1 and errno; EINVAL: it is not a regular file. */
int safe_open(int dir, const char *name, int flags, unsigned mode);

#endif
