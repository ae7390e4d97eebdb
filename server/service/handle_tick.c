/* handle_tick.c - a worker sends its clock, or only a sign of life, and learns where its job is. */
#include "server/engine/rounds/went_back.h"
#include "server/service/authorize.h"
#include "server/service/state.h"
#include "embd/sync.h"

/* The worker that the job waits for, if any: one that has not joined yet, one that has not pushed
 * to a round in which pushes wait, or else the slowest. */
static bool find_awaited(const struct shard *shard, const struct job *job, uint32_t asker,
                         uint32_t *worker_out)
{
    const struct job_worker *found = NULL;
    for (uint32_t i = 0; i < job->n_workers; i++) {
        const struct job_worker *w = &job->workers[i];
        if (w->state == WORKER_ABSENT) {
            *worker_out = i;
            return true;
        }
    }
    if (rounds_awaited(&shard->engine.rounds, job, asker, worker_out))
        return true;
    for (uint32_t i = 0; i < job->n_workers; i++) {
        const struct job_worker *w = &job->workers[i];
        if (i == asker || w->state != WORKER_LIVE || (found != NULL && found->clock <= w->clock))
            continue;
        found = w;
        *worker_out = i;
    }
    return found != NULL && found->clock < job->workers[asker].clock;
}

static void write_awaited(struct msg *m, const struct job *job, uint32_t worker, uint64_t now_ns)
{
    const struct job_worker *w = &job->workers[worker];
    bool has_joined = w->state != WORKER_ABSENT;
    embd__msg_str(m, "awaited");
    embd__msg_map(m, has_joined ? 3 : 1);
    embd__msg_field_uint(m, "worker", worker);
    if (!has_joined)
        return;
    embd__msg_field_uint(m, "clock", w->done);
    embd__msg_field_uint(m, "seen_ms", (now_ns - w->seen_ns) / 1000000);
}

static void write_dropped(struct msg *m, const struct job *job)
{
    uint32_t dropped[EMBD_DROPPED_MAX], n = 0, n_written;
    for (uint32_t i = 0; i < job->n_workers; i++)
        if (job->workers[i].state == WORKER_DROPPED && n++ < EMBD_DROPPED_MAX)
            dropped[n - 1] = i;
    n_written = n < EMBD_DROPPED_MAX ? n : EMBD_DROPPED_MAX;
    embd__msg_field_uint(m, "n_dropped", n);
    embd__msg_str(m, "dropped");
    embd__msg_array(m, n_written);
    for (uint32_t i = 0; i < n_written; i++)
        embd__msg_uint(m, dropped[i]);
}

static int write_answer(struct call *call, const struct job *job, uint32_t asker)
{
    struct msg *m = call->answer;
    uint32_t awaited;
    bool is_awaiting = find_awaited(call->shard, job, asker, &awaited);
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, is_awaiting ? 7 : 6);
    embd__msg_field_uint(m, "slowest", jobs_slowest(job));
    embd__msg_field_uint(m, "live", jobs_count(job, WORKER_LIVE));
    write_dropped(m, job);
    embd__msg_field_uint(m, "epoch", job->epoch);
    embd__msg_field_uint(m, "clock", jobs_clock(job));
    if (is_awaiting)
        write_awaited(m, job, awaited, call->shard->now_ns);
    return EMBD_OK;
}

int handle_tick(struct call *call)
{
    struct fields f;
    char name[EMBD_NAME_MAX + 1];
    struct job *job;
    struct shard *shard = call->shard;
    embd__read_fields(&f, &call->reader, "tick");
    embd__field_name(&f, "job", name, sizeof name);
    struct job_tick tick = {.claim = {.job = name}};
    struct job_claim *claim = &tick.claim;
    claim->n_workers =
        (uint32_t)embd__field_uint(&f, "workers", 1, EMBD_WORKERS_MAX, FIELD_REQUIRED);
    claim->worker =
        (uint32_t)embd__field_uint(&f, "worker", 0, EMBD_WORKERS_MAX - 1, FIELD_REQUIRED);
    claim->lease_ns =
        embd__field_uint(&f, "lease_ms", LEASE_MIN_MS, LEASE_MAX_MS, LEASE_DEFAULT_MS) *
        UINT64_C(1000000);
    claim->incarnation = embd__field_uint(&f, "incarnation", 0, UINT64_MAX, 0);
    claim->epoch = embd__field_uint(&f, "epoch", 0, UINT64_MAX - 1, 0);
    tick.clock = embd__field_uint(&f, "clock", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    tick.asynchronous = embd__field_bool(&f, "asynchronous", false);
    tick.leave = embd__field_bool(&f, "leave", false);
    bool is_beat = embd__field_bool(&f, "beat", false);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (claim->worker >= claim->n_workers)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "tick worker: %u, the job has %u workers", claim->worker,
                               claim->n_workers);
    if (authorize_job(call, name) != EMBD_OK)
        return call->error.status;
    if (!tick.leave &&
        went_back_check_job(&shard->engine, name, claim->incarnation, &call->error) != EMBD_OK)
        return call->error.status;
    if ((is_beat ? jobs_beat : jobs_tick)(&shard->engine.jobs, &tick, shard->now_ns, &job,
                                          &call->error) != EMBD_OK)
        return call->error.status;
    return write_answer(call, job, claim->worker);
}
