/* readfile.c - see readfile.h.
 *
 * The window moves within the same memory, so that its pages are touched once: when the end has no
 * room, the rest moves to the front. A read asks for little more than needed, so the bytes are
 * still in a cache when they are replayed; the next ones are read from the disk meanwhile. */
#include "server/journal/readfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/files/safe_open.h"

#define CHUNK_BYTES  (256u << 10)
#define MEMORY_BYTES (4u << 20) /* grows to the longest record */
#define AHEAD_BYTES  (32u << 20)

int readfile_open(struct readfile *file, int dir, const char *name)
{
    struct stat st;
    *file = (struct readfile){.fd = safe_open(dir, name, O_RDWR, 0)};
    if (file->fd < 0 || fstat(file->fd, &st) != 0 || flock(file->fd, LOCK_EX | LOCK_NB) != 0)
        return errno;
    file->n = (uint64_t)st.st_size;
    return 0;
}

int readfile_look(struct readfile *file, int dir, const char *name)
{
    struct stat st;
    *file = (struct readfile){.fd = safe_open(dir, name, O_RDONLY, 0)};
    if (file->fd < 0 || fstat(file->fd, &st) != 0)
        return errno;
    file->n = (uint64_t)st.st_size;
    return 0;
}

/* 0 or errno. The window begins at the front, and there is room for n bytes. */
static int make_room(struct readfile *file, uint64_t n)
{
    uint64_t left = file->end - file->begin;
    if (n > file->capacity) {
        uint64_t capacity = n > MEMORY_BYTES ? n : MEMORY_BYTES;
        uint8_t *memory = malloc(capacity);
        if (memory == NULL)
            return ENOMEM;
        if (left > 0)
            memcpy(memory, file->memory + file->at, left);
        free(file->memory);
        file->memory = memory;
        file->capacity = capacity;
    } else if (left > 0) {
        memmove(file->memory, file->memory + file->at, left);
    }
    file->at = 0;
    return 0;
}

static void ask_ahead(struct readfile *file)
{
    if (file->end < file->ahead)
        return;
    posix_fadvise(file->fd, (off_t)file->end, AHEAD_BYTES, POSIX_FADV_WILLNEED);
    file->ahead = file->end + AHEAD_BYTES / 2;
}

/* 0 or errno. `n`: how much the window may hold. */
static int read_more(struct readfile *file, uint64_t n)
{
    uint64_t there = file->end - file->begin, most = n - there;
    ssize_t got = pread(file->fd, file->memory + file->at + there, most, (off_t)file->end);
    if (got <= 0)
        return got == 0 ? EIO : errno == EINTR ? 0 : errno;
    file->end += (uint64_t)got;
    ask_ahead(file);
    return 0;
}

/* Forgets what is before `begin`. */
static void move_to(struct readfile *file, uint64_t begin)
{
    file->at = begin < file->end ? file->at + (begin - file->begin) : 0;
    file->begin = begin;
    if (file->end < begin)
        file->end = begin;
}

uint8_t *readfile_bytes(struct readfile *file, uint64_t begin, uint64_t n)
{
    uint64_t most = n + CHUNK_BYTES < file->n - begin ? n + CHUNK_BYTES : file->n - begin;
    int error = n > file->n - begin ? EIO : 0;
    move_to(file, begin);
    if (error == 0 && file->end - begin < n && most > file->capacity - file->at)
        error = make_room(file, most);
    while (error == 0 && file->end - begin < n)
        error = read_more(file, most);
    errno = error;
    return error == 0 ? file->memory + file->at : NULL;
}

void readfile_close(struct readfile *file)
{
    free(file->memory);
    if (file->fd >= 0)
        close(file->fd);
    *file = (struct readfile){.fd = -1};
}
