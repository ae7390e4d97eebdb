/* retire_job.c - the last shards, which have no keys, leave the cluster.
 *
 * The happy path: `move begin` brings the map without them to all shards, these too. Changes are
 * held, so that each push is on all shards or on none. Then the map takes the place of the one
 * before, on all shards or on none (cluster_replace.c): by the record of shard 0, which never
 * leaves. Clients are answered EMBD_MOVED, and leave the shards that the map does not have.
 *
 * What can fail before shard 0 has the map changes nothing: the connections end. Behind it nothing
 * is undone: a shard that leaves and did not hear of it asks shard 0 as long as it runs. */
#include "proto/placement_wire.h"
#include "server/coordinator/cluster_hold.h"
#include "server/coordinator/cluster_replace.h"
#include "server/coordinator/job.h"

static int begin_all(struct job *job)
{
    for (uint32_t shard = 0; shard < job->n_shards; shard++) {
        struct msg *m = peers_add(job->peers, shard, METHOD_MOVE, CLUSTER_ASK_MS);
        embd__msg_map(m, 5);
        embd__msg_field_str(m, "phase", "begin");
        embd__msg_field_uint(m, "id", job->id);
        embd__msg_field_uint(m, "shards", job->order.place.n_shards);
        embd__msg_field_bool(m, "retires", true);
        embd__placement_write(m, &job->order.place);
    }
    return peers_run(job->peers, NULL, NULL, &job->error);
}

static int retire(struct job *job)
{
    const struct cluster_replace replace = {.id = job->id,
                                            .decision = job->id,
                                            .n_shards = job->n_shards,
                                            .is_place = true,
                                            .retires = true};
    if (cluster_check_replace(job->peers, &replace, &job->error) != EMBD_OK ||
        !job_enter(job, JOB_COMMIT))
        return job->error.status;
    return cluster_apply_replace(job->peers, &replace, &job->error);
}

static int retire_held(struct job *job)
{
    uint64_t pause_us = 0;
    if (!job_enter(job, JOB_HOLD) ||
        cluster_hold(job->peers, job->n_shards, true, &pause_us, &job->error) != EMBD_OK)
        return job->error.status;
    retire(job);
    cluster_release(job->peers, job->n_shards, &pause_us);
    job_tell_pause(job, pause_us);
    return job->error.status;
}

void retire_job_run(struct job *job)
{
    if (job_enter(job, JOB_BEGIN) && begin_all(job) == EMBD_OK && retire_held(job) == EMBD_OK &&
        job_renew(job) == EMBD_OK)
        move_job_await_removal(job);
}
