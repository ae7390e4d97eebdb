/* lent.c - see lent.h. Memory that a peer lends may be of another GPU than the store's, and the
 * peer may write there at any time: call.c copies what kernels read more than once. */
#include "server/store/cuda/lent.h"

#include "server/store/cuda/device.h"

_Static_assert(STORE_DEVICE_HANDLE == DEVICE_HANDLE && STORE_DEVICE_UUID == DEVICE_UUID,
               "store.h and device.h agree");

int cuda_device_open(const uint8_t handle[STORE_DEVICE_HANDLE],
                     const uint8_t uuid[STORE_DEVICE_UUID], uint64_t bytes,
                     struct store_device_memory *out, struct embd__error *e)
{
    void *memory = NULL;
    bool takes_turns = false;
    int status = device_use(device_of_thread());
    *out = (struct store_device_memory){0};
    if (status == 0)
        status = device_import(handle, uuid, bytes, &memory, &takes_turns);
    if (status == DEVICE_TOO_SMALL)
        return embd__error_set(e, EMBD_INVALID,
                               "the handle is of memory with fewer than %llu bytes",
                               (unsigned long long)bytes);
    if (status != 0)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "the handle is of no memory that the server's GPU can reach: %s",
                               device_text(status));
    *out = (struct store_device_memory){memory, bytes, takes_turns};
    return EMBD_OK;
}

void cuda_device_close(struct store_device_memory *memory)
{
    if (device_use(device_of_thread()) == 0)
        device_unimport(memory->base);
    *memory = (struct store_device_memory){0};
}

int cuda_device_read(void *to, const void *from, uint64_t bytes, struct embd__error *e)
{
    int status = device_use(device_of_thread());
    if (status == 0)
        status = device_fetch(to, from, bytes);
    return status == 0 ? EMBD_OK
                       : embd__error_set(e, EMBD_INTERNAL, "copying memory of a GPU: %s",
                                         device_text(status));
}
