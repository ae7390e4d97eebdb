/* handle_hold.c - hold and release.
 *
 * For one cut over several shards: the answer says how far each client has come on this shard, and
 * the holder says which pushes must still be let in, because other shards have them
 * (push_progress.h). */
#include <stdlib.h>

#include "server/log/log.h"
#include "server/service/state.h"

struct hold_request {
    uint64_t timeout_ms;
    bool asks_clients;
    uint32_t n_clients;
    struct push_progress_mark *marks; /* malloc'd; NULL: none */
};

/* The clients' numbers and msgids are two bins, where there are any. */
static int read_marks(struct call *call, struct hold_request *out)
{
    uint32_t n = out->n_clients;
    if (n == 0)
        return EMBD_OK;
    const uint64_t *clients = embd__read_bin(&call->reader, "clients", n * sizeof *clients);
    const uint32_t *pushed = embd__read_bin(&call->reader, "pushed", n * sizeof *pushed);
    if (call->error.status != EMBD_OK)
        return call->error.status;
    out->marks = malloc(n * sizeof *out->marks);
    if (out->marks == NULL)
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for %u clients", n);
    for (uint32_t i = 0; i < n; i++)
        out->marks[i] = (struct push_progress_mark){clients[i], pushed[i]};
    return EMBD_OK;
}

static int read_hold(struct call *call, struct hold_request *out)
{
    struct fields f;
    embd__read_fields(&f, &call->reader, "hold");
    out->timeout_ms = embd__field_uint(&f, "timeout_ms", 1, HOLD_MAX_MS, HOLD_DEFAULT_MS);
    out->asks_clients = embd__field_has(&f, "clients");
    out->n_clients = (uint32_t)embd__field_uint(&f, "clients", 0, PUSH_PROGRESS_MAX, 0);
    if (embd__fields_end(&f) != EMBD_OK || read_marks(call, out) != EMBD_OK)
        return call->error.status;
    return embd__reader_end(&call->reader);
}

/* How far the pushes of those that the holder asks for are in the tables, as these or a journal
 * tell, which may be further than others have come: the server may have started again, and the
 * client not be back. Into marks; returns how many. */
static uint32_t add_reached(const struct shard *shard, const struct hold_request *hold,
                            struct push_progress_mark *marks)
{
    const struct engine *engine = &shard->engine;
    uint32_t n = 0, place;
    for (uint32_t i = 0; i < hold->n_clients; i++) {
        uint64_t client = hold->marks[i].client;
        if (sources_find(&engine->journaled_sources, client, &place))
            marks[n++] = (struct push_progress_mark){client, place};
        if (sources_find(&engine->sources, client, &place))
            marks[n++] = (struct push_progress_mark){client, place};
    }
    return n;
}

/* Clients that pushed lately, and those that the holder asks for, each once. */
static uint32_t list_clients(struct shard *shard, const struct hold_request *hold,
                             struct push_progress_mark **out)
{
    uint32_t n = push_progress_list(&shard->push_progress, shard->now_ns, 2 * hold->n_clients, out);
    if (*out == NULL)
        return 0;
    n += add_reached(shard, hold, *out + n);
    return push_progress_merge(*out, n);
}

/* How far the clients have come, as it is before anything is let in. */
static int answer_clients(struct call *call, const struct hold_request *hold)
{
    struct push_progress_mark *marks;
    uint32_t n = list_clients(call->shard, hold, &marks);
    uint64_t *bins = marks == NULL ? NULL : malloc((n + 1) * (sizeof(uint64_t) + sizeof(uint32_t)));
    if (bins == NULL) {
        free(marks);
        return embd__error_set(&call->error, EMBD_NO_MEMORY, "no memory for a list of clients");
    }
    uint32_t *pushed = (uint32_t *)(bins + n);
    for (uint32_t i = 0; i < n; i++) {
        bins[i] = marks[i].client;
        pushed[i] = marks[i].pushed;
    }
    free(marks);
    call->work->memory = bins;
    embd__msg_map(call->answer, 1);
    embd__msg_field_uint(call->answer, "clients", n);
    embd__msg_bin(call->answer, bins, n * sizeof *bins);
    embd__msg_bin(call->answer, pushed, n * sizeof *pushed);
    return EMBD_OK;
}

int handle_hold(struct call *call)
{
    struct shard *shard = call->shard;
    struct shard_session *session = call->request->session;
    struct hold_request hold = {.marks = NULL};
    if (read_hold(call, &hold) != EMBD_OK) {
        free(hold.marks);
        return call->error.status;
    }
    if (!session->holds)
        log_event(LOG_INFO, "hold_taken", "shard=%u timeout_ms=%llu", shard->config.index,
                  (unsigned long long)hold.timeout_ms);
    hold_begin(&shard->hold, session, shard->now_ns, hold.timeout_ms * UINT64_C(1000000));
    embd__msg_result(call->answer, call->reader.msgid);
    if (!hold.asks_clients)
        embd__msg_map(call->answer, 0);
    else if (answer_clients(call, &hold) != EMBD_OK)
        hold.n_clients = 0;
    hold_let_in(&shard->hold, session, hold.marks, hold.n_clients);
    return call->error.status;
}

/* Parked requests go on after the answer to this. */
int handle_release(struct call *call)
{
    struct shard *shard = call->shard;
    struct shard_session *session = call->request->session;
    struct fields f;
    embd__read_fields(&f, &call->reader, "release");
    if (call_end(call, &f) != EMBD_OK)
        return call->error.status;
    if (!session->holds)
        return embd__error_set(
            &call->error, EMBD_INVALID,
            "release: this connection holds nothing; a hold ends by itself after its timeout_ms");
    uint64_t since_ns = shard->hold.waiting_since_ns;
    uint64_t held_us = since_ns == 0 ? 0 : (shard->now_ns - since_ns) / 1000;
    hold_end(&shard->hold, session);
    log_event(LOG_INFO, "hold_released", "shard=%u held_us=%llu", shard->config.index,
              (unsigned long long)held_us);
    embd__msg_result(call->answer, call->reader.msgid);
    embd__msg_map(call->answer, 1);
    embd__msg_field_uint(call->answer, "held_us", held_us);
    return EMBD_OK;
}
