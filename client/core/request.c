/* request.c - blocking requests: everything that is not a pull, push or erase. The answer owns its
 * bins; they are allocated as they are announced, within the frame limit. */
#include "client/core/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/io/answer_bins.h"

/* A job of one exchange, and its answer. Stays until the exchange has ended. */
struct pending_request {
    struct job job; /* first */
    struct exchange *x;
    struct answer_bins bins; /* of the answer coming in, until an answer owns them */
    struct answer *answer;
};

struct embd__error *embd__client_error(embd_client *client)
{
    return &client->error;
}

void embd__client_clear_error(embd_client *client)
{
    client->error = (struct embd__error){0};
}

/* A server answers these while it loads its tables. */
static bool is_for_loading(enum method method)
{
    return method == METHOD_PING || method == METHOD_CLUSTER || method == METHOD_STATS ||
           method == METHOD_TRACE || method == METHOD_RELEASE || method == METHOD_DRAIN ||
           method == METHOD_PROMOTE;
}

/* These leave things as they are where they were done before; memory that was lent has gone with
 * its connection. */
static bool is_repeatable(enum method method)
{
    return method == METHOD_TABLE_CREATE || method == METHOD_TABLE_DESCRIBE ||
           method == METHOD_TICK || method == METHOD_DEVICE_OPEN;
}

struct msg *embd__request_begin(embd_client *client, enum method method)
{
    struct exchange *x = &client->request;
    client->request_method = method;
    embd__client_begin(client, x, 0);
    x->may_repeat = is_repeatable(method);
    x->waits_refused = method == METHOD_TABLE_DROP;
    x->while_loading = is_for_loading(method);
    embd__msg_request(&x->msg, x->msgid, method);
    return &x->msg;
}

static struct pending_request *pending_of(struct exchange *x)
{
    return (struct pending_request *)(void *)x->owner; /* the job is its first member */
}

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    return embd__answer_bins_add(&pending_of(x)->bins, x, index, bytes);
}

/* Keeps the frame: its head is copied, its bins change hands. */
static struct answer *keep(const struct frame_scanner *frame)
{
    struct answer *answer = calloc(1, sizeof *answer);
    if (answer == NULL)
        return NULL;
    answer->head = malloc(frame->head_bytes);
    if (answer->head == NULL || !msgpack_zone_init(&answer->zone, 1024)) {
        free(answer->head);
        free(answer);
        return NULL;
    }
    memcpy(answer->head, frame->head, frame->head_bytes);
    answer->frame = *frame;
    answer->frame.head = answer->head;
    return answer;
}

static void free_bins(struct frame_scanner *frame)
{
    for (uint32_t i = 0; i < frame->n_bins; i++)
        free(frame->bins[i].data);
}

static void on_answer(struct exchange *x, struct reader *reader)
{
    struct answer *answer = keep(reader->frame);
    if (answer == NULL)
        embd__error_set(&x->error, EMBD_NO_MEMORY, "no memory for an answer");
    else
        pending_of(x)->bins.n = 0;
    pending_of(x)->answer = answer;
}

/* The reader's errors go to the client from here on. */
static int open_answer(embd_client *client, const struct link *link, struct answer *answer)
{
    answer->client = client;
    answer->address = embd__link_address(link);
    int status = embd__reader_init(&answer->reader, &answer->frame, &answer->zone, &client->error);
    if (status != EMBD_OK)
        embd__answer_free(answer);
    return status;
}

/* NULL: the client's error is set. */
static struct link *link_of(embd_client *client, uint32_t shard, enum listener listener)
{
    if (shard >= client->n_shards) {
        embd__error_set(&client->error, EMBD_INVALID, "shard is %u; the cluster has %u shards",
                        shard, client->n_shards);
        return NULL;
    }
    struct client_shard *s = &client->shards[shard];
    bool is_for_both = embd__method_listener(client->request_method) == LISTENER_BOTH;
    if (listener != LISTENER_ADMIN)
        return is_for_both && s->asks_admin ? s->admin : s->link;
    if (s->admin == NULL)
        embd__error_set(&client->error, EMBD_UNREACHABLE, "%s: has no admin socket on this host",
                        s->address);
    return s->admin;
}

/* Sends the exchange's message. After EMBD_OK end() is owed. */
static int begin(embd_client *client, struct exchange *x, struct link *link,
                 struct pending_request *pending, void (*on_end)(struct exchange *x))
{
    memset(&pending->job, 0, sizeof pending->job);
    pending->x = x;
    pending->job.exchanges = &pending->x;
    pending->job.n = 1;
    pending->bins.n = 0;
    pending->answer = NULL;
    if (embd__msg_end(&x->msg) != EMBD_OK)
        return embd__error_set(&client->error, x->msg.status, "a request could not be built: %s",
                               embd_status_text(x->msg.status));
    x->link = link;
    x->owner = &pending->job;
    x->on_bin = on_bin;
    x->on_answer = on_answer;
    x->on_end = on_end;
    embd__io_submit(&client->io, &pending->job);
    return EMBD_OK;
}

/* Waits. The client's error is set where it has none. */
static int end(embd_client *client, struct pending_request *pending, struct answer **answer_out)
{
    struct exchange *x = pending->x;
    embd__io_await(&client->io, &pending->job);
    embd__answer_bins_fini(&pending->bins);
    if (x->error.status != EMBD_OK)
        return embd__error_set(&client->error, x->error.status, "%s", x->error.text);
    int status = open_answer(client, x->link, pending->answer);
    if (status == EMBD_OK)
        *answer_out = pending->answer;
    return status;
}

int embd__request_on(embd_client *client, struct link *link, struct answer **answer_out)
{
    struct pending_request pending;
    int status = begin(client, &client->request, link, &pending, embd__job_on_end);
    return status == EMBD_OK ? end(client, &pending, answer_out) : status;
}

int embd__request(embd_client *client, uint32_t shard, enum listener listener,
                  struct answer **answer_out)
{
    struct link *link = link_of(client, shard, listener);
    return link == NULL ? client->error.status : embd__request_on(client, link, answer_out);
}

static void name_server(struct embd__error *e, const char *address)
{
    char text[LIMIT_ERROR_TEXT];
    size_t bytes = strlen(address);
    if (e->status != EMBD_PROTOCOL || strncmp(e->text, address, bytes) == 0)
        return;
    snprintf(text, sizeof text, "%s", e->text);
    e->status = EMBD_OK;
    embd__error_set(e, EMBD_PROTOCOL, "%s: %s", address, text);
}

void embd__answer_free(struct answer *answer)
{
    if (answer == NULL)
        return;
    name_server(&answer->client->error, answer->address);
    free_bins(&answer->frame);
    msgpack_zone_destroy(&answer->zone);
    free(answer->head);
    free(answer);
}

/* ---- that the caller does not wait for at once ---- */

struct started_request {
    struct pending_request pending; /* first */
    struct exchange x;
    embd_client *client;
    void (*on_end)(void *arg);
    void *arg;
};

int embd__started_new(embd_client *client, struct started_request **out)
{
    struct started_request *started = calloc(1, sizeof *started);
    *out = started;
    if (started == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a request");
    started->client = client;
    embd__msg_init(&started->x.msg);
    return EMBD_OK;
}

void embd__started_free(struct started_request *started)
{
    if (started == NULL)
        return;
    embd__msg_fini(&started->x.msg);
    free(started);
}

struct msg *embd__started_begin(struct started_request *started, enum method method,
                                uint64_t deadline_ns, bool waits_refused)
{
    struct exchange *x = &started->x;
    started->client->request_method = method;
    embd__client_begin(started->client, x, 0);
    x->waits_refused = waits_refused;
    if (deadline_ns != 0)
        x->deadline_ns = deadline_ns;
    embd__msg_request(&x->msg, x->msgid, method);
    return &x->msg;
}

static void on_started_end(struct exchange *x)
{
    struct started_request *started = (struct started_request *)(void *)pending_of(x);
    started->on_end(started->arg);
    embd__job_on_end(x);
}

int embd__started_send(struct started_request *started, uint32_t shard, void (*on_end)(void *arg),
                       void *arg)
{
    embd_client *client = started->client;
    struct link *link = link_of(client, shard, LISTENER_DATA);
    if (link == NULL)
        return client->error.status;
    started->on_end = on_end;
    started->arg = arg;
    return begin(client, &started->x, link, &started->pending,
                 on_end != NULL ? on_started_end : embd__job_on_end);
}

int embd__started_send_admin(struct started_request *started, uint32_t shard)
{
    embd_client *client = started->client;
    struct link *link = link_of(client, shard, LISTENER_ADMIN);
    if (link == NULL)
        return client->error.status;
    started->x.fail_fast = true;
    return begin(client, &started->x, link, &started->pending, embd__job_on_end);
}

const struct exchange *embd__started_exchange(const struct started_request *started)
{
    return &started->x;
}

bool embd__started_is_done(struct started_request *started)
{
    return embd__io_poll(&started->client->io, &started->pending.job);
}

int embd__started_wait(struct started_request *started, struct answer **answer_out)
{
    return end(started->client, &started->pending, answer_out);
}

/* ---- to several shards at once ---- */

struct one {
    struct exchange x;
    struct pending_request pending;
    uint32_t shard;
    bool is_sent;
};

struct requests {
    embd_client *client;
    uint32_t n;        /* added since the last run */
    uint32_t n_shards; /* when it was made */
    struct one *ones;  /* [n_shards] */
};

int embd__requests_new(embd_client *client, struct requests **out)
{
    struct requests *r = calloc(1, sizeof *r);
    struct one *ones = calloc(client->n_shards, sizeof *ones);
    if (r == NULL || ones == NULL) {
        free(r);
        free(ones);
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for %u requests",
                               client->n_shards);
    }
    *r = (struct requests){.client = client, .n_shards = client->n_shards, .ones = ones};
    for (uint32_t i = 0; i < client->n_shards; i++)
        embd__msg_init(&ones[i].x.msg);
    *out = r;
    return EMBD_OK;
}

void embd__requests_free(struct requests *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->n_shards; i++)
        embd__msg_fini(&r->ones[i].x.msg);
    free(r->ones);
    free(r);
}

struct msg *embd__requests_add(struct requests *r, uint32_t shard, enum method method,
                               uint32_t deadline_ms)
{
    struct one *one = &r->ones[r->n++];
    struct exchange *x = &one->x;
    one->shard = shard;
    embd__client_begin(r->client, x, deadline_ms);
    x->fail_fast = true;
    embd__msg_request(&x->msg, x->msgid, method);
    return &x->msg;
}

void embd__requests_forget(struct requests *r)
{
    r->n = 0;
}

static void send_one(struct requests *r, struct one *one)
{
    struct link *link = link_of(r->client, one->shard, LISTENER_ADMIN);
    one->is_sent =
        link != NULL && begin(r->client, &one->x, link, &one->pending, embd__job_on_end) == EMBD_OK;
}

/* The first error stays, and what comes behind it is done without one. */
static void keep_first(struct embd__error *first, struct embd__error *e)
{
    if (first->status == EMBD_OK)
        *first = *e;
    *e = (struct embd__error){0};
}

int embd__requests_run(struct requests *r,
                       void (*take)(void *arg, uint32_t shard, struct answer *answer), void *arg)
{
    struct embd__error first = {0}, *e = &r->client->error;
    for (uint32_t i = 0; i < r->n; i++) {
        send_one(r, &r->ones[i]);
        keep_first(&first, e);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        struct one *one = &r->ones[i];
        struct answer *answer;
        if (one->is_sent && end(r->client, &one->pending, &answer) == EMBD_OK)
            take(arg, one->shard, answer);
        keep_first(&first, e);
    }
    r->n = 0;
    *e = first;
    return e->status;
}
