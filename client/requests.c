/* requests.c - see requests.h. */
#include "client/requests.h"

#include <stdlib.h>

#include "client/asking.h"

struct one {
    struct exchange x;
    struct asking asking;
    uint32_t shard;
    bool is_sent;
};

struct requests {
    embd_client *client;
    uint32_t n;       /* added since the last run */
    struct one *ones; /* [shards] */
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
    *r = (struct requests){.client = client, .ones = ones};
    for (uint32_t i = 0; i < client->n_shards; i++)
        embd__msg_init(&ones[i].x.msg);
    *out = r;
    return EMBD_OK;
}

void embd__requests_free(struct requests *r)
{
    if (r == NULL)
        return;
    for (uint32_t i = 0; i < r->client->n_shards; i++)
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
    embd__exchange_begin(r->client, x, deadline_ms);
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
    struct link *link = embd__request_link(r->client, one->shard, LISTENER_ADMIN);
    one->is_sent =
        link != NULL && embd__asking_begin(r->client, &one->x, link, &one->asking) == EMBD_OK;
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
        if (one->is_sent && embd__asking_end(r->client, &one->asking, &answer) == EMBD_OK)
            take(arg, one->shard, answer);
        keep_first(&first, e);
    }
    r->n = 0;
    *e = first;
    return e->status;
}
