/* lent.c - see lent.h. Memory that a peer lends may be of another GPU than the store's, and the
 * peer may write there at any time: call.c copies what kernels read more than once. */
#include "server/store/cuda/lent.h"

#include "server/store/cuda/imports.h"

_Static_assert(STORE_DEVICE_HANDLE == DEVICE_HANDLE && STORE_DEVICE_UUID == DEVICE_UUID,
               "store.h and device.h agree");

static int reach(const struct store_device_lent *lent, struct store_device_memory *out)
{
    void *memory = NULL;
    int status = device_use(device_of_thread());
    *out = (struct store_device_memory){.bytes = lent->bytes, .is_own = lent->address != 0};
    if (status == 0 && out->is_own) {
        memory = (void *)(uintptr_t)lent->address;
        status = device_reach(memory, lent->bytes);
    } else if (status == 0) {
        status = imports_open(device_of_thread(), lent->handle, lent->bytes, &memory);
        out->takes_turns = status == 0 && device_takes_turns(lent->uuid);
    }
    out->base = memory;
    return status;
}

int cuda_device_open(const struct store_device_lent *lent, struct store_device_memory *out,
                     struct embd__error *e)
{
    int status = reach(lent, out);
    if (status == 0)
        return EMBD_OK;
    const char *what = out->is_own ? "address" : "handle";
    *out = (struct store_device_memory){0};
    if (status == DEVICE_TOO_SMALL)
        return embd__error_set(e, EMBD_INVALID, "the %s is of memory with fewer than %llu bytes",
                               what, (unsigned long long)lent->bytes);
    return embd__error_set(e, EMBD_UNSUPPORTED,
                           "the %s is of no memory that the server's GPU can reach: %s", what,
                           device_text(status));
}

void cuda_device_close(struct store_device_memory *memory)
{
    if (!memory->is_own && device_use(device_of_thread()) == 0)
        imports_close(device_of_thread(), memory->base);
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
