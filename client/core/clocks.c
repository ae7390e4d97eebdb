/* clocks.c - a trainer's clock, and the workers that a client is. Shard 0 keeps the clocks of a
 * job; waiting is asking again.
 *
 * All shards know the job's workers: the first tick, or push to a round, asks every shard to take
 * the worker in, shard 0 last, so that a worker waits for no other that a shard does not know. */
#include "client/core/clocks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/core/request.h"
#include "proto/structs.h"
#include "embd/sync.h"

#define PAUSE_MIN_NS 100000u
#define PAUSE_MAX_NS 4000000u
#define AWAITED_TEXT 128u /* " waits for worker 2, ..." */

enum tick_kind { TICK_CLOCK, TICK_BEAT, TICK_LEAVE };

/* ---- ticks ---- */

void embd__tick_write(struct msg *m, const struct tick *tick)
{
    const embd_clock *clock = tick->clock;
    embd__msg_map(m, 10);
    embd__msg_field_str(m, "job", clock->job);
    embd__msg_field_uint(m, "worker", clock->worker);
    embd__msg_field_uint(m, "workers", clock->n_workers);
    embd__msg_field_uint(m, "clock", tick->value);
    embd__msg_field_uint(m, "lease_ms", clock->lease_ms);
    embd__msg_field_bool(m, "leave", tick->leave);
    embd__msg_field_uint(m, "incarnation", tick->incarnation);
    embd__msg_field_uint(m, "epoch", tick->epoch);
    embd__msg_field_bool(m, "beat", tick->is_beat);
    embd__msg_field_bool(m, "asynchronous", clock->asynchronous);
}

static void read_awaited(struct fields *answer, struct awaited *out)
{
    struct fields f;
    if (!embd__field_has(answer, "awaited"))
        return;
    embd__field_map(answer, "awaited", &f, "the worker that is awaited");
    out->worker = (uint32_t)embd__field_uint(&f, "worker", 0, EMBD_WORKERS_MAX - 1, FIELD_REQUIRED);
    out->has_joined = embd__field_has(&f, "clock");
    out->clock = embd__field_uint(&f, "clock", 0, UINT64_MAX - 1, 0);
    uint64_t seen_ms = embd__field_uint(&f, "seen_ms", 0, UINT64_MAX / 1000000, 0);
    uint64_t now = uv_hrtime();
    out->seen_ns = now > seen_ms * 1000000 ? now - seen_ms * 1000000 : 0;
    out->is_known = true;
    embd__fields_end(&f);
}

static int read_dropped(struct fields *f, embd_clock_report *out)
{
    struct embd__error *e = f->reader->error;
    const msgpack_object *items;
    uint32_t n = embd__field_list(f, "dropped", EMBD_DROPPED_MAX, &items);
    for (uint32_t i = 0; i < n && e->status == EMBD_OK; i++) {
        if (items[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER ||
            items[i].via.u64 >= EMBD_WORKERS_MAX)
            return embd__error_set(e, EMBD_PROTOCOL, "dropped[%u]: invalid worker id", i);
        out->dropped[i] = (uint32_t)items[i].via.u64;
    }
    return e->status;
}

int embd__tick_read(struct reader *r, struct tick_answer *out)
{
    struct fields f;
    embd_clock_report *report = &out->report;
    *out = (struct tick_answer){0};
    embd__read_fields(&f, r, "tick");
    report->slowest = embd__field_uint(&f, "slowest", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    report->n_live = (uint32_t)embd__field_uint(&f, "live", 0, EMBD_WORKERS_MAX, FIELD_REQUIRED);
    report->n_dropped =
        (uint32_t)embd__field_uint(&f, "n_dropped", 0, EMBD_WORKERS_MAX, FIELD_REQUIRED);
    out->epoch = embd__field_uint(&f, "epoch", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    out->clock = embd__field_uint(&f, "clock", 0, UINT64_MAX - 1, FIELD_REQUIRED);
    read_awaited(&f, &out->awaited);
    if (read_dropped(&f, report) == EMBD_OK)
        embd__fields_end(&f);
    return r->error->status;
}

/* ---- the list ---- */

/* NULL: none. */
static struct member *find_member(embd_client *client, const char *job, uint32_t worker)
{
    struct member *m = client->members;
    while (m != NULL && (m->worker != worker || strcmp(m->job, job) != 0))
        m = m->next;
    return m;
}

static struct member *make(embd_client *client, const embd_clock *clock)
{
    struct member *m = calloc(1, sizeof *m + LIMIT_SHARDS * sizeof *m->heartbeats);
    if (m == NULL)
        return NULL;
    strcpy(m->job, clock->job);
    m->worker = clock->worker;
    embd__member_take(m, client->n_shards);
    m->next = client->members;
    client->members = m;
    return m;
}

/* Copies the caller's clock, and sets *clock to the copy. EMBD_INVALID: its struct_bytes. */
static int take_clock(embd_client *client, const embd_clock **clock, embd_clock *own)
{
    *own = (embd_clock)EMBD_CLOCK();
    int status = embd__take(embd_clock, own, *clock, &client->error);
    *clock = own;
    return status;
}

/* The worker that a clock is of. EMBD_INVALID: its job's name is missing, empty or too long;
 * EMBD_NO_MEMORY. */
static int get_member(embd_client *client, const embd_clock *clock, struct member **out)
{
    struct embd__error *e = &client->error;
    if (clock->job == NULL || clock->job[0] == '\0' || strlen(clock->job) > EMBD_NAME_MAX)
        return embd__error_set(e, EMBD_INVALID,
                               "the clock's job has %zu bytes, allowed are 1 to %d",
                               clock->job != NULL ? strlen(clock->job) : 0, EMBD_NAME_MAX);
    *out = find_member(client, clock->job, clock->worker);
    if (*out == NULL)
        *out = make(client, clock);
    return *out != NULL ? EMBD_OK
                        : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a worker's clock");
}

/* ---- joining and leaving ---- */

/* One tick to one shard, whose epoch of the job is known from then on. Errors of embd_tick. */
static int tell_shard(embd_client *client, struct member *member, uint32_t shard,
                      const embd_clock *clock, uint64_t value, enum tick_kind kind,
                      struct tick_answer *out)
{
    struct tick tick = {clock, client->id,         member->heartbeats[shard].epoch,
                        value, kind == TICK_LEAVE, kind == TICK_BEAT};
    struct answer *answer;
    embd__tick_write(embd__request_begin(client, METHOD_TICK), &tick);
    int status = embd__request(client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = embd__tick_read(&answer->reader, out);
    if (status == EMBD_OK)
        member->heartbeats[shard].epoch = out->epoch;
    embd__answer_free(answer);
    return status;
}

/* Every shard has taken it in: it sends heartbeats from now on. EMBD_NO_MEMORY. */
static int note_joined(embd_client *client, struct member *member, const embd_clock *clock,
                       uint64_t value)
{
    member->has_joined = true;
    member->is_late = false;
    member->n_workers = clock->n_workers;
    member->lease_ms = clock->lease_ms;
    member->asynchronous = clock->asynchronous;
    member->value = value;
    return embd__heartbeats_add(client, member);
}

/* Every shard knows it, with that clock. Nothing where that is so. EMBD_LATE, and errors of
 * embd_tick. */
static int join_all(embd_client *client, struct member *member, const embd_clock *clock,
                    uint64_t value, struct tick_answer *out)
{
    if (member->has_joined)
        return EMBD_OK;
    for (uint32_t shard = client->n_shards; shard-- > 0;)
        if (shard < client->n_shards && /* which may have fallen */
            tell_shard(client, member, shard, clock, value, TICK_CLOCK, out) != EMBD_OK) {
            if (embd__client_has_shrunk(client))
                continue;
            member->is_late |= client->error.status == EMBD_LATE;
            return client->error.status;
        }
    return note_joined(client, member, clock, value);
}

static void forget_member(embd_client *client, struct member *member)
{
    struct member **at = &client->members;
    while (*at != member)
        at = &(*at)->next;
    *at = member->next;
    embd__heartbeats_remove(client, member);
}

void embd__members_fini(embd_client *client)
{
    while (client->members != NULL)
        forget_member(client, client->members);
    embd__heartbeats_close(client);
}

/* ---- pushes to a round ---- */

int embd__clock_take_round(embd_client *client, const embd_clock *clock, uint64_t value,
                           struct push_round *round_out, const struct member **member_out)
{
    struct member *member;
    struct tick_answer ignored;
    embd_clock own;
    if (take_clock(client, &clock, &own) != EMBD_OK)
        return client->error.status;
    if (clock->n_workers == 0)
        return embd__error_set(&client->error, EMBD_INVALID, "the round's n_workers is 0");
    if (get_member(client, clock, &member) != EMBD_OK ||
        join_all(client, member, clock, value, &ignored) != EMBD_OK)
        return client->error.status;
    *round_out = (struct push_round){.worker = clock->worker,
                                     .n_workers = clock->n_workers,
                                     .clock = value,
                                     .lease_ms = clock->lease_ms,
                                     .incarnation = client->id};
    strcpy(round_out->job, clock->job);
    *member_out = member;
    return EMBD_OK;
}

static void awaited_text(const struct awaited *awaited, char out[AWAITED_TEXT])
{
    uint64_t ms = (uv_hrtime() - awaited->seen_ns) / 1000000;
    if (!awaited->has_joined)
        snprintf(out, AWAITED_TEXT, "waits for worker %u, which has not joined", awaited->worker);
    else
        snprintf(out, AWAITED_TEXT, "waits for worker %u, last seen %llu.%llu s ago, at clock %llu",
                 awaited->worker, (unsigned long long)(ms / 1000),
                 (unsigned long long)(ms % 1000 / 100), (unsigned long long)awaited->clock);
}

void embd__member_push_failed(embd_client *client, const struct push_round *round)
{
    struct member *member = find_member(client, round->job, round->worker);
    struct embd__error e = client->error;
    struct awaited awaited;
    char text[AWAITED_TEXT];
    if (member == NULL)
        return;
    member->is_late |= e.status == EMBD_LATE;
    if (e.status != EMBD_DEADLINE || !embd__heartbeats_awaited(client, member, &awaited))
        return;
    awaited_text(&awaited, text);
    client->error.status = EMBD_OK;
    embd__error_set(&client->error, e.status, "%.700s; job '%s' %s", e.text, round->job, text);
}

/* ---- the public clock: one tick ---- */

static int refuse_late(embd_client *client, const struct member *member)
{
    return embd__error_set(
        &client->error, EMBD_LATE,
        "worker %u of job '%s' is late; it has to rejoin at the job's clock (embd_tick_rejoin)",
        member->worker, member->job);
}

/* The caller's clock as `own`, and the worker that it is of. */
static int take_worker(embd_client *client, const embd_clock **clock, embd_clock *own,
                       struct member **out)
{
    int status = take_clock(client, clock, own);
    return status == EMBD_OK ? get_member(client, *clock, out) : status;
}

/* The worker's clock to shard 0, and with the first one to all. */
static int tick(embd_client *client, struct member *member, const embd_clock *clock, uint64_t value,
                struct tick_answer *out)
{
    if (member->is_late)
        return refuse_late(client, member);
    if (!member->has_joined)
        return join_all(client, member, clock, value, out);
    int status = tell_shard(client, member, 0, clock, value, TICK_CLOCK, out);
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
    embd_clock own;
    client->error = (struct embd__error){0};
    int status = take_worker(client, &clock, &own, &member);
    if (status == EMBD_OK)
        status = tick(client, member, clock, value, &answer);
    if (status == EMBD_OK && report_out != NULL)
        *report_out = answer.report;
    return embd__error_keep(&client->error, status);
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
        awaited_text(&answer->awaited, awaited);
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
    embd_clock own;
    uint64_t end_ns = end_of(client, deadline_ms), pause_ns = PAUSE_MIN_NS;
    client->error = (struct embd__error){0};
    int status = take_worker(client, &clock, &own, &member);
    while (status == EMBD_OK) {
        status = tick(client, member, clock, value, &answer);
        if (status != EMBD_OK || value <= staleness || answer.report.slowest >= value - staleness)
            break;
        if (uv_hrtime() >= end_ns)
            return embd__error_keep(&client->error,
                                    fail_waiting(client, clock, value, staleness, &answer));
        pause_for(&pause_ns);
    }
    if (status == EMBD_OK && report_out != NULL)
        *report_out = answer.report;
    return embd__error_keep(&client->error, status);
}

/* ---- rejoining ---- */

/* The greatest clock that the job is at on any shard. */
static int find_clock(embd_client *client, struct member *member, const embd_clock *clock,
                      uint64_t *value)
{
    struct tick_answer answer;
    uint64_t greatest = *value > member->value ? *value : member->value;
    for (uint32_t shard = 0; shard < client->n_shards; shard++) {
        int status = tell_shard(client, member, shard, clock, *value, TICK_BEAT, &answer);
        if (status != EMBD_OK && embd__client_has_shrunk(client))
            break;
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
        if (shard >= client->n_shards)
            continue;
        int status = tell_shard(client, member, shard, clock, value, TICK_CLOCK, out);
        if (status != EMBD_OK && embd__client_has_shrunk(client))
            continue;
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
    embd_clock own;
    uint64_t at = *value, end_ns = end_of(client, 0), pause_ns = PAUSE_MIN_NS;
    client->error = (struct embd__error){0};
    int status = take_worker(client, &clock, &own, &member);
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
        return embd__error_keep(&client->error,
                                embd__error_set(&client->error, status,
                                                "job '%.63s' advances too fast to join it",
                                                clock->job));
    client->error = (struct embd__error){0};
    *value = at;
    if (report_out != NULL)
        *report_out = answer.report;
    return embd__error_keep(&client->error, note_joined(client, member, clock, at));
}

/* ---- leaving ---- */

int embd_tick_leave(embd_client *client, const embd_clock *clock, uint64_t value)
{
    struct tick_answer answer;
    struct member *member;
    embd_clock own;
    client->error = (struct embd__error){0};
    int status = take_worker(client, &clock, &own, &member);
    for (uint32_t shard = 0; shard < client->n_shards && status == EMBD_OK; shard++)
        status = tell_shard(client, member, shard, clock, value, TICK_LEAVE, &answer);
    if (status != EMBD_OK && embd__client_has_shrunk(client))
        status = EMBD_OK; /* the shards before those that left know it */
    if (status == EMBD_OK)
        forget_member(client, member);
    return embd__error_keep(&client->error, status);
}
