/* tunnel.c - see tunnel.h. */
#include "server/net/tunnel.h"

#include <stdlib.h>
#include <string.h>

#include "server/net/reserve.h"

/* Plaintext of one record. */
#define RECORD_PLAIN (16u << 10)

struct tunnel *tunnel_open(struct hub *hub, struct embd__error *e)
{
    struct frame_budget *budget = hub->pool.budget;
    if (!frame_budget_take_connection(budget, TLS_HANDSHAKE_BYTES)) {
        embd__error_set(e, EMBD_BUSY, "no memory for a TLS session (frame_memory)");
        return NULL;
    }
    struct tunnel *tunnel = calloc(1, sizeof *tunnel);
    if (tunnel == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a TLS session");
    } else if (embd__tls_open(hub->keys.tls, NULL, &tunnel->session, e) == EMBD_OK) {
        tunnel->session_bytes = TLS_HANDSHAKE_BYTES;
        return tunnel;
    }
    frame_budget_give_connection(budget, TLS_HANDSHAKE_BYTES);
    free(tunnel);
    return NULL;
}

void tunnel_uncharge(struct tunnel *tunnel, struct hub *hub)
{
    if (tunnel == NULL || tunnel->is_ended)
        return;
    frame_budget_give_connection(hub->pool.budget, tunnel->session_bytes);
    frame_budget_give(hub->pool.budget, tunnel->kept_bytes + tunnel->out_bytes);
    tunnel->is_ended = true;
}

void tunnel_close(struct tunnel *tunnel)
{
    if (tunnel == NULL)
        return;
    embd__tls_close(tunnel->session);
    free(tunnel->rest);
    free(tunnel);
}

/* ---- what it holds ---- */

int tunnel_keep(struct tunnel *tunnel, struct hub *hub, struct embd__error *e)
{
    size_t before = tunnel->kept_bytes, left = embd__tls_fed(tunnel->session);
    if (embd__tls_keep(tunnel->session, e) != EMBD_OK)
        return e->status;
    if (left > before)
        reserve_spend(hub, left - before);
    else
        frame_budget_give(hub->pool.budget, before - left);
    tunnel->kept_bytes = left;
    return EMBD_OK;
}

void tunnel_settle(struct tunnel *tunnel, struct hub *hub)
{
    struct frame_budget *budget = hub->pool.budget;
    if (tunnel->is_ended)
        return;
    size_t out = embd__tls_out_bytes(tunnel->session), before = tunnel->out_bytes;
    out = tunnel->rest_bytes + (out > TLS_OUT_BYTES ? out - TLS_OUT_BYTES : 0);
    if (out > before)
        frame_budget_force(budget, out - before);
    else if (out < before)
        frame_budget_give(budget, before - out);
    tunnel->out_bytes = out;
    if (tunnel->session_bytes == TLS_SESSION_BYTES || !embd__tls_is_up(tunnel->session))
        return;
    frame_budget_give_connection(budget, tunnel->session_bytes - TLS_SESSION_BYTES);
    tunnel->session_bytes = TLS_SESSION_BYTES;
}

/* ---- sealing ---- */

/* Where a batch is read: bufs[0] from `offset` on. */
struct cursor {
    const uv_buf_t *bufs;
    uint32_t n;
    size_t offset;
};

/* Small pieces share a record. Returns how many bytes were put together, at most `most`. */
static size_t gather(struct cursor *at, uint8_t *record, size_t most)
{
    size_t n = 0;
    while (at->n > 0 && n < most) {
        size_t left = at->bufs->len - at->offset, take = left < most - n ? left : most - n;
        memcpy(record + n, at->bufs->base + at->offset, take);
        n += take;
        at->offset += take;
        if (take == left) {
            at->bufs++;
            at->n--;
            at->offset = 0;
        }
    }
    return n;
}

int tunnel_seal(struct tunnel *tunnel, const uv_buf_t *bufs, uint32_t n, uint64_t *sealed_out,
                struct embd__error *e)
{
    uint8_t record[RECORD_PLAIN];
    struct cursor at = {bufs, n, 0};
    int status = EMBD_OK;
    *sealed_out = 0;
    while (at.n > 0 && *sealed_out < TUNNEL_SEAL_BYTES && status == EMBD_OK) {
        size_t left = at.bufs->len - at.offset, take;
        if (left >= RECORD_PLAIN) { /* whole records, from where they lie */
            take =
                left < TUNNEL_SEAL_BYTES ? left / RECORD_PLAIN * RECORD_PLAIN : TUNNEL_SEAL_BYTES;
            status = embd__tls_write(tunnel->session, at.bufs->base + at.offset, take, e);
            at.offset += take;
            if (take == left)
                at = (struct cursor){at.bufs + 1, at.n - 1, 0};
        } else {
            take = gather(&at, record, RECORD_PLAIN);
            status = embd__tls_write(tunnel->session, record, take, e);
        }
        *sealed_out += take;
    }
    return status;
}

/* ---- sending ---- */

int tunnel_send(struct tunnel *tunnel, uv_stream_t *stream)
{
    size_t n;
    const uint8_t *bytes = embd__tls_outgoing(tunnel->session, &n);
    if (n == 0)
        return 0;
    uv_buf_t buf = uv_buf_init((char *)(uintptr_t)bytes, (unsigned)n);
    int sent = uv_try_write(stream, &buf, 1);
    if (sent < 0)
        return sent == UV_EAGAIN ? 0 : sent;
    embd__tls_sent(tunnel->session, (size_t)sent);
    return 0;
}

bool tunnel_take_rest(struct tunnel *tunnel)
{
    size_t first, n, bytes = embd__tls_out_bytes(tunnel->session);
    tunnel->rest = embd__tls_detach(tunnel->session, &first, &n);
    if (tunnel->rest == NULL)
        return false;
    tunnel->rest_bytes = bytes;
    tunnel->rest_buf = uv_buf_init((char *)tunnel->rest + first, (unsigned)n);
    return true;
}

void tunnel_rest_sent(struct tunnel *tunnel)
{
    free(tunnel->rest);
    tunnel->rest = NULL;
    tunnel->rest_bytes = 0;
}
