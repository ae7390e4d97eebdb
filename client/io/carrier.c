/* carrier.c - see carrier.h. */
#include "client/io/carrier.h"

#include <fcntl.h>
#include <stdlib.h>

#include "client/io/link_internal.h"

enum { OPENING_MS = 5000 };

struct carrier {
    struct trunk *trunk; /* NULL: it was dropped */
    struct link *link;
    struct exchange ask;
    uv_timer_t soon; /* not from within a callback of the link */
};

static void on_closed(uv_handle_t *handle)
{
    struct carrier *carrier = handle->data;
    embd__msg_fini(&carrier->ask.msg);
    free(carrier);
}

static void drop(void *arg)
{
    struct carrier *carrier = arg;
    carrier->trunk = NULL;
    if (carrier->link != NULL)
        embd__link_close(carrier->link);
    uv_close((uv_handle_t *)&carrier->soon, on_closed);
}

static void on_soon(uv_timer_t *timer)
{
    struct carrier *carrier = timer->data;
    struct trunk *trunk = carrier->trunk;
    bool is_taken = carrier->ask.error.status == EMBD_OK;
    struct channel *own = &carrier->link->channel, given = {.fd = -1};
    int fd = is_taken ? fcntl(own->fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (fd >= 0)
        given = embd__channel_move(own, fd);
    drop(carrier);
    embd__trunk_start(trunk, &given);
}

static void on_end(struct exchange *x)
{
    struct carrier *carrier = x->owner;
    if (carrier->trunk != NULL)
        uv_timer_start(&carrier->soon, on_soon, 0, 0);
}

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    (void)index;
    embd__error_set(&x->error, EMBD_PROTOCOL, "the answer to trunk has a bin of %u bytes", bytes);
    return NULL;
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    (void)x;
    embd__reader_end(reader);
}

static int ask(struct carrier *carrier, struct embd__error *e)
{
    struct exchange *x = &carrier->ask;
    embd__exchange_begin(x, 1, uv_hrtime(), OPENING_MS);
    x->link = carrier->link;
    x->owner = carrier;
    x->fail_fast = x->while_loading = true;
    x->on_bin = on_bin;
    x->on_answer = on_answer;
    x->on_end = on_end;
    embd__msg_request(&x->msg, x->msgid, METHOD_TRUNK);
    embd__msg_map(&x->msg, 0);
    if (embd__msg_end(&x->msg) != EMBD_OK)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a trunk");
    embd__link_send(carrier->link, x);
    return EMBD_OK;
}

/* By the same way as the link, and for nothing else. */
static int open_link(struct carrier *carrier, const struct link_config *config,
                     struct embd__error *e)
{
    struct link_config own = *config;
    own.trunks = NULL;
    own.rings = NULL;
    own.shared = NULL;
    own.client_id = 0;
    own.on_unreached = NULL;
    return embd__link_open(&own, &carrier->link, e);
}

int embd__carrier_begin(struct trunk *trunk, uv_loop_t *loop, const struct link_config *config,
                        struct trunk_carrier *out, struct embd__error *e)
{
    struct carrier *carrier = calloc(1, sizeof *carrier);
    if (carrier == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a trunk");
    carrier->trunk = trunk;
    embd__msg_init(&carrier->ask.msg);
    uv_timer_init(loop, &carrier->soon);
    carrier->soon.data = carrier;
    if (open_link(carrier, config, e) != EMBD_OK || ask(carrier, e) != EMBD_OK) {
        drop(carrier);
        return e->status;
    }
    *out = (struct trunk_carrier){drop, carrier};
    return EMBD_OK;
}
