/* following.c - see following.h.
 *
 * The happy path: the thread of follower.h brings records; those that may share a group are
 * appended to the journal together, as if their owners had left, and the next question is asked
 * while they are written and applied. One group at a time: if it cannot be written the process
 * ends, and nothing behind it is in the journal.
 *
 * What can fail is the connection: then the same question is asked again. Bytes that are not the
 * records that come next are dropped, and asked for again. */
#include "server/service/following.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/follow/failover.h"
#include "server/follow/maps.h"
#include "server/log/log.h"
#include "server/service/deposing.h"
#include "server/service/following_inside.h"
#include "server/service/promoting.h"

#define WAIT_MS       1000u       /* for a record: then it is known that the other server lives */
#define LATE_NS       2000000000u /* an answer that takes longer than it should */
#define WAIT_SERVE_MS 50u         /* likewise, of a replica: it says how far behind it is */

/* ---- opening ---- */

static int check_own(const struct shard *shard, const struct note *note, struct embd__error *e)
{
    if (note->state == NOTE_DEPOSED)
        return embd__error_set(e, EMBD_INVALID,
                               "data_dir '%s': another server was promoted in the place of this "
                               "one, in epoch %llu: follow it, with an empty data_dir",
                               shard->config.data_dir, (unsigned long long)note->epoch);
    if (note->state != NOTE_BEGINS && note->state != NOTE_FOLLOWS)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID,
                           "data_dir '%s' is a follower's: start with follow, or with an empty "
                           "data_dir",
                           shard->config.data_dir);
}

static bool has_journal(const struct shard *shard)
{
    return tail_has_files(shard->data_dir, shard->config.index);
}

/* The journal here is the other server's, or there is none. */
static int check_note(struct shard *shard, struct note *note, struct embd__error *e)
{
    if (note->state == NOTE_FOLLOWS)
        return EMBD_OK;
    if (note->state == NOTE_BEGINS)
        return tail_remove(shard->data_dir, shard->config.index, e);
    if (note->state == NOTE_DEPOSED || has_journal(shard))
        return embd__error_set(e, EMBD_INVALID,
                               "data_dir '%s' has a journal of its own, and a follower begins with "
                               "none: give it an empty data_dir",
                               shard->config.data_dir);
    note->state = NOTE_BEGINS;
    return note_write(shard->data_dir, shard->config.index, note, e);
}

/* For shards of the cluster. */
static uint32_t room(const struct shard *shard)
{
    return shard->config.maps != NULL ? follow_maps_room(shard->config.maps)
                                      : shard->config.n_shards;
}

static int open_follower(struct shard *shard, struct following *f, struct embd__error *e)
{
    struct follower_config config = *shard->config.follow;
    config.shard = shard->config.index;
    config.n_shards = room(shard);
    config.n_loaded = NULL;
    config.maps = shard->config.maps;
    config.make_room = shard->config.make_room;
    config.make_room_arg = shard->config.resize_arg;
    config.wake = shard->config.wake;
    config.wake_arg = shard->config.wake_arg;
    return follower_open(&config, &f->follower, e);
}

static int open_own(struct shard *shard, const struct note *note, struct embd__error *e)
{
    bool tells = note->state == NOTE_PROMOTED && shard->config.follow != NULL;
    shard->epoch = note->epoch;
    shard->lineage = note->lineage;
    shard->epoch_who = note->who;
    if (check_own(shard, note, e) != EMBD_OK)
        return e->status;
    return tells ? deposing_begin(shard, NULL, e) : EMBD_OK;
}

/* Once all shards have said which map they have (following_promote). One that has no base may be
 * spare. */
static int open_promoting(struct shard *shard, const struct note *note, struct embd__error *e)
{
    shard->is_promoting = true;
    shard->lacks_base = note->state != NOTE_FOLLOWS;
    moving_forget(shard);
    return shard->lacks_base ? tail_remove(shard->data_dir, shard->config.index, e) : EMBD_OK;
}

int following_promote(struct shard *shard, uint32_t n_shards, struct embd__error *e)
{
    struct note note;
    if (!moving_promote(shard, n_shards) || !shard->is_promoting)
        return EMBD_OK;
    shard->is_promoting = false;
    if (note_read(shard->data_dir, shard->config.index, &note, e) != EMBD_OK ||
        deposing_promote(shard, &note, e) != EMBD_OK)
        return e->status;
    return open_own(shard, &note, e);
}

int following_open(struct shard *shard, struct embd__error *e)
{
    struct note note;
    if (note_read(shard->data_dir, shard->config.index, &note, e) != EMBD_OK)
        return e->status;
    if (shard->config.promotes && note.state != NOTE_PROMOTED)
        return open_promoting(shard, &note, e);
    if (shard->config.follow == NULL || note.state == NOTE_PROMOTED)
        return open_own(shard, &note, e);
    if (check_note(shard, &note, e) != EMBD_OK)
        return e->status;
    shard->config.chosen = NULL; /* a follower has no snapshot */
    struct following *f = calloc(1, sizeof *f);
    if (f == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to follow a server");
    shard->following = f;
    moving_forget(shard);
    shard->epoch = note.epoch;
    shard->commit.follows = true;
    f->note = note;
    f->state = note.state == NOTE_FOLLOWS ? FOLLOWING_RECORDS : FOLLOWING_BASE;
    f->came = f->place = (struct tail_place){note.position, note.chain, 0};
    f->had_all_ns = clock_ns();
    if (shard->config.digest_interval_s > 0)
        f->mark.due_ns = clock_ns() + shard->config.digest_interval_s * UINT64_C(1000000000);
    return open_follower(shard, f, e);
}

void following_close(struct shard *shard)
{
    struct following *f = shard->following;
    if (f == NULL)
        return;
    follower_close(f->follower);
    free(f->bytes);
    free(f->own);
    free(f);
    shard->following = NULL;
}

bool following_has_nothing(const struct shard *shard)
{
    return shard->following != NULL && shard->following->state == FOLLOWING_BASE;
}

/* ---- questions ---- */

/* With failover it follows the shards of this server alone, and other processes the others. */
static uint32_t told_room(const struct shard *shard)
{
    return shard->config.failover != NULL ? LIMIT_SHARDS : room(shard);
}

static uint32_t told_bases(const struct shard *shard)
{
    if (shard->config.failover != NULL)
        return LIMIT_SHARDS;
    return shard->config.maps != NULL ? follow_maps_bases(shard->config.maps) : 0;
}

static void ask(struct shard *shard)
{
    struct following *f = shard->following;
    const struct journal *journal = shard->commit.journal;
    struct follow_ask ask = {
        .epoch = f->note.epoch,
        .lineage = f->note.lineage,
        .is_base = f->state == FOLLOWING_BASE,
        .position = f->came.position,
        .chain = f->came.chain,
        .offset = f->came.offset,
        .file = f->file,
        .at = f->at,
        .applied = shard->commit.applied.position,
        .disk = journal != NULL ? journal_synced(shard->commit.journal) : 0,
        .asks_base = shard->engine.tables.apart.n > 0,
        .takes_maps = !f->knows_no_maps,
        .room = f->knows_no_maps ? 0 : told_room(shard),
        .bases = told_bases(shard),
        .wait_ms = shard->config.serves ? WAIT_SERVE_MS : WAIT_MS,
        .most = f->knows_no_maps ? 0 : FOLLOW_BYTES_MOST,
    };
    const struct shard_map *own = shard->config.own_map;
    snprintf(ask.name, sizeof ask.name, "%s",
             (own != NULL ? own->addresses : shard->config.addresses)[shard->config.index]);
    ask.start = shard->config.failover != NULL ? shard->config.start : 0;
    snprintf(ask.cluster, sizeof ask.cluster, "%s", shard->config.cluster_name);
    following_mark_ask(f, &ask);
    f->has_asked = true;
    f->asked_ns = clock_ns();
    f->asked_wait_ns = ask.wait_ms * 1000000;
    f->asked_mark = ask.mark != 0;
    follower_ask(f->follower, &ask);
}

/* ---- answers ---- */

static int add_bytes(struct following *f, struct follower_answer *answer, struct embd__error *e)
{
    uint64_t left = f->n - f->used;
    if (left == 0) {
        free(f->bytes);
        f->bytes = answer->bytes;
        answer->bytes = NULL;
        f->n = answer->found.n_bytes;
        f->used = 0;
        return EMBD_OK;
    }
    memmove(f->bytes, f->bytes + f->used, left);
    f->used = 0;
    f->n = left;
    uint8_t *grown = realloc(f->bytes, left + answer->found.n_bytes);
    if (grown == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a record of another server");
    memcpy(grown + left, answer->bytes, answer->found.n_bytes);
    f->bytes = grown;
    f->n = left + answer->found.n_bytes;
    return EMBD_OK;
}

static void add_skips(struct following *f, const struct follower_answer *answer)
{
    for (uint32_t i = 0; i < answer->found.n_skips && f->n_skips < SKIPS_MOST; i++)
        f->skips[f->n_skips++] = answer->skips[i];
}

static void note_came(struct shard *shard, const struct follow_answer *found, uint64_t sent_ns)
{
    struct following *f = shard->following;
    following_note_probe(shard, found, sent_ns);
    f->end = found->end;
    f->left = found->left;
    f->syncs = found->syncs;
    f->answered_ns = clock_ns();
    f->is_right = true;
    following_note_sure(f, found);
    following_mark_take(shard, found);
}

/* A table came into the journal there with a base: records before it are not enough for it. */
static bool lacks_table(const struct shard *shard, const struct follow_answer *found)
{
    return shard->engine.tables.apart.n > 0 && found->base > shard->following->note.cut;
}

/* Nothing of the answer is to be taken; NULL: it is. */
static const char *why_not(const struct following *f, const struct follower_answer *answer)
{
    const struct follow_answer *found = &answer->found;
    if (found->epoch < f->note.epoch)
        return "it has an older epoch: another server was promoted in its place";
    if (found->n_bytes > 0 && answer->sum != found->sum)
        return "records were damaged on their way";
    return NULL;
}

/* On disk at once: an epoch that is forgotten would be given to two servers. */
static int take_epoch(struct shard *shard, const struct follow_answer *found, struct embd__error *e)
{
    struct note *note = &shard->following->note, *next = &shard->following->next_note;
    uint64_t lineage = found->lineage != 0 ? found->lineage : note->lineage;
    if (found->epoch == note->epoch && lineage == note->lineage)
        return EMBD_OK;
    note->epoch = next->epoch = found->epoch;
    note->lineage = next->lineage = lineage;
    return note_write(shard->data_dir, shard->config.index, note, e);
}

/* Another server was promoted at the place where this one is: its records go on from there by a
 * chain of their own (succession.h). */
static bool is_succession(const struct following *f, const struct follow_answer *found)
{
    return f->state == FOLLOWING_RECORDS && found->epoch > f->note.epoch && found->n_bytes == 0 &&
           f->used == f->n && f->came.offset == 0 && f->came.position == f->place.position &&
           found->position == f->place.position && found->chain != f->place.chain;
}

static void succeed(struct shard *shard, const struct follow_answer *found)
{
    struct following *f = shard->following;
    f->place.chain = found->chain;
    f->next_note = f->note;
    f->next_note.position = f->place.position;
    f->next_note.chain = f->place.chain;
    log_event(LOG_INFO, "follow_goes_on", "shard=%u server=%s position=%llu epoch=%llu",
              shard->config.index, f->address, (unsigned long long)f->place.position,
              (unsigned long long)found->epoch);
}

static int take_found(struct shard *shard, struct follower_answer *answer, struct embd__error *e)
{
    struct following *f = shard->following;
    const struct follow_answer *found = &answer->found;
    const char *why = why_not(f, answer);
    if (why != NULL) { /* the same is asked again */
        following_lose(shard, why);
        f->ask_at_ns = clock_ns() + FOLLOWING_AGAIN_NS;
        return EMBD_OK;
    }
    if (add_bytes(f, answer, e) != EMBD_OK)
        return e->status;
    snprintf(f->address, sizeof f->address, "%s", answer->address);
    if (is_succession(f, found))
        succeed(shard, found);
    if (f->state == FOLLOWING_BASE)
        f->told_map = answer->map_version;
    if (found->shards > room(shard) && shard->config.make_room != NULL)
        shard->config.make_room(shard->config.resize_arg, (uint32_t)found->shards);
    if (f->state == FOLLOWING_BASE && f->file == 0)
        moving_forget_with(shard, answer->n_shards);
    add_skips(f, answer);
    note_came(shard, found, answer->sent_ns);
    if (f->state == FOLLOWING_BASE && f->file == 0) /* its first record is the first of all */
        f->place = (struct tail_place){found->behind, found->behind_chain, 0};
    f->came = (struct tail_place){found->position, found->chain, found->offset};
    f->file = found->file;
    f->at = found->at;
    f->behind = (struct tail_place){found->behind, found->behind_chain, 0};
    f->is_whole = f->state == FOLLOWING_BASE && found->left == 0 && found->offset == 0;
    if (take_epoch(shard, found, e) != EMBD_OK)
        return e->status;
    return lacks_table(shard, found)
               ? following_begin_anew(shard, "a table came into the journal", e)
               : EMBD_OK;
}

/* The first versions that could be followed refuse fields that they do not know. The server may be
 * another one after any other error. */
static void note_version(struct following *f, const struct embd__error *e)
{
    f->knows_no_maps = e->status == EMBD_INVALID && strstr(e->text, "unknown field 'maps'") != NULL;
}

static int take_answer(struct shard *shard, struct follower_answer *answer, struct embd__error *e)
{
    bool drops = shard->following->drops;
    shard->following->has_asked = shard->following->drops = false;
    shard->following->is_spare = answer->is_spare;
    if (drops)
        ;
    else if (answer->is_spare)
        following_rest_spare(shard, answer->n_shards);
    else if (following_joins_other(shard, &answer->error))
        following_begin_anew(shard, answer->error.text, e);
    else if (answer->error.status != EMBD_OK) {
        following_mark_refused(shard, &answer->error);
        note_version(shard->following, &answer->error);
        following_lose(shard, answer->error.text);
    } else if (answer->found.gone[0] != '\0')
        following_begin_anew(shard, answer->found.gone, e);
    else
        take_found(shard, answer, e);
    free(answer->bytes);
    return e->status;
}

/* The bytes that are here need others, or are used up. */
static bool wants_answer(const struct following *f)
{
    struct record record;
    return following_next(f, &record) == NEXT_INCOMPLETE;
}

/* Who asks says what it has. Changes there may wait for that: it asks as soon as it has applied
 * what came, or at once where that server has more. */
static bool may_ask(const struct shard *shard)
{
    const struct following *f = shard->following;
    return f->state == FOLLOWING_BASE || f->end > f->came.position ||
           shard->commit.applied.position >= f->came.position;
}

/* Another process serves, as etcd has it: the one that is asked may live, and stand still. */
static void heed_place(struct following *f, const struct failover *failover)
{
    uint32_t n = (uint32_t)atomic_load(&failover->n_places);
    if (n == f->n_places)
        return;
    f->n_places = n;
    follower_leave(f->follower);
}

bool following_go_on(struct shard *shard, struct embd__error *e)
{
    struct following *f = shard->following;
    struct follower_answer answer;
    if (shard->config.failover != NULL)
        heed_place(f, shard->config.failover);
    if (f->empties && (following_empty(shard, e) != EMBD_OK || f->empties)) {
        following_note_map(shard, promoting_is_settled(shard));
        return false;
    }
    if (following_has_left(shard))
        return following_begin_anew(shard, "the cluster has fewer shards", e) == EMBD_OK;
    following_note_fresh(shard);
    following_count_probes(shard);
    following_mark_look(shard);
    bool has_more = f->state == FOLLOWING_BASE
                        ? following_take_base(shard, e)
                        : !promoting_has_voted(shard) && following_take_records(shard, e);
    if (e->status == EMBD_OK && wants_answer(f) && !promoting_has_voted(shard) &&
        follower_take(f->follower, &answer)) {
        take_answer(shard, &answer, e);
        has_more = true;
    }
    bool is_base_whole = f->state == FOLLOWING_BASE && f->is_whole;
    bool rests = is_base_whole || promoting_rests(shard) || !may_ask(shard);
    if (e->status == EMBD_OK && !f->has_asked && !rests && clock_ns() >= f->ask_at_ns)
        ask(shard);
    following_note_map(shard, promoting_is_settled(shard));
    if (shard->config.failover != NULL)
        failover_note(shard->config.failover, shard->config.index, shard->commit.applied.position,
                      following_has_all(shard) && following_is_placed(shard));
    if (e->status == EMBD_OK && !has_more && promoting_look(shard, e))
        following_close(shard);
    return has_more && e->status == EMBD_OK;
}

/* ---- to admins and trainers ---- */

struct following_figures following_figures(const struct shard *shard)
{
    const struct following *f = shard->following;
    uint64_t applied = shard->commit.applied.position, now_ns = clock_ns();
    bool is_base = f->state == FOLLOWING_BASE;
    bool is_late = f->has_asked && now_ns - f->asked_ns > f->asked_wait_ns + LATE_NS;
    bool has_all = !is_base && !f->is_lost && !is_late && applied >= f->end && f->answered_ns != 0;
    if (f->is_spare)
        return (struct following_figures){.is_connected = true, .is_base = true};
    const struct following_mark *mark = &f->mark;
    return (struct following_figures){
        .digests_same = mark->n_same,
        .digests_other = mark->n_other,
        .digests_failed = mark->n_failed,
        .digests_differ = mark->differs,
        .digest_us = mark->compared_ns == 0 ? 0 : (now_ns - mark->compared_ns) / 1000,
        .records = f->end > applied ? f->end - applied : 0,
        .bytes = f->left + (f->n - f->used),
        .us = has_all ? 0 : (now_ns - f->had_all_ns) / 1000,
        .is_connected = f->answered_ns != 0 && !f->is_lost,
        .is_base = is_base,
        .position = is_base ? 0 : applied,
    };
}

void following_tell(const struct shard *shard, char *text, size_t text_bytes)
{
    const struct following *f = shard->following;
    const struct following_figures now = following_figures(shard);
    const char *address = f->address[0] != '\0' ? f->address : shard->config.follow->address;
    snprintf(text, text_bytes,
             "shard %u of this server is a follower of %s and serves no trainer: connect to that "
             "server. It is %s, %llu records and %.1f s behind",
             shard->config.index, address,
             now.is_base        ? "taking the base"
             : now.is_connected ? "connected"
                                : "not connected",
             (unsigned long long)now.records, (double)now.us / 1e6);
}
