/* tunnel.c - see tunnel.h. */
#include "tunnel.h"

#include <stdlib.h>
#include <string.h>

/* Plaintext of one record. */
#define RECORD_PLAIN (16u << 10)

struct tunnel *tunnel_open(struct hub *hub, struct embd__error *e)
{
    struct tunnel *tunnel = calloc(1, sizeof *tunnel);
    if (tunnel == NULL || !frame_budget_take(hub->pool.budget, TLS_SESSION_BYTES)) {
        free(tunnel);
        embd__error_set(e, EMBD_BUSY, "no memory for a TLS session (frame_memory)");
        return NULL;
    }
    if (embd__tls_open(hub->keys.tls, NULL, &tunnel->session, e) == EMBD_OK)
        return tunnel;
    frame_budget_give(hub->pool.budget, TLS_SESSION_BYTES);
    free(tunnel);
    return NULL;
}

void tunnel_close(struct tunnel *tunnel, struct hub *hub)
{
    if (tunnel == NULL)
        return;
    embd__tls_close(tunnel->session);
    frame_budget_give(hub->pool.budget, TLS_SESSION_BYTES);
    free(tunnel->rest);
    free(tunnel);
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
    size_t first, n;
    tunnel->rest = embd__tls_detach(tunnel->session, &first, &n);
    if (tunnel->rest == NULL)
        return false;
    tunnel->rest_buf = uv_buf_init((char *)tunnel->rest + first, (unsigned)n);
    return true;
}

void tunnel_rest_sent(struct tunnel *tunnel)
{
    free(tunnel->rest);
    tunnel->rest = NULL;
}
