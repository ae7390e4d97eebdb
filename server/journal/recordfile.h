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

/* ---- how far it was on disk ---- */

/* A shard's file `journal.SHARD.reached` says it, beside the journal. A file that is cut off at a
 * record's end, or in its last group, looks like one that never had more. This one says that it
 * had. It is written behind each sync of the journal, and not synced itself: it never says more
 * than is on disk, and after a power cut it may say less. */

/* *position_out: records that were on disk; 0: unknown, or the file does not verify, which is
 * logged. EMBD_IO. */
int reached_read(int data_dir, uint32_t shard, uint64_t *position_out, struct embd__error *e);

/* The journal has this many records on disk. *fd: that of the file, -1 before the first call; the
 * caller closes it. If it cannot be written, it says less, which does no harm. */
void reached_note(int *fd, int data_dir, uint32_t shard, uint64_t position);

/* The journal begins at this position again, since damage before was accepted: on disk when this
 * returns EMBD_OK. Nothing where the file says no more. EMBD_IO. */
int reached_lower(int data_dir, uint32_t shard, uint64_t position, struct embd__error *e);

#endif
