/* read_job.c - the jobs that write no snapshot: a cut of all shards whose rows the asker fetches,
 * and tables that the asker has loaded beside others, and that take their places.
 *
 * The happy path: hold changes on all shards; `cut` on every shard, which freezes its tables;
 * release; the asker fetches the rows from the shards (`scan` with the cut's id) while changes go
 * on, and says that it has them. The connections of this job keep the cuts, so that they end with
 * it, whatever becomes of the asker. */
#include "server/coordinator/cluster_hold.h"
#include "server/coordinator/cluster_replace.h"
#include "server/coordinator/job.h"

static int cut_all(struct job *job)
{
    for (uint32_t shard = 0; shard < job->n_shards; shard++) {
        struct msg *m = peers_add(job->peers, shard, METHOD_SNAPSHOT, CLUSTER_ASK_MS);
        bool has_table = job->order.table[0] != '\0';
        embd__msg_map(m, 4 + (uint32_t)has_table);
        embd__msg_field_str(m, "name", job->order.name);
        embd__msg_field_str(m, "phase", "cut");
        embd__msg_field_bool(m, "read", true);
        embd__msg_field_uint(m, "id", job->id);
        if (has_table)
            embd__msg_field_str(m, "table", job->order.table);
    }
    return peers_run(job->peers, NULL, NULL, &job->error);
}

void read_job_run(struct job *job)
{
    uint64_t pause_us = 0;
    if (!job_enter(job, JOB_HOLD) ||
        cluster_hold(job->peers, job->n_shards, false, &pause_us, &job->error) != EMBD_OK)
        return;
    int status = cut_all(job);
    cluster_release(job->peers, job->n_shards, &pause_us);
    job_tell_pause(job, pause_us);
    if (status == EMBD_OK && job_enter(job, JOB_READ))
        job_wait(job, "fetched all rows");
}

/* Each push is on all shards before it, or on none. */
void replace_job_run(struct job *job)
{
    uint64_t pause_us = 0;
    const struct cluster_replace replace = {
        .id = job->order.staged,
        .decision = job->n_shards > 1 ? job->id : 0,
        .n_tables = job->order.n_staged,
        .n_shards = job->n_shards,
    };
    if (!job_enter(job, JOB_HOLD) ||
        cluster_hold(job->peers, job->n_shards, false, &pause_us, &job->error) != EMBD_OK)
        return;
    if (cluster_check_replace(job->peers, &replace, &job->error) == EMBD_OK &&
        job_enter(job, JOB_COMMIT))
        cluster_apply_replace(job->peers, &replace, &job->error);
    cluster_release(job->peers, job->n_shards, &pause_us);
    job_tell_pause(job, pause_us);
}
