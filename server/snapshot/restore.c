/* restore.c - see restore.h.
 *
 * The happy path: the journal is replayed; the snapshots are chosen (snapshot_select.h); of each,
 * the tables that it decides about and no journal keeps are made and filled, part by part, from the
 * last snapshot of its chain that has all rows of this shard on; then come step counters, and the
 * streams of pushers whose pushes these tables have (restore_streams.h).
 *
 * A journal is newer than any snapshot: the tables that it keeps, and their streams, are its alone.
 * Where this shard has no journal at all, it was lost or this is another machine: then they come
 * from the snapshot as well, and become the new journal's base before the shard takes requests.
 * Nothing is on disk until then, so that a start that is killed meanwhile begins again.
 *
 * A shard that was added behind the snapshot has nothing there: its records have all of it
 * (archived.h). */
#include "server/snapshot/restore.h"

#include <stdlib.h>
#include <string.h>

#include "server/engine/check.h"
#include "server/engine/foreign.h"
#include "server/engine/joining.h"
#include "server/engine/staged.h"
#include "server/snapshot/snapshot_select.h"
#include "proto/stored/chain.h"
#include "server/snapshot/archived.h"
#include "server/snapshot/cut.h"
#include "server/snapshot/restore_streams.h"
#include "proto/dtype.h"
#include "server/log/log.h"
#include "proto/stored/partread.h"

#define ALIGN 64u

/* Owner: the shard's thread. */
struct restore {
    struct journal_end end;
    bool has_journal, has_begun, has_journaled;
    bool is_added; /* behind the snapshot */
    uint64_t began_ns;
    uint32_t at; /* of the chosen snapshots */
    const struct dump_chain *chain;
    const struct manifest *manifest; /* of the last of it */
    uint32_t n_at;                   /* tables of it that were looked at */
    uint32_t n_tables;               /* and taken */
    uint64_t rows_before;            /* from those before it */
    uint64_t rows, done_bytes, total_bytes;
    /* The table being filled; NULL: none. */
    struct table *table;
    uint32_t dir; /* of the chain, that its part is read from */
    bool has_reader;
    struct part_reader reader;
    uint8_t *staged; /* from the store, [staged_bytes] */
    uint64_t staged_bytes;
};

/* ---- rows ---- */

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static const void *put(uint8_t **next, const void *from, uint64_t bytes)
{
    uint8_t *at = *next;
    if (from == NULL)
        return NULL;
    memcpy(at, from, bytes);
    *next += aligned(bytes);
    return at;
}

static int reserve(struct shard *shard, uint64_t bytes, struct embd__error *e)
{
    struct restore *r = shard->restore;
    const struct store_ops *ops = shard->engine.tables.ops;
    if (bytes <= r->staged_bytes)
        return EMBD_OK;
    if (r->staged != NULL)
        ops->buffer_free(r->staged, r->staged_bytes);
    r->staged = ops->buffer_new(bytes);
    r->staged_bytes = r->staged != NULL ? bytes : 0;
    if (r->staged != NULL)
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a block of %llu bytes",
                           (unsigned long long)bytes);
}

/* Stores take rows from memory and at addresses that suit them, which a file's bytes do not have.
 */
static int stage(struct shard *shard, struct row_block *b, struct embd__error *e)
{
    struct restore *r = shard->restore;
    const embd_schema *schema = &r->table->schema.s;
    uint64_t values = embd__value_bytes(schema->dtype, schema->dim),
             states = embd__schema_state_floats(schema) * sizeof(float), n = b->n_rows,
             m = b->n_candidates;
    if (reserve(shard, n * (10 + values + states) + m * 14 + 7 * ALIGN, e) != EMBD_OK)
        return e->status;
    uint8_t *next = r->staged;
    b->keys = put(&next, b->keys, n * sizeof *b->keys);
    b->slots = put(&next, b->slots, n * sizeof *b->slots);
    b->rows = put(&next, b->rows, n * values);
    b->states = put(&next, b->states, n * states);
    b->candidate_keys = put(&next, b->candidate_keys, m * sizeof *b->candidate_keys);
    b->candidate_slots = put(&next, b->candidate_slots, m * sizeof *b->candidate_slots);
    b->candidate_counts = put(&next, b->candidate_counts, m * sizeof *b->candidate_counts);
    return EMBD_OK;
}

/* Versions before took keys that are another shard's: what the shard had of them it has again. */
static int load_block(struct shard *shard, struct row_block *block, struct embd__error *e)
{
    const struct store_ops *ops = shard->engine.tables.ops;
    const struct table *table = shard->restore->table;
    const struct routed_place anywhere = {.n_shards = 1};
    bool is_gone = embd__block_is_gone(block);
    if (check_block(table, block, is_gone, &anywhere, e) != EMBD_OK ||
        check_states(table, block, e) != EMBD_OK || stage(shard, block, e) != EMBD_OK)
        return e->status;
    if (!is_gone)
        return ops->load(table->store, block, e);
    struct store_erase erase = {.in = {.n_keys = block->n_candidates,
                                       .n_rows = block->n_candidates,
                                       .keys = block->candidate_keys,
                                       .slots = block->candidate_slots}};
    return ops->erase(table->store, &erase, e);
}

/* ---- one table ---- */

static const struct manifest_part *part_of(const struct shard *shard, uint32_t dir,
                                           const struct dump_share **share_out)
{
    const struct restore *r = shard->restore;
    return embd__chain_part(&r->chain->dirs[dir], r->table->schema.s.name, shard->config.index,
                            share_out);
}

/* From the last of the chain that has all its rows on. */
static uint32_t first_dir(const struct shard *shard)
{
    const struct dump_share *share;
    uint32_t dir = shard->restore->chain->n - 1;
    while (dir > 0 && part_of(shard, dir, &share)->has_changes)
        dir--;
    return dir;
}

static bool is_journaled(const embd_schema *schema)
{
    return embd__durability_is_journaled(schema->durability);
}

/* That the shard's table had when the snapshot was made, for clients that know it by that. */
static uint32_t id_of(const struct shard *shard, const char *table)
{
    const struct dump_chain *chain = shard->restore->chain;
    const struct dump_share *share;
    const struct manifest_part *part =
        embd__chain_part(&chain->dirs[chain->n - 1], table, shard->config.index, &share);
    return part != NULL ? part->table_id : 0;
}

/* The journal had it once, or was to have it: it is as the snapshot has it. */
static bool is_apart(const struct shard *shard, const char *name)
{
    return joining_is_apart(&shard->engine.tables, name);
}

static int make_table(struct shard *shard, const struct manifest_table *from, struct embd__error *e)
{
    struct restore *r = shard->restore;
    embd_schema schema = from->schema.s;
    bool created;
    if (from->step > LIMIT_STEP)
        return embd__error_set(e, EMBD_INVALID, "table '%s' has step %llu, the limit is %llu",
                               schema.name, (unsigned long long)from->step, LIMIT_STEP);
    if (!is_journaled(&schema) || is_apart(shard, schema.name)) {
        schema.changed |= is_journaled(&schema) ? embd__schema_bits("durability") : 0;
        schema.durability =
            EMBD_DURABILITY_SNAPSHOT; /* also where an earlier version did not say it */
    }
    if (tables_create(&shard->engine.tables, &schema, id_of(shard, schema.name), &r->table,
                      &created, e) != EMBD_OK)
        return e->status;
    r->has_journaled = r->has_journaled || is_journaled(&schema);
    r->n_tables++;
    r->dir = first_dir(shard);
    return EMBD_OK;
}

/* Rows of this shard count; a snapshot of another number of shards has others. */
static bool is_left_out(struct shard *shard, const struct manifest_table *table)
{
    struct left_out *left_out = tables_left_out_name(&shard->engine.tables, table->schema.s.name);
    if (left_out == NULL)
        return false;
    left_out->is_found = true;
    for (uint32_t i = 0; i < table->n_parts; i++)
        left_out->rows += table->parts[i].shard == shard->config.index ? table->parts[i].rows : 0;
    return true;
}

/* A table that waits for shard 0's decision was to take the place of a journaled one or of none:
 * one that the snapshot has was dropped since, and would be in the way. */
static bool is_prepared(const struct shard *shard, const char *name)
{
    struct embd__error ignored = {.status = EMBD_OK};
    return staged_find(&shard->engine.tables, shard->engine.prepared.id, name, &ignored) != NULL;
}

/* Whether the table comes back; lost tables that do not are logged. */
static bool wants(struct shard *shard, const struct manifest_table *table)
{
    const struct restore *r = shard->restore;
    const char *name = table->schema.s.name;
    if (!snapshot_select_decides(shard->config.chosen, r->at, name) ||
        (is_journaled(&table->schema.s) && r->has_journal && !is_apart(shard, name)))
        return false;
    if (is_left_out(shard, table))
        return false;
    if (tables_by_name(&shard->engine.tables, name) == NULL && !is_prepared(shard, name))
        return true;
    log_event(LOG_WARN, "table_not_restored",
              "shard=%u table=%s why=\"the journal has a table of that name, which is newer than "
              "the snapshot's\"",
              shard->config.index, name);
    return false;
}

/* The step is this shard's own: a push that another one refused was a step here. Changes from now
 * on are noted, as since the cut: increments may follow. */
static void end_table(struct shard *shard)
{
    struct restore *r = shard->restore;
    const struct store_ops *ops = shard->engine.tables.ops;
    struct store_cut cut = {.id = r->manifest->id};
    struct embd__error ignored = {.status = EMBD_OK};
    const struct dump_share *share;
    ops->set_step(r->table->store, part_of(shard, r->chain->n - 1, &share)->step);
    if (cut.id != 0) {
        ops->freeze(r->table->store, &cut,
                    &ignored); /* without memory for it the next cut has all rows */
        ops->thaw(r->table->store);
    }
    r->table = NULL;
    r->n_at++;
}

/* ---- steps ---- */

static int open_part(struct shard *shard, struct embd__error *e)
{
    struct restore *r = shard->restore;
    const struct dump_share *share;
    const struct manifest_part *part = part_of(shard, r->dir, &share);
    r->has_reader =
        embd__partread_open(&r->reader, share->path, part, &r->table->schema.s, e) == EMBD_OK;
    return e->status;
}

static int next_block(struct shard *shard, struct embd__error *e)
{
    struct restore *r = shard->restore;
    struct row_block block;
    uint64_t at = r->reader.at;
    int status = embd__partread_next(&r->reader, &block, e);
    r->done_bytes += r->reader.at - at;
    if (status > 0) {
        if (r->dir + 1 < r->chain->n)
            embd__block_drop_candidates(&block);
        r->rows += block.n_rows;
        return load_block(shard, &block, e);
    }
    embd__partread_close(&r->reader);
    r->has_reader = false;
    r->dir++;
    return e->status;
}

/* ---- from the first step to the last ---- */

static const char *name_of(const struct shard *shard)
{
    return snapshot_select_chosen(shard->config.chosen, shard->restore->at);
}

static void begin_snapshot(struct shard *shard)
{
    struct restore *r = shard->restore;
    r->chain = snapshot_select_chain(shard->config.chosen, r->at);
    r->manifest = &embd__chain_last(r->chain)->shares[0].manifest;
    r->n_at = r->n_tables = 0;
    r->rows_before = r->rows;
}

/* Of the tables that the snapshot `at` decides about. */
static uint64_t count_bytes(const struct shard *shard, uint32_t at, const struct manifest *m)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < m->n_tables; i++) {
        const struct manifest_table *table = &m->tables[i];
        if (!snapshot_select_decides(shard->config.chosen, at, table->schema.s.name))
            continue;
        for (uint32_t j = 0; j < table->n_parts; j++)
            bytes += table->parts[j].shard == shard->config.index ? table->parts[j].bytes : 0;
    }
    return bytes;
}

static void begin(struct shard *shard)
{
    struct restore *r = shard->restore;
    r->has_begun = true;
    r->began_ns = clock_ns();
    for (uint32_t i = 0; i < snapshot_select_count(shard->config.chosen); i++) {
        const struct dump_chain *chain = snapshot_select_chain(shard->config.chosen, i);
        for (uint32_t j = 0; j < chain->n; j++)
            r->total_bytes += count_bytes(shard, i, &chain->dirs[j].shares[0].manifest);
    }
    begin_snapshot(shard);
    r->is_added = !embd__manifest_has_shard(r->manifest, shard->config.index) &&
                  archived_is_there(shard->config.data_dir, shard->config.index);
    r->has_journaled = r->is_added;
}

static void end_snapshot(struct shard *shard)
{
    struct restore *r = shard->restore;
    if (r->n_tables > 0) /* increments may follow this cut, as if the shard had gone on since */
        cuts_known_add(&shard->cuts, r->manifest->id, &r->manifest->scope);
    log_event(LOG_INFO, "restored",
              "shard=%u snapshot=%s cut=%016llx tables=%u rows=%llu bytes=%llu seconds=%.2f",
              shard->config.index, name_of(shard), (unsigned long long)r->manifest->id, r->n_tables,
              (unsigned long long)(r->rows - r->rows_before), (unsigned long long)r->done_bytes,
              (double)(clock_ns() - r->began_ns) / 1e9);
}

static void end(struct shard *shard)
{
    const struct restore *r = shard->restore;
    shard->restored_cut = snapshot_select_cut(shard->config.chosen);
    shard->restored_rows = r->rows;
    shard->lacked_journal = r->has_journaled;
    if (r->has_journaled)
        log_event(LOG_WARN, "restored_without_journal",
                  "shard=%u snapshot=%s why=\"there was no journal: tables that are durable or "
                  "buffered come from the "
                  "snapshot too\"",
                  shard->config.index, name_of(shard));
}

/* All tables of a snapshot were looked at. */
static int end_tables(struct shard *shard, bool *is_over_out, struct embd__error *e)
{
    struct restore *r = shard->restore;
    end_snapshot(shard);
    if (r->at + 1 < snapshot_select_count(shard->config.chosen)) {
        r->at++;
        begin_snapshot(shard);
        return EMBD_OK;
    }
    if (restore_streams(shard, &r->end, r->has_journal, &r->has_journaled, e) != EMBD_OK)
        return e->status;
    end(shard);
    *is_over_out = true;
    return EMBD_OK;
}

static int step(struct shard *shard, bool *is_over_out, struct embd__error *e)
{
    struct restore *r = shard->restore;
    bool has_more = r->n_at < r->manifest->n_tables && !r->is_added;
    const struct manifest_table *table = has_more ? &r->manifest->tables[r->n_at] : NULL;
    if (r->has_reader)
        return next_block(shard, e);
    if (r->table != NULL && r->dir < r->chain->n)
        return open_part(shard, e);
    if (r->table != NULL) {
        end_table(shard);
    } else if (table != NULL && wants(shard, table)) {
        return make_table(shard, table, e);
    } else if (table != NULL) {
        r->n_at++;
    } else {
        return end_tables(shard, is_over_out, e);
    }
    return e->status;
}

/* Names the snapshot. */
static int failed(const struct shard *shard, const struct embd__error *own, struct embd__error *e)
{
    return embd__error_set(e, own->status, "shard %u: snapshot '%s' cannot be loaded: %.300s",
                           shard->config.index, name_of(shard), own->text);
}

int restore_begin(struct shard *shard, const struct journal_end *end, struct embd__error *e)
{
    struct restore *r = shard->restore = calloc(1, sizeof *r);
    if (r == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to load a snapshot");
    r->end = *end;
    r->has_journal = end->is_damaged || end->base != 0 || end->position > 0;
    return EMBD_OK;
}

int restore_go_on(struct shard *shard, bool *waits_out, bool *is_over_out, struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK};
    enum snapshot_select_state state = snapshot_select_state(shard->config.chosen);
    *waits_out = state == SNAPSHOT_SELECT_LOOKING;
    *is_over_out = state == SNAPSHOT_SELECT_NONE;
    if (*is_over_out)
        foreign_forget(&shard->engine);
    if (state == SNAPSHOT_SELECT_FAILED)
        *e = *snapshot_select_why(shard->config.chosen);
    if (state != SNAPSHOT_SELECT_FOUND)
        return e->status;
    if (!shard->restore->has_begun)
        begin(shard);
    return step(shard, is_over_out, &own) == EMBD_OK ? EMBD_OK : failed(shard, &own, e);
}

const struct journal_end *restore_journal_end(const struct shard *shard)
{
    return &shard->restore->end;
}

bool restore_has_journaled(const struct shard *shard)
{
    return shard->restore->has_journaled;
}

void restore_end(struct shard *shard)
{
    struct restore *r = shard->restore;
    shard->restore = NULL;
    if (r == NULL)
        return;
    if (r->has_reader)
        embd__partread_close(&r->reader);
    if (r->staged != NULL)
        shard->engine.tables.ops->buffer_free(r->staged, r->staged_bytes);
    free(r);
}

void restore_progress(const struct shard *shard, uint64_t *done_bytes_out,
                      uint64_t *total_bytes_out)
{
    const struct restore *r = shard->restore;
    if (r->has_begun) {
        *done_bytes_out = r->done_bytes;
        *total_bytes_out = r->total_bytes;
    } else {
        snapshot_select_progress(shard->config.chosen, done_bytes_out, total_bytes_out);
    }
}

const char *restore_table(const struct shard *shard)
{
    const struct restore *r = shard->restore;
    return r->table != NULL ? r->table->schema.s.name : "";
}

const char *restore_snapshot(const struct shard *shard)
{
    return shard->restore->has_begun ? name_of(shard) : snapshot_select_name(shard->config.chosen);
}
