/* readfile.h - a file of a journal as it is read at start, a window of it at a time. It is read and
 * not mapped: a disk that cannot read then says so, instead of ending the process by a signal. */
#ifndef EMBD_READFILE_H
#define EMBD_READFILE_H

#include <stdint.h>

/* fd -1: none is open. */
struct readfile {
    int fd;
    uint64_t n; /* bytes of the file when it was opened */
    /* Its bytes from `begin` to `end` are in memory[at ..]. */
    uint8_t *memory;
    uint64_t capacity, at, begin, end;
    uint64_t ahead; /* offset from which more is requested */
};

/* 0 or errno; EWOULDBLOCK: another process uses it. After an error too it is closed with
 * readfile_close. */
int readfile_open(struct readfile *file, int dir, const char *name);
/* The same of a file that another process or thread may use, which is not changed. */
int readfile_look(struct readfile *file, int dir, const char *name);
/* Its n bytes from `begin` on, which is not before that of the call before; they stay, and may be
 * changed, until the next call. NULL with errno: EIO also where the file became shorter; ENOMEM. */
uint8_t *readfile_bytes(struct readfile *file, uint64_t begin, uint64_t n);
void readfile_close(struct readfile *file);

#endif
