/* journal_internal.h - the state of a journal, for the files that share it: journal.c, which
 * gathers groups and has the thread, and segments.c, which writes them. */
#ifndef EMBD_JOURNAL_INTERNAL_H
#define EMBD_JOURNAL_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "server/journal/journal.h"
#include "server/journal/recordfile.h"
#include "server/journal/room.h"
#include "server/journal/syncs.h"

#define MARK_AFTER_NS 1000000000u /* nothing was written for so long */

enum out { OUT_NONE, OUT_WRITING, OUT_WRITTEN };

struct journal {
    struct journal_config config;
    struct journal_group groups[3];
    struct journal_group *gathering, *out;  /* out: empty while OUT_NONE */
    struct journal_group *applying, *spare; /* one of them is NULL; the shard's */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    /* Under the lock. */
    enum out state;
    bool is_ending, is_syncing, is_reserving, has_next_base;
    /* The file: the thread's while OUT_WRITING or is_syncing, else under the lock. */
    struct recordfile file;
    int reached_fd; /* -1: not written yet */
    uint64_t segment, offset, position, chain, synced;
    struct record_key key; /* of the file */
    struct sync_deadline deadline;
    struct room room;
    struct syncs syncs;           /* any thread reads */
    bool is_marked;               /* the file ends with a mark, or has nothing behind its header */
    uint64_t mark_at_ns;          /* otherwise: when it will be */
    bool begins_segment;          /* with the next record */
    _Atomic uint64_t told_synced; /* `synced`; any thread reads */
    _Atomic uint64_t written_bytes; /* ever, and those behind the base at the start */
    /* The shard's. */
    struct {
        int fd; /* of its file, locked; -1: none */
        uint64_t number, bytes, made_s;
        uint64_t written_before; /* of written_bytes: what it has taken the place of */
    } base;
    struct basefile *next_base; /* being written; NULL: none */
    uint64_t next_number, next_written_before;
};

#endif
