/* deferred_store.c - see deferred_store.h. */
#include "deferred_store.h"

#include <stdlib.h>

#define MAX_CALLS 64

struct store_ops store_deferred;

static struct call {
    struct store *store;
    struct store_pull *pull;
    struct store_push *push;
    struct store_insert *insert;
    struct store_done *done;
} calls[MAX_CALLS];
static uint32_t first, last;

static void keep(struct call call)
{
    if (last - first == MAX_CALLS)
        abort();
    calls[last++ % MAX_CALLS] = call;
}

static void pull_later(struct store *store, struct store_pull *pull, struct store_done *done)
{
    if (pull->now)
        store_host.pull(store, pull, done);
    else
        keep((struct call){.store = store, .pull = pull, .done = done});
}

static void push_later(struct store *store, struct store_push *push, struct store_done *done)
{
    keep((struct call){.store = store, .push = push, .done = done});
}

static void insert_later(struct store *store, struct store_insert *insert, struct store_done *done)
{
    keep((struct call){.store = store, .insert = insert, .done = done});
}

static void forget(struct store *store, struct store_done *done)
{
    (void)store;
    uint32_t n = first;
    for (uint32_t i = first; i != last; i++)
        if (calls[i % MAX_CALLS].done != done)
            calls[n++ % MAX_CALLS] = calls[i % MAX_CALLS];
    last = n;
}

void deferred_open(void)
{
    first = last = 0;
    store_deferred = store_host;
    store_deferred.name = "deferred";
    store_deferred.pull_bytes = UINT64_MAX;
    store_deferred.pull = pull_later;
    store_deferred.push = push_later;
    store_deferred.prepare = NULL; /* other calls come in between */
    store_deferred.insert = insert_later;
    store_deferred.forget = forget;
}

bool deferred_run(void)
{
    if (first == last)
        return false;
    struct call call = calls[first++ % MAX_CALLS];
    if (call.pull != NULL)
        store_host.pull(call.store, call.pull, call.done);
    else if (call.push != NULL)
        store_host.push(call.store, call.push, call.done);
    else
        store_host.insert(call.store, call.insert, call.done);
    return true;
}
