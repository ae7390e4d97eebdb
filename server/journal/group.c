#include "server/journal/group.h"

#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"

/* Memory that a group keeps for the next one: more than a second of ordinary pushes. Longer ones
 * had a large push. */
#define KEPT_BYTES ((uint64_t)4 * LIMIT_FRAME_BYTES)

static bool reserve(struct journal_group *group, uint64_t bytes)
{
    if (group->n_entries == group->entries_capacity) {
        uint32_t n = group->entries_capacity ? 2 * group->entries_capacity : 16;
        struct journal_entry *entries = realloc(group->entries, n * sizeof *entries);
        if (entries == NULL)
            return false;
        group->entries = entries;
        group->entries_capacity = n;
    }
    uint64_t least = record_block_end(group->n_bytes + bytes);
    if (least <= group->capacity)
        return true;
    uint64_t n = group->capacity * 2 > least ? group->capacity * 2 : least;
    uint8_t *grown = aligned_alloc(RECORD_BLOCK_BYTES, n);
    if (grown == NULL)
        return false;
    if (group->n_bytes > 0)
        memcpy(grown, group->bytes, group->n_bytes);
    free(group->bytes);
    group->bytes = grown;
    group->capacity = n;
    return true;
}

void group_clear(struct journal_group *group)
{
    if (group->capacity > KEPT_BYTES) {
        free(group->bytes);
        group->bytes = NULL;
        group->capacity = 0;
    }
    group->n_bytes = 0;
    group->n_entries = group->n_applied = 0;
    group->is_durable = false;
    group->error = 0;
}

int group_append(struct journal_group *group, struct op *op, const struct frame_scanner *frame,
                 bool is_durable, struct embd__error *e)
{
    uint64_t bytes = record_bytes(frame);
    if (!reserve(group, bytes))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a journal record of %llu bytes",
                               (unsigned long long)bytes);
    record_write(group->bytes + group->n_bytes, frame);
    group->entries[group->n_entries++] = (struct journal_entry){op, group->n_bytes, bytes};
    group->n_bytes += bytes;
    group->is_durable = group->is_durable || is_durable;
    return EMBD_OK;
}

uint64_t group_seal(struct journal_group *group, const struct record_key *key, uint64_t position,
                    uint64_t synced, uint64_t chain)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < group->n_entries; i++) {
        uint64_t bytes;
        EMBD_ASSERT(group->entries[i].at == at);
        at += group->entries[i].bytes;
        chain = record_seal(group->bytes + group->entries[i].at, key, position + i, synced, chain,
                            &bytes);
    }
    EMBD_ASSERT(at == group->n_bytes);
    return chain;
}

void group_forget(struct journal_group *group, const struct op *op)
{
    for (uint32_t i = 0; i < group->n_entries; i++)
        if (group->entries[i].op == op)
            group->entries[i].op = NULL;
}

void group_fini(struct journal_group *group)
{
    free(group->bytes);
    free(group->entries);
}
