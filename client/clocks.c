/* clocks.c - a trainer's clock: shard 0 keeps those of a job, and waiting is asking again. */
#include <time.h>

#include "client.h"
#include "request.h"

#define PAUSE_MIN_NS 100000u
#define PAUSE_MAX_NS 4000000u

static int read_tick(struct reader *r, embd_clock_report *out)
{
    struct fields f;
    const msgpack_object *items;
    embd__read_fields(&f, r, "tick");
    out->slowest = embd__field_uint(&f, "slowest", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    out->n_live = (uint32_t)embd__field_uint(&f, "live", 0, EMBD_WORKERS_MAX, FIELD_REQUIRED);
    out->n_dropped =
        (uint32_t)embd__field_uint(&f, "n_dropped", 0, EMBD_WORKERS_MAX, FIELD_REQUIRED);
    uint32_t n = embd__field_list(&f, "dropped", EMBD_DROPPED_MAX, &items);
    for (uint32_t i = 0; i < n && r->error->status == EMBD_OK; i++) {
        if (items[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
            items[i].via.u64 >= EMBD_WORKERS_MAX)
            return embd__error_set(r->error, EMBD_PROTOCOL, "dropped[%u]: invalid worker id", i);
        out->dropped[i] = (uint32_t)items[i].via.u64;
    }
    if (r->error->status == EMBD_OK)
        embd__fields_end(&f);
    return r->error->status;
}

static int ask(embd_client *client, uint32_t shard, const embd_clock *clock, uint64_t value,
               bool leave, embd_clock_report *out)
{
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_TICK);
    embd__msg_map(m, 6);
    embd__msg_field_str(m, "job", clock->job);
    embd__msg_field_uint(m, "worker", clock->worker);
    embd__msg_field_uint(m, "workers", clock->n_workers);
    embd__msg_field_uint(m, "clock", value);
    embd__msg_field_uint(m, "lease_ms", clock->lease_ms);
    embd__msg_field_bool(m, "leave", leave);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = read_tick(&answer->reader, out);
    embd__answer_free(answer);
    return status;
}

int embd_tick(embd_client *client, const embd_clock *clock, uint64_t value,
              embd_clock_report *report_out)
{
    embd_clock_report report = {0};
    client->error = (struct embd__error){0};
    int status = ask(client, 0, clock, value, false, &report);
    if (status == EMBD_OK && report_out != NULL)
        *report_out = report;
    return status;
}

static void pause_for(uint64_t ns)
{
    struct timespec pause = {.tv_nsec = (long)ns};
    nanosleep(&pause, NULL);
}

int embd_tick_wait(embd_client *client, const embd_clock *clock, uint64_t value, uint64_t staleness,
                   uint32_t deadline_ms, embd_clock_report *report_out)
{
    embd_clock_report report = {0};
    uint32_t limit_ms = deadline_ms != 0 ? deadline_ms : client->options.deadline_ms;
    uint64_t end_ns = uv_hrtime() + (uint64_t)limit_ms * 1000000, pause_ns = PAUSE_MIN_NS;
    client->error = (struct embd__error){0};
    for (;;) {
        int status = ask(client, 0, clock, value, false, &report);
        if (status != EMBD_OK)
            return status;
        if (value <= staleness || report.slowest >= value - staleness)
            break;
        if (uv_hrtime() >= end_ns)
            return embd__error_set(
                &client->error, EMBD_DEADLINE,
                "job '%.63s' is at %llu, worker %u at %llu waits for it to be within "
                "%llu",
                clock->job, (unsigned long long)report.slowest, clock->worker,
                (unsigned long long)value, (unsigned long long)staleness);
        pause_for(pause_ns);
        pause_ns = pause_ns * 2 < PAUSE_MAX_NS ? pause_ns * 2 : PAUSE_MAX_NS;
    }
    if (report_out != NULL)
        *report_out = report;
    return EMBD_OK;
}

int embd_tick_leave(embd_client *client, const embd_clock *clock, uint64_t value)
{
    embd_clock_report report = {0};
    int status = EMBD_OK;
    client->error = (struct embd__error){0};
    for (uint32_t shard = 0; shard < client->n_shards && status == EMBD_OK; shard++)
        status = ask(client, shard, clock, value, true, &report); /* each has rounds of its own */
    return status;
}
