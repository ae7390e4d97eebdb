/* cut.c - see cut.h.
 *
 * The happy path: cut_begin freezes the tables and starts the thread (server/files/writing.h). The
 * thread writes one part after the other. cut_collect copies a block of rows for it between two
 * requests, so that no request waits for more than that. When all parts are synced the tables are
 * thawed, and the `write` that asks for the parts is answered.
 *
 * What can fail is the disk, or memory for rows that pushes change meanwhile: then there are no
 * parts, and pushes do not notice. */
#include "server/snapshot/cut.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/route.h"
#include "server/service/compacting.h"
#include "server/engine/block.h"
#include "server/snapshot/cut_read.h"
#include "server/snapshot/snapshot_rights.h"
#include "server/snapshot/snapshot_scope.h"
#include "server/snapshot/snapshot_watch.h"
#include "server/files/writing.h"
#include "server/snapshot/written.h"

#define CUT_BLOCK_BYTES (1u << 20) /* copied in well under a millisecond */

/* The arrays of one of the writing's blocks. */
struct cut_arrays {
    void *memory;
    uint32_t table; /* that they are for; n: none yet */
    struct store_scan scan;
};

/* One table's part of this shard. */
struct cut_part {
    struct table *table;
    struct manifest_part part;
    uint64_t step;
    bool has_changes; /* since the base, and not all rows */
};

/* Owner: the shard's thread. */
struct cut {
    struct shard *shard;
    char name[SNAPSHOT_NAME_MAX + 1];
    const struct shard_session *owner; /* NULL: closed; the parts are not needed */
    uint32_t n, at;                    /* tables; whose rows are handed over next */
    struct cut_part *written;          /* [n] */
    embd_schema *as_cut;               /* [n]; their slot_sizes are the tables' */
    const embd_schema **schemas;       /* [n] these */
    struct manifest_part *parts;       /* [n] */
    struct snapshot_streams streams;
    struct writing_config config;
    struct writing *writing; /* NULL: over; the tables are thawed then */
    struct cut_arrays arrays[WRITING_BLOCKS];
    struct embd__error error;
    struct request *waiting; /* for the parts */
};

/* ---- beginning ---- */

static void thaw(struct cut *cut)
{
    for (uint32_t i = 0; i < cut->n; i++)
        cut->shard->engine.tables.ops->thaw(cut->written[i].table->store);
}

void cut_discard(struct cut *cut)
{
    if (cut == NULL)
        return;
    for (uint32_t i = 0; i < WRITING_BLOCKS; i++)
        free(cut->arrays[i].memory);
    if (cut->config.dir >= 0)
        close(cut->config.dir);
    free(cut->streams.bytes);
    free(cut->written);
    free(cut->schemas);
    free(cut->as_cut);
    free(cut->parts);
    free(cut);
}

static void cut_free(struct cut *cut)
{
    cut->shard->cut = NULL;
    cut_discard(cut);
}

/* NULL: out of memory. */
static struct cut *cut_new(struct call *call, const char *name)
{
    struct shard *shard = call->shard;
    uint32_t n = shard->engine.tables.n + 1;
    struct cut *cut = calloc(1, sizeof *cut);
    if (cut == NULL)
        return NULL;
    shard->cut = cut;
    cut->shard = shard;
    cut->owner = call->request->session;
    memcpy(cut->name, name, strlen(name));
    cut->config.dir = -1;
    cut->written = calloc(n, sizeof *cut->written);
    cut->as_cut = calloc(n, sizeof *cut->as_cut);
    cut->schemas = calloc(n, sizeof *cut->schemas);
    cut->parts = calloc(n, sizeof *cut->parts);
    if (cut->written != NULL && cut->as_cut != NULL && cut->schemas != NULL && cut->parts != NULL)
        return cut;
    cut_free(cut);
    return NULL;
}

static int freeze_table(struct cut *cut, const struct snapshot_cut *what, struct table *table,
                        struct embd__error *e)
{
    const struct tables *tables = &cut->shard->engine.tables;
    struct store_stats stats;
    struct store_cut table_cut = {.id = what->id, .since = what->since};
    if (tables_freeze(tables, table, &table_cut, e) != EMBD_OK)
        return e->status;
    tables->ops->stats(table->store, &stats);
    cut->written[cut->n] =
        (struct cut_part){.table = table, .step = stats.steps, .has_changes = !table_cut.has_all};
    cut->as_cut[cut->n] = table->schema.s;
    cut->schemas[cut->n] = &cut->as_cut[cut->n];
    cut->n++;
    return EMBD_OK;
}

/* The tables that the snapshot is of. */
static int freeze(struct cut *cut, const struct snapshot_cut *what, struct embd__error *e)
{
    const struct tables *tables = &cut->shard->engine.tables;
    for (uint32_t i = 0; i < tables->n; i++)
        if (embd__scope_covers(&what->scope, tables->by_name[i]->schema.s.name) &&
            freeze_table(cut, what, tables->by_name[i], e) != EMBD_OK)
            return e->status;
    for (uint32_t i = 0; i < WRITING_BLOCKS; i++)
        cut->arrays[i].table = cut->n;
    return EMBD_OK;
}

static int start(struct cut *cut, const struct snapshot_cut *what, struct embd__error *e)
{
    const struct shard_config *config = &cut->shard->config;
    cut->config.dir = snapshot_open(cut->shard->data_dir, cut->name, e);
    if (cut->config.dir < 0 || freeze(cut, what, e) != EMBD_OK ||
        snapshot_streams_cut(cut->shard, &cut->streams, e) != EMBD_OK)
        return e->status;
    cut->config.file =
        (struct writing_file){cut->streams.file, cut->streams.bytes, cut->streams.part.bytes};
    cut->config.shard = config->index;
    cut->config.n_tables = cut->n;
    cut->config.schemas = cut->schemas;
    cut->config.wake = config->wake;
    cut->config.wake_arg = config->wake_arg;
    return writing_start(&cut->config, &cut->writing, e);
}

/* Whether changes since then are known. */
static int check_since(const struct shard *shard, const struct snapshot_cut *what,
                       struct embd__error *e)
{
    if (what->since == 0 || cuts_known_has(&shard->cuts, what->since))
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_UNSUPPORTED,
        "snapshot cut: shard %u does not know what changed since '%s': its journal has no record "
        "of that cut, or it made %u later ones; make a snapshot of all rows",
        shard->config.index, what->base, CUTS_KNOWN);
}

int cut_begin(struct call *call, const char *name, const struct snapshot_cut *what)
{
    struct shard *shard = call->shard;
    struct embd__error *e = &call->error;
    if (shard->config.wake == NULL)
        return embd__error_set(
            e, EMBD_UNSUPPORTED,
            "snapshot cut: this shard cannot be woken when its parts are written");
    if (!call->request->session->holds)
        return embd__error_set(e, EMBD_INVALID,
                               "snapshot cut: this connection holds nothing; hold first");
    if (shard->cut != NULL && shard->cut->writing != NULL)
        return embd__error_set(e, EMBD_BUSY, "another snapshot%s is still being written",
                               snapshot_shown_name(call, shard->cut->name).text);
    if (cut_is_read(shard))
        return embd__error_set(e, EMBD_BUSY, "a dump is still being read");
    if (moving_refuse_cut(shard, "snapshot", e) != EMBD_OK)
        return e->status;
    if (check_since(shard, what, e) != EMBD_OK ||
        snapshot_check_scope(shard, &what->scope, e) != EMBD_OK)
        return e->status;
    if (shard->cut != NULL)
        cut_free(shard->cut);
    compacting_give_up(shard);
    mark_give_way(shard);
    subscribers_give_way(shard);
    struct cut *cut = cut_new(call, name);
    if (cut == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a cut");
    if (start(cut, what, e) == EMBD_OK) {
        cuts_known_add(&shard->cuts, what->id, &what->scope);
        return EMBD_OK;
    }
    thaw(cut);
    cut_free(cut);
    return e->status;
}

bool cut_is_of(const struct shard *shard, const char *name)
{
    return shard->cut != NULL && shard->cut->owner != NULL && strcmp(shard->cut->name, name) == 0;
}

const embd_schema *cut_schema(const struct shard *shard, const char *name,
                              const struct table *table)
{
    for (uint32_t i = 0; cut_is_of(shard, name) && i < shard->cut->n; i++)
        if (shard->cut->written[i].table == table)
            return shard->cut->schemas[i];
    return NULL;
}

bool cut_is_ending(const struct shard *shard, const char *name)
{
    return cut_is_writing(shard) && shard->cut->owner == NULL &&
           strcmp(shard->cut->name, name) == 0;
}

/* ---- handing rows over ---- */

/* Arrays for rows of the table; false: no memory. */
static bool prepare(struct cut *cut, struct cut_arrays *arrays, uint32_t max_rows)
{
    if (arrays->table == cut->at)
        return true;
    free(arrays->memory);
    arrays->memory = block_new(cut->schemas[cut->at], max_rows, &arrays->scan);
    arrays->table = arrays->memory != NULL ? cut->at : cut->n;
    return arrays->memory != NULL;
}

/* False: a store's device has nothing to hand over yet. */
static bool fill(struct cut *cut, struct cut_arrays *arrays, struct writing_block *block)
{
    const struct store_ops *ops = cut->shard->engine.tables.ops;
    const struct table *table = cut->written[cut->at].table;
    struct embd__error *e = &block->error;
    uint32_t max_rows = block_rows_in(&table->schema.s, CUT_BLOCK_BYTES);
    max_rows += max_rows == 0;
    e->status = EMBD_OK;
    if (!prepare(cut, arrays, max_rows))
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for rows of table '%s'",
                        table->schema.s.name);
    else
        ops->scan_frozen(table->store, max_rows, &arrays->scan, &block->is_last, e);
    if (e->status != EMBD_OK)
        return true;
    block->rows = block_of(&arrays->scan);
    if (!block->is_last)
        return block->rows.n_rows + block->rows.n_candidates > 0;
    ops->thaw(table->store);
    cut->at++;
    return true;
}

/* ---- the end ---- */

/* In the form that commit takes. */
static void tell(const struct cut *cut, struct msg *m, uint32_t msgid)
{
    const struct manifest_streams *streams = &cut->streams.part;
    embd__msg_result(m, msgid);
    embd__msg_map(m, 2);
    embd__msg_str(m, "writers");
    embd__msg_map(m, 3);
    embd__msg_field_uint(m, "shard", streams->shard);
    embd__msg_field_uint(m, "bytes", streams->bytes);
    embd__msg_field_uint(m, "xxh3", streams->xxh3);
    embd__msg_str(m, "parts");
    embd__msg_array(m, cut->n);
    for (uint32_t i = 0; i < cut->n; i++) {
        const struct cut_part *written = &cut->written[i];
        const struct manifest_part *part = &written->part;
        embd__msg_map(m, 8u + part->has_changes + (part->table_id != 0));
        if (part->has_changes)
            embd__msg_field_bool(m, "changes", true);
        if (part->table_id != 0)
            embd__msg_field_uint(m, "table_id", part->table_id);
        embd__msg_field_str(m, "table", written->table->schema.s.name);
        embd__msg_field_str(m, "file", part->file);
        embd__msg_field_uint(m, "shard", part->shard);
        embd__msg_field_uint(m, "rows", part->rows);
        embd__msg_field_uint(m, "candidates", part->candidates);
        embd__msg_field_uint(m, "bytes", part->bytes);
        embd__msg_field_uint(m, "xxh3", part->xxh3);
        embd__msg_field_uint(m, "step", written->step);
    }
}

/* For the shard that commits. */
static int note_written(const struct cut *cut, struct embd__error *e)
{
    const struct shard_config *config = &cut->shard->config;
    struct written_part *parts;
    if (config->written == NULL)
        return EMBD_OK;
    parts = calloc(cut->n + 1u, sizeof *parts);
    if (parts == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to note what was written");
    for (uint32_t i = 0; i < cut->n; i++) {
        parts[i] =
            (struct written_part){.part = cut->written[i].part, .step = cut->written[i].step};
        memcpy(parts[i].table, cut->written[i].table->schema.s.name, sizeof parts[i].table);
    }
    written_note(config->written, config->index, cut->name, parts, cut->n, &cut->streams.part, e);
    free(parts);
    return e->status;
}

/* The shard that commits keeps the cut until then, so that the tables stay as they were
 * reported. */
static void answer(struct cut *cut)
{
    struct shard *shard = cut->shard;
    struct request *request = cut->waiting;
    struct embd__error e = cut->error;
    cut->waiting = NULL;
    if (e.status == EMBD_OK && note_written(cut, &e) == EMBD_OK) {
        tell(cut, &request->answer, request->frame->msgid);
        embd__msg_end(&request->answer);
    }
    if (e.status != EMBD_OK && e.status != EMBD_CLOSED)
        snapshot_watch_failed(shard, "write", cut->name, &e);
    if (!shard->config.is_first || e.status != EMBD_OK)
        cut_free(cut);
    call_answer(shard, request, &e);
}

/* 0: it is the first of the table's name, as nearly always. */
static uint32_t id_of(const struct table *table)
{
    return table->id == embd__table_id(table->schema.s.name) ? 0 : table->id;
}

static void end_writing(struct cut *cut)
{
    writing_end(cut->writing, cut->parts, &cut->error);
    cut->writing = NULL;
    for (uint32_t i = 0; i < cut->n; i++) {
        cut->written[i].part = cut->parts[i];
        cut->written[i].part.has_changes = cut->written[i].has_changes;
        cut->written[i].part.table_id = id_of(cut->written[i].table);
    }
    thaw(cut);
    if (cut->error.status == EMBD_OK)
        compacting_ask(cut->shard);
}

bool cut_is_writing(const struct shard *shard)
{
    return shard->cut != NULL && shard->cut->writing != NULL;
}

int cut_wait(struct call *call)
{
    struct cut *cut = call->shard->cut;
    if (cut->waiting != NULL || cut->owner != call->request->session)
        return embd__error_set(
            &call->error, EMBD_BUSY,
            "snapshot '%s' belongs to another connection, or one of its requests still waits",
            cut->name);
    cut->waiting = call->request;
    if (cut->writing == NULL)
        answer(cut);
    return CALL_LATER;
}

bool cut_collect(struct shard *shard)
{
    struct cut *cut = shard->cut;
    uint32_t number;
    if (cut == NULL || cut->writing == NULL)
        return false;
    struct writing_block *block = cut->at < cut->n ? writing_empty(cut->writing, &number) : NULL;
    if (block != NULL) {
        if (fill(cut, &cut->arrays[number], block))
            writing_hand_over(cut->writing);
        return true;
    }
    if (!writing_has_ended(cut->writing))
        return false;
    end_writing(cut);
    if (cut->owner == NULL)
        cut_free(cut);
    else if (cut->waiting != NULL)
        answer(cut);
    return false;
}

/* After the cut of a closed connection, its tables are not read any more. */
static void stop_writing(struct cut *cut)
{
    writing_stop(cut->writing);
    thaw(cut);
    cut->at = cut->n;
}

static void refuse_waiting(struct cut *cut, int status, const char *why)
{
    struct request *request = cut->waiting;
    struct embd__error e = {.status = EMBD_OK};
    cut->waiting = NULL;
    if (request == NULL)
        return;
    embd__error_set(&e, status, "snapshot '%s': %s", cut->name, why);
    if (status != EMBD_CLOSED)
        snapshot_watch_failed(cut->shard, "write", cut->name, &e);
    call_answer(cut->shard, request, &e);
}

struct cut *cut_detach(struct shard *shard, int status, const char *why)
{
    struct cut *cut = shard->cut;
    if (cut == NULL)
        return NULL;
    shard->cut = NULL;
    if (cut->writing != NULL)
        stop_writing(cut);
    refuse_waiting(cut, status, why);
    return cut;
}

void cut_wait_written(struct cut *cut)
{
    struct embd__error ignored = {.status = EMBD_OK};
    if (cut->writing != NULL)
        writing_end(cut->writing, cut->parts, &ignored);
    cut->writing = NULL;
}

/* The thread may be in the middle of a sync, for which the shard does not wait. */
static void give_up(struct cut *cut)
{
    cut->owner = NULL;
    if (cut->writing == NULL)
        cut_free(cut);
    else
        stop_writing(cut);
}

void cut_end(struct shard *shard, int status, const char *why)
{
    if (shard->cut == NULL)
        return;
    refuse_waiting(shard->cut, status, why);
    give_up(shard->cut);
}

static void close_cut(struct shard *shard, int status, const char *why)
{
    struct cut *cut = cut_detach(shard, status, why);
    if (cut != NULL)
        cut_wait_written(cut);
    cut_discard(cut);
}

void cut_close(struct shard *shard)
{
    close_cut(shard, EMBD_DRAINING, "the server ends");
}

void cut_drop(struct shard *shard, const struct table *table)
{
    for (uint32_t i = 0; shard->cut != NULL && i < shard->cut->n; i++)
        if (shard->cut->written[i].table == table) {
            close_cut(shard, EMBD_INVALID, "a table of it was dropped");
            return;
        }
}

void cut_forget(struct shard *shard, const struct request *request)
{
    if (shard->cut != NULL && shard->cut->waiting == request)
        shard->cut->waiting = NULL;
}

void cut_leave(struct shard *shard, const struct shard_session *session)
{
    if (shard->cut != NULL && shard->cut->owner == session)
        give_up(shard->cut);
}
