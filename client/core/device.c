/* device.c - embd/device.h: memory of GPUs that is lent to the server of the only shard.
 *
 * A server knows memory by a number that is its connection's. Where the connection was lost, the
 * memory is lent again before the next call that names it; the caller notices nothing. */
#include "embd/device.h"

#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/core/device_part.h"
#include "client/io/link_figures.h"
#include "proto/structs.h"

_Static_assert(EMBD_DEVICE_HANDLE_BYTES == DEVICE_HANDLE_BYTES &&
                   EMBD_DEVICE_UUID_BYTES == DEVICE_UUID_BYTES &&
                   EMBD_DEVICE_ALIGNMENT == DEVICE_ALIGNMENT,
               "the header says what the protocol has");

struct embd_device {
    struct embd_client *client;
    struct embd_device *next; /* of the client's */
    uint8_t handle[DEVICE_HANDLE_BYTES], uuid[DEVICE_UUID_BYTES];
    uint64_t bytes, address; /* address: of memory of this process; 0: the handle is another's */
    struct device_opened opened;
    uint64_t connection; /* that it was opened on: how many there had been */
};

static uint64_t connections(const embd_client *client)
{
    const struct link_figures *f = embd__link_figures(client->shards[0].link);
    return atomic_load_explicit(&f->connections, memory_order_relaxed);
}

/* ---- lending ---- */

/* Of an answer that is a result without fields. */
static int end_empty(embd_client *client, struct answer *answer)
{
    struct fields f;
    embd__read_fields(&f, &answer->reader, "the answer");
    embd__fields_end(&f);
    embd__answer_free(answer);
    return client->error.status;
}

static int lend(embd_device *device)
{
    embd_client *client = device->client;
    const struct device_lent lent = {device->bytes, device->handle, device->uuid, device->address};
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_DEVICE_OPEN);
    embd__device_open_write(m, &lent);
    if (embd__request(client, 0, LISTENER_DATA, &answer) != EMBD_OK)
        return client->error.status;
    embd__device_opened_read(&answer->reader, &device->opened);
    embd__answer_free(answer);
    device->connection = connections(client); /* a later one: it is lent once more */
    return client->error.status;
}

static int check_open(embd_client *client, uint64_t bytes)
{
    struct embd__error *e = &client->error;
    if (bytes == 0 || bytes > LIMIT_DEVICE_BYTES)
        return embd__error_set(e, EMBD_INVALID, "bytes is %llu, expected 1 to %llu",
                               (unsigned long long)bytes, (unsigned long long)LIMIT_DEVICE_BYTES);
    if (client->n_shards > 1)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "the cluster has %u shards; memory of a GPU is lent to one",
                               client->n_shards);
    return EMBD_OK;
}

/* What is lent is in `given`. */
static int open_device(embd_client *client, const embd_device *given, embd_device **device_out)
{
    if (check_open(client, given->bytes) != EMBD_OK)
        return client->error.status;
    embd_device *device = malloc(sizeof *device);
    if (device == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory to lend a GPU's");
    *device = *given;
    device->client = client;
    if (lend(device) != EMBD_OK) {
        free(device);
        return client->error.status;
    }
    device->next = client->devices;
    client->devices = device;
    *device_out = device;
    return EMBD_OK;
}

int embd_device_open(embd_client *client, const void *handle, const void *uuid, uint64_t bytes,
                     embd_device **device_out)
{
    struct embd__error *e = &client->error;
    embd_device given = {.bytes = bytes};
    *device_out = NULL;
    *e = (struct embd__error){0};
    if (handle == NULL || uuid == NULL) {
        embd__error_set(e, EMBD_INVALID, "%s is NULL", handle == NULL ? "handle" : "uuid");
        return embd__error_keep(e, EMBD_INVALID);
    }
    memcpy(given.handle, handle, sizeof given.handle);
    memcpy(given.uuid, uuid, sizeof given.uuid);
    return embd__error_keep(e, open_device(client, &given, device_out));
}

int embd_device_open_here(embd_client *client, void *memory, uint64_t bytes,
                          embd_device **device_out)
{
    struct embd__error *e = &client->error;
    const embd_device given = {.bytes = bytes, .address = (uintptr_t)memory};
    *device_out = NULL;
    *e = (struct embd__error){0};
    if (memory == NULL)
        embd__error_set(e, EMBD_INVALID, "memory is NULL");
    else if (client->dialer == NULL)
        embd__error_set(e, EMBD_UNSUPPORTED,
                        "the server is another process, which takes memory by its handle: "
                        "embd_device_open");
    else
        open_device(client, &given, device_out);
    return embd__error_keep(e, e->status);
}

static void unlink_device(embd_device *device)
{
    embd_device **at = &device->client->devices;
    while (*at != device)
        at = &(*at)->next;
    *at = device->next;
}

void embd_device_close(embd_device *device)
{
    struct answer *answer;
    if (device == NULL)
        return;
    embd_client *client = device->client;
    unlink_device(device);
    if (device->connection ==
        connections(client)) { /* the server of another one does not know it */
        client->error = (struct embd__error){0};
        struct msg *m = embd__request_begin(client, METHOD_DEVICE_CLOSE);
        embd__device_close_write(m, device->opened.number);
        if (embd__request(client, 0, LISTENER_DATA, &answer) == EMBD_OK)
            end_empty(client, answer);
    }
    free(device);
}

void embd__devices_fini(embd_client *client)
{
    while (client->devices != NULL) {
        embd_device *device = client->devices;
        client->devices = device->next;
        free(device);
    }
}

bool embd_device_takes_turns(const embd_device *device)
{
    return device->opened.takes_turns;
}

/* ---- pulls and pushes ---- */

static int check_part(embd_client *client, const embd_device_part *part)
{
    struct embd__error *e = &client->error;
    if (part->table == NULL || part->keys_in == NULL || part->rows_in == NULL)
        return embd__error_set(e, EMBD_INVALID, "part.%s is NULL",
                               part->table == NULL     ? "table"
                               : part->keys_in == NULL ? "keys_in"
                                                       : "rows_in");
    if (part->n_keys > LIMIT_KEYS)
        return embd__error_set(e, EMBD_TOO_LARGE, "part.n_keys is %llu, the limit is %u",
                               (unsigned long long)part->n_keys, LIMIT_KEYS);
    if (part->dtype > EMBD_DTYPE_BF16)
        return embd__error_set(e, EMBD_UNSUPPORTED, "part.dtype is %s, expected f32, f16 or bf16",
                               embd_dtype_name(part->dtype));
    return EMBD_OK;
}

static int lend_again(embd_device *device)
{
    return device->connection == connections(device->client) ? EMBD_OK : lend(device);
}

struct device_batch embd__device_batch_of(const embd_device_part *part)
{
    return (struct device_batch){
        .table = part->table->ids[0],
        .dtype = part->dtype,
        .n_keys = (uint32_t)part->n_keys,
        .keys = {part->keys_in->opened.number, part->keys_at},
        .rows = {part->rows_in->opened.number, part->rows_at},
        .zero_missing = part->zero_missing,
        .lr = part->lr,
    };
}

int embd__device_end(embd_client *client, enum method method, struct answer *answer)
{
    if (method == METHOD_DEVICE_PULL)
        return end_empty(client, answer);
    struct push_answer pushed;
    bool again;
    embd__push_answer_read(&answer->reader, &pushed, 1, &again);
    embd__answer_free(answer);
    return client->error.status;
}

static int ask(embd_client *client, const embd_device_part *part, enum method method)
{
    const struct device_batch batch = embd__device_batch_of(part);
    struct answer *answer;
    struct msg *m = embd__request_begin(client, method);
    embd__device_batch_write(m, &batch);
    if (embd__request(client, 0, LISTENER_DATA, &answer) != EMBD_OK)
        return client->error.status;
    return embd__device_end(client, method, answer);
}

int embd__device_take(embd_client *client, const embd_device_part *given, embd_device_part *part)
{
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (embd__take(embd_device_part, part, given, e) != EMBD_OK)
        return e->status;
    return check_part(client, part);
}

int embd__device_lend_again(const embd_device_part *part)
{
    embd_client *client = part->keys_in->client;
    if (lend_again(part->keys_in) != EMBD_OK || lend_again(part->rows_in) != EMBD_OK)
        return client->error.status;
    return EMBD_OK;
}

int embd__device_check_gates(const embd_device *device)
{
    if (device->address != 0)
        return embd__error_set(&device->client->error, EMBD_UNSUPPORTED,
                               "the server is in this process, where CUDA may let its kernels wait "
                               "for the stream that would wait for them: embd_device_pull and "
                               "embd_device_push");
    if (!device->opened.has_gates)
        return embd__error_set(&device->client->error, EMBD_UNSUPPORTED,
                               "the server is of an earlier version");
    return EMBD_OK;
}

/* A number that the server does not know is of a connection that was lost meanwhile: nothing has
 * been done, and the second time it knows it. */
static int run(embd_client *client, const embd_device_part *given, enum method method)
{
    embd_device_part part = {0};
    struct embd__error *e = &client->error;
    if (embd__device_take(client, given, &part) != EMBD_OK)
        return e->status;
    for (int turn = 0; turn < 2; turn++) {
        uint64_t connection = connections(client);
        *e = (struct embd__error){0};
        if (embd__device_lend_again(&part) != EMBD_OK)
            return e->status;
        if (ask(client, &part, method) != EMBD_INVALID || connection == connections(client))
            break;
    }
    return e->status;
}

int embd_device_pull(embd_client *client, const embd_device_part *part)
{
    return embd__error_keep(&client->error, run(client, part, METHOD_DEVICE_PULL));
}

int embd_device_push(embd_client *client, const embd_device_part *part)
{
    return embd__error_keep(&client->error, run(client, part, METHOD_DEVICE_PUSH));
}
