/* ordered_rows.c - the rows of known keys, in the order of the keys.
 *
 * Keys cost 8 bytes where rows cost hundreds: so an export asks for all keys first, sorts those,
 * and then pulls the rows in that order, which is what servers are fastest at, and writes what
 * comes as it comes. One run of rows is on its way while the one before is being written.
 *
 * A run becomes one batch of a single sample: entries are sorted by slot within a GPU, so row s of
 * the batch has the run's keys of slot s, and single rows come back in the order of the entries.
 * What can fail: a shard; or a key that has no row any more, which a hold on the tables excludes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/formats/table_copy.h"
#include "client/hugectr/ordered_rows.h"

#define RUN_BYTES (2u << 20) /* of values: what a core's cache keeps until it is written */
#define RUN_ROWS  (32u << 10)

static bool has_slots(const struct ordered_rows *o)
{
    return o->schema->s.partition == EMBD_PARTITION_SLOT || o->schema->slot_starts != NULL;
}

static uint32_t slot_of(const struct ordered_rows *o, const struct entry *entry)
{
    if (o->schema->s.partition == EMBD_PARTITION_SLOT)
        return entry->slot;
    return o->schema->slot_starts ? embd__schema_slot_of(o->schema, entry->key) : 0;
}

/* Entries from `next` on that make one batch: of one GPU, where slots matter. */
static uint32_t run_length(const struct ordered_rows *o)
{
    uint64_t left = o->n_entries - o->next;
    uint32_t n = left < o->max_rows ? (uint32_t)left : o->max_rows;
    if (!has_slots(o))
        return n;
    for (uint32_t i = 1; i < n; i++)
        if (o->entries[o->next + i].gpu != o->entries[o->next].gpu)
            return i;
    return n;
}

static void fill_run(const struct ordered_rows *o, struct ordered_run *run)
{
    const struct entry *entries = o->entries + o->next;
    uint32_t slots = o->schema->s.slots;
    memset(run->offsets, 0, (slots + 1) * sizeof *run->offsets);
    for (uint32_t i = 0; i < run->n; i++) {
        uint32_t slot = slot_of(o, &entries[i]);
        uint64_t shift = o->schema->slot_starts ? o->schema->slot_starts[slot] : 0;
        run->keys[i] = entries[i].key - shift;
        run->offsets[slot + 1]++;
    }
    for (uint32_t s = 0; s < slots; s++)
        run->offsets[s + 1] += run->offsets[s];
}

static int start(struct ordered_rows *o, struct ordered_run *run)
{
    run->n = run_length(o);
    if (run->n == 0)
        return EMBD_OK;
    fill_run(o, run);
    embd_part part =
        EMBD_PART(.table = o->table, .n_rows = has_slots(o) ? o->schema->s.slots : 0,
                  .offsets = has_slots(o) ? run->offsets : NULL, .n_keys = run->n,
                  .keys = run->keys, .values = run->values, .statuses = run->statuses, .raw = true);
    embd_call_options options =
        EMBD_CALL_OPTIONS(.plan = EMBD_PLAN_POOLED, .zero_missing = true); /* only reads */
    o->next += run->n;
    return embd_pull_start(o->client, &part, 1, &options, &run->call);
}

static int check_rows(const struct ordered_rows *o, const struct ordered_run *run)
{
    for (uint32_t i = 0; i < run->n; i++)
        if (run->statuses[i] != EMBD_KEY_HIT)
            return embd__error_set(embd__copy_error(o->client), EMBD_INTERNAL,
                                   "table '%s': key %" PRIu64 " lost its row while it was exported",
                                   o->schema->s.name, run->keys[i]);
    return EMBD_OK;
}

int embd__ordered_open(struct ordered_rows *o, embd_client *client,
                       const struct table_schema *schema, const struct entry *entries,
                       uint64_t n_entries)
{
    uint32_t fit = RUN_BYTES / (schema->s.dim * (uint32_t)sizeof(float));
    *o = (struct ordered_rows){
        .client = client, .schema = schema, .entries = entries, .n_entries = n_entries};
    o->max_rows = fit < RUN_ROWS ? fit : RUN_ROWS;
    for (int i = 0; i < 2; i++) {
        struct ordered_run *run = &o->runs[i];
        run->keys = calloc(o->max_rows, sizeof *run->keys);
        run->offsets = calloc(schema->s.slots + 1u, sizeof *run->offsets);
        run->statuses = calloc(o->max_rows, 1);
        run->values = calloc(o->max_rows, schema->s.dim * sizeof *run->values);
        if (!run->keys || !run->offsets || !run->statuses || !run->values)
            return embd__error_set(embd__copy_error(client), EMBD_NO_MEMORY,
                                   "no memory for rows of table '%s' on their way", schema->s.name);
    }
    int status = embd_table_open(client, schema->s.name, &o->table);
    return status ? status : start(o, &o->runs[0]);
}

int embd__ordered_next(struct ordered_rows *o, const struct ordered_run **run_out)
{
    struct ordered_run *run = &o->runs[o->turn];
    o->turn ^= 1;
    if (run->n == 0)
        return 0;
    int status = start(o, &o->runs[o->turn]);
    if (status)
        return status;
    embd_call *call = run->call;
    run->call = NULL;
    status = embd_wait(call);
    if (status || (status = check_rows(o, run)))
        return status;
    *run_out = run;
    return 1;
}

void embd__ordered_close(struct ordered_rows *o)
{
    struct embd__error kept = {0};
    if (o->client)
        kept = *embd__copy_error(o->client);
    for (int i = 0; i < 2; i++) {
        struct ordered_run *run = &o->runs[i];
        if (run->call)
            embd_wait(run->call);
        free(run->keys);
        free(run->offsets);
        free(run->statuses);
        free(run->values);
    }
    if (o->client)
        *embd__copy_error(o->client) = kept;
    *o = (struct ordered_rows){0};
}
