/* request_parser.c - turns bytes into requests: the frames of a connection, one after the other, as
 * far as they may begin now.
 *
 * The happy path: bytes arrive, the frame scanner finds the end of a frame, the shard gets the
 * request. If another request must wait (too many in flight, answers not read, frame memory short,
 * the turn of others), the rest of the bytes is kept and reading stops. The scanner knows the
 * stream's position; this file moves payload, and decides when a request may begin. */
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "server/log/log.h"
#include "server/net/connection_internal.h"

/* ---- the arriving frame ---- */

static void begin(struct request_parser *parser, struct exchange *x)
{
    EMBD_ASSERT(parser->arriving == NULL);
    *parser = (struct request_parser){.arriving = x};
}

static struct exchange *take(struct request_parser *parser)
{
    struct exchange *x = parser->arriving;
    *parser = (struct request_parser){0};
    return x;
}

static size_t eat_payload(struct request_parser *parser, const uint8_t *p, size_t n)
{
    size_t eaten = n < parser->bin_left ? n : parser->bin_left;
    if (parser->bin != NULL && eaten > 0) {
        memcpy(parser->bin, p, eaten);
        parser->bin += eaten;
    }
    parser->bin_left -= (uint32_t)eaten;
    return eaten;
}

/* Where a bin lies that the peer names in memory it shares; NULL, and the request is refused: not
 * in it. */
static const uint8_t *find_shared(struct exchange *x)
{
    const struct shared_memory *shared = &x->connection->session.shared;
    uint64_t at = x->frame.shared_at, bytes = x->frame.bin_bytes;
    if (bytes <= shared->bytes && at <= shared->bytes - bytes)
        return shared->base + at;
    if (x->refusal.status == EMBD_OK)
        embd__error_set(&x->refusal, EMBD_INVALID,
                        "bin %u lies at %llu in shared memory and has %llu bytes; the connection "
                        "shares %llu bytes",
                        x->frame.n_bins - 1, (unsigned long long)at, (unsigned long long)bytes,
                        (unsigned long long)shared->bytes);
    return NULL;
}

static void copy_shared(struct request_parser *parser)
{
    uint32_t bytes =
        parser->shared_left < PARSER_DIRECT_BYTES ? parser->shared_left : PARSER_DIRECT_BYTES;
    memcpy(parser->bin, parser->shared, bytes);
    parser->bin += bytes;
    parser->shared += bytes;
    parser->shared_left -= bytes;
}

/* Copied before anything of it is looked at: the peer can change it at any time. False: the rest
 * comes when others had their turn. */
static bool take_shared(struct request_parser *parser, struct connection *c)
{
    while (parser->bin != NULL && parser->shared_left > 0) {
        if (!turn_may_go_on(&c->turn, c->io->turn))
            return false;
        turn_work(&c->turn, uv_hrtime());
        copy_shared(parser);
    }
    parser->shared = NULL;
    return true;
}

enum {
    SCAN_MORE,  /* all bytes are used, the frame goes on */
    SCAN_WAIT,  /* there is no memory for a bin now: call again later */
    SCAN_TURN,  /* call again when others had their turn */
    SCAN_FRAME, /* the arriving frame is complete */
};

/* Uses p[0 .. *used_out); n may be 0, which ends a frame whose last bin was received directly.
 * Returns one of the above, or a negative status and `e`: the stream is out of step. */
static int scan(struct request_parser *parser, struct shard_io *io, const uint8_t *p, size_t n,
                size_t *used_out, struct embd__error *e)
{
    struct exchange *x = parser->arriving;
    size_t used = 0;
    *used_out = 0;
    if (x->is_waiting)
        parser->bin = exchange_place_bin(io, x);
    while (!x->is_waiting) {
        if (parser->shared != NULL && !take_shared(parser, x->connection))
            return SCAN_TURN;
        used += eat_payload(parser, p + used, n - used);
        *used_out = used;
        if (parser->bin_left > 0)
            return SCAN_MORE;
        size_t scanned;
        int event = embd__frame_scan(&x->frame, p + used, n - used, &scanned, e);
        used += scanned;
        *used_out = used;
        if (event < 0)
            return event;
        if (event == FRAME_DONE)
            return SCAN_FRAME;
        if (event == FRAME_MORE)
            return SCAN_MORE;
        parser->bin_left = event == FRAME_SHARED ? 0 : x->frame.bin_bytes;
        parser->shared = event == FRAME_SHARED ? find_shared(x) : NULL;
        parser->shared_left = x->frame.bin_bytes;
        parser->bin = exchange_place_bin(io, x);
    }
    return SCAN_WAIT;
}

/* When only the end of a request's last bin is missing, the shard begins what it can. */
static void look_ahead(struct connection *c)
{
    const struct request_parser *parser = &c->parser;
    if (parser->bin == NULL || parser->arriving->frame.depth > 0)
        return;
    if (connection_is_open(c) && c->listener == LISTENER_DATA)
        shard_arriving(c->io->shard, &parser->arriving->request,
                       parser->arriving->frame.bin_bytes - parser->bin_left);
}

/* ---- requests ---- */

/* The error to a peer whose stream makes no sense: for the request that was arriving where its id
 * is known. */
static void lose_step(struct connection *c, const struct embd__error *e)
{
    struct exchange *x = take(&c->parser);
    struct msg *answer = &x->request.answer;
    if (x->frame.has_msgid && x->frame.type == 0)
        embd__msg_error(answer, x->frame.msgid, e->status, e->text);
    else
        embd__msg_error_notice(answer, e->status, e->text);
    c->n_in_flight++;
    c->io->frame_errors++;
    log_event(LOG_WARN, "stream_out_of_step", "shard=%u peer=%s why=\"%s\"", c->io->shard_index,
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
    x->request.on_more = connection_on_more;
    x->request.received_ns = uv_hrtime();
    if (x->refusal.status != EMBD_OK) {
        exchange_refuse(x);
        outlet_add(&c->outlet, x);
        return;
    }
    x->is_with_shard = true;
    turn_work(&c->turn, x->request.received_ns);
    shard_handle(c->io->shard, &x->request);
}

/* The arriving frame is complete. */
static void take_frame(struct connection *c)
{
    struct exchange *x = c->parser.arriving;
    if (x->frame.type == 1) {
        struct embd__error e = {0};
        embd__error_set(&e, EMBD_MALFORMED,
                        "the message type is 1, an answer, but the server sent no request");
        lose_step(c, &e);
        return;
    }
    take(&c->parser);
    if (x->frame.type == 2)
        connection_forget(c, x, false); /* notifications mean nothing here */
    else
        take_request(c, x);
}

static bool begin_frame(struct connection *c)
{
    struct exchange *x = exchange_new(c->io, c);
    if (x == NULL) {
        connection_move(c, CONNECTION_STARVED);
        return false;
    }
    TAILQ_INSERT_TAIL(&c->exchanges, x, in_connection);
    begin(&c->parser, x);
    c->in = (struct watch){.since_ms = connection_now_ms(c->io), .bytes = c->bytes_in};
    return true;
}

static size_t eat(struct connection *c, const uint8_t *p, size_t n)
{
    struct embd__error e = {0};
    size_t used;
    int event = scan(&c->parser, c->io, p, n, &used, &e);
    if (event < 0)
        lose_step(c, &e);
    else if (event == SCAN_FRAME)
        take_frame(c);
    else if (event == SCAN_WAIT)
        connection_move(c, CONNECTION_STARVED);
    else if (event == SCAN_TURN)
        connection_move(c, CONNECTION_YIELDING);
    return used;
}

/* False: it has had enough of the shard's thread for now. */
static bool has_turn(struct connection *c)
{
    c->turn.owed_ns += c->session.spent_ns;
    c->session.spent_ns = 0;
    if (turn_may_begin(&c->turn, c->io->turn) &&
        !(c->session.is_behind_sweep && shard_stands_behind_sweep(c->io->shard, &c->session)))
        return true;
    connection_move(c, CONNECTION_YIELDING);
    return false;
}

/* Whether a further request may begin; makes room by sending where it can. */
static bool may_begin(struct connection *c)
{
    connection_look_at_peer(c); /* the frame before may have been hello */
    if (request_parser_is_full(c))
        connection_flush(c);
    return connection_is_open(c) && !request_parser_is_full(c) && has_turn(c);
}

/* Returns the number of bytes used: fewer than n if a request must wait. */
static size_t parse(struct connection *c, const uint8_t *p, size_t n)
{
    size_t at = 0;
    do {
        if (!connection_is_open(c))
            return n;
        if (request_parser_is_between_frames(&c->parser) &&
            (at == n || !may_begin(c) || !begin_frame(c)))
            break;
        at += eat(c, p + at, n - at);
    } while (at < n && c->state != CONNECTION_STARVED && c->state != CONNECTION_YIELDING);
    return connection_is_open(c) ? at : n;
}

/* ---- what is kept ---- */

static void drop_kept(struct connection *c)
{
    if (c->kept == NULL)
        return;
    quota_give(c->io->pool.quota, c->kept_at + c->kept_bytes);
    free(c->kept);
    c->kept = NULL;
    c->kept_bytes = 0;
}

void request_parser_drop(struct connection *c)
{
    if (!request_parser_is_between_frames(&c->parser))
        connection_forget(c, take(&c->parser), false);
    drop_kept(c);
}

static void keep(struct connection *c, const uint8_t *p, size_t n)
{
    c->kept = malloc(n);
    if (c->kept == NULL) {
        connection_drop(c, "out of memory");
        return;
    }
    memcpy(c->kept, p, n);
    c->kept_at = 0;
    c->kept_bytes = n;
    read_allowance_spend(&c->io->allowance, n);
}

static void parse_kept(struct connection *c)
{
    /* Taken out first: what follows may close the connection. */
    uint8_t *kept = c->kept;
    size_t at = c->kept_at, n = c->kept_bytes;
    c->kept = NULL;
    c->kept_bytes = 0;
    size_t used = parse(c, kept + at, n);
    if (used == n || !connection_is_open(c)) {
        quota_give(c->io->pool.quota, at + n);
        free(kept);
        return;
    }
    c->kept = kept;
    c->kept_at = at + used;
    c->kept_bytes = n - used;
}

/* ---- what a connection asks for ---- */

void request_parser_landed(struct connection *c, size_t n)
{
    EMBD_ASSERT(n <= c->parser.bin_left);
    c->parser.bin += n;
    c->parser.bin_left -= (uint32_t)n;
    parse(c, c->io->read_buffer, 0);
    if (c->parser.bin_left > 0)
        look_ahead(c);
}

void request_parser_take(struct connection *c, const uint8_t *p, size_t n)
{
    size_t used = parse(c, p, n);
    if (used < n)
        keep(c, p + used, n - used);
    if (c->parser.bin_left > 0)
        look_ahead(c);
}

void request_parser_go_on(struct connection *c)
{
    if (c->kept_bytes > 0)
        parse_kept(c);
    else
        parse(c, c->io->read_buffer, 0);
}
