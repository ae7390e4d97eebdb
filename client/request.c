/* request.c - one blocking request to one shard: everything that is neither pull nor push. The
 * answer owns its bins; they are allocated as they are announced, within the frame limit. */
#include "client/request.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/asking.h"

struct embd__error *embd__client_error(embd_client *client)
{
    return &client->error;
}

/* What a server answers that still loads its tables. */
static bool is_for_loading(enum method method)
{
    return method == METHOD_PING || method == METHOD_CLUSTER || method == METHOD_STATS ||
           method == METHOD_TRACE || method == METHOD_RELEASE || method == METHOD_DRAIN;
}

struct msg *embd__request_begin(embd_client *client, enum method method)
{
    struct exchange *x = &client->request;
    embd__exchange_begin(client, x, 0);
    x->while_loading = is_for_loading(method);
    embd__msg_request(&x->msg, x->msgid, method);
    return &x->msg;
}

static struct asking *asking_of(struct exchange *x)
{
    return (struct asking *)(void *)x->owner; /* the job is its first member */
}

static void *on_bin(struct exchange *x, uint32_t index, uint32_t bytes)
{
    struct asking *asking = asking_of(x);
    void *data = aligned_alloc(64, ((size_t)bytes + 64) / 64 * 64);
    if (data == NULL)
        embd__error_set(&x->error, EMBD_NO_MEMORY, "no memory for %u bytes of an answer", bytes);
    asking->bins[index] = data;
    asking->n_bins = index + 1;
    return data;
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
        asking_of(x)->n_bins = 0;
    asking_of(x)->answer = answer;
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

struct link *embd__request_link(embd_client *client, uint32_t shard, enum listener listener)
{
    if (shard >= client->n_shards) {
        embd__error_set(&client->error, EMBD_INVALID, "shard %u; there are %u", shard,
                        client->n_shards);
        return NULL;
    }
    struct client_shard *s = &client->shards[shard];
    if (listener != LISTENER_ADMIN)
        return s->link;
    if (s->admin == NULL)
        embd__error_set(&client->error, EMBD_UNREACHABLE, "%s: has no admin socket on this host",
                        s->address);
    return s->admin;
}

int embd__asking_begin(embd_client *client, struct exchange *x, struct link *link,
                       struct asking *asking)
{
    memset(&asking->job, 0, sizeof asking->job);
    asking->x = x;
    asking->job.exchanges = &asking->x;
    asking->job.n = 1;
    asking->n_bins = 0;
    asking->answer = NULL;
    if (embd__msg_end(&x->msg) != EMBD_OK)
        return embd__error_set(&client->error, x->msg.status, "a request could not be built: %s",
                               embd_status_text(x->msg.status));
    x->link = link;
    x->owner = &asking->job;
    x->on_bin = on_bin;
    x->on_answer = on_answer;
    x->on_end = embd__job_exchange_ended;
    embd__submit(&client->courier, &asking->job);
    return EMBD_OK;
}

int embd__asking_end(embd_client *client, struct asking *asking, struct answer **answer_out)
{
    struct exchange *x = asking->x;
    embd__await(&client->courier, &asking->job);
    for (uint32_t i = 0; i < asking->n_bins; i++)
        free(asking->bins[i]);
    if (x->error.status != EMBD_OK)
        return embd__error_set(&client->error, x->error.status, "%s", x->error.text);
    int status = open_answer(client, x->link, asking->answer);
    if (status == EMBD_OK)
        *answer_out = asking->answer;
    return status;
}

int embd__request_on(embd_client *client, struct link *link, struct answer **answer_out)
{
    struct asking asking;
    int status = embd__asking_begin(client, &client->request, link, &asking);
    return status == EMBD_OK ? embd__asking_end(client, &asking, answer_out) : status;
}

int embd__request(embd_client *client, uint32_t shard, enum listener listener,
                  struct answer **answer_out)
{
    struct link *link = embd__request_link(client, shard, listener);
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
