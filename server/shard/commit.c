/* commit.c - see commit.h.
 *
 * The happy path of a push is: it is checked whole; memory for its rows is reserved; its frame is
 * appended to the gathering group;
 * the group is written and synced while the next one gathers; its pushes are applied in the order
 * of their records, and answered, for about a millisecond before the next look for requests, so
 * that the next group is full when it can be written. A request that waits so counts as a store
 * call in flight, so that holds and changes of structure wait for it.
 *
 * A record is the request as it was received, and its effect a pure function of it and of the
 * tables before: so replaying is handling, and what was refused then (a full table) is refused
 * again. When the connection goes before the record is written, the push is replayed from the
 * record.
 *
 * What can fail after the record is written: settling, which is tried again, since answers on their
 * way come to an end; and memory that is not for rows: to merge and look up keys, for an index
 * whose keys fall together. A store that can prepares all parts before the first is applied; so
 * nothing is, and the record is withdrawn before the answer says so. A device may find too little
 * to work in for a later part: parts of the request were applied then, the record cannot be
 * withdrawn, and the process ends: recovery applies all of it. */
#include "server/shard/commit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/journal/journal.h"
#include "server/log/ending.h"
#include "server/shard/push.h"
#include "server/shard/recovery.h"
#include "server/shard/refusals.h"
#include "server/shard/room.h"
#include "server/shard/settle.h"

#define SLICE_NS 1000000u

/* ---- applying ---- */

static struct writers *writers_of(const struct shard_work *work)
{
    bool is_kept = work->n_parts > 0 && commit_is_kept(work->parts[0].table);
    return is_kept ? &work->shard->journaled_writers : &work->shard->writers;
}

/* In records of earlier versions a stream begins with its first push. */
static bool begins_old(const struct shard_work *work)
{
    return work->shard->replays_old && work->writer.sequence == 1 &&
           !writers_know(writers_of(work), &work->writer);
}

int commit_look(struct shard_work *work, struct embd__error *e)
{
    struct embd__error later = {.status = EMBD_OK};
    if (work->writer.sequence == 0 || begins_old(work))
        return EMBD_OK;
    int status = writers_look(writers_of(work), &work->writer, &later);
    bool may_change =
        work->shard->n_journaled > 0 && (status == EMBD_GAP || status == EMBD_FORGOTTEN);
    if (may_change || status >= EMBD_OK)
        return may_change ? EMBD_OK : status;
    return embd__error_set(e, status, "%s", later.text);
}

/* Whether it is this push's turn and there is room is decided now, when all that was recorded
 * before it is applied: a replay finds the same. Room for a single part is its store's to decide.
 */
static void begin(struct shard_work *work)
{
    struct embd__error *e = &work->error;
    int status = EMBD_OK;
    if (work->is_opening) {
        work->end(work);
        return;
    }
    bool is_old = begins_old(work);
    if (work->writer.sequence > 0 && !is_old)
        status = writers_look(writers_of(work), &work->writer, e);
    if (status == WRITER_AGAIN) {
        push_again(work);
        return;
    }
    if (status == EMBD_OK)
        status = push_prepare(work, e);
    if (status == EMBD_OK && is_old)
        status = writers_begin_old(writers_of(work), &work->writer, e);
    if (status == EMBD_OK && work->writer.sequence > 0) {
        work->noted = writers_of(work);
        writers_note(work->noted, &work->writer, shard_seen_ns(work->shard));
    }
    work_run(work);
}

static void withdraw(const struct shard *shard, const struct record_id *id, bool is_partly_done,
                     const struct embd__error *why)
{
    struct embd__error e = {.status = EMBD_OK};
    if (why->status != EMBD_NO_MEMORY)
        return;
    if (!is_partly_done && withdrawn_add(shard->data_dir, shard->config.index, id, &e) == EMBD_OK)
        return;
    log_exit(EXIT_DISK, "record_not_applied",
             "shard=%u error=\"%s%s%s\" why=\"a change in the journal can be neither applied nor "
             "withdrawn: the process ends; the next start applies it, given enough memory\"",
             shard->config.index, why->text,
             is_partly_done ? ", after a part of it was applied" : "; ",
             is_partly_done ? "" : e.text);
}

void commit_withdraw(const struct shard_work *work, bool is_partly_done,
                     const struct embd__error *why)
{
    if (work->is_recorded)
        withdraw(work->shard, &work->record, is_partly_done, why);
}

void commit_refused(struct shard_work *work)
{
    if (work->noted != NULL && work->n_applied == 0)
        writers_take_back(work->noted, &work->writer);
    commit_withdraw(work, work->n_applied > 0, &work->error);
}

/* A device still works for pushes before it, and one of them may be refused for want of room: then
 * this one's number would not be the next. */
static bool may_be_too_early(const struct shard *shard, const struct shard_work *work)
{
    bool is_bounded = false;
    for (uint32_t i = 0; i < work->n_parts && work->writer.sequence > 0; i++)
        is_bounded = is_bounded || work->parts[i].table->schema.s.on_full != EMBD_ON_FULL_GROW;
    return is_bounded && shard->hold.n_in_flight > shard->n_journaled;
}

static void leave(struct shard *shard, struct journal_entry *entry)
{
    struct request *request = entry->request;
    if (request != NULL) {
        request->is_journaled = false;
        request->session->n_journaled--;
    }
    shard->n_journaled--;
    shard->hold.n_in_flight--;
}

static void refuse(struct shard *shard, struct journal_entry *entry, int error)
{
    struct request *request = entry->request;
    leave(shard, entry);
    refusals_note(shard, strerror(error));
    if (request == NULL)
        return;
    embd__error_set(&request->work->error, EMBD_IO, "journal: %s; the %s", strerror(error),
                    request->work->is_opening ? "stream was not opened" : "push was not applied");
    request->work->end(request->work);
}

static bool settles(struct shard *shard, struct shard_work *work)
{
    struct embd__error e = {.status = EMBD_OK};
    for (uint32_t i = 0; i < work->n_parts; i++)
        if (settle(shard, work->request->session, work->parts[i].table, CHANGE_ROWS, &e) != EMBD_OK)
            return false;
    return true;
}

static bool apply_record(struct shard *shard, struct journal_group *group,
                         struct journal_entry *entry)
{
    struct record record;
    struct embd__error e = {.status = EMBD_OK};
    bool is_partly_done;
    record_fields(group->bytes + entry->at, &record);
    const struct record_id id = {record.position, record.checksum};
    recovery_replay(shard, group->bytes + entry->at, &record, &is_partly_done, &e);
    if (e.status == EMBD_BUSY)
        return false;
    withdraw(shard, &id, is_partly_done, &e);
    leave(shard, entry);
    return true;
}

/* False: later. */
static bool apply(struct shard *shard, struct journal_group *group, struct journal_entry *entry)
{
    if (group->error != 0) {
        refuse(shard, entry, group->error);
        return true;
    }
    if (entry->request == NULL)
        return apply_record(shard, group, entry);
    struct shard_work *work = entry->request->work;
    if (may_be_too_early(shard, work) || !settles(shard, work))
        return false;
    leave(shard, entry);
    work->is_recorded = true;
    work->record = record_id_of(group->bytes + entry->at);
    begin(work);
    return true;
}

/* Between two looks for requests, so that the pushes that come next are in the journal by the time
 * these are applied. True: the time was over, and there is more. */
static bool apply_some(struct shard *shard, struct journal_group *group)
{
    uint64_t until_ns = clock_ns() + SLICE_NS;
    while (apply(shard, group, &group->entries[group->n_applied]))
        if (++group->n_applied == group->n_entries)
            return false;
        else if (clock_ns() >= until_ns)
            return true;
    return false;
}

bool commit_collect(struct shard *shard)
{
    if (shard->journal == NULL || shard->n_journaled == 0)
        return false;
    struct journal_group *group = journal_written(shard->journal);
    journal_submit(shard->journal);
    if (group == NULL)
        return false;
    if (group->error == 0)
        refusals_over(shard);
    bool has_more = apply_some(shard, group);
    if (group->n_applied < group->n_entries)
        return has_more;
    journal_give_back(shard->journal);
    dispatch_parked(shard);
    has_more = journal_written(shard->journal) != NULL;
    journal_submit(shard->journal);
    return has_more;
}

void commit_close(struct shard *shard)
{
    while (shard->journal != NULL && shard->n_journaled > 0) {
        commit_collect(shard);
        journal_wait(shard->journal);
    }
    journal_close(shard->journal);
    shard->journal = NULL;
}

/* ---- appending ---- */

int commit_durability(const struct shard_work *work, embd_durability *out, struct embd__error *e)
{
    *out = EMBD_DURABILITY_SNAPSHOT;
    for (uint32_t i = 0; i < work->n_parts; i++) {
        const embd_schema *first = &work->parts[0].table->schema.s,
                          *schema = &work->parts[i].table->schema.s;
        if ((first->durability == EMBD_DURABILITY_SNAPSHOT) !=
            (schema->durability == EMBD_DURABILITY_SNAPSHOT))
            return embd__error_set(e, EMBD_INVALID,
                                   "part %u: table '%s' is '%s' and part 0's '%s' is '%s': they "
                                   "cannot change in one request",
                                   i, schema->name, embd_durability_name(schema->durability),
                                   first->name, embd_durability_name(first->durability));
        if (schema->durability > *out)
            *out = schema->durability;
    }
    return EMBD_OK;
}

int commit_now(struct call *call, embd_durability durability)
{
    struct shard *shard = call->shard;
    if (durability == EMBD_DURABILITY_SNAPSHOT || shard->is_replaying)
        return EMBD_OK;
    if (journal_write_now(shard->journal, call->request->frame,
                          durability == EMBD_DURABILITY_DURABLE, &call->error) != EMBD_OK) {
        if (call->error.status == EMBD_IO)
            refusals_note(shard, call->error.text);
        return call->error.status;
    }
    refusals_over(shard);
    call->work->is_recorded = true;
    call->work->record = journal_last(shard->journal);
    return EMBD_OK;
}

int commit_create(struct call *call, const embd_schema *schema)
{
    if (schema->durability == EMBD_DURABILITY_SNAPSHOT || call->shard->is_replaying)
        return EMBD_OK;
    if (call->shard->data_dir < 0)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "schema field 'durability' is '%s', and this server has no data "
                               "directory; allowed is 'snapshot'",
                               embd_durability_name(schema->durability));
    return commit_now(call, schema->durability);
}

int commit_parts_now(struct call *call)
{
    embd_durability durability;
    if (commit_durability(call->work, &durability, &call->error) != EMBD_OK)
        return call->error.status;
    return commit_now(call, durability);
}

static int wait_for_record(struct call *call, const struct frame_scanner *record,
                           embd_durability durability)
{
    struct shard *shard = call->shard;
    struct request *request = call->request;
    if (journal_append(shard->journal, request, record, durability == EMBD_DURABILITY_DURABLE,
                       &call->error) != EMBD_OK)
        return call->error.status;
    request->is_journaled = true;
    request->session->n_journaled++;
    shard->n_journaled++;
    shard->hold.n_in_flight++;
    room_keep(call->work);
    return CALL_LATER;
}

int commit_push(struct call *call)
{
    embd_durability durability;
    if (commit_durability(call->work, &durability, &call->error) != EMBD_OK)
        return call->error.status;
    bool is_kept = durability != EMBD_DURABILITY_SNAPSHOT && !call->shard->is_replaying;
    if (is_kept && room_reserve(call->work, &call->error) != EMBD_OK)
        return call->error.status;
    if (is_kept && call->shard->config.wake != NULL)
        return wait_for_record(call, call->request->frame, durability);
    if (is_kept && commit_now(call, durability) != EMBD_OK)
        return call->error.status;
    begin(call->work);
    return CALL_LATER;
}

int commit_opening(struct call *call, const struct frame_scanner *record)
{
    struct journal *journal = call->shard->journal;
    if (call->shard->config.wake != NULL)
        return wait_for_record(call, record, EMBD_DURABILITY_DURABLE);
    if (journal_write_now(journal, record, true, &call->error) != EMBD_OK)
        return call->error.status;
    begin(call->work);
    return CALL_LATER;
}

void commit_forget(struct shard *shard, struct request *request)
{
    if (!request->is_journaled)
        return;
    room_left(request->work);
    journal_forget(shard->journal, request);
    request->session->n_journaled--;
    request->is_journaled = false;
}
