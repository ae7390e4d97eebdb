/* device.c - embd/device.h: memory of GPUs that is lent to the servers of all shards.
 *
 * A server knows memory by a number that is its connection's. Where the connection was lost, or a
 * shard was added, the memory is lent there before the next call that names it; the caller notices
 * nothing. */
#include "embd/device.h"

#include <stdio.h>
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

/* A memory with one shard. */
struct lent {
    const struct link *link; /* to the shard; another one may have its number later. NULL: none */
    uint64_t connection;     /* of the link, that it was opened on */
    struct device_opened opened;
};

struct embd_device {
    struct embd_client *client;
    struct embd_device *next; /* of the client's */
    uint8_t handle[DEVICE_HANDLE_BYTES], uuid[DEVICE_UUID_BYTES];
    uint64_t bytes, address; /* address: of memory of this process; 0: the handle is another's */
    struct lent lent[];      /* [LIMIT_SHARDS] */
};

/* How many there have been. */
static uint64_t connection_of(const embd_client *client, uint32_t shard)
{
    const struct link_figures *f = embd__link_figures(client->shards[shard].link);
    return atomic_load_explicit(&f->connections, memory_order_relaxed);
}

/* ---- lending ---- */

static bool is_connected(const embd_client *client, uint32_t shard)
{
    return atomic_load(&embd__link_figures(client->shards[shard].link)->is_connected);
}

bool embd__device_is_lent(const embd_device *device, uint32_t shard)
{
    const embd_client *client = device->client;
    return device->lent[shard].link == client->shards[shard].link &&
           device->lent[shard].connection == connection_of(client, shard) &&
           is_connected(client, shard);
}

/* The client's error gets the shard's number, where there are several. */
static int name_shard(embd_client *client, uint32_t shard)
{
    const struct embd__error why = client->error;
    if (client->n_shards == 1)
        return why.status;
    client->error = (struct embd__error){0};
    return embd__error_set(
        &client->error, why.status,
        "memory of a GPU is lent to all of %u shards, and shard %u does not take "
        "it: %.260s",
        client->n_shards, shard, why.text);
}

static void take_back(embd_device *device, uint32_t shard)
{
    embd_client *client = device->client;
    struct answer *answer;
    if (!embd__device_is_lent(device, shard)) /* a server knows it by its connection */
        return;
    device->lent[shard].link = NULL;
    struct msg *m = embd__request_begin(client, METHOD_DEVICE_CLOSE);
    embd__device_close_write(m, device->lent[shard].opened.number);
    if (embd__request(client, shard, LISTENER_DATA, &answer) == EMBD_OK)
        embd__answer_free(answer);
}

static int lend_to(embd_device *device, uint32_t shard)
{
    embd_client *client = device->client;
    struct lent *lent = &device->lent[shard];
    const struct device_lent what = {device->bytes, device->handle, device->uuid, device->address};
    const uint64_t connection = connection_of(client, shard) + !is_connected(client, shard);
    struct answer *answer;
    struct msg *m = embd__request_begin(client, METHOD_DEVICE_OPEN);
    embd__device_open_write(m, &what);
    if (embd__request(client, shard, LISTENER_DATA, &answer) != EMBD_OK)
        return name_shard(client, shard);
    embd__device_opened_read(&answer->reader, &lent->opened);
    embd__answer_free(answer);
    if (client->error.status != EMBD_OK)
        return client->error.status;
    lent->link = client->shards[shard].link;
    lent->connection = connection; /* it came by a later one: it is lent again */
    if (client->n_shards == 1 || lent->opened.takes_own)
        return EMBD_OK;
    take_back(device, shard); /* or the next call would take it for lent */
    client->error = (struct embd__error){0};
    embd__error_set(&client->error, EMBD_UNSUPPORTED,
                    "%s: is of an earlier version, in which a single shard takes it",
                    client->shards[shard].address);
    return name_shard(client, shard);
}

/* To those of all shards that it is not lent to. */
static int lend(embd_device *device)
{
    embd_client *client = device->client;
    for (uint32_t i = 0; i < client->n_shards; i++)
        if (!embd__device_is_lent(device, i) && lend_to(device, i) != EMBD_OK)
            return client->error.status;
    return EMBD_OK;
}

bool embd__device_follow(embd_client *client)
{
    const struct embd__error before = client->error;
    bool follows = false;
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)client->options.deadline_ms * 1000000;
    if (before.status != EMBD_MOVED)
        return false;
    client->error = (struct embd__error){0};
    embd__follow_map(client, 0, deadline_ns, &follows); /* shard 0 never leaves */
    client->error = follows ? (struct embd__error){0} : before;
    return follows;
}

/* The client's error stays. */
static void take_all_back(embd_device *device)
{
    embd_client *client = device->client;
    const struct embd__error before = client->error;
    for (uint32_t i = 0; i < client->n_shards; i++) {
        client->error = (struct embd__error){0};
        take_back(device, i);
    }
    client->error = before;
}

/* What is lent is in `given`, which has no shards. */
static int open_device(embd_client *client, const embd_device *given, embd_device **device_out)
{
    struct embd__error *e = &client->error;
    if (given->bytes == 0 || given->bytes > LIMIT_DEVICE_BYTES)
        return embd__error_set(e, EMBD_INVALID, "bytes is %llu, expected 1 to %llu",
                               (unsigned long long)given->bytes,
                               (unsigned long long)LIMIT_DEVICE_BYTES);
    embd_device *device = calloc(1, sizeof *device + LIMIT_SHARDS * sizeof device->lent[0]);
    if (device == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to lend a GPU's");
    memcpy(device, given, sizeof *device);
    device->client = client;
    if (lend(device) != EMBD_OK && (!embd__device_follow(client) || lend(device) != EMBD_OK)) {
        take_all_back(device);
        free(device);
        return e->status;
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
    if (device == NULL)
        return;
    unlink_device(device);
    take_all_back(device);
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
    for (uint32_t i = 0; i < device->client->n_shards; i++)
        if (device->lent[i].link != NULL && device->lent[i].opened.takes_turns)
            return true;
    return false;
}

/* ---- parts ---- */

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
    if (part->n_gates > LIMIT_SHARDS)
        return embd__error_set(e, EMBD_TOO_LARGE, "part.n_gates is %u, the limit is %u",
                               part->n_gates, LIMIT_SHARDS);
    return EMBD_OK;
}

int embd__device_take(embd_client *client, const embd_device_part *given, embd_device_part *part)
{
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    if (embd__take(embd_device_part, part, given, e) != EMBD_OK)
        return e->status;
    return check_part(client, part);
}

int embd__device_lend(const embd_device_part *part)
{
    embd_client *client = part->keys_in->client;
    if (lend(part->keys_in) != EMBD_OK || lend(part->rows_in) != EMBD_OK)
        return client->error.status;
    return EMBD_OK;
}

struct device_batch embd__device_batch_of(const embd_device_part *part, uint32_t shard)
{
    return (struct device_batch){
        .table = part->table->ids[shard],
        .dtype = part->dtype,
        .n_keys = (uint32_t)part->n_keys,
        .keys = {part->keys_in->lent[shard].opened.number, part->keys_at},
        .rows = {part->rows_in->lent[shard].opened.number, part->rows_at},
        .zero_missing = part->zero_missing,
        .lr = part->lr,
    };
}

int embd__device_check_gates(const embd_device *device)
{
    embd_client *client = device->client;
    if (device->address != 0)
        return embd__error_set(&client->error, EMBD_UNSUPPORTED,
                               "the server is in this process, where CUDA may let its kernels wait "
                               "for the stream that would wait for them: embd_device_pull and "
                               "embd_device_push");
    for (uint32_t i = 0; i < client->n_shards; i++)
        if (device->lent[i].link != NULL && !device->lent[i].opened.has_gates)
            return embd__error_set(&client->error, EMBD_UNSUPPORTED,
                                   "%s: the server is of an earlier version",
                                   client->shards[i].address);
    return EMBD_OK;
}
