/* stores.c - which stores are compiled in. No other file knows. */
#include "server/store/store.h"

#include <string.h>

#ifdef EMBD_HAS_NCCL
#define COMPILED_IN "host, cuda, nccl"
static const struct store_ops *const stores[] = {&store_host, &store_cuda, &store_nccl};
#elif defined EMBD_HAS_CUDA
#define COMPILED_IN "host, cuda"
static const struct store_ops *const stores[] = {&store_host, &store_cuda};
#else
#define COMPILED_IN "host"
static const struct store_ops *const stores[] = {&store_host};
#endif

#ifdef EMBD_HAS_CUDA
static const struct store_ops *choose(struct embd__error *e)
{
    const char *why;
    if (store_cuda_devices(&why) > 0)
        return &store_cuda;
    embd__error_set(e, EMBD_OK, "the host's memory is used: CUDA finds no GPU (%.200s)", why);
    return &store_host;
}

/* Whether the store can be used here. */
static bool is_usable(const struct store_ops *store, struct embd__error *e)
{
    const char *why;
    if (store == &store_host || store_cuda_devices(&why) > 0)
        return true;
    embd__error_set(e, EMBD_UNSUPPORTED, "store '%s': CUDA finds no GPU (%.200s)", store->name,
                    why);
    return false;
}
#else
static const struct store_ops *choose(struct embd__error *e)
{
    (void)e;
    return &store_host;
}

static bool is_usable(const struct store_ops *store, struct embd__error *e)
{
    (void)store;
    (void)e;
    return true;
}
#endif

const struct store_ops *store_find(const char *name, struct embd__error *e)
{
    if (strcmp(name, "auto") == 0)
        return choose(e);
    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++)
        if (strcmp(stores[i]->name, name) == 0)
            return is_usable(stores[i], e) ? stores[i] : NULL;
    embd__error_set(e, EMBD_INVALID, "store '%.40s' is not compiled in; it can be %s or auto", name,
                    COMPILED_IN);
    return NULL;
}
