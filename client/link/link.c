/* link.c - the happy path: the first exchange makes the link connect and greet; once the hello is
 * answered, exchanges are written in the order they came, up to LIMIT_REQUESTS_IN_FLIGHT unanswered
 * ones; answers are paired by msgid, in any order.
 *
 *     IDLE -> CONNECTING -> SECURING -> GREETING -> READY
 *       ^         |            |           |          |
 *       +-- WAITING <----------+-----------+----------+
 *
 * On the way back exchanges that were sent fail, but for those that may be sent again; these and
 * the others wait for the next connection, until their deadlines. SECURING is the TLS handshake,
 * where there is TLS. link_state.h says which file does what.
 *
 * What can fail: connecting (again after a pause that doubles), the greeting (wrong version or
 * wrong shard: what waits fails), the connection (what was sent fails with EMBD_CLOSED), an answer
 * that is not what was asked for (fails alone where the stream is still in step), a deadline. An
 * exchange whose deadline passes while its answer is due is forgotten: the msgid stays known and
 * the answer is dropped. One that is half written takes the connection with it, because its bytes
 * are the caller's and a frame cannot be taken back. */
#include "client/link/link.h"

#include <stdlib.h>
#include <string.h>

#include "client/link/link_state.h"

void embd__link_send(struct link *link, struct exchange *x)
{
    embd__queue_push(&link->queue, x);
    if (x->deadline_ns < link->deadline_armed_ns)
        embd__deadlines_arm(link, x->deadline_ns);
    bool is_urgent = link->next_try_ns >= x->deadline_ns; /* the pause would outlast it */
    if (is_urgent && (link->state == LINK_IDLE || link->state == LINK_WAITING))
        embd__connect_begin(link);
    else if (link->state == LINK_IDLE)
        embd__connect_want(link);
    else if (!link->is_blocked)
        embd__sending_more(link);
}

void embd__link_go_on(struct exchange *x)
{
    x->held = 0;
    if (x->state != EXCHANGE_IDLE && !x->link->is_blocked)
        embd__sending_more(x->link);
}

static void on_timer_closed(uv_handle_t *handle)
{
    struct link *link = handle->data;
    if (--link->open_handles > 0)
        return;
    embd__receive_fini(&link->receiver);
    embd__msg_fini(&link->hello.msg);
    msgpack_zone_destroy(&link->zone);
    free(link);
}

static int init_parts(struct link *link, struct embd__error *e)
{
    const struct link_config *config = &link->config;
    if (!config->is_path) {
        int status = embd__address_read(config->address, strlen(config->address), &link->host, e);
        if (status != EMBD_OK)
            return status;
    }
    if (!msgpack_zone_init(&link->zone, 1024))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a link");
    int status = embd__receive_init(&link->receiver, e);
    if (status != EMBD_OK)
        msgpack_zone_destroy(&link->zone);
    return status;
}

int embd__link_open(const struct link_config *config, struct link **out, struct embd__error *e)
{
    struct link *link = calloc(1, sizeof *link);
    if (link == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a link");
    link->config = *config;
    int status = init_parts(link, e);
    if (status != EMBD_OK) {
        free(link);
        return status;
    }
    embd__queue_init(&link->queue);
    link->pause_ms = config->reconnect_min_ms;
    link->attempt_ms = LIVENESS_ATTEMPT_MS;
    link->deadline_armed_ns = UINT64_MAX;
    link->frame_bytes = LIMIT_FRAME_BYTES;
    link->keys = LIMIT_KEYS;
    embd__answers_init(link);
    embd__connect_init(link);
    uv_timer_init(config->loop, &link->retry);
    uv_timer_init(config->loop, &link->deadline);
    link->retry.data = link->deadline.data = link;
    link->open_handles = 2;
    *out = link;
    return EMBD_OK;
}

void embd__link_close(struct link *link)
{
    embd__channel_close(&link->channel);
    embd__socket_close(link->socket);
    link->socket = NULL;
    link->state = LINK_CLOSED;
    embd__connect_forget_hello(link);
    embd__ends_waiting(link, EMBD_CLOSED, "the client was closed");
    embd__ends_sent(link, EMBD_CLOSED, "the client was closed");
    uv_close((uv_handle_t *)&link->retry, on_timer_closed);
    uv_close((uv_handle_t *)&link->deadline, on_timer_closed);
}

bool embd__link_is_up(const struct link *link)
{
    return link->state == LINK_READY;
}

int embd__link_move(struct link *link, const char *address, bool is_path, struct embd__error *e)
{
    struct address host = link->host;
    if (!is_path && embd__address_read(address, strlen(address), &host, e) != EMBD_OK)
        return e->status;
    link->host = host;
    link->config.address = address;
    link->config.is_path = is_path;
    link->pause_ms = link->config.reconnect_min_ms;
    link->attempt_ms = LIVENESS_ATTEMPT_MS;
    link->next_try_ns = 0;
    if (link->state == LINK_WAITING) {
        uv_timer_stop(&link->retry);
        embd__connect_begin(link);
    }
    return EMBD_OK;
}

void embd__link_leave(struct link *link)
{
    if (link->state != LINK_IDLE && link->state != LINK_WAITING && link->state != LINK_CLOSED)
        embd__connect_leave(link);
}

const char *embd__link_address(const struct link *link)
{
    return link->config.address;
}

uint64_t embd__link_frame_bytes(const struct link *link)
{
    return link->frame_bytes;
}

uint64_t embd__link_keys(const struct link *link)
{
    return link->keys;
}
