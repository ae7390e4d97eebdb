/* answers.c - what comes in: each answer goes to the exchange that asked, its bins to where that
 * wants them. An answer that nobody asked for means that the stream is out of step. */
#include "client/link/link_state.h"

/* In a row: a server says once why it turns a client away. */
#define NOTICES_MOST 256u

static int out_of_step(const struct frame_scanner *frame, struct embd__error *e)
{
    if (frame->type != 1)
        return embd__error_set(e, EMBD_PROTOCOL, "a message of type %d is not an answer",
                               frame->type);
    if (!frame->has_msgid)
        return embd__error_set(e, EMBD_PROTOCOL, "an answer without a msgid");
    return embd__error_set(e, EMBD_PROTOCOL, "an answer to msgid %u, which was not asked",
                           frame->msgid);
}

static int on_bin(void *owner, uint8_t **to_out, uint32_t *window_out, struct embd__error *e)
{
    struct link *link = owner;
    const struct frame_scanner *frame = &link->receiver.frame;
    const struct flight *flight = frame->type == 1 && frame->has_msgid
                                      ? embd__flights_find(&link->flights, frame->msgid)
                                      : NULL;
    if (flight == NULL)
        return out_of_step(frame, e);
    struct exchange *x = flight->x;
    *to_out = NULL;
    link->receiving = x;
    if (x == NULL || x->error.status != EMBD_OK)
        return EMBD_OK; /* dropped, the stream stays in step */
    x->window = 0;
    *to_out = x->on_bin(x, frame->n_bins - 1, frame->bin_bytes);
    *window_out = x->window;
    return EMBD_OK;
}

static void on_window(void *owner, uint32_t bytes)
{
    struct link *link = owner;
    link->receiving->on_window(link->receiving, bytes);
}

static void read_answer(struct link *link, struct exchange *x)
{
    struct reader reader;
    struct embd__error e = {0};
    x->is_out = true;
    if (x->error.status != EMBD_OK)
        return; /* a bin did not fit */
    if (embd__reader_init(&reader, &link->receiver.frame, &link->zone, &e) == EMBD_OK) {
        x->is_refused = reader.answer_status != EMBD_OK;
        if (reader.answer_status == EMBD_OK)
            x->on_answer(x, &reader);
        else
            embd__error_set(&x->error, reader.answer_status, "%.*s", (int)reader.answer_text_bytes,
                            reader.answer_text);
    }
    if (e.status != EMBD_OK)
        embd__error_set(&x->error, EMBD_PROTOCOL, "%s", e.text);
}

/* Notifications are nobody's; a server that sends nothing else would keep the thread from its
 * deadlines. */
static int heed_no_notice(struct link *link, struct embd__error *e)
{
    if (++link->n_notices <= NOTICES_MOST)
        return EMBD_OK;
    return embd__error_set(e, EMBD_PROTOCOL, "the server sends notifications without end");
}

static int on_frame(void *owner, struct embd__error *e)
{
    struct link *link = owner;
    const struct frame_scanner *frame = &link->receiver.frame;
    link->receiving = NULL;
    if (frame->type == 2)
        return heed_no_notice(link, e);
    link->n_notices = 0;
    struct flight *flight =
        frame->type == 1 ? embd__flights_find(&link->flights, frame->msgid) : NULL;
    if (flight == NULL)
        return out_of_step(frame, e);
    struct exchange *x = flight->x;
    if (x != NULL)
        read_answer(link, x);
    if (x != NULL && x->may_repeat && x->error.status == EMBD_DRAINING) {
        x->error.status = EMBD_OK;
        x->is_refused = false;
        return embd__error_set(e, EMBD_CLOSED, "the server is shutting down");
    }
    embd__flights_remove(&link->flights, flight);
    if (x == NULL)
        return EMBD_OK;
    if (x == &link->hello)
        return embd__connect_greeted(link, e);
    embd__ends_answered(x);
    return EMBD_OK;
}

void embd__answers_init(struct link *link)
{
    link->receiver.owner = link;
    link->receiver.on_bin = on_bin;
    link->receiver.on_window = on_window;
    link->receiver.on_frame = on_frame;
}
