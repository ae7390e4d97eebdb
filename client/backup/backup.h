/* backup.h - backups of a cluster in a place of their own: a directory, or a prefix of an S3
 * bucket. What embctl's commands are made of.
 *
 * A backup is a snapshot of the cluster, or an increment upon one, with the shares of all its
 * processes under its name. Its last file is backup.json, which has the size and checksum of every
 * other: without one that is right, what lies there is no backup.
 *
 *   PLACE/NAME/backup.json            see record.h
 *   PLACE/NAME/SHARD/manifest.json    of the process whose first shard is SHARD, and its files, as
 *   PLACE/NAME/SHARD/items.0.part     in a snapshot (proto/partfile.h)
 *
 * Functions return EMBD_OK or a negative status; `why` then has the sentence. */
#ifndef EMBD_BACKUP_H
#define EMBD_BACKUP_H

#include <stdatomic.h>

#include "embd/admin.h"

#define BACKUP_WHY_BYTES  400u
#define BACKUP_NAME_BYTES 65u /* a snapshot's name with its zero */
/* The snapshots of backups are of the job "backup", or "backup-JOB": so none that a trainer or an
 * operator makes is removed for them. */
#define BACKUP_JOB "backup"

/* Increments that may be made while another program copies the next base: then the servers still
 * know what changed since that. */
#define BACKUP_BESIDE 5u

struct backup_why {
    char text[BACKUP_WHY_BYTES];
};

struct backup_where {
    const char *url;               /* DIR or s3://BUCKET/PREFIX */
    const char *endpoint, *region; /* of S3; NULL: AWS_ENDPOINT_URL, AWS_REGION, or AWS's */
};

/* ---- making one ---- */

/* What one call has read of a place, for the next one of the same place: so of a thousand backups
 * that lie there none is read twice. NULL: no memory. */
struct backup_known;
struct backup_known *backup_known_new(void);
void backup_known_free(struct backup_known *known);

/* Backups that are made one behind the other, every minute or so. Each has what changed since one
 * of the last; after `base_s`, or where the increments have more bytes than the rows, one has all
 * rows. They thin out: sequence.h. */
struct backup_sequence {
    uint64_t base_s;   /* from one with all rows to the next */
    uint64_t recent_s; /* all of them stay for so long */
    uint64_t days;     /* the last one with all rows of a day stays for so many days */
    bool defers; /* where all rows are due, it has what changed all the same, and says so: another
                    program makes the one with all rows. Up to twice as long, or as many bytes */
};

struct backup_order {
    struct backup_where to;
    const char *name;          /* NULL: backup-YYYYMMDD-HHMMSS-MMM (UTC), or archive-... */
    const char *job;           /* NULL: BACKUP_JOB */
    const char *const *tables; /* [n_tables] names or PREFIX*; none: all */
    uint32_t n_tables;
    bool is_incremental; /* upon the newest one of the place, where the servers know that */
    const struct backup_sequence *sequence; /* it is the next one of that; NULL: it is not */
    bool has_all;                           /* all rows, in a sequence too */
    bool is_beside;             /* another program makes one now: what is cut off stays */
    uint32_t n_on_servers;      /* snapshots that stay there, and all that these are upon; 0: 2 */
    uint32_t keep;              /* bases that stay, with their increments; 0: all */
    bool accepts_other;         /* the newest backup of the place may be of another cluster */
    uint64_t wait_s;            /* for another snapshot to end */
    struct backup_known *known; /* NULL: none */
};

struct backup_made {
    char name[BACKUP_NAME_BYTES], base[BACKUP_NAME_BYTES]; /* base "": all rows */
    uint64_t time_s; /* when it was begun: what was acknowledged before is in it */
    uint64_t rows, bytes, pause_us;
    uint32_t n_removed; /* backups */
    bool is_due;        /* the next one should have all rows */
};

int backup_make(embd_client *client, const struct backup_order *order, embd_progress *progress,
                void *arg, struct backup_made *out, struct backup_why *why);

/* ---- records between backups ---- */

#define BACKUP_RECORDS_S 86400u /* they stay for so long */

struct records_order {
    struct backup_where to;
    const char *job;            /* of the backups that they go on from; NULL: BACKUP_JOB */
    double every_s;             /* between two files of a shard */
    struct backup_known *known; /* NULL: none */
    /* Set to what is there: records of changes that were acknowledged before this time, in ms since
     * 1970. NULL: nobody wants to know. */
    _Atomic uint64_t *covers_ms;
};

/* Puts the records of the cluster's journals beside its backups, until `progress` says so, or
 * something fails: then it may be called again, and goes on where the records there end. EMBD_BUSY:
 * there is no backup yet that they could go on from. EMBD_MOVED: the cluster has another number of
 * shards, which a client that connects now knows. */
int backup_records(embd_client *client, const struct records_order *order, embd_progress *progress,
                   void *arg, struct backup_why *why);

/* ---- what lies there ---- */

enum backup_state {
    BACKUP_WHOLE,
    BACKUP_CUT_OFF, /* it has no backup.json: it is being made, or was cut off */
    BACKUP_DAMAGED, /* its backup.json is not right, or a file or its base is missing */
};

struct backup_seen {
    const char *name, *base, *job; /* "" where there is none */
    enum backup_state state;
    uint64_t time_s; /* since 1970 */
    uint64_t rows, bytes;
    uint32_t n_shards;
    const char *why; /* DAMAGED */
};

/* The oldest first. `visit` returns nonzero to end it. */
int backup_list(const struct backup_where *where,
                int (*visit)(void *arg, const struct backup_seen *seen), void *arg,
                struct backup_why *why);

/* Moments that a restore can bring back, from backups and the records behind them. */
struct backup_span {
    uint64_t from_ms, to_ms; /* since 1970; equal: only the backup itself */
};

/* Of the backups of `job` (NULL: BACKUP_JOB), where records lie there: the oldest first. Between
 * two spans is a gap, whose moments come back as the end of the span before. */
int backup_moments(const struct backup_where *where, const char *job,
                   int (*visit)(void *arg, const struct backup_span *span), void *arg,
                   struct backup_why *why);

/* Whether embctl verify has backups here, and no dump or snapshot. EMBD_IO: the directory cannot be
 * read. */
int backup_is_place(const char *url, bool *is_out, struct backup_why *why);

/* Reads every file of all whole backups, or of `name` and those below it (NULL: all), and compares
 * it. EMBD_CORRUPT names the file. */
int backup_verify(const struct backup_where *where, const char *name, embd_progress *progress,
                  void *arg, embd_dump_report *out, struct backup_why *why);

/* ---- restoring ---- */

struct restore_order {
    struct backup_where from;
    const char *at; /* a name, or a moment (when.h): the newest one of that time or before, with the
                       records up to it; NULL: all there is that all shards have */
    const char *job;           /* whose backups, where `at` names none; NULL: BACKUP_JOB */
    const char *const *tables; /* [n_tables]; none: all */
    uint32_t n_tables;
    bool replaces;
    const char *staging; /* a directory for what is read from a bucket; NULL: TMPDIR */
};

struct restored {
    char name[BACKUP_NAME_BYTES];
    uint32_t n_passed_over; /* newer ones that are damaged */
    uint64_t n_records;     /* behind it, that were replayed */
    uint64_t n_left_out;    /* of these were left out, since other shards lacked the push */
    uint64_t records_ms;    /* when the last of them had come; 0: none */
    bool went_back; /* the last records have a map of keys, or tables that take the places of
                       others, on some shards only: these records are left out */
    embd_dump_report report;
};

/* Into a cluster of any number of shards. A failure changes nothing. */
int backup_restore(embd_client *client, const struct restore_order *order, embd_progress *progress,
                   void *arg, struct restored *out, struct backup_why *why);

#endif
