/* coordinate.c - see coordinate.h.
 *
 * The happy path: `start` hands the order to the coordinator and is answered with the job;
 * `progress` answers its progress, and `rate` how fast rows may move. `start` and `cancel` bring an
 * admin's credentials for other servers: its token, and the authorities it trusts. What a trainer
 * brings is not used: for it this server shows its own token, and asks only servers that it trusts
 * itself. */
#include "server/snapshot/coordinate.h"

#include <stdlib.h>
#include <string.h>

#include "proto/placement_wire.h"
#include "server/access/access.h"
#include "server/service/authorize.h"
#include "server/snapshot/snapshot_rights.h"
#include "server/snapshot/snapshot_scope.h"

/* With `shards` the map adds some, and says where they are; or with `retires` the last ones
 * leave. */
static void read_move(struct call *call, struct fields *f, struct job_order *order)
{
    const msgpack_object *items = NULL;
    bool retires = embd__field_bool(f, "retires", false);
    uint32_t own = call->shard->config.n_shards, least = retires ? 1 : own,
             most = retires ? own - 1 : LIMIT_SHARDS,
             n = (uint32_t)embd__field_uint(f, "shards", least, most, retires ? 0 : own);
    if (retires && n == 0)
        embd__error_set(&call->error, EMBD_INVALID,
                        "snapshot field 'shards' is missing: 'retires' leaves so many of the "
                        "cluster's %u shards",
                        own);
    embd__placement_read(f, n, &order->place);
    order->added = n > own ? calloc(n - own, sizeof *order->added) : NULL;
    if (n <= own)
        return;
    uint32_t n_added = embd__field_list_required(f, "members", LIMIT_SHARDS, &items);
    if (order->added == NULL)
        embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for %u shards", n);
    else if (call->error.status == EMBD_OK && n_added != n - own)
        embd__error_set(&call->error, EMBD_INVALID,
                        "snapshot field 'members' has %u shards, %u are to be added", n_added,
                        n - own);
    for (uint32_t i = 0; i < n_added && call->error.status == EMBD_OK; i++)
        embd__shard_entry_read(&call->reader, &items[i], &order->added[i]);
    order->n_added = n_added;
}

static uint64_t read_rate(struct call *call, struct fields *f)
{
    uint64_t rate = embd__field_uint(f, "rate", 0, LIMIT_RATE_MOST, 0);
    if (rate > 0 && rate < LIMIT_RATE_LEAST && call->error.status == EMBD_OK)
        embd__error_set(&call->error, EMBD_INVALID,
                        "snapshot field 'rate' is %llu bytes a second, below the minimum of %u; 0 "
                        "is no limit",
                        (unsigned long long)rate, LIMIT_RATE_LEAST);
    return rate;
}

void coordinate_read(struct call *call, struct fields *f, enum coordinate what,
                     struct coordinate_request *out)
{
    struct job_order *order = &out->order;
    *out = (struct coordinate_request){.job = 0};
    if (what == COORDINATE_GO)
        out->job = embd__field_uint(f, "job", 1, UINT64_MAX, FIELD_REQUIRED);
    if (what == COORDINATE_START) {
        embd__field_str(f, "base", order->base, sizeof order->base, "");
        order->keep = (uint32_t)embd__field_uint(f, "keep", 1, UINT32_MAX, 0);
        order->has_files = embd__field_bool(f, "files", false);
        order->is_read = embd__field_bool(f, "read", false);
        embd__field_str(f, "table", order->table, sizeof order->table, "");
        embd__scope_read(f, &order->scope);
        order->is_move = embd__field_has(f, "placement");
        if (order->is_move) {
            read_move(call, f, order);
            order->rate = read_rate(call, f);
        }
        order->staged = embd__field_uint(f, "staged", 1, UINT64_MAX, 0);
        if (order->staged != 0)
            order->n_staged =
                (uint32_t)embd__field_uint(f, "staged_tables", 1, LIMIT_TABLES, FIELD_REQUIRED);
    }
    out->sets_rate = what == COORDINATE_RATE && embd__field_has(f, "rate");
    if (out->sets_rate)
        order->rate = read_rate(call, f);
    if (what == COORDINATE_START || what == COORDINATE_CANCEL) {
        embd__field_str(f, "token", out->token, sizeof out->token, "");
        out->believes_system = embd__field_bool(f, "system_ca", false);
        out->has_ca = embd__field_bool(f, "ca", false);
    }
}

static int read_proof(struct call *call, struct coordinate_request *request)
{
    struct peers_proof *proof = &request->order.proof;
    if (request->has_ca) {
        const void *ca =
            embd__read_bin_any(&call->reader, "ca", 1, COORDINATE_CA_MAX, &proof->ca_bytes);
        proof->ca = ca != NULL ? malloc(proof->ca_bytes + 1) : NULL;
        if (proof->ca != NULL)
            memcpy(proof->ca, ca, proof->ca_bytes);
        else if (call->error.status == EMBD_OK)
            embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for authorities");
    }
    proof->believes_system = request->believes_system;
    if (request->token[0] != '\0' && (proof->token = strdup(request->token)) == NULL)
        embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for a token");
    explicit_bzero(request->token, sizeof request->token);
    return call->error.status;
}

/* ---- answers ---- */

static void answer_nothing(struct call *call)
{
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 0);
}

static void answer_report(struct call *call, const struct job_report *report)
{
    struct msg *m = call->answer;
    bool has_failed = report->state == JOB_FAILED;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 10 + 2 * (uint32_t)has_failed);
    embd__msg_field_uint(m, "job", report->id);
    embd__msg_field_str(m, "name", report->name);
    embd__msg_field_str(m, "state", job_state_names[report->state]);
    embd__msg_field_str(m, "phase", job_phase_names[report->phase]);
    embd__msg_field_bool(m, "read", report->is_read);
    embd__msg_field_uint(m, "shards_done", report->shards_done);
    embd__msg_field_uint(m, "rows", report->rows);
    embd__msg_field_uint(m, "bytes", report->bytes);
    embd__msg_field_uint(m, "pause_us", report->pause_us);
    embd__msg_field_uint(m, "elapsed_us", report->elapsed_us);
    if (has_failed) {
        embd__msg_field_uint(m, "error", (uint64_t)-report->error.status);
        embd__msg_field_str(m, "text", report->error.text);
    }
}

static void answer_rate(struct call *call, const struct job_report *report)
{
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 5);
    embd__msg_field_uint(m, "job", report->id);
    embd__msg_field_str(m, "name", report->name);
    embd__msg_field_uint(m, "rate", report->rate);
    embd__msg_field_uint(m, "expected_rows", report->expected_rows);
    embd__msg_field_uint(m, "expected_bytes", report->expected_bytes);
}

/* ---- what is asked ---- */

/* A trainer knows of the jobs of trainers under its prefixes, and of its own. */
static bool may_see(const void *arg, const struct job_report *report)
{
    const struct grant *grant = arg;
    if (report->asker.token[0] == '\0')
        return false;
    return report->asker.principal == grant->principal ||
           (report->job[0] != '\0' && grant_covers(grant, report->job));
}

static struct job_viewer viewer_of(const struct call *call)
{
    const struct grant *bound = authorize_bound(call);
    return bound != NULL ? (struct job_viewer){may_see, bound} : (struct job_viewer){NULL, NULL};
}

/* Tables that take the places of others: each shard checks whose they are. */
#define REPLACE_PREFIX "replace-"

/* Two coordinators at once spoil each other's snapshots: all askers wait for their turn at one. */
static int check_place(struct call *call)
{
    const struct shard_config *config = &call->shard->config;
    if (authorize_bound(call) == NULL || coordinator_is_first(config->coordinator))
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                           "snapshot: shard 0's server coordinates what trainers ask for, and this "
                           "is shard %u: ask there",
                           config->index);
}

static int check_rights(struct call *call, const char *name, const struct job_order *order)
{
    bool is_replace = strncmp(name, REPLACE_PREFIX, sizeof REPLACE_PREFIX - 1) == 0;
    if (order->is_read && snapshot_check_read(call) != EMBD_OK)
        return call->error.status;
    if (order->is_move)
        return authorize_coordinator(call, "snapshot start with 'placement'");
    if (order->staged != 0)
        return is_replace ? EMBD_OK : authorize_name(call, "replacement", name);
    return order->is_abort ? authorize_name(call, "snapshot", name)
                           : snapshot_check_rights(call, name, order->base, &order->scope);
}

static void set_asker(const struct call *call, struct job_order *order)
{
    const struct grant *bound = authorize_bound(call);
    if (bound == NULL)
        return;
    memcpy(order->asker.token, bound->name, sizeof order->asker.token);
    order->asker.principal = bound->principal;
    peers_proof_fini(&order->proof);
}

/* A dump's tables are chosen by its asker. */
static int check_order(struct call *call, const struct job_order *order)
{
    if (order->is_read && embd__scope_fields(&order->scope) > 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "snapshot start: 'job' and 'tables' are of what is written, and "
                               "'read' writes nothing; 'table' names one to read");
    return snapshot_check_scope(call->shard, &order->scope, &call->error);
}

static int start(struct call *call, const char *name, struct job_order *order)
{
    struct job_report report;
    const struct shard_config *config = &call->shard->config;
    memcpy(order->name, name, strlen(name) + 1);
    const struct shard_map map = shard_map_of_admins(call->shard);
    order->addresses = map.addresses;
    order->admin_addresses = map.admin_addresses;
    order->admin_hosts = map.admin_hosts;
    bool needs_asker = order->is_read || order->has_files;
    if (check_place(call) != EMBD_OK || check_rights(call, name, order) != EMBD_OK ||
        check_order(call, order) != EMBD_OK) {
        peers_proof_fini(&order->proof);
        return call->error.status;
    }
    set_asker(call, order);
    if (coordinator_start(config->coordinator, order, &report, &call->error) != EMBD_OK)
        return call->error.status;
    if (needs_asker)
        call->request->session->asked_job = report.id;
    answer_report(call, &report);
    return EMBD_OK;
}

static int look(struct call *call, const char *name)
{
    struct job_report report;
    struct coordinator *coordinator = call->shard->config.coordinator;
    const struct job_viewer viewer = viewer_of(call);
    coordinator_hear(coordinator, &viewer, name);
    if (coordinator_look(coordinator, &viewer, name, &report, &call->error) == EMBD_OK)
        answer_report(call, &report);
    return call->error.status;
}

static int rate(struct call *call, const char *name, const struct coordinate_request *request)
{
    struct job_report report;
    struct coordinator *coordinator = call->shard->config.coordinator;
    const struct job_viewer admin = {NULL, NULL};
    if (authorize_coordinator(call, "snapshot rate") != EMBD_OK)
        return call->error.status;
    if (request->sets_rate)
        coordinator_set_rate(coordinator, name, request->order.rate, &report, &call->error);
    else
        coordinator_look(coordinator, &admin, name, &report, &call->error);
    if (call->error.status == EMBD_OK)
        answer_rate(call, &report);
    return call->error.status;
}

static int go(struct call *call, const char *name, uint64_t job)
{
    const struct job_viewer viewer = viewer_of(call);
    if (coordinator_go(call->shard->config.coordinator, &viewer, name, job, &call->error) ==
        EMBD_OK)
        answer_nothing(call);
    return call->error.status;
}

/* Where no job of that name runs here, what one has left is removed. Else the answer says how far
 * it was: by that the caller tells whether it was being removed already. */
static int cancel(struct call *call, const char *name, struct job_order *order)
{
    struct embd__error e = {.status = EMBD_OK};
    struct coordinator *coordinator = call->shard->config.coordinator;
    const struct job_viewer viewer = viewer_of(call);
    struct job_report before;
    struct embd__error unknown = {.status = EMBD_OK};
    coordinator_look(coordinator, &viewer, name, &before, &unknown);
    if (coordinator_cancel(coordinator, &viewer, name, &e) == EMBD_INVALID) {
        order->is_abort = true;
        return start(call, name, order);
    }
    peers_proof_fini(&order->proof);
    if (e.status != EMBD_OK)
        return embd__error_set(&call->error, e.status, "%s", e.text);
    answer_report(call, &before);
    return EMBD_OK;
}

static int check(struct call *call, struct fields *f, enum coordinate what, const char *name)
{
    bool is_any = (what == COORDINATE_PROGRESS || what == COORDINATE_RATE) && name[0] == '\0';
    if (call_end(call, f) != EMBD_OK)
        return call->error.status;
    if (!is_any && snapshot_check_name(name, &call->error) != EMBD_OK)
        return call->error.status;
    if (call->shard->config.coordinator == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "snapshot: this server does not coordinate snapshots");
    return EMBD_OK;
}

static int ask(struct call *call, struct fields *f, enum coordinate what, const char *name,
               struct coordinate_request *request)
{
    struct job_order *order = &request->order;
    if (read_proof(call, request) != EMBD_OK || check(call, f, what, name) != EMBD_OK) {
        peers_proof_fini(&order->proof);
        return call->error.status;
    }
    switch (what) {
    case COORDINATE_START:
        return start(call, name, order);
    case COORDINATE_PROGRESS:
        return look(call, name);
    case COORDINATE_GO:
        return go(call, name, request->job);
    case COORDINATE_CANCEL:
        return cancel(call, name, order);
    case COORDINATE_RATE:
        return rate(call, name, request);
    }
    return call->error.status;
}

int coordinate(struct call *call, struct fields *f, enum coordinate what, const char *name,
               struct coordinate_request *request)
{
    struct job_order *order = &request->order;
    int status = ask(call, f, what, name, request);
    free(order->added); /* where no job has taken it */
    return status;
}
