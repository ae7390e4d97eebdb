/* device_run.c - embd/device.h: pulls and pushes in lent memory of a GPU that block.
 *
 * The happy path: each shard gets a request, all at once, and the call ends with the last answer.
 * What can fail: a server ends, and refuses the request: the link sends it to the next one. A
 * server does not know the memory, since its connection is another one than before: nothing was
 * done there, the memory is lent again, and that server gets the request again, alone. Keys have
 * moved: the whole call is split again, but not a push that a shard has, or may have, applied. */
#include <stdlib.h>

#include "client/core/client.h"
#include "client/core/device_sending.h"

void embd__device_run_fini(embd_client *client)
{
    if (client->device_sending != NULL)
        embd__device_sending_fini(client->device_sending);
    free(client->device_sending);
    embd__device_sets_fini(client);
}

static struct device_sending *sending_of(embd_client *client)
{
    if (client->device_sending == NULL)
        client->device_sending = calloc(1, sizeof *client->device_sending);
    if (client->device_sending == NULL)
        embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a call");
    else
        client->device_sending->client = client;
    return client->device_sending;
}

/* Lends where it has to, and sends what is due. */
static int send_due(struct device_sending *s, const embd_device_part *part)
{
    const struct device_gate none = {0};
    if (embd__device_lend(part) != EMBD_OK || embd__device_write(s, part, &none) != EMBD_OK)
        return s->client->error.status;
    return embd__device_send(s, NULL);
}

/* Those whose server did not know the memory: it is lent there no more, and can be again. */
static bool find_unknown(struct device_sending *s, const embd_device_part *part)
{
    bool any = false;
    for (uint32_t i = 0; i < s->n && s->n <= s->client->n_shards; i++) {
        struct device_leg *leg = &s->legs[i];
        bool is_lent =
            embd__device_is_lent(part->keys_in, i) && embd__device_is_lent(part->rows_in, i);
        if (leg->error.status == EMBD_INVALID && !is_lent && uv_hrtime() < s->deadline_ns)
            any = leg->is_due = true;
    }
    return any;
}

/* What was not sent has the client's error. */
static int keep_unsent(struct device_sending *s)
{
    for (uint32_t i = 0; i < s->n; i++) {
        struct device_leg *leg = &s->legs[i];
        if (!leg->is_due)
            continue;
        leg->error = s->client->error;
        leg->outcome = (struct shard_outcome){i, NOT_SENT, leg->error.status};
    }
    return embd__device_outcome(s);
}

/* Once by one map. */
static int run_once(struct device_sending *s, const embd_device_part *part)
{
    do {
        if (send_due(s, part) != EMBD_OK)
            return keep_unsent(s);
        embd__device_await(s);
    } while (find_unknown(s, part));
    return embd__device_outcome(s);
}

static bool may_split_again(const struct device_sending *s)
{
    return s->method == METHOD_DEVICE_PULL || s->n == 1 || embd__device_is_untaken(s);
}

static int run(embd_client *client, const embd_device_part *given, enum method method)
{
    embd_device_part part = {0};
    struct device_sending *s = sending_of(client);
    if (s == NULL || embd__device_take(client, given, &part) != EMBD_OK)
        return client->error.status;
    s->method = method;
    s->deadline_ns = uv_hrtime() + (uint64_t)client->options.deadline_ms * 1000000;
    do
        if (embd__device_split(s, &part) != EMBD_OK)
            return client->error.status;
    while (run_once(s, &part) != EMBD_OK && may_split_again(s) && embd__device_learn(s));
    return embd__device_outcome(s);
}

int embd_device_pull(embd_client *client, const embd_device_part *part)
{
    return embd__error_keep(&client->error, run(client, part, METHOD_DEVICE_PULL));
}

int embd_device_push(embd_client *client, const embd_device_part *part)
{
    return embd__error_keep(&client->error, run(client, part, METHOD_DEVICE_PUSH));
}
