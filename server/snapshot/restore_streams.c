/* restore_streams.c - see restore_streams.h.
 *
 * A position says: of this stream's pushes, the tables have those up to here, and no others. A
 * snapshot of all tables says it of all that come from it. So the next push of a pusher is the one
 * that follows those in the snapshot, and what came after the cut is neither there nor said to be.
 *
 * Where tables come from several snapshots, each at its own cut, a position is true of all tables
 * only if the stream made no push between these cuts: it is the same in all of them, and the last
 * is of all tables. Such a stream is kept. Any other is forgotten: its pusher gets
 * FORGOTTEN, so that no push is applied twice and none is left out in silence.
 *
 * Streams of journaled tables and the others are counted apart: a snapshot that gives no table of
 * one kind says nothing about the streams of that kind. */
#include "server/snapshot/restore_streams.h"

#include <stdlib.h>
#include <string.h>

#include "proto/stored/chain.h"
#include "server/engine/foreign.h"
#include "proto/stored/streamsread.h"
#include "server/log/log.h"
#include "server/journal/journal.h"
#include "server/snapshot/snapshot_select.h"

/* The streams of one kind. */
struct list {
    struct push_stream *streams; /* [n], malloc'd */
    uint64_t n;
};

/* This shard's file of one snapshot. */
struct streams_of {
    struct list kinds[2]; /* of tables that are not journaled, and of those that are */
    uint64_t position;    /* of the journal */
};

static void fini(struct streams_of *s)
{
    free(s->kinds[0].streams);
    free(s->kinds[1].streams);
}

/* ---- reading ---- */

static int take(const uint8_t *bytes, uint64_t first, uint64_t n, struct list *out,
                struct embd__error *e)
{
    out->streams = malloc((n + 1) * sizeof *out->streams);
    if (out->streams == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the pushers of a snapshot");
    for (out->n = 0; out->n < n; out->n++)
        out->streams[out->n] = embd__streamsfile_stream(bytes, first + out->n);
    return EMBD_OK;
}

/* Nothing where the snapshot is of an earlier version: streams are not known then. */
static int read_streams(const struct shard *shard, uint32_t at, struct streams_of *out,
                        struct embd__error *e)
{
    const struct dump_share *share =
        &embd__chain_last(snapshot_select_chain(shard->config.chosen, at))->shares[0];
    const struct manifest_streams *mine = NULL;
    struct streamsfile head;
    *out = (struct streams_of){.position = 0};
    for (uint32_t i = 0; i < share->manifest.n_streams; i++)
        if (share->manifest.streams[i].shard == shard->config.index)
            mine = &share->manifest.streams[i];
    if (mine == NULL)
        return EMBD_OK;
    uint8_t *bytes = embd__streams_read(share, mine, &head, e);
    if (bytes == NULL)
        return e->status;
    out->position = head.position;
    if (take(bytes, 0, head.n_other, &out->kinds[0], e) == EMBD_OK)
        take(bytes, head.n_other, head.n_journaled, &out->kinds[1], e);
    free(bytes);
    return e->status;
}

/* A journal that ends before the cut is not the one that the snapshot was made beside, or has lost
 * its end. */
static void compare(const struct shard *shard, uint64_t position, const struct journal_end *end)
{
    if (position <= end->position)
        return;
    log_event(LOG_WARN, "journal_is_older",
              "shard=%u snapshot=%s why=\"the snapshot was made after record %llu of a journal, "
              "and this journal has %llu: durable and buffered tables are older than the others\"",
              shard->config.index, snapshot_select_chosen(shard->config.chosen, 0),
              (unsigned long long)position, (unsigned long long)end->position);
}

/* ---- those that are the same in all snapshots ---- */

static const struct manifest *manifest_of(const struct shard *shard, uint32_t at)
{
    const struct dump_chain *chain = snapshot_select_chain(shard->config.chosen, at);
    return &embd__chain_last(chain)->shares[0].manifest;
}

/* Whether the snapshot decides about tables of the kind: 1, those that are journaled; 0, others. */
static bool has_kind(const struct shard *shard, uint32_t at, uint32_t kind)
{
    const struct manifest *m = manifest_of(shard, at);
    bool has = embd__scope_is_all(&m->scope);
    for (uint32_t i = 0; i < m->n_tables && !has; i++) {
        const embd_schema *schema = &m->tables[i].schema.s;
        bool is_journaled = embd__durability_is_journaled(schema->durability);
        has = is_journaled == (kind == 1) &&
              snapshot_select_decides(shard->config.chosen, at, schema->name);
    }
    return has;
}

static void swap(struct list *a, struct list *b)
{
    struct list other = *a;
    *a = *b;
    *b = other;
}

/* Keeps the streams on which all snapshots up to `at` agree. */
static int narrow(const struct shard *shard, uint32_t at, bool is_begun[2], struct streams_of *kept,
                  struct embd__error *e)
{
    struct streams_of own;
    if (read_streams(shard, at, &own, e) != EMBD_OK) {
        fini(&own);
        return e->status;
    }
    for (uint32_t kind = 0; kind < 2; kind++) {
        if (!has_kind(shard, at, kind))
            continue;
        if (is_begun[kind])
            kept->kinds[kind].n =
                embd__streams_common(kept->kinds[kind].streams, kept->kinds[kind].n,
                                     own.kinds[kind].streams, own.kinds[kind].n);
        else
            swap(&kept->kinds[kind], &own.kinds[kind]);
        is_begun[kind] = true;
    }
    kept->position = own.position > kept->position ? own.position : kept->position;
    fini(&own);
    return EMBD_OK;
}

/* n_first: how many the first snapshot of a kind knows. */
static int agree(const struct shard *shard, struct streams_of *kept, uint64_t n_first[2],
                 struct embd__error *e)
{
    bool is_begun[2] = {false, false};
    uint32_t n = snapshot_select_count(shard->config.chosen);
    for (uint32_t at = 0; at < n && e->status == EMBD_OK; at++) {
        narrow(shard, at, is_begun, kept, e);
        for (uint32_t kind = 0; kind < 2; kind++)
            if (kept->kinds[kind].n > n_first[kind])
                n_first[kind] = kept->kinds[kind].n;
    }
    if (!embd__scope_is_all(&manifest_of(shard, n - 1)->scope))
        kept->kinds[0].n = kept->kinds[1].n = 0;
    return e->status;
}

/* ---- putting them back ---- */

static int note(struct pushers *streams, const struct list *list, struct embd__error *e)
{
    for (uint64_t i = 0; i < list->n && e->status == EMBD_OK; i++)
        pushers_restore(streams, &list->streams[i], NULL, 1, 0, e);
    return e->status;
}

/* The journal has some of the pushes of a stream to other tables: a position before them is of no
 * use. */
static int note_others(struct engine *engine, struct streams_of *kept, struct embd__error *e)
{
    struct list *list = &kept->kinds[0];
    for (uint64_t i = 0; i < kept->kinds[1].n; i++)
        foreign_meet(engine, &kept->kinds[1].streams[i]);
    if (foreign_take(engine, list->streams, &list->n, e) != EMBD_OK)
        return e->status;
    foreign_forget(engine);
    return note(&engine->pushers, list, e);
}

static void tell_forgotten(const struct shard *shard, uint64_t n)
{
    if (n == 0)
        return;
    log_event(LOG_WARN, "pushers_forgotten",
              "shard=%u streams=%llu why=\"tables come from snapshots of different cuts, between "
              "which these streams pushed: their next numbered push is refused, and their trainers "
              "resume from a checkpoint\"",
              shard->config.index, (unsigned long long)n);
}

int restore_streams(struct shard *shard, const struct journal_end *end, bool has_journal,
                    bool *has_journaled_out, struct embd__error *e)
{
    struct streams_of kept = {.position = 0};
    uint64_t n_first[2] = {0, 0};
    if (agree(shard, &kept, n_first, e) == EMBD_OK &&
        note_others(&shard->engine, &kept, e) == EMBD_OK && !has_journal) {
        note(&shard->engine.journaled_pushers, &kept.kinds[1], e);
        *has_journaled_out = *has_journaled_out || kept.kinds[1].n > 0;
    }
    if (e->status == EMBD_OK && has_journal)
        compare(shard, kept.position, end);
    if (e->status == EMBD_OK)
        tell_forgotten(shard, n_first[0] - kept.kinds[0].n +
                                  (has_journal ? 0 : n_first[1] - kept.kinds[1].n));
    fini(&kept);
    return e->status;
}
