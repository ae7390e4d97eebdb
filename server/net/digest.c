/* digest.c - bytes into requests: the frames of a connection, one after the other, as far as it may
 * begin them now.
 *
 * The happy path: digest_bytes is handed what was received; intake.h finds the end of a frame; the
 * shard gets it. Where a further request has to wait (too many in flight, answers not taken, frame
 * memory short, the turn of others), the rest of the bytes is kept and reading stops. */
#include <stdlib.h>
#include <string.h>

#include "server/log/log.h"
#include "server/net/reserve.h"
#include "server/net/steps.h"
#include "server/net/strangers.h"

enum {
    TURN_REQUESTS = 32,          /* begun before others get a turn */
    HELD_ANSWER_BYTES = 1 << 20, /* of heads of answers that a peer has not taken */
};

/* ---- room ---- */

/* One frame may always come, so that every allowed one can; and no more than one of a stranger, and
 * while frame memory is short, so that those who have many leave some. */
bool digest_is_full(const struct connection *c)
{
    if (c->n_in_flight > 0 && frame_budget_is_tight(c->hub->pool.budget))
        return true;
    if (c->n_in_flight > 0 && c->is_stranger)
        return true;
    return c->n_in_flight >= LIMIT_REQUESTS_IN_FLIGHT || c->answer_bytes >= HELD_ANSWER_BYTES ||
           c->bin_bytes >= c->hub->limits.frame_bytes;
}

/* ---- requests ---- */

/* The error to a peer whose stream makes no sense: for the request that was arriving where its id
 * is known. */
static void lose_step(struct connection *c, const struct embd__error *e)
{
    struct exchange *x = intake_take(&c->intake);
    struct msg *answer = &x->request.answer;
    if (x->frame.has_msgid && x->frame.type == 0)
        embd__msg_error(answer, x->frame.msgid, e->status, e->text);
    else
        embd__msg_error_notice(answer, e->status, e->text);
    c->n_in_flight++;
    c->hub->frame_errors++;
    log_event(LOG_WARN, "stream_out_of_step", "shard=%u peer=%s why=\"%s\"", c->hub->shard_index,
              c->peer, e->text);
    outlet_add(&c->outlet, x);
    connection_finish(c);
}

static void take_request(struct connection *c, struct exchange *x)
{
    c->n_in_flight++;
    x->request.listener = c->listener;
    x->request.session = &c->session;
    x->request.on_answer = connection_on_answer;
    x->request.received_ns = uv_hrtime();
    if (x->refusal.status != EMBD_OK) {
        exchange_refuse(x);
        outlet_add(&c->outlet, x);
        return;
    }
    x->is_with_shard = true;
    shard_handle(c->hub->shard, &x->request);
}

/* The arriving frame is complete. */
static void take_frame(struct connection *c)
{
    struct exchange *x = c->intake.arriving;
    if (x->frame.type == 1) {
        struct embd__error e = {0};
        embd__error_set(&e, EMBD_MALFORMED,
                        "the message type is 1, an answer, but nothing was asked");
        lose_step(c, &e);
        return;
    }
    intake_take(&c->intake);
    if (x->frame.type == 2)
        connection_forget(c, x, false); /* notifications mean nothing here */
    else
        take_request(c, x);
}

/* Nothing more is read until there is memory again: sweep.c tries. */
static void starve(struct connection *c)
{
    c->is_starved = true;
}

static bool begin_frame(struct connection *c)
{
    struct exchange *x = exchange_new(c->hub, c);
    if (x == NULL) {
        starve(c);
        return false;
    }
    TAILQ_INSERT_TAIL(&c->exchanges, x, in_connection);
    c->n_begun++;
    intake_begin(&c->intake, x);
    c->in = (struct watch){.since_ms = connection_now_ms(c->hub), .bytes = c->bytes_in};
    return true;
}

static size_t eat(struct connection *c, const uint8_t *p, size_t n)
{
    struct embd__error e = {0};
    size_t used;
    int event = intake_eat(&c->intake, c->hub, p, n, &used, &e);
    if (event < 0)
        lose_step(c, &e);
    else if (event == INTAKE_FRAME)
        take_frame(c);
    else if (event == INTAKE_WAIT)
        starve(c);
    return used;
}

void digest_next_turn(struct connection *c)
{
    if (!c->is_resting)
        TAILQ_INSERT_TAIL(&c->hub->resting, c, in_resting);
    c->is_resting = true;
}

/* False: it has begun enough for now. */
static bool has_turn(struct connection *c)
{
    struct hub *hub = c->hub;
    if (c->turn != hub->turn)
        c->n_begun = 0;
    c->turn = hub->turn;
    if (c->n_begun < TURN_REQUESTS)
        return true;
    digest_next_turn(c);
    return false;
}

/* Whether a further request may begin; makes room by sending where it can. */
static bool may_begin(struct connection *c)
{
    strangers_look_at(c); /* the frame before may have been hello */
    if (digest_is_full(c))
        connection_flush(c);
    return c->state == CONNECTION_OPEN && !digest_is_full(c) && has_turn(c);
}

size_t digest_bytes(struct connection *c, const uint8_t *p, size_t n)
{
    size_t at = 0;
    do {
        if (c->state != CONNECTION_OPEN)
            return n;
        if (intake_is_between_frames(&c->intake) && (at == n || !may_begin(c) || !begin_frame(c)))
            break;
        at += eat(c, p + at, n - at);
    } while (at < n && !c->is_starved);
    return c->state == CONNECTION_OPEN ? at : n;
}

/* ---- what is kept ---- */

void digest_drop_kept(struct connection *c)
{
    if (c->kept == NULL)
        return;
    frame_budget_give(c->hub->pool.budget, c->kept_at + c->kept_bytes);
    free(c->kept);
    c->kept = NULL;
    c->kept_bytes = 0;
}

void digest_keep(struct connection *c, const uint8_t *p, size_t n)
{
    if (n == 0)
        return;
    c->kept = malloc(n);
    if (c->kept == NULL) {
        connection_drop(c, "out of memory");
        return;
    }
    memcpy(c->kept, p, n);
    c->kept_at = 0;
    c->kept_bytes = n;
    reserve_spend(c->hub, n);
}

void digest_kept(struct connection *c)
{
    /* Taken out first: what follows may close the connection. */
    uint8_t *kept = c->kept;
    size_t at = c->kept_at, n = c->kept_bytes;
    c->kept = NULL;
    c->kept_bytes = 0;
    size_t used = digest_bytes(c, kept + at, n);
    if (used == n || c->state != CONNECTION_OPEN) {
        frame_budget_give(c->hub->pool.budget, at + n);
        free(kept);
        return;
    }
    c->kept = kept;
    c->kept_at = at + used;
    c->kept_bytes = n - used;
}

/* ---- going on ---- */

void digest_retry(struct connection *c)
{
    c->is_starved = false;
    if (c->kept_bytes > 0)
        digest_kept(c);
    else
        digest_bytes(c, c->hub->read_buffer, 0);
    connection_go(c);
}

bool connection_turn(struct hub *hub)
{
    struct connection *c;
    hub->turn++;
    while ((c = TAILQ_FIRST(&hub->resting)) != NULL && c->turn != hub->turn) {
        TAILQ_REMOVE(&hub->resting, c, in_resting);
        c->is_resting = false;
        digest_retry(c);
    }
    return !TAILQ_EMPTY(&hub->resting);
}
