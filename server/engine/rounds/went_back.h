/* went_back.h - workers from before a table of their job went back to a checkpoint.
 *
 * Where tables are replaced, the jobs that push to them by rounds are over (jobs_end). That is in
 * memory; and a worker that lives on may come back to a shard that has started again, or to the
 * follower that took its place. Both have the records: so they know which clients had pushed when a
 * table was replaced, and these take part in no round of it, and in no job that is named as it is,
 * JOB--NAME. What they know of it ends where the journal's next base begins. */
#ifndef EMBD_ENGINE_WENT_BACK_H
#define EMBD_ENGINE_WENT_BACK_H

#include "server/engine/op.h"

/* Whether the table is the job's by its name: JOB--NAME, as embd.Job calls them. */
bool went_back_is_named(const struct table *table, const char *job);

/* The table has just been replaced. */
void went_back_note(const struct engine *engine, struct table *table);

/* EMBD_INVALID: the client of the push had pushed before one of its tables was replaced. */
int went_back_check_push(const struct op *push, struct embd__error *e);
/* The same of a job, by its name. */
int went_back_check_job(const struct engine *engine, const char *job, uint64_t client,
                        struct embd__error *e);

#endif
