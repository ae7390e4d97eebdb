/* job.h - a job: tables under one name, and checkpoints of these with the trainer's own state.
 *
 * A job's tables are called JOB--NAME on the servers. A checkpoint is a snapshot of these tables
 * alone, with the step and with blobs of the trainer's own. A trainer resumes, opens its tables,
 * and makes a first checkpoint if there was none, before its first push. Then a job that was
 * killed anywhere, or whose servers were, ends with the rows of an undisturbed run. Of several
 * workers one makes the checkpoint, while the others wait. client/GUIDE.md has the loop. Both
 * calls need the shards' admin listeners, and where tokens are required, a trainer's for the job's
 * name. */
#ifndef EMBD_JOB_H
#define EMBD_JOB_H

#include "embd/admin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBD_DIRECTORIES_MAX 1024 /* of a job */

typedef struct embd_job {
    uint32_t struct_bytes; /* sizeof(embd_job) */
    uint32_t keep;         /* checkpoints that stay; 0: all */
    const char *name;      /* named like a table, without "--", and not with a '-' at its end */
    const char *const *directories; /* [n_directories] data directories of all server processes, as
                                       this host reads them: each has the checkpoints that were
                                       made while it served */
    uint32_t n_directories;
} embd_job;

#define EMBD_JOB(...)                                                                              \
    {                                                                                              \
        .struct_bytes = sizeof(embd_job), .keep = 2, __VA_ARGS__                                   \
    }

typedef struct embd_checkpoint {
    uint32_t struct_bytes; /* sizeof(embd_checkpoint) */
    bool is_there;         /* false: the job has none; the other members are zero */
    uint64_t step;
    char name[65];   /* of the snapshot */
    char path[4096]; /* of the directory that has the blobs, for embd_blob_read */
} embd_checkpoint;

#define EMBD_CHECKPOINT()                                                                          \
    {                                                                                              \
        .struct_bytes = sizeof(embd_checkpoint)                                                    \
    }

/* Writes JOB--TABLE to out[EMBD_NAME_MAX + 1].
 *   EMBD_INVALID   a member of `job`, or the name is too long; needs no client */
EMBD_API int embd_job_table_name(const embd_job *job, const char *table, char *out);

/* One cut of the job's tables over all shards, called JOB-STEP, with the blobs; then the job's
 * oldest checkpoints go, but for job->keep. Call it while no worker of the job has a push under
 * way. Waits up to a minute while the servers make or load another snapshot, and until the
 * client's deadline for one of them that ends or cannot be reached, and begins again then.
 * `report_out` may be NULL. Blocks.
 *   EMBD_EXISTS   a blob is given twice, or is called "embd-step"; or there are 100 checkpoints of
 *                 this step
 *   EMBD_UNKNOWN_TABLE   the job has no table
 *   EMBD_CLOSED   somebody cancelled it (embd_snapshot_cancel)
 *   others as embd_snapshot */
EMBD_API int embd_job_checkpoint(embd_client *client, const embd_job *job, uint64_t step,
                                 const embd_blob *blobs, uint32_t n_blobs,
                                 embd_dump_report *report_out);

/* Puts the tables of the newest complete checkpoint back in their place (embd_load_tables with
 * `replace`), and tells which one that is. Tables that the job made since are dropped; those of
 * others are not touched. A worker of the job that still pushes gets an error. With no checkpoint
 * nothing is changed, and at->is_there is false. Where it fails, call it again. The caller sets
 * at->struct_bytes. Blocks.
 *   EMBD_IO        names the directory that cannot be read
 *   EMBD_CORRUPT   a checkpoint of the job cannot be read: it may be the newest, and is not passed
 *                  over
 *   EMBD_INVALID   there are checkpoints behind step 0, and of each the directories lack the share
 *                  of a shard: names the newest; nothing is changed
 *   others as embd_load_tables, embd_table_drop and embd_blob_read */
EMBD_API int embd_job_resume(embd_client *client, const embd_job *job, embd_checkpoint *at);

#ifdef __cplusplus
}
#endif
#endif
