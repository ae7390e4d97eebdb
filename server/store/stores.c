/* stores.c - which stores are compiled in. No other file knows. */
#include "store.h"

#include <string.h>

static const struct store_ops *const stores[] = {&store_host};

const struct store_ops *store_find(const char *name, struct embd__error *e)
{
    if (strcmp(name, "auto") == 0)
        return stores[0];
    for (size_t i = 0; i < sizeof stores / sizeof stores[0]; i++)
        if (strcmp(stores[i]->name, name) == 0)
            return stores[i];
    embd__error_set(e, EMBD_INVALID, "store '%.40s' is not compiled in; it can be host or auto", name);
    return NULL;
}
