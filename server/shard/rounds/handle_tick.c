/* handle_tick.c - a worker tells its clock and learns the slowest of its job. */
#include "state.h"

static int write_answer(struct call *call, const struct clock_job *job)
{
    struct msg *m = call->answer;
    uint32_t dropped[CLOCKS_WORKERS], n = 0;
    for (uint32_t i = 0; i < job->n_workers; i++)
        if (job->workers[i].state == WORKER_DROPPED)
            dropped[n++] = i;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 4);
    embd__msg_field_uint(m, "slowest", clocks_slowest(job));
    embd__msg_field_uint(m, "live", clocks_count(job, WORKER_LIVE));
    embd__msg_field_uint(m, "n_dropped", n);
    embd__msg_str(m, "dropped");
    n = n < EMBD_DROPPED_MAX ? n : EMBD_DROPPED_MAX;
    embd__msg_array(m, n);
    for (uint32_t i = 0; i < n; i++)
        embd__msg_uint(m, dropped[i]);
    return EMBD_OK;
}

int handle_tick(struct call *call)
{
    struct fields f;
    char job[CLOCKS_JOB_NAME + 1];
    const struct clock_job *found;
    embd__read_fields(&f, &call->reader, "tick");
    embd__field_name(&f, "job", job, sizeof job);
    struct clock_tick tick = {.job = job};
    tick.n_workers = (uint32_t)embd__field_uint(&f, "workers", 1, CLOCKS_WORKERS, FIELD_REQUIRED);
    tick.worker = (uint32_t)embd__field_uint(&f, "worker", 0, CLOCKS_WORKERS - 1, FIELD_REQUIRED);
    tick.clock = embd__field_uint(&f, "clock", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    tick.lease_ns = embd__field_uint(&f, "lease_ms", LEASE_MIN_MS, LEASE_MAX_MS, LEASE_DEFAULT_MS) *
                    UINT64_C(1000000);
    tick.leave = embd__field_bool(&f, "leave", false);
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (tick.worker >= tick.n_workers)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "tick worker: %u, the job has %u workers", tick.worker,
                               tick.n_workers);
    if (clocks_tick(&call->shard->clocks, &tick, call->shard->now_ns, &found, &call->error) !=
        EMBD_OK)
        return call->error.status;
    if (tick.leave)
        rounds_leave(&call->shard->rounds, job, tick.worker);
    return write_answer(call, found);
}
