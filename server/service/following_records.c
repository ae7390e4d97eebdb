/* following_records.c - the records of the server that is followed become those of this journal,
 * and are applied. */
#include <stdlib.h>
#include <string.h>

#include "server/journal/compaction.h"
#include "server/log/log.h"
#include "server/service/following_inside.h"
#include "server/service/own_journal.h"

#define SLICE_NS    4000000u    /* of a base */
#define NOTE_NS     1000000000u /* between two notes of where it is */
#define GROUP_BYTES (4u << 20)
#define RECORD_MOST ((uint64_t)LIMIT_PUSH_BYTES + LIMIT_FRAME_BYTES)

static bool is_next(const struct following *f, const struct record *record)
{
    return record->position == f->place.position && record->chain == f->place.chain;
}

enum next following_next(const struct following *f, struct record *out)
{
    const uint8_t *bytes = f->bytes + f->used;
    uint64_t n = f->n - f->used;
    if (n < RECORD_HEADER_BYTES)
        return NEXT_INCOMPLETE;
    record_fields(bytes, out);
    if (memcmp(bytes, RECORD_MAGIC_BEGIN, strlen(RECORD_MAGIC_BEGIN)) != 0 ||
        out->body_bytes > RECORD_MOST || !is_next(f, out))
        return NEXT_WRONG;
    if (out->body_bytes > n - RECORD_HEADER_BYTES)
        return NEXT_INCOMPLETE;
    return record_check(bytes, n, out) ? NEXT_RECORD : NEXT_WRONG;
}

static void pass(struct following *f, const struct record *record)
{
    f->used += RECORD_HEADER_BYTES + record->body_bytes;
    f->place = (struct tail_place){record->position + 1, record->checksum, 0};
}

/* Whether it was withdrawn there. */
static bool is_skip(struct following *f, uint64_t position)
{
    for (uint32_t i = 0; i < f->n_skips; i++)
        if (f->skips[i] == position) {
            f->skips[i] = f->skips[--f->n_skips];
            return true;
        }
    return false;
}

static int check_version(const struct record *record, struct embd__error *e)
{
    if (record->version == RECORD_OPERATION)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_UNSUPPORTED,
        "record %llu of the server that is followed has version %u, this program "
        "follows version %d: let that server compact its journal first",
        (unsigned long long)record->position, record->version, RECORD_OPERATION);
}

/* ---- the base ---- */

static int apply_base_record(struct shard *shard, const struct record *record,
                             struct embd__error *e)
{
    struct following *f = shard->following;
    struct embd__error own = {.status = EMBD_OK};
    bool is_partly_done;
    if (check_version(record, e) != EMBD_OK)
        return e->status;
    commit_replay(&shard->replayed, &shard->engine, f->bytes + f->used, record, 0, &is_partly_done,
                  &own);
    if (!commit_is_replayed(own.status))
        return embd__error_set(e, own.status, "base of the server that is followed: %.300s",
                               own.text);
    pass(f, record);
    following_note_right(shard);
    return EMBD_OK;
}

/* The tables are those of the base: they become one of this journal, which goes on at its place. */
static int end_base(struct shard *shard, struct embd__error *e)
{
    struct following *f = shard->following;
    const struct journal_end end = {.position = f->behind.position, .chain = f->behind.chain};
    operation_reader_fini(&shard->replayed);
    if (own_journal_open(shard, &end, e) != EMBD_OK ||
        compaction_make_now(&shard->commit, e) != EMBD_OK)
        return e->status;
    commit_opened(&shard->commit);
    f->state = FOLLOWING_RECORDS;
    f->place = f->came = f->behind;
    f->file = f->at = f->n = f->used = 0;
    f->is_whole = false;
    f->catches_up = true;
    f->note = (struct note){.state = NOTE_FOLLOWS,
                            .epoch = f->note.epoch,
                            .lineage = f->note.lineage,
                            .cut = f->behind.position,
                            .position = f->behind.position,
                            .chain = f->behind.chain};
    log_event(LOG_INFO, "follow_has_base", "shard=%u server=%s position=%llu", shard->config.index,
              f->address, (unsigned long long)f->behind.position);
    return note_write(shard->data_dir, shard->config.index, &f->note, e);
}

bool following_take_base(struct shard *shard, struct embd__error *e)
{
    struct following *f = shard->following;
    struct record record;
    enum next next = NEXT_INCOMPLETE;
    uint64_t until_ns = clock_ns() + SLICE_NS;
    while (clock_ns() < until_ns && (next = following_next(f, &record)) == NEXT_RECORD)
        if (apply_base_record(shard, &record, e) != EMBD_OK)
            return false;
    if (next == NEXT_WRONG) {
        following_begin_anew(shard, "bytes came that are not the records of a base", e);
        f->ask_at_ns = clock_ns() + FOLLOWING_AGAIN_NS;
    } else if (next == NEXT_INCOMPLETE && f->is_whole && f->used == f->n) {
        end_base(shard, e);
    }
    return next == NEXT_RECORD;
}

/* ---- behind the base ---- */

/* Something else has the tables. A shard that is prepared goes on: the decision comes as a record.
 */
static bool rests(const struct shard *shard)
{
    return shard->engine.set.is_on || shard->hold.holders != NULL ||
           shard->compacting.state == COMPACTING_RESTS;
}

/* As pushes of trainers do, records gather while those before them are written and applied. */
static bool has_room(const struct shard *shard)
{
    const struct commit *commit = &shard->commit;
    return shard->engine.n_recorded == 0 ||
           (!commit->is_alone && journal_gathered(commit->journal) < GROUP_BYTES);
}

/* A record that was withdrawn there is one that does nothing here. */
static int take_record(struct shard *shard, const struct record *record, struct embd__error *e)
{
    struct following *f = shard->following;
    struct frame_scanner frame;
    bool is_alone = false;
    if (is_skip(f, record->position)) {
        if (operation_nothing(&shard->commit.msg, &frame, e) != EMBD_OK)
            return e->status;
    } else {
        record_frame(f->bytes + f->used, record, &frame);
        is_alone = !operation_shares(&frame);
    }
    /* A map is on this disk before other shards go by it. */
    struct operation_map map;
    bool syncs = f->syncs || (is_alone && operation_moves(&frame, &map));
    if (commit_take(&shard->commit, &frame, is_alone, syncs, e) == EMBD_OK)
        pass(f, record);
    return e->status;
}

/* ---- records that the journal had at the start ---- */

int following_note_own(struct shard *shard, const uint8_t *bytes, const struct record *record,
                       struct embd__error *e)
{
    struct following *f = shard->following;
    if (record->position < f->note.position)
        return EMBD_OK;
    if (f->n_own == 0)
        f->own_first = record->position;
    if ((f->n_own & (f->n_own - 1)) == 0) {
        uint64_t *grown = realloc(f->own, (2 * f->n_own + 1) * sizeof *grown);
        if (grown == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory to compare records");
        f->own = grown;
    }
    f->own[f->n_own++] = record_sum(bytes + RECORD_HEADER_BYTES, record->body_bytes);
    return EMBD_OK;
}

/* The server may have lost its last records when it ended, and have others there. */
static bool is_own(struct shard *shard, const struct record *record, struct embd__error *e)
{
    struct following *f = shard->following;
    struct frame_scanner frame;
    const uint8_t *body = f->bytes + f->used + RECORD_HEADER_BYTES;
    uint64_t n = record->body_bytes, at = record->position - f->own_first;
    if (is_skip(f, record->position)) {
        if (operation_nothing(&shard->commit.msg, &frame, e) != EMBD_OK)
            return false;
        body = frame.head;
        n = frame.head_bytes;
    }
    return record->position >= f->own_first && at < f->n_own && f->own[at] == record_sum(body, n);
}

/* ---- groups ---- */

static bool is_alone(const struct following *f, const struct record *record)
{
    struct frame_scanner frame;
    record_frame(f->bytes + f->used, record, &frame);
    return !operation_shares(&frame);
}

/* Up to so many, and up to one that is alone. What the journal had at the start is behind them as
 * soon as one was taken. */
static enum next take_group(struct shard *shard, struct embd__error *e)
{
    struct following *f = shard->following;
    struct record record;
    uint64_t own = shard->engine.n_recorded == 0 ? journal_position(shard->commit.journal) : 0;
    enum next next;
    while ((next = following_next(f, &record)) == NEXT_RECORD && e->status == EMBD_OK) {
        if (record.position < own) {
            if (!is_own(shard, &record, e))
                return NEXT_OTHER;
            pass(f, &record);
            continue;
        }
        if (following_mark_stops(f, record.position) || following_holds(shard, &record))
            break;
        bool has_some = shard->engine.n_recorded > 0;
        if (check_version(&record, e) != EMBD_OK ||
            (has_some && (is_alone(f, &record) || !has_room(shard))))
            break;
        take_record(shard, &record, e);
        if (shard->commit.is_alone)
            break;
    }
    return next;
}

/* Where both journals are the same, as soon as the one here has that on disk. */
static void note_place(struct shard *shard)
{
    struct following *f = shard->following;
    uint64_t now_ns = clock_ns();
    if (f->next_note.state != NOTE_NONE &&
        journal_synced(shard->commit.journal) >= f->next_note.position) {
        f->note = f->next_note;
        f->next_note.state = NOTE_NONE;
        f->noted_ns = now_ns;
        note_move(shard->data_dir, shard->config.index, &f->note);
    }
    /* A base removes the records behind an earlier place, and nothing can be compared then. */
    bool is_due = now_ns - f->noted_ns >= NOTE_NS || shard->compacting.state == COMPACTING_WRITES;
    if (f->next_note.state != NOTE_NONE || !is_due || f->place.position == f->note.position)
        return;
    f->next_note = f->note;
    f->next_note.position = f->place.position;
    f->next_note.chain = f->place.chain;
}

bool following_take_records(struct shard *shard, struct embd__error *e)
{
    struct following *f = shard->following;
    uint32_t n_before = shard->engine.n_recorded;
    if (rests(shard) || !has_room(shard))
        return false;
    if (n_before == 0 && f->place.position > journal_position(shard->commit.journal)) {
        following_begin_anew(shard, "its own journal has less than was noted", e);
        return true;
    }
    note_place(shard);
    if (n_before == 0)
        following_mark_freeze(shard);
    enum next next = take_group(shard, e);
    if (next == NEXT_OTHER) {
        if (e->status == EMBD_OK)
            following_begin_anew(shard, "its own journal has other records than that server", e);
        return true;
    }
    if (next == NEXT_WRONG && shard->engine.n_recorded == 0)
        following_refuse(shard, "bytes came that are not the next records");
    else if (f->is_right)
        following_note_right(shard);
    f->is_right = false;
    if (f->answered_ns != 0 && f->place.position >= f->end && f->n == f->used)
        f->had_all_ns = f->answered_ns;
    return shard->engine.n_recorded > n_before;
}
