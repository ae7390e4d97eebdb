/* recovery.c - see recovery.h.
 *
 * The happy path: the shard opens with its journal unread. Between two looks for requests
 * recovery_go_on replays records for some milliseconds. After the last record it loads the tables
 * without a journal from the snapshot that the process has chosen (restore.h). Then the journal is
 * opened for more, compacted if it has grown long, and the shard accepts requests. So a peer learns
 * the progress instead of waiting for a port.
 *
 * The engine applies a record's operation as it was then. An operation that was refused then (a
 * full table) is refused now; one that was refused for lack of memory is left out. Any other
 * failure ends the loading for good, and with it the process: a shard never serves half of its
 * tables. */
#include "server/service/recovery.h"

#include <stdio.h>
#include <string.h>

#include "server/follow/maps.h"
#include "server/identity/identity.h"
#include "server/service/compacting.h"
#include "server/service/following.h"
#include "server/journal/journal.h"
#include "server/snapshot/archived.h"
#include "server/snapshot/cut_history.h"
#include "server/log/log.h"
#include "server/service/authorize.h"
#include "server/service/narrow.h"
#include "server/service/own_journal.h"
#include "server/snapshot/restore.h"

#define SLICE_NS              4000000u
#define RECOVERY_SOURCE_BYTES 80u

/* ---- records ---- */

/* The table that an operation changed; NULL: none. */
static const struct table *table_of(const struct op *op)
{
    if (op->kind == OP_LOAD)
        return op->as.load.table;
    if (op->kind == OP_PUT)
        return op->as.put.table;
    if (op->kind == OP_TABLE_SET)
        return op->as.set.table;
    return op->kind == OP_TABLE_CREATE ? op->table : NULL;
}

static int take_record(struct shard *shard, uint8_t *bytes, const struct record *record,
                       struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK};
    const struct op *op = &shard->replayed.op;
    bool is_partly_done;
    commit_replay(&shard->replayed, &shard->engine, bytes, record, 0, &is_partly_done, &own);
    if (op->n_parts > 0)
        shard->changed_table = op->parts[0].in.table;
    else if (own.status == EMBD_OK && table_of(op) != NULL)
        shard->changed_table = table_of(op)->id;
    if (commit_is_replayed(own.status))
        return EMBD_OK;
    return embd__error_set(e, own.status, "journal of shard %u, record %llu: %.300s",
                           shard->config.index, (unsigned long long)record->position, own.text);
}

/* Journaled tables have less than the shard had acknowledged; clients that only pull learn it. */
static void begin_history(struct shard *shard)
{
    if (shard->config.identity != NULL)
        identity_begin_history(shard->config.identity);
}

/* The tables as they are become the journal, which they are not what its records say of; followers
 * begin anew. */
static int make_other(struct shard *shard, struct embd__error *e)
{
    if (commit_break(&shard->commit, e) != EMBD_OK)
        return e->status;
    return compaction_make_now(&shard->commit, e);
}

/* The remaining records become a base, which drops all that is damaged. */
static int accept_damage(struct shard *shard, const struct journal_config *config,
                         const struct journal_end *end, struct embd__error *e)
{
    for (uint32_t i = 0; i < end->n_damages; i++)
        if (journal_damage_note(config, &end->damages[i], e) != EMBD_OK)
            return e->status;
    begin_history(shard);
    if (make_other(shard, e) != EMBD_OK)
        return e->status;
    return journal_damage_count(config, &shard->n_damages, e);
}

static void log_dropped(const struct shard *shard, const struct left_out *left_out)
{
    log_event(LOG_WARN, "table_dropped",
              "shard=%u table=%s rows=%llu pushed_keys=%llu why=\"--drop-table: the journal begins "
              "again without it; start without that flag from now on\"",
              shard->config.index, left_out->name, (unsigned long long)left_out->rows,
              (unsigned long long)left_out->pushed_keys);
}

/* Whether it had any of these tables. */
static bool has_left_out(const struct tables *tables)
{
    bool has = false;
    for (uint32_t i = 0; i < tables->n_left_out; i++)
        has = has || tables->left_out[i].is_found;
    return has;
}

/* The tables were left out: they are gone when the journal begins anew without them. */
static int end_dropping(struct shard *shard, struct embd__error *e)
{
    struct tables *tables = &shard->engine.tables;
    const uint32_t n = tables->n_left_out;
    tables->n_left_out = 0;
    if (make_other(shard, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n; i++) {
        if (!tables->left_out[i].is_found)
            continue;
        log_dropped(shard, &tables->left_out[i]);
        shard->config.dropped_found[i] = true;
    }
    return EMBD_OK;
}

/* Behind the last record, or what was lost of it. */
static int open_behind(struct shard *shard, struct embd__error *e)
{
    struct journal_config config = own_journal_config(shard);
    const struct journal_end *end = restore_journal_end(shard);
    if (journal_damage_count(&config, &shard->n_damages, e) != EMBD_OK ||
        journal_open(&config, end, &shard->commit.journal, e) != EMBD_OK)
        return e->status;
    if (end->is_damaged && accept_damage(shard, &config, end, e) != EMBD_OK)
        return e->status;
    if (has_left_out(&shard->engine.tables))
        return end_dropping(shard, e);
    shard->engine.tables.n_left_out = 0;
    if (end->is_damaged)
        return EMBD_OK;
    if (restore_has_journaled(shard)) {
        begin_history(shard);
        return make_other(shard, e);
    }
    compacting_ask(shard);
    if (shard->config.wake == NULL)
        compacting_look(shard, false);
    return EMBD_OK;
}

static int go_on_behind(struct shard *shard, struct embd__error *e)
{
    if (open_behind(shard, e) == EMBD_OK)
        commit_opened(&shard->commit);
    return e->status;
}

/* Logs what was replayed; nothing if there was no journal. */
static void log_replayed(const struct shard *shard, uint64_t bytes)
{
    uint64_t rows = 0;
    if (shard->n_replayed == 0)
        return;
    for (uint32_t i = 0; i < shard->engine.tables.n; i++) {
        struct store_stats stats;
        shard->engine.tables.ops->stats(shard->engine.tables.by_name[i]->store, &stats);
        rows += stats.rows;
    }
    log_event(LOG_INFO, "replayed",
              "shard=%u records=%llu tables=%u rows=%llu bytes=%llu seconds=%.2f",
              shard->config.index, (unsigned long long)shard->n_replayed, shard->engine.tables.n,
              (unsigned long long)rows, (unsigned long long)bytes,
              (double)(clock_ns() - shard->replay_began_ns) / 1e9);
}

/* All records are replayed. */
static int end_replay(struct shard *shard, struct embd__error *e)
{
    struct journal_end end;
    uint64_t bytes, total;
    journal_reading_progress(shard->reading, &bytes, &total);
    journal_reading_close(shard->reading, &end);
    shard->reading = NULL;
    operation_reader_fini(&shard->replayed);
    shard->engine.is_replaying = shard->following != NULL;
    staging_lock(shard);
    log_replayed(shard, bytes);
    shard->archived_is_looked_for = false;
    if (end.is_resized)
        compacting_note_resized(&shard->compacting);
    if (!end.is_damaged)
        cut_history_meet(shard, end.position, end.chain);
    cut_history_close(shard);
    return restore_begin(shard, &end, e);
}

/* Where no record says another one, it is the even map of as many shards as the file has. */
static void heed_header(struct shard *shard)
{
    uint32_t n = journal_reading_shards(shard->reading);
    if (n != shard->config.n_shards)
        moving_forget_with(shard, n);
}

/* A record, or the end of them. */
static int replay_step(struct shard *shard, struct embd__error *e)
{
    uint8_t *bytes;
    struct record record;
    if (journal_reading_next(shard->reading, &bytes, &record, e) != EMBD_OK)
        return e->status;
    if (bytes == NULL)
        return end_replay(shard, e);
    if (moving_is_by_records(shard) && !shard->engine.placed.is_set)
        heed_header(shard);
    if (!journal_reading_is_in_base(shard->reading)) {
        cut_history_meet(shard, record.position, record.chain);
        if (shard->following != NULL && following_note_own(shard, bytes, &record, e) != EMBD_OK)
            return e->status;
    }
    if (!journal_reading_is_withdrawn(shard->reading, &record)) {
        take_record(shard, bytes, &record, e);
        shard->n_replayed++;
    }
    return e->status;
}

/* The tables are of a snapshot, and there may be records behind it. */
static int begin_archived(struct shard *shard, struct embd__error *e)
{
    shard->archived_is_looked_for = true;
    if (!restore_has_journaled(shard) ||
        archived_open(shard->data_dir, shard->config.index, shard->config.n_shards,
                      shard->restored_cut, &shard->archived, e) != EMBD_OK)
        return e->status;
    shard->engine.is_replaying = shard->engine.is_replaying || shard->archived != NULL;
    return EMBD_OK;
}

static void end_archived(struct shard *shard)
{
    operation_reader_fini(&shard->replayed);
    archived_close(shard->archived);
    shard->archived = NULL;
    shard->engine.is_replaying = shard->following != NULL;
    log_event(LOG_INFO, "replayed_archive", "shard=%u records=%llu", shard->config.index,
              (unsigned long long)shard->n_replayed);
}

static int archived_step(struct shard *shard, bool *is_over_out, struct embd__error *e)
{
    uint8_t *bytes;
    struct record record;
    if (archived_next(shard->archived, &bytes, &record, e) != EMBD_OK)
        return e->status;
    *is_over_out = bytes == NULL;
    if (bytes == NULL) {
        end_archived(shard);
        return EMBD_OK;
    }
    shard->n_replayed++;
    return take_record(shard, bytes, &record, e);
}

/* The work between the last record and the first request. */
static int restore_step(struct shard *shard, bool *waits_out, bool *is_over_out,
                        struct embd__error *e)
{
    if (!shard->archived_is_looked_for) {
        if (restore_go_on(shard, waits_out, is_over_out, e) != EMBD_OK || !*is_over_out ||
            begin_archived(shard, e) != EMBD_OK)
            return e->status;
    }
    if (shard->archived != NULL) {
        *is_over_out = false;
        if (archived_step(shard, is_over_out, e) != EMBD_OK || !*is_over_out)
            return e->status;
    }
    *is_over_out = true;
    if (shard->following == NULL)
        shard->engine.tables.apart.n = 0;
    go_on_behind(shard, e);
    restore_end(shard);
    return e->status;
}

/* Until `until_ns` by the clock, or until it must wait. *is_over_out false: there is more. */
static int load_until(struct shard *shard, uint64_t until_ns, bool *waits_out, bool *is_over_out,
                      struct embd__error *e)
{
    *is_over_out = *waits_out = false;
    do {
        int status = shard->reading != NULL ? replay_step(shard, e)
                                            : restore_step(shard, waits_out, is_over_out, e);
        if (status != EMBD_OK)
            return status;
    } while (!*is_over_out && !*waits_out && clock_ns() < until_ns);
    return EMBD_OK;
}

/* On the thread that opens tables, before the first. */
static void join_memory(struct shard *shard)
{
    struct tables *tables = &shard->engine.tables;
    if (tables->memory == NULL && shard->config.row_memory != NULL)
        tables->memory = row_memory_join(shard->config.row_memory, tables->ops);
}

static void leave_out(struct shard *shard)
{
    struct tables *tables = &shard->engine.tables;
    tables->n_left_out = shard->config.n_dropped_tables;
    for (uint32_t i = 0; i < tables->n_left_out; i++)
        tables->left_out[i] = (struct left_out){.name = shard->config.dropped_tables[i]};
}

static int open_reading(struct shard *shard, struct embd__error *e)
{
    leave_out(shard);
    shard->engine.is_replaying = true;
    shard->replay_began_ns = clock_ns();
    if (following_open(shard, e) != EMBD_OK || following_has_nothing(shard))
        return e->status;
    const struct journal_config config = own_journal_config(shard);
    if (journal_reading_open(&config, &shard->reading, e) != EMBD_OK)
        return e->status;
    return cut_history_open(shard, e);
}

int recovery_begin(struct shard *shard, struct embd__error *e)
{
    bool waits, is_over;
    const struct identity *identity = shard->config.identity;
    shard->is_loading = shard->config.loaded != NULL;
    shard->waits_for_identity = identity != NULL && identity_state(identity) != IDENTITY_OPEN;
    if (!shard->is_loading)
        join_memory(shard);
    if (narrow_open(shard, e) != EMBD_OK)
        return e->status;
    if (shard->data_dir < 0 || shard->waits_for_identity)
        return EMBD_OK;
    if (open_reading(shard, e) != EMBD_OK)
        return e->status;
    return shard->is_loading ? EMBD_OK : load_until(shard, UINT64_MAX, &waits, &is_over, e);
}

/* A new map of keys to shards is for shards that never had a push: what they have would be looked
 * for elsewhere, and a number that one of them has seen would stand for other keys. */
static int check_empty(const struct shard *shard, struct embd__error *e)
{
    const struct tables *tables = &shard->engine.tables;
    for (uint32_t i = 0; i < tables->n; i++) {
        struct store_stats stats;
        tables->ops->stats(tables->by_name[i]->store, &stats);
        if (stats.rows + stats.candidates + stats.steps > 0)
            return embd__error_set(
                e, EMBD_INVALID,
                "placement has version %llu, which is new, and shard %u has table '%s' with %llu "
                "rows after %llu pushes: start with the map before it, and drop the tables, or "
                "dump them and load the dump into a new data directory",
                (unsigned long long)shard->config.placement->version, shard->config.index,
                tables->by_name[i]->schema.s.name, (unsigned long long)stats.rows,
                (unsigned long long)stats.steps);
    }
    return EMBD_OK;
}

/* For the other shards of the process: none serves before all of them are empty. */
static bool waits_for_placement(struct shard *shard, struct embd__error *e)
{
    struct identity *identity = shard->config.identity;
    if (identity == NULL || !identity_placement_waits(identity))
        return false;
    if (!shard->is_found_empty && check_empty(shard, e) == EMBD_OK)
        shard->is_found_empty = identity_is_empty(identity, e) == EMBD_OK;
    return e->status == EMBD_OK && identity_placement_waits(identity);
}

/* The shards of a process that is promoted by this start have one map, or none serves. */
static bool waits_for_maps(struct shard *shard, struct embd__error *e)
{
    char why[300];
    const struct engine *engine = &shard->engine;
    struct follow_maps *maps = shard->config.maps;
    if (!shard->config.promotes || maps == NULL || shard->is_map_agreed)
        return false;
    const struct follow_map map = {
        .version = shard->lacks_base ? 0 : moving_version(shard),
        .n_shards = shard->config.n_shards,
        .decision = engine->placed.decision,
        .prepared = engine->prepared.place != NULL ? engine->prepared.decision : 0};
    follow_maps_note(maps, shard->config.index, &map);
    if (!follow_maps_are_known(maps))
        return true;
    shard->is_map_agreed = follow_maps_agree(maps, why, sizeof why);
    uint64_t version;
    if (shard->is_map_agreed)
        following_promote(shard, follow_maps_shards(maps, &version), e);
    else
        embd__error_set(e, EMBD_INVALID,
                        "promote: %s; the directory cannot serve: let an empty one follow", why);
    return false;
}

bool recovery_go_on(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    bool is_over = true, waits = false;
    if (!shard->is_loading || shard->draining || shard->has_failed || shard->waits_for_identity ||
        shard->is_deposed)
        return false;
    join_memory(shard);
    if (shard->narrow != NULL)
        return narrow_go_on(shard);
    if (shard->reading != NULL || shard->restore != NULL)
        load_until(shard, clock_ns() + SLICE_NS, &waits, &is_over, &e);
    bool follows = shard->following != NULL && is_over && e.status == EMBD_OK;
    bool goes_on = follows && following_go_on(shard, &e);
    shard->has_failed = e.status != EMBD_OK;
    if (!shard->has_failed && follows && shard->following != NULL)
        return goes_on; /* else it was promoted */
    if (!shard->has_failed && !is_over)
        return !waits; /* else it is woken */
    if (!shard->has_failed && waits_for_maps(shard, &e))
        return false; /* it is woken */
    shard->has_failed = e.status != EMBD_OK;
    if (!shard->has_failed && shard->engine.prepared.id != 0)
        return false; /* doubt.c ends that */
    if (!shard->has_failed && waits_for_placement(shard, &e))
        return false; /* it is woken */
    shard->has_failed = e.status != EMBD_OK;
    if (!shard->has_failed)
        moving_record(shard);
    shard->is_loading = shard->has_failed;
    replicated_begin(shard);
    if (shard->config.identity != NULL && shard->config.is_first && !shard->has_failed)
        identity_set_cut(shard->config.identity, shard->restored_cut, shard->restored_rows);
    shard->config.loaded(shard->config.loaded_arg, follows, &e);
    return false;
}

static void begin_waited_for(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    shard->waits_for_identity = false;
    shard->has_failed = open_reading(shard, &e) != EMBD_OK;
    if (shard->has_failed)
        shard->config.loaded(shard->config.loaded_arg, false, &e);
}

void recovery_heed_identity(struct shard *shard)
{
    enum identity_state state = identity_state(shard->config.identity);
    if (shard->waits_for_identity && state == IDENTITY_OPEN && !shard->has_failed)
        begin_waited_for(shard);
    else if (state == IDENTITY_REFUSED && !shard->is_loading)
        shard->waits_for_identity = shard->is_loading = true;
}

bool recovery_is_read(const struct shard *shard)
{
    return !shard->waits_for_identity && shard->reading == NULL && shard->restore == NULL;
}

void recovery_give_up(struct shard *shard)
{
    journal_reading_close(shard->reading, NULL);
    shard->reading = NULL;
    operation_reader_fini(&shard->replayed);
    archived_close(shard->archived);
    shard->archived = NULL;
    cut_history_close(shard);
    restore_end(shard);
}

/* ---- how far it is ---- */

void recovery_progress(const struct shard *shard, uint64_t *done_bytes_out,
                       uint64_t *total_bytes_out)
{
    *done_bytes_out = *total_bytes_out = 0;
    if (shard->reading != NULL)
        journal_reading_progress(shard->reading, done_bytes_out, total_bytes_out);
    else if (shard->archived != NULL)
        archived_progress(shard->archived, done_bytes_out, total_bytes_out);
    else if (shard->restore != NULL)
        restore_progress(shard, done_bytes_out, total_bytes_out);
}

/* The name of what `done` bytes are a part of. */
static void name_source(const struct shard *shard, char out[RECOVERY_SOURCE_BYTES])
{
    if (shard->restore == NULL)
        snprintf(out, RECOVERY_SOURCE_BYTES, "its journal");
    else
        snprintf(out, RECOVERY_SOURCE_BYTES, "snapshot '%s'", restore_snapshot(shard));
}

static void tell_identity(const struct shard *shard, char text[RECOVERY_TEXT_BYTES])
{
    char why[IDENTITY_WHY_BYTES];
    identity_why(shard->config.identity, why);
    snprintf(text, RECOVERY_TEXT_BYTES, "shard %u is not ready: %s", shard->config.index, why);
}

static void tell_doubt(const struct shard *shard, char text[RECOVERY_TEXT_BYTES])
{
    snprintf(
        text, RECOVERY_TEXT_BYTES,
        "shard %u is not ready: it waits for the decision of shard 0 about tables that were to "
        "take the places of others, or keys that were to move; start the server of shard 0, or if "
        "its data directory is "
        "lost, start that server with --accept-empty",
        shard->config.index);
}

void recovery_tell(const struct call *call, char text[RECOVERY_TEXT_BYTES])
{
    if (call->shard->waits_for_identity) {
        tell_identity(call->shard, text);
        return;
    }
    if (call->shard->is_deposed) {
        snprintf(
            text, RECOVERY_TEXT_BYTES,
            "shard %u of this server serves nothing: another one was promoted in its place, in "
            "epoch %llu",
            call->shard->config.index, (unsigned long long)call->shard->epoch);
        return;
    }
    if (call->shard->narrow != NULL) {
        narrow_tell(call->shard, text, RECOVERY_TEXT_BYTES);
        return;
    }
    if (call->shard->following != NULL && recovery_is_read(call->shard)) {
        following_tell(call->shard, text, RECOVERY_TEXT_BYTES);
        return;
    }
    if (recovery_is_read(call->shard) && call->shard->engine.prepared.id != 0) {
        tell_doubt(call->shard, text);
        return;
    }
    uint64_t done, total;
    char source[RECOVERY_SOURCE_BYTES];
    const struct shard *shard = call->shard;
    const struct table *table = tables_by_id(&shard->engine.tables, shard->changed_table);
    const char *name = shard->restore != NULL ? restore_table(shard)
                       : table != NULL        ? table->schema.s.name
                                              : "";
    recovery_progress(shard, &done, &total);
    name_source(shard, source);
    snprintf(text, RECOVERY_TEXT_BYTES, "shard %u is loading: table '%s', %llu of %llu bytes of %s",
             shard->config.index, authorizes_table(call, name) ? name : "",
             (unsigned long long)done, (unsigned long long)total, source);
}
