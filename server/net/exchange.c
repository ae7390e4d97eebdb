/* exchange.c - see exchange.h. */
#include "server/net/exchange.h"

#include "proto/assert.h"

#include "server/net/connection.h"

#include <stdlib.h>

enum { MAX_SPARE = 256 };

static struct exchange *allocate(struct shard_io *io)
{
    if (!quota_take(io->pool.quota, sizeof(struct exchange)))
        return NULL;
    struct exchange *x = aligned_alloc(64, sizeof *x);
    if (x == NULL) {
        quota_give(io->pool.quota, sizeof *x);
        return NULL;
    }
    embd__msg_init(&x->request.answer);
    return x;
}

static void reset(struct exchange *x)
{
    struct msg answer = x->request.answer;
    x->request = (struct request){.frame = &x->frame, .answer = answer};
    x->refusal.status = EMBD_OK;
    x->is_with_shard = false;
    x->is_old = x->is_large = false;
    x->charged_bytes = x->large_bytes = x->answer_bytes = 0;
    x->wait_until_ms = 0;
    x->is_waiting = false;
    x->arena_used = 0;
}

struct exchange *exchange_new(struct shard_io *io, struct connection *connection)
{
    struct exchange *x = STAILQ_FIRST(&io->spare_exchanges);
    if (x != NULL) {
        STAILQ_REMOVE_HEAD(&io->spare_exchanges, in_queue);
        io->n_spare_exchanges--;
    } else {
        x = allocate(io);
    }
    if (x == NULL)
        return NULL;
    reset(x);
    x->connection = connection;
    embd__frame_init(&x->frame, x->head, sizeof x->head,
                     connection->is_unauthenticated ? UNAUTHENTICATED_FRAME_BYTES
                                                    : io->limits.frame_bytes);
    x->frame.takes_shared = connection->session.shared.base != NULL;
    io->n_exchanges++;
    return x;
}

static bool is_in_arena(const struct exchange *x, const uint8_t *data)
{
    return data >= x->arena && data <= x->arena + sizeof x->arena;
}

static void give_bins(struct shard_io *io, struct exchange *x)
{
    for (uint32_t i = 0; i < x->frame.n_bins; i++) {
        struct frame_bin *bin = &x->frame.bins[i];
        if (bin->data != NULL && !is_in_arena(x, bin->data))
            frame_pool_give(&io->pool, bin->data, bin->bytes);
        bin->data = NULL;
    }
    x->connection->bin_bytes -= x->charged_bytes;
    quota_give_large(io->pool.quota, x->large_bytes);
    x->charged_bytes = x->large_bytes = 0;
}

static void destroy(struct shard_io *io, struct exchange *x)
{
    embd__msg_fini(&x->request.answer);
    quota_give(io->pool.quota, sizeof *x);
    free(x);
}

void exchange_free(struct shard_io *io, struct exchange *x)
{
    if (x->is_with_shard || x->request.prefetch.is_tried)
        shard_request_fini(io->shard, &x->request);
    give_bins(io, x);
    io->n_exchanges--;
    if (x->is_old)
        io->n_old--;
    quota_give(io->pool.quota, x->answer_bytes);
    if (x->request.answer.head_capacity > EXCHANGE_KEPT_ANSWER) {
        embd__msg_fini(&x->request.answer);
        embd__msg_init(&x->request.answer);
    }
    if (io->n_spare_exchanges == MAX_SPARE) {
        destroy(io, x);
        return;
    }
    STAILQ_INSERT_HEAD(&io->spare_exchanges, x, in_queue);
    io->n_spare_exchanges++;
}

void exchange_trim(struct shard_io *io)
{
    struct exchange *x;
    while ((x = STAILQ_FIRST(&io->spare_exchanges)) != NULL) {
        STAILQ_REMOVE_HEAD(&io->spare_exchanges, in_queue);
        destroy(io, x);
    }
    io->n_spare_exchanges = 0;
}

/* Memory may come back while the peer's bytes wait in the kernel; for ever it is not waited. */
static bool may_wait(const struct shard_io *io, struct exchange *x)
{
    uint64_t now_ms = uv_now(io->uv);
    bool holds_none = x->is_large && x->large_bytes == 0;
    if (x->wait_until_ms == 0)
        x->wait_until_ms = now_ms + (holds_none ? io->limits.stall_ms : EXCHANGE_WAIT_MS);
    return x->refusal.status == EMBD_BUSY && now_ms < x->wait_until_ms;
}

/* Its connection has no room for it beside its requests in flight. */
static bool waits_for_own(const struct shard_io *io, const struct exchange *x, uint32_t bytes)
{
    const struct connection *c = x->connection;
    uint64_t share = EXCHANGE_SHARE(io->limits.frame_bytes);
    return c->n_in_flight > 0 && c->bin_bytes + frame_pool_charge(bytes) > share;
}

static uint8_t *take_large(struct shard_io *io, struct exchange *x, uint32_t bytes)
{
    struct quota *quota = io->pool.quota;
    uint64_t charge = frame_pool_charge(bytes);
    if (!quota_take_large(quota, charge)) {
        embd__error_set(&x->refusal, EMBD_BUSY,
                        "no frame memory for a bin of %u bytes: pushes above %llu bytes have %llu "
                        "of the %llu that they may, half of frame_memory: try again",
                        bytes, (unsigned long long)io->limits.frame_bytes,
                        (unsigned long long)quota_large(quota),
                        (unsigned long long)quota->limit / 2);
        return NULL;
    }
    uint8_t *data = frame_pool_take(&io->pool, bytes, &x->refusal);
    if (data == NULL)
        quota_give_large(quota, charge);
    else
        x->large_bytes += charge;
    return data;
}

static uint8_t *place_in_pool(struct shard_io *io, struct exchange *x, uint32_t bytes)
{
    if (waits_for_own(io, x, bytes)) {
        x->is_waiting = true;
        return NULL;
    }
    uint8_t *data =
        x->is_large ? take_large(io, x, bytes) : frame_pool_take(&io->pool, bytes, &x->refusal);
    if (data != NULL) {
        x->wait_until_ms = 0;
        x->charged_bytes += frame_pool_charge(bytes);
        x->connection->bin_bytes += frame_pool_charge(bytes);
    } else if (may_wait(io, x)) {
        x->is_waiting = true;
        x->refusal.status = EMBD_OK;
    } else {
        give_bins(io, x); /* nobody will read the earlier ones either */
    }
    return data;
}

/* The frame has passed its limit: a push has another one. */
static void check_size(struct shard_io *io, struct exchange *x)
{
    if (!x->connection->is_unauthenticated && embd__frame_is_request(&x->frame, "push")) {
        x->is_large = true;
        x->frame.frame_limit = io->limits.push_bytes;
    }
    if (!embd__frame_over(&x->frame))
        return;
    embd__error_set(&x->refusal, EMBD_TOO_LARGE,
                    "the %s has %llu bytes or more, the limit is %llu%s",
                    x->is_large ? "push" : "frame", (unsigned long long)x->frame.frame_bytes,
                    (unsigned long long)x->frame.frame_limit, x->is_large ? " (push_limit)" : "");
    give_bins(io, x);
}

uint8_t *exchange_place_large(struct shard_io *io, struct exchange *x)
{
    struct frame_bin *bin = &x->frame.bins[x->frame.n_bins - 1];
    if (x->refusal.status == EMBD_OK && embd__frame_over(&x->frame))
        check_size(io, x);
    if (x->refusal.status != EMBD_OK || x->frame.type != 0)
        return NULL;
    bin->data = exchange_has_room(x, bin->bytes) ? exchange_place_small(x, bin->bytes)
                                                 : place_in_pool(io, x, bin->bytes);
    return bin->data;
}

void exchange_refuse(struct exchange *x)
{
    EMBD_ASSERT(!x->is_with_shard && x->refusal.status != EMBD_OK);
    embd__msg_error(&x->request.answer, x->frame.msgid, x->refusal.status, x->refusal.text);
    x->request.state = REQUEST_ANSWERED;
    x->request.has_answer = true;
}
