/* recordfile.h - writing records to the end of a file.
 *
 * Many bytes at once go past the kernel's cache, where the file system can: to copy them into it
 * and write them from there costs many times the processor time. They begin and end on blocks then,
 * with zeros where no record is. */
#ifndef EMBD_RECORDFILE_H
#define EMBD_RECORDFILE_H

#include "server/journal/record.h"

struct recordfile {
    int fd;
    int direct_fd; /* the same file, without the cache; -1: use the cached one */
};

/* The file that has this name, open as file->fd. */
void recordfile_open_direct(struct recordfile *file, int dir, const char *name);
/* Both descriptors, where they are open. */
void recordfile_close(struct recordfile *file);

/* Clears, before the first write to an existing file, the bytes behind its end in its last block: a
 * power cut may have left some, which would reappear when the next write begins at another block. 0
 * or errno. */
int recordfile_clear_behind_end(const struct recordfile *file);
/* 0 or errno: then there may be a part of it. */
int recordfile_write(const struct recordfile *file, const uint8_t *bytes, uint64_t n,
                     uint64_t offset);
/* The same of records, which may come to lie behind `offset`; *end_out: where the next ones may
 * begin. `bytes` are aligned to RECORD_BLOCK_BYTES, and have room up to a multiple of it. */
int recordfile_append(struct recordfile *file, uint8_t *bytes, uint64_t n, uint64_t offset,
                      uint64_t *end_out);

/* The name of a segment's file. */
void journal_file_name(char out[64], uint32_t shard, uint64_t segment);

#endif
