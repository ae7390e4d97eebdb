/* devices.c - see devices.h. The handle, and all numbers, are a peer's: the store looks at the
 * handle, and every place is checked against the bytes that were opened. */
#include "server/service/devices.h"

#include <stdlib.h>
#include <sys/random.h>

#include "server/log/log.h"

/* The first number of a process is at most this. So all are below 2^53, which a reader in any
 * language has exactly. */
#define FIRST_NUMBERS (UINT64_C(1) << 52)

struct lent_device {
    struct lent_device *next;
    uint64_t number;
    struct store_device_memory memory;
};

static const struct store_ops *ops_of(const struct shard *shard)
{
    return shard->engine.tables.ops;
}

/* ---- opening ---- */

static int check_session(struct call *call, const struct device_lent *lent)
{
    const struct shard_session *session = call->request->session;
    uint32_t n = 0;
    if (lent->address != 0 && !session->is_own_process)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "device_open field 'address': the memory is of another process, "
                               "which lends it by its handle");
    if (session->share == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "device_open: this connection is not by the data socket, the only "
                               "one that memory of a GPU can be lent on");
    if (!ops_of(call->shard)->caps.takes_device)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "device_open: the store '%s' takes no memory of a GPU; 'cuda' does",
                               ops_of(call->shard)->name);
    for (const struct lent_device *d = session->devices; d != NULL; d = d->next)
        n++;
    if (n < DEVICES_MOST)
        return EMBD_OK;
    return embd__error_set(&call->error, EMBD_FULL,
                           "device_open: the connection has lent %u memories, the limit is %u: "
                           "close one, or lend larger ones",
                           n, DEVICES_MOST);
}

/* Once a process: it is the same for all its clients. */
static void tell_turns(const struct shard *shard)
{
    static _Atomic bool is_told;
    if (atomic_exchange(&is_told, true))
        return;
    log_event(LOG_WARN, "gpu_takes_turns",
              "shard=%u why=\"a trainer works on this server's GPU as another process, without "
              "MPS: the GPU serves one of them at a time, and a pull takes milliseconds while the "
              "trainer's kernels run; start nvidia-cuda-mps-control before both, or give the "
              "server a GPU of its own\"",
              shard->config.index);
}

/* 0: the system gives no random numbers. */
static uint64_t draw_first(void)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return 0;
    return 1 + number % FIRST_NUMBERS;
}

/* None comes again on another connection, nor in another process: a client that does not know yet
 * of a restart would name other memory than it means. So the first one is random. 0: there is none.
 */
static uint64_t next_number(void)
{
    static _Atomic uint64_t numbers; /* the next one; 0: none was given */
    uint64_t none = 0;
    if (atomic_load(&numbers) == 0) {
        uint64_t first = draw_first();
        if (first == 0)
            return 0;
        atomic_compare_exchange_strong(&numbers, &none, first); /* or another shard has */
    }
    return atomic_fetch_add(&numbers, 1);
}

/* Or was, or is about to be: a client may count with shards that have left, or joined. */
static bool is_one_of_several(const struct shard *shard)
{
    return shard->config.n_shards > 1 || shard->config.index > 0 ||
           (shard->config.placement != NULL && shard->config.placement->version > 1);
}

int devices_open(struct call *call, const struct device_lent *lent, struct device_opened *out)
{
    struct shard_session *session = call->request->session;
    struct embd__error *e = &call->error;
    if (check_session(call, lent) != EMBD_OK)
        return e->status;
    uint64_t number = next_number();
    if (number == 0)
        return embd__error_set(e, EMBD_IO, "device_open: the system gives no random numbers");
    struct lent_device *device = calloc(1, sizeof *device);
    if (device == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "device_open: no memory");
    const struct store_device_lent asked = {lent->handle, lent->uuid, lent->bytes, lent->address};
    if (ops_of(call->shard)->device_open(&asked, &device->memory, e) != EMBD_OK) {
        free(device);
        return e->status;
    }
    device->number = number;
    device->next = session->devices;
    session->devices = device;
    if (device->memory.takes_turns)
        tell_turns(call->shard);
    *out = (struct device_opened){device->number, device->memory.takes_turns, true,
                                  is_one_of_several(call->shard)};
    return EMBD_OK;
}

/* ---- closing ---- */

static struct lent_device **at_number(struct shard_session *session, uint64_t number)
{
    struct lent_device **at = &session->devices;
    while (*at != NULL && (*at)->number != number)
        at = &(*at)->next;
    return at;
}

static void close_at(const struct shard *shard, struct lent_device **at)
{
    struct lent_device *device = *at;
    *at = device->next;
    ops_of(shard)->device_close(&device->memory);
    free(device);
}

static int refuse_number(struct call *call, const char *what, uint64_t number)
{
    return embd__error_set(&call->error, EMBD_INVALID,
                           "%s: no memory of a GPU has the number %llu on this connection", what,
                           (unsigned long long)number);
}

int devices_close(struct call *call, uint64_t number)
{
    struct lent_device **at = at_number(call->request->session, number);
    if (*at == NULL)
        return refuse_number(call, "device_close", number);
    close_at(call->shard, at);
    return EMBD_OK;
}

void devices_leave(const struct shard *shard, struct shard_session *session)
{
    while (session->devices != NULL)
        close_at(shard, &session->devices);
}

/* ---- using ---- */

uint8_t *devices_find(struct call *call, const struct device_place *place, uint64_t bytes,
                      const char *what)
{
    const struct lent_device *device = *at_number(call->request->session, place->number);
    if (device == NULL) {
        refuse_number(call, what, place->number);
        return NULL;
    }
    if (bytes <= device->memory.bytes && place->at <= device->memory.bytes - bytes)
        return device->memory.base + place->at;
    embd__error_set(&call->error, EMBD_INVALID,
                    "%s lie at %llu and have %llu bytes; memory %llu has %llu bytes", what,
                    (unsigned long long)place->at, (unsigned long long)bytes,
                    (unsigned long long)place->number, (unsigned long long)device->memory.bytes);
    return NULL;
}
