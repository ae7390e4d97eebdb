/* recovery.c - see recovery.h.
 *
 * The happy path: the shard opens with its journal unread; between two looks for requests
 * recovery_go_on replays records for some milliseconds; after the last one the journal is opened for
 * more, begins anew where it has grown long, and requests are taken. So a peer hears how far it is
 * instead of waiting for a port.
 *
 * A record is handled as the request it was, by the same code, and nothing of it is journaled again.
 * What was refused then (a full table) is refused now, or, where it was for want of memory, left out. Everything else that fails ends the loading
 * for good, and with it the process: a shard never serves half of what it had. */
#include "recovery.h"

#include <stdio.h>
#include <string.h>

#include "base.h"
#include "journal.h"
#include "known.h"
#include "permit.h"

#define SLICE_NS 4000000u

static struct journal_config config_of(const struct shard *shard)
{
    return (struct journal_config){
        .data_dir = shard->data_dir,
        .shard = shard->config.index,
        .n_shards = shard->config.n_shards,
        .accepts_damage = shard->config.accepts_journal_damage,
        .wake = shard->config.wake,
        .wake_arg = shard->config.wake_arg,
    };
}

/* ---- one record ---- */

struct replayed {
    struct request request; /* first */
    struct shard_session session;
    int status;
};

static void on_answer(struct request *request)
{
    (void)request;
}

/* Stores take keys and gradients at addresses that suit them, which a journal's bytes do not have.
 */
static int align_bins(const struct store_ops *ops, struct frame_scanner *frame)
{
    for (uint32_t i = 0; i < frame->n_bins; i++) {
        struct frame_bin *bin = &frame->bins[i];
        uint8_t *data = ops->buffer_new(bin->bytes + 1u);
        if (data == NULL) {
            frame->n_bins = i;
            return EMBD_NO_MEMORY;
        }
        memcpy(data, bin->data, bin->bytes);
        bin->data = data;
    }
    return EMBD_OK;
}

static void free_bins(const struct store_ops *ops, const struct frame_scanner *frame)
{
    for (uint32_t i = 0; i < frame->n_bins; i++)
        ops->buffer_free(frame->bins[i].data, frame->bins[i].bytes + 1u);
}

int recovery_replay(struct shard *shard, uint8_t *bytes, const struct record *record,
                    bool *is_partly_done_out, struct embd__error *e)
{
    struct frame_scanner frame;
    struct replayed replayed = {.status = EMBD_OK};
    record_frame(bytes, record, &frame);
    replayed.request.frame = &frame;
    replayed.request.session = &replayed.session;
    replayed.request.on_answer = on_answer;
    embd__msg_init(&replayed.request.answer);
    *is_partly_done_out = false;
    if (align_bins(shard->tables.ops, &frame) == EMBD_OK) {
        struct access *access = shard->access;
        shard->access = NULL; /* it was allowed then */
        shard->is_replaying = true;
        dispatch_replay(shard, &replayed.request, is_partly_done_out, e);
        shard->is_replaying = false;
        shard->access = access;
        shard_request_fini(shard, &replayed.request);
    } else {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to replay a record");
    }
    embd__msg_fini(&replayed.request.answer);
    free_bins(shard->tables.ops, &frame);
    return e->status;
}

/* ---- all of them ---- */

static int take_record(struct shard *shard, uint8_t *bytes, const struct record *record,
                       struct embd__error *e)
{
    struct embd__error own = {.status = EMBD_OK};
    bool is_partly_done;
    recovery_replay(shard, bytes, record, &is_partly_done, &own);
    if (own.status == EMBD_OK || own.status == EMBD_FULL || own.status == EMBD_GAP ||
        own.status == EMBD_FORGOTTEN)
        return EMBD_OK;
    return embd__error_set(e, own.status, "journal of shard %u, record %llu: %.300s",
                           shard->config.index, (unsigned long long)record->position, own.text);
}

/* What is kept becomes a base, with which all that is damaged goes. */
static int accept_damage(struct shard *shard, const struct journal_config *config,
                         const struct journal_damage *damage, struct embd__error *e)
{
    if (journal_damage_note(config, damage, e) != EMBD_OK || base_make_now(shard, e) != EMBD_OK)
        return e->status;
    shard->n_damages++;
    return EMBD_OK;
}

/* All records are replayed: the journal goes on behind them. */
static int finish(struct shard *shard, struct embd__error *e)
{
    struct journal_config config = config_of(shard);
    struct journal_end end;
    journal_reading_close(shard->reading, &end);
    shard->reading = NULL;
    if (!end.is_damaged)
        known_meet(shard, end.position, end.chain);
    known_close(shard);
    if (journal_damage_count(&config, &shard->n_damages, e) != EMBD_OK ||
        journal_open(&config, &end, &shard->journal, e) != EMBD_OK)
        return e->status;
    if (end.is_damaged)
        return accept_damage(shard, &config, &end.damage, e);
    base_ask(shard);
    if (shard->config.wake == NULL)
        base_look(shard);
    return EMBD_OK;
}

/* Until `until_ns` by the clock. *is_over_out false: there are more. */
static int replay_until(struct shard *shard, uint64_t until_ns, bool *is_over_out,
                        struct embd__error *e)
{
    *is_over_out = false;
    do {
        uint8_t *bytes;
        struct record record;
        if (journal_reading_next(shard->reading, &bytes, &record, e) != EMBD_OK)
            return e->status;
        *is_over_out = bytes == NULL;
        if (bytes != NULL && !journal_reading_is_in_base(shard->reading))
            known_meet(shard, record.position, record.chain);
        if (bytes != NULL && !journal_reading_is_withdrawn(shard->reading, &record) &&
            take_record(shard, bytes, &record, e) != EMBD_OK)
            return e->status;
    } while (!*is_over_out && clock_ns() < until_ns);
    return *is_over_out ? finish(shard, e) : EMBD_OK;
}

int recovery_begin(struct shard *shard, struct embd__error *e)
{
    struct journal_config config = config_of(shard);
    bool is_over;
    shard->is_loading = shard->config.loaded != NULL;
    if (shard->data_dir < 0)
        return EMBD_OK;
    if (journal_reading_open(&config, &shard->reading, e) != EMBD_OK || known_open(shard, e) != EMBD_OK)
        return e->status;
    return shard->is_loading ? EMBD_OK : replay_until(shard, UINT64_MAX, &is_over, e);
}

bool recovery_go_on(struct shard *shard)
{
    struct embd__error e = {.status = EMBD_OK};
    bool is_over = true;
    if (!shard->is_loading || shard->draining || shard->has_failed)
        return false;
    if (shard->reading != NULL)
        replay_until(shard, clock_ns() + SLICE_NS, &is_over, &e);
    shard->has_failed = e.status != EMBD_OK;
    if (!shard->has_failed && !is_over)
        return true;
    shard->is_loading = shard->has_failed;
    shard->config.loaded(shard->config.loaded_arg, &e);
    return false;
}

void recovery_give_up(struct shard *shard)
{
    journal_reading_close(shard->reading, NULL);
    shard->reading = NULL;
    known_close(shard);
}

/* ---- how far it is ---- */

void recovery_progress(const struct shard *shard, uint64_t *done_bytes_out,
                       uint64_t *total_bytes_out)
{
    *done_bytes_out = *total_bytes_out = 0;
    if (shard->reading != NULL)
        journal_reading_progress(shard->reading, done_bytes_out, total_bytes_out);
}

void recovery_tell(const struct call *call, char text[RECOVERY_TEXT_BYTES])
{
    uint64_t done, total;
    const struct shard *shard = call->shard;
    const struct table *table = tables_by_id(&shard->tables, shard->changed_table);
    const char *name = table != NULL ? table->schema.s.name : "";
    recovery_progress(shard, &done, &total);
    snprintf(text, RECOVERY_TEXT_BYTES,
             "shard %u is loading: table '%s', %llu of %llu bytes of its journal",
             shard->config.index, permits_table(call, name) ? name : "", (unsigned long long)done,
             (unsigned long long)total);
}
