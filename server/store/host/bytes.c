/* bytes.c - what a table takes of the machine's memory. */
#include "server/store/host/table.h"

uint64_t host_overhead_bytes(const struct store *store)
{
    return sizeof *store + index_bytes(&store->index) + merge_bytes(&store->merge) +
           rows_overhead_bytes(&store->rows) + row_set_bytes(&store->named) +
           eviction_queue_bytes(&store->queue) + pending_bytes(&store->pending) +
           changes_bytes(&store->changes) + values_bytes(store) + cow_bytes(store);
}

uint64_t host_memory_bytes(const struct store *store)
{
    return store->rows.n * store->rows.stride + host_overhead_bytes(store);
}
