/* clocks.c - a trainer's clock: shard 0 keeps those of a job, and waiting is asking again. All
 * shards know the job's workers (members.h). */
#include <time.h>

#include "client/members.h"
#include "client/request.h"

#define PAUSE_MIN_NS 100000u
#define PAUSE_MAX_NS 4000000u

/* ---- one request ---- */

static int refuse_late(embd_client *client, const struct member *member)
{
    return embd__error_set(&client->error, EMBD_LATE,
                           "worker %u of job '%s' has come late: it has to rejoin at the clock the "
                           "job is at (embd_tick_rejoin)",
                           member->worker, member->job);
}

/* The worker's clock to shard 0, and with the first one to all. */
static int tick(embd_client *client, struct member *member, const embd_clock *clock, uint64_t value,
                struct tick_answer *out)
{
    if (member->is_late)
        return refuse_late(client, member);
    if (!member->has_joined)
        return embd__member_join(client, member, clock, value, out);
    int status = embd__member_tell(client, member, 0, clock, value, TICK_CLOCK, out);
    if (status == EMBD_OK)
        member->value = value;
    member->is_late = status == EMBD_LATE;
    return status;
}

int embd_tick(embd_client *client, const embd_clock *clock, uint64_t value,
              embd_clock_report *report_out)
{
    struct tick_answer answer = {0};
    struct member *member;
    client->error = (struct embd__error){0};
    int status = embd__member_get(client, clock, &member);
    if (status == EMBD_OK)
        status = tick(client, member, clock, value, &answer);
    if (status == EMBD_OK && report_out != NULL)
        *report_out = answer.report;
    return status;
}

/* ---- waiting ---- */

static void pause_for(uint64_t *ns)
{
    struct timespec pause = {.tv_nsec = (long)*ns};
    nanosleep(&pause, NULL);
    *ns = *ns * 2 < PAUSE_MAX_NS ? *ns * 2 : PAUSE_MAX_NS;
}

static uint64_t end_of(const embd_client *client, uint32_t deadline_ms)
{
    uint32_t limit_ms = deadline_ms != 0 ? deadline_ms : client->options.deadline_ms;
    return uv_hrtime() + (uint64_t)limit_ms * 1000000;
}

static int fail_waiting(embd_client *client, const embd_clock *clock, uint64_t value,
                        uint64_t staleness, const struct tick_answer *answer)
{
    char awaited[AWAITED_TEXT] = "waits for nobody";
    if (answer->awaited.is_known)
        embd__awaited_text(&answer->awaited, awaited);
    return embd__error_set(&client->error, EMBD_DEADLINE,
                           "job '%.63s' is at %llu, worker %u at %llu waits for it to be within "
                           "%llu; the job %s",
                           clock->job, (unsigned long long)answer->report.slowest, clock->worker,
                           (unsigned long long)value, (unsigned long long)staleness, awaited);
}

int embd_tick_wait(embd_client *client, const embd_clock *clock, uint64_t value, uint64_t staleness,
                   uint32_t deadline_ms, embd_clock_report *report_out)
{
    struct tick_answer answer = {0};
    struct member *member;
    uint64_t end_ns = end_of(client, deadline_ms), pause_ns = PAUSE_MIN_NS;
    client->error = (struct embd__error){0};
    int status = embd__member_get(client, clock, &member);
    while (status == EMBD_OK) {
        status = tick(client, member, clock, value, &answer);
        if (status != EMBD_OK || value <= staleness || answer.report.slowest >= value - staleness)
            break;
        if (uv_hrtime() >= end_ns)
            return fail_waiting(client, clock, value, staleness, &answer);
        pause_for(&pause_ns);
    }
    if (status == EMBD_OK && report_out != NULL)
        *report_out = answer.report;
    return status;
}

/* ---- joining anew ---- */

/* The greatest clock that the job is at on any shard. */
static int find_clock(embd_client *client, struct member *member, const embd_clock *clock,
                      uint64_t *value)
{
    struct tick_answer answer;
    uint64_t greatest = *value > member->value ? *value : member->value;
    for (uint32_t shard = 0; shard < client->n_shards; shard++) {
        int status = embd__member_tell(client, member, shard, clock, *value, TICK_BEAT, &answer);
        if (status != EMBD_OK)
            return status;
        if (answer.clock > greatest)
            greatest = answer.clock;
    }
    *value = greatest;
    return EMBD_OK;
}

/* EMBD_LATE: a shard has gone on meanwhile. */
static int join_at(embd_client *client, struct member *member, const embd_clock *clock,
                   uint64_t value, struct tick_answer *out)
{
    int first = EMBD_OK;
    for (uint32_t shard = client->n_shards; shard-- > 0;) {
        client->error = (struct embd__error){0};
        int status = embd__member_tell(client, member, shard, clock, value, TICK_CLOCK, out);
        if (status != EMBD_OK && status != EMBD_LATE)
            return status;
        first = status != EMBD_OK ? status : first;
    }
    return first;
}

int embd_tick_rejoin(embd_client *client, const embd_clock *clock, uint64_t *value,
                     embd_clock_report *report_out)
{
    struct tick_answer answer = {0};
    struct member *member;
    uint64_t at = *value, end_ns = end_of(client, 0), pause_ns = PAUSE_MIN_NS;
    client->error = (struct embd__error){0};
    int status = embd__member_get(client, clock, &member);
    while (status == EMBD_OK) {
        status = find_clock(client, member, clock, &at);
        if (status == EMBD_OK)
            status = join_at(client, member, clock, at, &answer);
        if (status != EMBD_LATE || uv_hrtime() >= end_ns)
            break;
        pause_for(&pause_ns);
        client->error = (struct embd__error){0};
        status = EMBD_OK;
    }
    if (status != EMBD_OK)
        return embd__error_set(&client->error, status, "job '%.63s' goes on too fast to join it",
                               clock->job);
    client->error = (struct embd__error){0};
    *value = at;
    if (report_out != NULL)
        *report_out = answer.report;
    return embd__member_joined(client, member, clock, at);
}

/* ---- leaving ---- */

int embd_tick_leave(embd_client *client, const embd_clock *clock, uint64_t value)
{
    struct tick_answer answer;
    struct member *member;
    client->error = (struct embd__error){0};
    int status = embd__member_get(client, clock, &member);
    for (uint32_t shard = 0; shard < client->n_shards && status == EMBD_OK; shard++)
        status = embd__member_tell(client, member, shard, clock, value, TICK_LEAVE, &answer);
    if (status == EMBD_OK)
        embd__member_leave(client, member);
    return status;
}
