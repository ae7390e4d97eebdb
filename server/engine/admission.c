/* admission.c - see admission.h. Counts of candidates stay whatever admit_after becomes: a key that
 * was named often enough gets its row when it is named next. Only with 0 and 1, where no key waits,
 * the candidates go. One pass over the table finds them, on any store, by its scan and erase. */
#include "server/engine/admission.h"

#include <stdlib.h>

#include "server/engine/block.h"

#define BLOCK_KEYS 65536u

struct waiting {
    uint64_t n, most;
    uint64_t *keys;  /* [most] */
    uint16_t *slots; /* likewise */
};

static int no_memory(const struct table *table, struct embd__error *e)
{
    return embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to forget its candidates",
                           table->schema.s.name);
}

static void take(struct waiting *w, const struct store_scan *block)
{
    for (uint32_t i = 0; i < block->n_candidates && w->n < w->most; i++) {
        w->keys[w->n] = block->candidate_keys[i];
        w->slots[w->n++] = block->candidate_slots != NULL ? block->candidate_slots[i] : 0;
    }
}

static int find(const struct store_ops *ops, const struct table *table, struct waiting *w,
                struct embd__error *e)
{
    const embd_schema keys = embd__keys_schema(&table->schema.s);
    struct store_scan block;
    void *memory = block_new(&keys, BLOCK_KEYS, &block);
    if (memory == NULL)
        return no_memory(table, e);
    block.rows = NULL;
    block.states = NULL;
    for (uint64_t cursor = 0; cursor != UINT64_MAX && e->status == EMBD_OK;)
        if (ops->scan(table->store, &cursor, BLOCK_KEYS, &block, e) == EMBD_OK)
            take(w, &block);
    free(memory);
    return e->status;
}

static int forget(const struct store_ops *ops, struct table *table, const struct waiting *w,
                  struct embd__error *e)
{
    bool has_slots = table->schema.s.partition == EMBD_PARTITION_SLOT;
    for (uint64_t at = 0; at < w->n && e->status == EMBD_OK; at += BLOCK_KEYS) {
        uint32_t n = w->n - at < BLOCK_KEYS ? (uint32_t)(w->n - at) : BLOCK_KEYS;
        struct store_erase gone = {.in = {.n_keys = n,
                                          .n_rows = n,
                                          .keys = w->keys + at,
                                          .slots = has_slots ? w->slots + at : NULL}};
        ops->erase(table->store, &gone, e);
    }
    return e->status;
}

int admission_make(const struct store_ops *ops, struct table *table, const embd_schema *to,
                   struct embd__error *e)
{
    struct store_stats stats;
    ops->stats(table->store, &stats);
    struct waiting w = {.most = stats.candidates};
    if (to->admit_after > 1 || w.most == 0)
        return EMBD_OK;
    w.keys = malloc(w.most * sizeof *w.keys);
    w.slots = malloc(w.most * sizeof *w.slots);
    if (w.keys == NULL || w.slots == NULL)
        no_memory(table, e);
    else if (find(ops, table, &w, e) == EMBD_OK)
        forget(ops, table, &w, e);
    free(w.keys);
    free(w.slots);
    return e->status;
}
