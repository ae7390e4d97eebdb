/* row_memory.c - see row_memory.h. */
#include "server/engine/row_memory.h"

struct row_memory *row_memory_join(struct row_memory *memories, const struct store_ops *ops)
{
    uint32_t place = 0;
    uint64_t unknown = 0, free = ops->memory(&place);
    struct row_memory *memory = &memories[place % STORE_PLACES];
    atomic_compare_exchange_strong(&memory->limit, &unknown,
                                   free > 0 ? free / 10 * 8 : ROW_MEMORY_UNLIMITED);
    atomic_fetch_add(&memory->n_shards, 1);
    return memory;
}

void row_memory_refuse(struct row_memory *memory)
{
    atomic_store(&memory->refused_at, atomic_load(&memory->used));
}

/* Told again after more than a tenth was given back. */
bool row_memory_is_low(struct row_memory *memory)
{
    uint64_t used = atomic_load(&memory->used), refused_at = atomic_load(&memory->refused_at);
    uint64_t low = row_memory_limit(memory) / 10 * 9;
    if (refused_at > 0 && refused_at < low)
        low = refused_at;
    if (used < low / 9 * 8) {
        atomic_store(&memory->is_told, false);
        atomic_store(&memory->refused_at, 0);
    }
    return used >= low && !atomic_exchange(&memory->is_told, true);
}

uint64_t row_memory_share(const struct row_memory *memory)
{
    uint64_t limit = row_memory_limit(memory);
    uint32_t n = atomic_load(&memory->n_shards);
    return limit == ROW_MEMORY_UNLIMITED || n == 0 ? 0 : limit / n;
}
