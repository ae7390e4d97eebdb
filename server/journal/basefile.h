/* basefile.h - a journal's base: a file of records that restore what the tables held before a
 * segment, and the thread that writes it while the journal goes on in that segment.
 *
 * It has the header and the records of a segment, and a name of its own, which it gets when it is
 * complete and on disk; then everything before the segment is removed. Its records have positions
 * and a chain of their own, beginning with those of the segment. */
#ifndef EMBD_BASEFILE_H
#define EMBD_BASEFILE_H

#include "server/journal/record.h"

struct basefile_config {
    int data_dir;
    uint32_t shard, n_shards;
    uint64_t number;          /* of the segment behind it */
    uint64_t position, chain; /* where that goes on */
    uint64_t before;          /* number of the base that it replaces; 0: none */
    int reserve_fd;           /* of the file that becomes the base, from room_lend; -1: none */
    /* of its file, which the thread closes when the file is removed; -1: none */
    int before_fd;
    void (*wake)(
        void *arg); /* there is room again, or it has ended; from the thread. NULL: no callback */
    void *wake_arg;
};

struct basefile;

void basefile_name(char out[64], uint32_t shard, uint64_t number);

/* EMBD_IO, EMBD_NO_MEMORY. */
int basefile_open(const struct basefile_config *config, struct basefile **out,
                  struct embd__error *e);
/* Whether another record may be added now. Once it is over, it may not. */
bool basefile_has_room(struct basefile *base);
/* A copy of the frame becomes the next record. EMBD_NO_MEMORY. */
int basefile_add(struct basefile *base, const struct frame_scanner *frame, struct embd__error *e);
/* That was the last record: the file gets its name. */
void basefile_end(struct basefile *base);
/* It goes, as soon as the thread sees this; no error after basefile_end, when it may stay. */
void basefile_stop(struct basefile *base);
bool basefile_is_over(struct basefile *base);
/* Until there is room, or it is over. */
void basefile_wait(struct basefile *base);
/* Waits for the end, and frees. *fd_out: of the complete file, locked, with its bytes. EMBD_IO:
 * there is none, and nothing was changed; EMBD_CLOSED: it was stopped. */
int basefile_close(struct basefile *base, int *fd_out, uint64_t *bytes_out, struct embd__error *e);

#endif
