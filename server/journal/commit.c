/* commit.c - see commit.h.
 *
 * The happy path of a push: it is admitted; memory for its rows is reserved; its record is
 * appended to the gathering group; the group is written and synced while the next one gathers; its
 * operations are applied in the order of their records, for about a millisecond before the next
 * look for requests, so that the next group is full when it can be written.
 *
 * The effect of a record is a pure function of it and of the tables before: what was refused then
 * (a full table) is refused again by a replay. When the owner goes before the record is written,
 * the operation is read from the record.
 *
 * Other operations (erase, create, drop, load) are written by the same thread, each in a group of
 * its own: what was found out about tables when it was admitted is so when it is applied. Pulls go
 * on meanwhile. Loads come behind each other, as those of a restore do: one is written while the
 * one before it is applied. What is_unnamed comes in groups of pushes; a load of that kind may find
 * no room (EMBD_FULL) that there was, as a push may.
 *
 * What can fail after the record is written: making way, which is tried again, since answers on
 * their way come to an end; and memory that is not for rows: to merge and look up keys, for an
 * index whose keys fall together. Then nothing is applied, and the record is withdrawn before
 * `done` says so. A device may find too little to work in for a later part: parts of the operation
 * were applied then, the record cannot be withdrawn, and the process ends: recovery applies all of
 * it. */
#include "server/journal/commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"
#include "server/engine/apply.h"
#include "server/engine/capacity.h"
#include "server/journal/syncs.h"
#include "server/log/ending.h"
#include "server/log/log.h"

#define SLICE_NS 1000000u

void commit_init(struct commit *commit, struct engine *engine)
{
    *commit = (struct commit){.engine = engine, .data_dir = -1};
    embd__msg_init(&commit->msg);
}

/* ---- the log: one line when the disk takes no more, and one when it does again ---- */

static void note_refusal(struct commit *commit, const char *why)
{
    commit->n_errors++;
    if (commit->n_refused++ > 0)
        return;
    commit->refused_since_ns = monotonic_ns();
    log_event(LOG_ERROR, "journal_refuses", "shard=%u why=\"%s\"", commit->shard, why);
}

static void note_writing(struct commit *commit)
{
    if (commit->n_refused == 0)
        return;
    log_event(LOG_INFO, "journal_takes_again", "shard=%u refused=%llu seconds=%.1f", commit->shard,
              (unsigned long long)commit->n_refused,
              (double)(monotonic_ns() - commit->refused_since_ns) / 1e9);
    commit->n_refused = 0;
}

/* ---- withdrawing ---- */

/* A recorded operation was not applied, and a start cannot know that: for lack of memory, or as a
 * push of a stream that the journal has a part of. No later start applies it. */
static void withdraw(const struct commit *commit, const struct record_id *id, const struct op *op,
                     bool is_partly_done, const struct embd__error *why)
{
    struct embd__error e = {.status = EMBD_OK};
    bool is_decided_here = op->is_foreign || op->is_number_alone;
    if (why->status == EMBD_OK || (why->status != EMBD_NO_MEMORY && !is_decided_here))
        return;
    if (!is_partly_done && withdrawn_add(commit->data_dir, commit->shard, id, &e) == EMBD_OK)
        return;
    log_exit(EXIT_DISK, "record_not_applied",
             "shard=%u error=\"%s%s%s\" why=\"a change in the journal can be neither applied nor "
             "withdrawn: the process ends; the next start applies it, given enough memory\"",
             commit->shard, why->text, is_partly_done ? ", after a part of it was applied" : "; ",
             is_partly_done ? "" : e.text);
}

/* The operation has ended: its owner gets the result once it is sure to be the same after a
 * restart. */
static void on_done(struct op *op)
{
    const struct record_id id = {op->record.position, op->record.checksum};
    if (op->record.is_written)
        withdraw(op->record.commit, &id, op, op->n_applied > 0, &op->error);
    op->record.commit = NULL;
    op->done = op->record.then;
    if (op->done != NULL)
        op->done(op);
}

/* It waits no more for its record: it is applied or ended next. */
static void tell_turn(struct op *op)
{
    if (op->record.turn != NULL)
        op->record.turn(op);
}

static void apply(struct commit *commit, struct op *op, const struct record_id *id)
{
    op->record.is_written = true;
    op->record.position = id->position;
    op->record.checksum = id->checksum;
    commit->reached = id->position + 1;
    op->record.commit = commit;
    op->record.then = op->done;
    op->done = on_done;
    tell_turn(op);
    engine_apply(op);
}

/* ---- replaying ---- */

int commit_replay(struct operation_reader *reader, struct engine *engine, uint8_t *bytes,
                  const struct record *record, uint64_t now_ns, bool *is_partly_done_out,
                  struct embd__error *e)
{
    struct op *op = &reader->op;
    *is_partly_done_out = false;
    if (operation_read(reader, engine, bytes, record, e) != EMBD_OK ||
        engine_make_way(op, e) != EMBD_OK)
        return e->status;
    op->now_ns = now_ns;
    engine_apply(op);
    op_wait(op);
    *is_partly_done_out = op->error.status != EMBD_OK && op->n_applied > 0;
    *e = op->error;
    return e->status;
}

/* ---- what was written ---- */

/* An earlier push of its stream is in flight, on a device or in slices, and may be refused for lack
 * of room: then this one's number would not be the next. */
static bool may_be_too_early(const struct commit *commit, const struct op *op)
{
    return op->number.sequence > 0 && commit->engine->unsure != NULL &&
           op_is_unsure(commit->engine, &op->number);
}

/* Nobody's push may keep those behind it waiting, but for its own table's. */
static void count_long(struct commit *commit, struct op *op, bool is_long)
{
    commit->n_long += is_long;
    commit->n_long -= op->record.is_long;
    commit->n_were_long += op->record.is_long;
    op->record.is_long = is_long;
}

static void leave(struct commit *commit, struct op *op)
{
    commit->engine->n_recorded--;
    commit->rests = false;
    commit->is_load = commit->is_load && commit->engine->n_recorded > 0;
    commit->is_alone = commit->is_load;
    if (op == NULL)
        return;
    count_long(commit, op, false);
    op->record.is_waiting = false;
}

static const char *what_is_not(const struct op *op)
{
    switch (op->kind) {
    case OP_PUSH:
        return "the push was not applied";
    case OP_STREAM_OPEN:
        return "the stream was not opened";
    default:
        return "nothing was changed";
    }
}

/* `unreserved`: as of a group. */
static void refuse(struct commit *commit, struct op *op, int error, uint64_t unreserved)
{
    char why[128];
    snprintf(why, sizeof why, unreserved > 0 ? "%s for the next base of %llu bytes" : "%s",
             strerror(error), (unsigned long long)unreserved);
    leave(commit, op);
    if (op != NULL)
        tell_turn(op);
    tables_give_up(&commit->engine->tables);
    note_refusal(commit, why);
    if (commit->follows)
        log_exit(EXIT_DISK, "record_not_written",
                 "shard=%u error=\"%s\" why=\"a follower leaves out no record: the process ends; "
                 "the next start goes on where the journal ends\"",
                 commit->shard, why);
    if (op == NULL)
        return;
    embd__error_set(&op->error, EMBD_IO, "journal: %s; %s", why, what_is_not(op));
    capacity_left(op);
    op_end(op);
}

bool commit_is_replayed(int status)
{
    return status == EMBD_OK || status == EMBD_FULL || status == EMBD_GAP ||
           status == EMBD_FORGOTTEN;
}

/* The other journal's server has applied it: this one never serves without it. */
static void check_followed(const struct commit *commit, const struct record_id *id,
                           const struct embd__error *e)
{
    if (!commit->follows || commit_is_replayed(e->status))
        return;
    log_exit(
        EXIT_DISK, "record_not_applied",
        "shard=%u record=%llu error=\"%s\" why=\"the server that is followed has applied it, and "
        "this one cannot: the process ends; the next start applies it, given enough memory\"",
        commit->shard, (unsigned long long)id->position, e->text);
}

/* False: later. */
static bool replay_orphan(struct commit *commit, uint8_t *bytes)
{
    struct record record;
    struct embd__error e = {.status = EMBD_OK};
    bool is_partly_done;
    record_fields(bytes, &record);
    const struct record_id id = {record.position, record.checksum};
    commit->reached = record.position + 1;
    commit_replay(&commit->reader, commit->engine, bytes, &record, commit->now_ns, &is_partly_done,
                  &e);
    if (e.status == EMBD_BUSY)
        return false;
    check_followed(commit, &id, &e);
    withdraw(commit, &id, &commit->reader.op, is_partly_done, &e);
    leave(commit, NULL);
    return true;
}

/* Its table has rows left to step of an earlier push; of an orphan that is not known. */
static bool is_behind_sweep(const struct commit *commit, const struct op *op)
{
    return commit->engine->tables.n_swept > 0 && (op == NULL || op_is_behind_sweep(op));
}

/* False: later. */
static bool apply_entry(struct commit *commit, struct journal_group *group,
                        struct journal_entry *entry)
{
    struct op *op = entry->op;
    struct embd__error e = {.status = EMBD_OK};
    if (group->error != 0) {
        refuse(commit, op, group->error, group->unreserved);
        return true;
    }
    commit->rests = (commit->is_alone || commit->settles) && commit->engine->n_in_flight > 0;
    if (commit->rests || is_behind_sweep(commit, op))
        return false;
    if (op == NULL)
        return replay_orphan(commit, group->bytes + entry->at);
    if (may_be_too_early(commit, op) || engine_make_way(op, &e) != EMBD_OK)
        return false;
    const struct record_id id = record_id_of(group->bytes + entry->at);
    leave(commit, op);
    apply(commit, op, &id);
    return true;
}

/* It takes a good part of a slice, and those who wait for others like it wait less than a trainer.
 */
static bool is_of_many(const struct op *op)
{
    return op->kind == OP_LOAD || op->is_unnamed;
}

/* Between two looks for requests, so that the pushes that come next are in the journal by the time
 * these are applied. True: the time was over, and there is more. */
static bool apply_some(struct commit *commit, struct journal_group *group)
{
    uint64_t now_ns = monotonic_ns(), until_ns = now_ns + SLICE_NS;
    while (now_ns < until_ns) {
        struct journal_entry *entry = &group->entries[group->n_applied];
        uint64_t *spent_ns = entry->op != NULL ? entry->op->spent_ns : NULL;
        bool is_bulk = entry->op != NULL && is_of_many(entry->op);
        if (!apply_entry(commit, group, entry))
            return false;
        uint64_t began_ns = now_ns;
        now_ns = monotonic_ns();
        if (spent_ns != NULL)
            *spent_ns += now_ns - began_ns;
        if (++group->n_applied == group->n_entries)
            return false;
        if (is_bulk)
            return true;
    }
    return true;
}

/* All of the group is applied, or refused. */
static void note_applied(struct commit *commit, const struct journal_group *group)
{
    if (group->error != 0)
        return;
    const struct record_id last =
        record_id_of(group->bytes + group->entries[group->n_entries - 1].at);
    commit->applied = (struct commit_place){last.position + 1, last.checksum};
}

bool commit_collect(struct commit *commit, bool *ended_out)
{
    *ended_out = false;
    if (commit->journal == NULL || commit->engine->n_recorded == 0)
        return false;
    struct journal_group *group = journal_written(commit->journal);
    journal_submit(commit->journal);
    if (group == NULL)
        return false;
    if (group->error == 0)
        note_writing(commit);
    bool has_more = apply_some(commit, group);
    if (group->n_applied < group->n_entries)
        return has_more;
    note_applied(commit, group);
    journal_give_back(commit->journal);
    *ended_out = true;
    return true; /* another group may be written */
}

void commit_fini(struct commit *commit)
{
    bool ended;
    while (commit->journal != NULL && commit->engine->n_recorded > 0) {
        commit_collect(commit, &ended);
        while (commit->engine->tables.n_swept > 0)
            tables_sweep(&commit->engine->tables);
        journal_wait(commit->journal);
    }
    journal_close(commit->journal);
    commit->journal = NULL;
    operation_reader_fini(&commit->reader);
    embd__msg_fini(&commit->msg);
}

/* ---- submitting ---- */

static int write_now(struct commit *commit, bool is_durable, struct embd__error *e)
{
    if (journal_write_now(commit->journal, &commit->frame, is_durable, e) != EMBD_OK) {
        if (e->status == EMBD_IO)
            note_refusal(commit, e->text);
        return e->status;
    }
    note_writing(commit);
    return EMBD_OK;
}

/* Beside others of their kind. */
static bool shares_groups(const struct op *op)
{
    return op->kind == OP_PUSH || op->kind == OP_STREAM_OPEN || op->is_unnamed;
}

static bool may_come(const struct commit *commit, const struct op *op)
{
    bool is_first = commit->engine->n_recorded == 0;
    return commit->is_alone ? commit->is_load && op->kind == OP_LOAD
                            : is_first || shares_groups(op);
}

static int append(struct commit *commit, struct op *op, void (*turn)(struct op *op),
                  bool is_durable, struct embd__error *e)
{
    if (journal_append(commit->journal, op, &commit->frame, is_durable, e) != EMBD_OK)
        return e->status;
    op->record.turn = turn;
    op->record.commit = commit;
    op->record.is_waiting = true;
    count_long(commit, op, op_is_long(op));
    commit->is_alone = !shares_groups(op);
    commit->is_load = op->kind == OP_LOAD && !op->is_unnamed;
    commit->engine->n_recorded++;
    return COMMIT_WAITS;
}

/* The table is opened before its record is written, so that what is in the journal can be created,
 * with the id that the record has. */
static int prepare(struct op *op, struct embd__error *e)
{
    bool is_table = op->kind == OP_TABLE_CREATE || op->kind == OP_STAGE;
    return is_table ? apply_prepare(op, e) : capacity_reserve(op, e);
}

static int apply_unrecorded(struct op *op)
{
    engine_apply(op);
    return EMBD_OK;
}

/* Where no process outlives itself, a map of keys does not either. */
static bool is_unrecorded(const struct commit *commit, const struct op *op,
                          embd_durability durability)
{
    bool may_be_map = op->kind == OP_REPLACE || op->kind == OP_PREPARE;
    return durability == EMBD_DURABILITY_SNAPSHOT || (may_be_map && commit->journal == NULL);
}

static int submit(struct commit *commit, struct op *op, void (*turn)(struct op *op),
                  struct embd__error *e)
{
    embd_durability durability;
    if (op_durability(op, &durability, e) != EMBD_OK)
        return e->status;
    op->record.is_replicated = embd__durability_is_replicated(durability);
    op->record.is_synced = embd__durability_is_synced(durability) && !op->is_unnamed;
    if (is_unrecorded(commit, op, durability))
        return capacity_reserve(op, e) == EMBD_OK ? apply_unrecorded(op) : e->status;
    if (commit->journal == NULL)
        return embd__error_set(
            e, EMBD_UNSUPPORTED,
            "the server has no data directory, and so no journal for '%s' tables",
            embd_durability_name(durability));
    EMBD_ASSERT(may_come(commit, op));
    if (prepare(op, e) != EMBD_OK)
        return e->status;
    if (op->kind == OP_TABLE_CREATE && commit->engine->tables.prepared == NULL) { /* it exists */
        op->record.is_replicated = false;
        return apply_unrecorded(op);
    }
    if (operation_write(&commit->msg, op, &commit->frame, e) != EMBD_OK)
        return e->status;
    if (commit->is_deferred)
        return append(commit, op, turn, op->record.is_synced, e);
    if (write_now(commit, op->record.is_synced, e) != EMBD_OK)
        return e->status;
    const struct record_id id = journal_last(commit->journal);
    apply(commit, op, &id);
    return EMBD_OK;
}

int commit_submit(struct commit *commit, struct op *op, void (*turn)(struct op *op),
                  struct embd__error *e)
{
    commit->now_ns = op->now_ns;
    int status = submit(commit, op, turn, e);
    if (status < EMBD_OK) {
        capacity_left(op);
        tables_give_up(&commit->engine->tables);
    }
    return status;
}

/* ---- followers ---- */

void commit_opened(struct commit *commit)
{
    commit->applied =
        (struct commit_place){journal_position(commit->journal), journal_chain(commit->journal)};
    commit->ended = commit->applied;
    commit->reached = commit->applied.position;
}

int commit_take(struct commit *commit, const struct frame_scanner *frame, bool is_alone,
                bool is_durable, struct embd__error *e)
{
    EMBD_ASSERT(!commit->is_alone && (!is_alone || commit->engine->n_recorded == 0));
    if (journal_append(commit->journal, NULL, frame, is_durable, e) != EMBD_OK)
        return e->status;
    commit->is_alone = is_alone;
    commit->engine->n_recorded++;
    return EMBD_OK;
}

int commit_break(struct commit *commit, struct embd__error *e)
{
    if (operation_nothing(&commit->msg, &commit->frame, e) != EMBD_OK)
        return e->status;
    return journal_write_now(commit->journal, &commit->frame, true, e);
}

int commit_place(struct commit *commit, const struct placement *place, struct embd__error *e)
{
    struct engine_placed *placed = &commit->engine->placed;
    struct op op = {.engine = NULL};
    op_begin(&op, commit->engine, OP_PREPARE);
    op.as.replace = (struct op_replace){.step = REPLACE_PLACED, .place = place};
    int status = operation_write(&commit->msg, &op, &commit->frame, e);
    if (status == EMBD_OK)
        status = journal_write_now(commit->journal, &commit->frame, true, e);
    op_fini(&op);
    *placed =
        (struct engine_placed){.is_set = true, .is_foreign = placed->is_foreign, .map = *place};
    if (status == EMBD_OK)
        commit_opened(commit);
    return status;
}

void commit_forget(struct op *op)
{
    if (!op->record.is_waiting)
        return;
    capacity_left(op);
    count_long(op->record.commit, op, false);
    journal_forget(op->record.commit->journal, op);
    op->record.is_waiting = false;
}
