/* handle_follow.c - see feeding.h.
 *
 * The happy path: a follower asks from where it is. If there are records behind that, a thread
 * reads them, and they are the answer; if not, the question waits for the next one. A follower that
 * has what this journal has not, or needs what it has no more, has to begin anew. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/files/errand.h"
#include "server/follow/failover.h"
#include "server/journal/recent.h"
#include "server/journal/tail.h"
#include "server/log/log.h"
#include "server/service/ack_times.h"
#include "server/service/deposing.h"
#include "server/service/feeding.h"
#include "server/service/mark.h"
#include "server/service/state.h"

#define SILENT_NS 2000000000u /* a follower that asks nothing for so long stands still */
#define SETTLE_NS                                                                                  \
    5000000u /* operations on a device end one behind the other: they are waited for */

_Static_assert(FOLLOW_SKIPS == TAIL_SKIPS_MOST, "an answer has what a piece has");

/* Owner: the shard's thread; while its errand runs, the errand's. */
struct feed_read {
    struct tail_ask ask;
    struct tail_piece piece;
    bool is_base, asks_base;
    uint64_t base;
    uint64_t sum; /* of the bytes */
    struct embd__error error;
    struct errand *errand;
    bool is_left; /* the request is gone, and the memory is this one's */
    uint8_t bytes[];
};

/* ---- answers ---- */

static void answer(struct shard *shard, struct feed *feed, const struct follow_answer *what,
                   const struct embd__error *e)
{
    struct request *request = feed->request;
    feed->request = NULL;
    if (request == NULL)
        return;
    feed->answered_ns = clock_ns();
    if (e->status == EMBD_OK) {
        shard->mark.is_told = shard->mark.is_told || what->digest != 0;
        embd__msg_result(&request->answer, request->frame->msgid);
        embd__follow_answer_write(&request->answer, what);
        embd__msg_end(&request->answer);
    }
    call_answer(shard, request, e);
}

/* Behind all records that were acknowledged, also behind those whose operations followers may not
 * have yet: they lack them. */
static uint64_t end_of(const struct commit *commit)
{
    return commit->reached > commit->ended.position ? commit->reached : commit->ended.position;
}

/* Followers make room for what will be, before all wait for them. */
static uint64_t shards_to_be(const struct shard *shard)
{
    const struct moving *moving = &shard->moving;
    bool grows = moving->mover != NULL && moving->next.n_shards > shard->config.n_shards;
    return grows ? moving->next.n_shards : 0;
}

static struct follow_answer where_it_was(const struct shard *shard, const struct feed *feed)
{
    return (struct follow_answer){.epoch = shard->epoch,
                                  .lineage = deposing_lineage(shard),
                                  .position = feed->ask.position,
                                  .chain = feed->ask.chain,
                                  .offset = feed->ask.offset,
                                  .file = feed->ask.file,
                                  .at = feed->ask.at,
                                  .end = end_of(&shard->commit),
                                  .mark = mark_position(&shard->mark, feed->ask.mark),
                                  .shards = shards_to_be(shard),
                                  .digest = mark_digest(&shard->mark, feed->ask.mark)};
}

static void answer_nothing(struct shard *shard, struct feed *feed)
{
    const struct embd__error ok = {.status = EMBD_OK};
    const struct follow_answer nothing = where_it_was(shard, feed);
    feed->left = 0;
    answer(shard, feed, &nothing, &ok);
}

static void answer_gone(struct shard *shard, struct feed *feed, const char *why)
{
    const struct embd__error ok = {.status = EMBD_OK};
    struct follow_answer gone = where_it_was(shard, feed);
    feed->is_ours = false;
    snprintf(gone.gone, sizeof gone.gone, "%s", why);
    log_event(LOG_WARN, "follower_begins_anew", "shard=%u follower=%s position=%llu why=\"%s\"",
              shard->config.index, feed->ask.name, (unsigned long long)feed->ask.position, why);
    answer(shard, feed, &gone, &ok);
}

static void answer_error(struct shard *shard, struct feed *feed, int status, const char *why)
{
    struct embd__error e = {.status = EMBD_OK};
    embd__error_set(&e, status, "%s", why);
    answer(shard, feed, NULL, &e);
}

/* ---- reading ---- */

static void run_read(void *arg)
{
    struct feed_read *read = arg;
    if (read->is_base)
        tail_base(&read->ask, &read->piece, &read->error);
    else
        tail_records(&read->ask, &read->piece, &read->error);
    read->sum = record_sum(read->piece.bytes, read->piece.n);
    if (read->asks_base && read->error.status == EMBD_OK)
        tail_base_position(read->ask.data_dir, read->ask.shard, &read->base, &read->error);
}

/* More at once for one that lacks more, as of its last answer: each question and answer waits for a
 * turn of the shard, which large pushes make long. */
static uint64_t bytes_for(const struct feed *feed)
{
    uint64_t most = feed->ask.most < FOLLOW_BYTES_MOST ? feed->ask.most : FOLLOW_BYTES_MOST;
    uint64_t lacks = feed->left + FOLLOW_BYTES;
    most = lacks < most ? lacks : most;
    return most > FOLLOW_BYTES ? most : FOLLOW_BYTES;
}

/* Takes less where peers have that much of frame_memory. */
static struct feed_read *read_new(struct shard_work *work, uint64_t *most, struct embd__error *e)
{
    struct feed_read *read = work_memory(work, sizeof *read + *most, e);
    if (read != NULL || e->status != EMBD_BUSY || *most == FOLLOW_BYTES)
        return read;
    *e = (struct embd__error){.status = EMBD_OK};
    *most = FOLLOW_BYTES;
    return work_memory(work, sizeof *read + *most, e);
}

static void begin_read(struct shard *shard, struct feed *feed)
{
    struct embd__error e = {.status = EMBD_OK};
    struct shard_work *work = feed->request->work;
    const struct follow_ask *ask = &feed->ask;
    uint64_t most = bytes_for(feed);
    struct feed_read *read = read_new(work, &most, &e);
    if (read == NULL) {
        answer_error(shard, feed, e.status, e.text);
        return;
    }
    *read = (struct feed_read){
        .ask = {.data_dir = shard->data_dir,
                .shard = shard->config.index,
                .until = shard->commit.ended.position,
                .from = {ask->position, ask->chain, ask->offset},
                .file = ask->file,
                .at = ask->at,
                .most = most,
                .recent = shard->feeding.recent},
        .piece.bytes = read->bytes,
        .is_base = ask->is_base,
        .asks_base = ask->asks_base,
    };
    const struct errand_config errand = {run_read, read, shard->config.wake,
                                         shard->config.wake_arg};
    read->errand = errand_start(&errand);
    if (read->errand != NULL)
        feed->read = read;
    else
        answer_error(shard, feed, EMBD_NO_MEMORY, "follow: no thread to read the journal");
}

/* So the follower knows how long its rows lacked what it gets, without believing this clock. */
static void tell_age(const struct shard *shard, const struct feed *feed,
                     const struct feed_read *read, struct follow_answer *found)
{
    uint64_t now_ns = clock_ns();
    found->has_age = !read->is_base && found->n_bytes > 0 && shard->feeding.times != NULL;
    if (!found->has_age)
        return;
    found->age_us = ack_times_age_us(shard->feeding.times, feed->ask.position, now_ns);
    found->waited_us = (now_ns - feed->asked_ns) / 1000;
}

static void answer_read(struct shard *shard, struct feed *feed, const struct feed_read *read)
{
    const struct tail_piece *piece = &read->piece;
    struct follow_answer found = where_it_was(shard, feed);
    if (piece->gone[0] != '\0') {
        answer_gone(shard, feed, piece->gone);
        return;
    }
    found.position = piece->to.position;
    found.chain = piece->to.chain;
    found.offset = piece->to.offset;
    found.file = piece->file;
    found.at = piece->at;
    found.behind = piece->behind.position;
    found.behind_chain = piece->behind.chain;
    found.left = piece->left;
    found.base = read->base;
    found.bytes = piece->bytes;
    found.n_bytes = piece->n;
    found.skips = piece->skips;
    found.n_skips = piece->n_skips;
    found.sum = read->sum;
    found.syncs = shard->replicated.n_synced > 0;
    tell_age(shard, feed, read, &found);
    feed->is_ours = !read->is_base && read->error.status == EMBD_OK;
    feed->left = piece->left;
    answer(shard, feed, &found, &read->error);
}

static void end_read(struct shard *shard, struct feed *feed)
{
    struct feed_read *read = feed->read;
    feed->read = NULL;
    errand_end(read->errand);
    if (read->error.status != EMBD_OK)
        log_event(LOG_ERROR, "follower_not_fed", "shard=%u follower=%s why=\"%s\"",
                  shard->config.index, feed->ask.name, read->error.text);
    if (read->error.status == EMBD_CORRUPT)
        compacting_mend(shard);
    if (read->is_left)
        free(read);
    else
        answer_read(shard, feed, read);
}

/* ---- questions that wait ---- */

static void note_lag(const struct shard *shard, struct feed *feed)
{
    bool has_all = !feed->ask.is_base && feed->ask.applied >= shard->commit.ended.position;
    feed->behind_ns = has_all ? 0 : feed->behind_ns != 0 ? feed->behind_ns : clock_ns();
}

/* Its records are this journal's, as far as can be told without a file. */
static const char *why_gone(const struct shard *shard, const struct follow_ask *ask)
{
    const struct commit_place *ended = &shard->commit.ended;
    if (ask->position > ended->position || (ask->position == ended->position && ask->offset > 0))
        return "it has records that this journal has not";
    if (ask->position == ended->position && ask->chain != ended->chain)
        return "its records are not those of this journal";
    return NULL;
}

static void try(struct shard *shard, struct feed *feed, uint64_t now_ns)
{
    const struct follow_ask *ask = &feed->ask;
    const char *why = ask->is_base ? NULL : why_gone(shard, ask);
    bool marks = ask->mark != 0 && ask->mark_at == 0 && !ask->is_base && why == NULL;
    bool is_marked = marks && !mark_ask(shard, ask->mark) && mark_position(&shard->mark, ask->mark);
    uint64_t to_be = shards_to_be(shard);
    bool lacks_room = ask->room > 0 && ask->room < to_be && !feed->is_told;
    bool is_over = now_ns - feed->asked_ns >= ask->wait_ms * 1000000 || is_marked || lacks_room;
    feed->is_told = to_be > 0 && (feed->is_told || lacks_room);
    bool is_new =
        ask->is_base || ask->position < shard->commit.ended.position || (is_over && ask->asks_base);
    note_lag(shard, feed);
    bool takes_any = ask->room > 0 && !ask->is_base; /* records of another number of shards, too */
    if (!ask->reads && !takes_any && !shard->draining && compacting_is_awaited(shard))
        return; /* until a base is there that has its number of shards */
    if (why != NULL)
        answer_gone(shard, feed, why);
    else if (marks && !is_marked && shard->mark.state == MARK_RESTS)
        ; /* no record behind the mark goes before its position */
    else if (is_new)
        begin_read(shard, feed);
    else if (is_over)
        answer_nothing(shard, feed);
    else
        feed->is_ours = true;
}

/* Operations on a device may end while others are under way, again and again. */
static void settle(struct shard *shard, uint64_t now_ns)
{
    struct commit *commit = &shard->commit;
    struct feeding *feeding = &shard->feeding;
    commit_settle(commit);
    bool waits = commit->ended.position < commit->applied.position;
    feeding->begun_ns = !waits ? 0 : feeding->begun_ns != 0 ? feeding->begun_ns : now_ns;
    commit->settles = waits && now_ns - feeding->begun_ns > SETTLE_NS;
}

static bool is_free(const struct feed *feed)
{
    return feed->session == NULL && feed->read == NULL;
}

void feeding_note_times(struct shard *shard)
{
    if (shard->feeding.times != NULL)
        ack_times_note(shard->feeding.times, shard->commit.reached, clock_ns());
}

bool feeding_look(struct shard *shard)
{
    struct feeding *feeding = &shard->feeding;
    uint64_t now_ns = clock_ns();
    feeding_note_times(shard);
    settle(shard, now_ns);
    feeding->n = 0;
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        struct feed *feed = &feeding->list[i];
        if (feed->read != NULL && errand_is_over(feed->read->errand))
            end_read(shard, feed);
        if (feed->request != NULL && feed->read == NULL)
            try(shard, feed, now_ns);
        feeding->n += !is_free(feed);
    }
    recent_keep(shard->feeding.recent, feeding->n > 0);
    replicated_look(shard);
    return shard->commit.settles;
}

/* ---- a question ---- */

static int check(struct call *call, const struct follow_ask *ask)
{
    const struct shard *shard = call->shard;
    if (shard->commit.journal == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "follow: this server has no data_dir, and so no journal that could "
                               "be followed");
    if (shard->feeding.is_over)
        return embd__error_set(&call->error, EMBD_DRAINING, "shard %u is shutting down",
                               shard->config.index);
    if (strcmp(ask->cluster, shard->config.cluster_name) != 0)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "follow cluster: '%s', this server is of cluster '%s'", ask->cluster,
                               shard->config.cluster_name);
    return deposing_heed(call->shard, ask, &call->error);
}

/* Of this connection, or of an earlier one of the same follower, or a free one. */
static struct feed *find(struct shard *shard, const struct call *call, const struct follow_ask *ask)
{
    const struct shard_session *session = call->request->session;
    struct feed *free_one = NULL, *list = shard->feeding.list;
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        if (list[i].session == session)
            return &list[i];
        if (list[i].session != NULL && list[i].read == NULL &&
            strcmp(list[i].ask.name, ask->name) == 0) {
            answer_error(shard, &list[i], EMBD_CLOSED, "follow: it asks on another connection");
            return &list[i];
        }
        if (is_free(&list[i]))
            free_one = &list[i];
    }
    return free_one;
}

int handle_follow(struct call *call)
{
    struct shard *shard = call->shard;
    struct follow_ask ask;
    if (embd__follow_ask_read(&call->reader, &ask) != EMBD_OK || check(call, &ask) != EMBD_OK)
        return call->error.status;
    struct feed *feed = find(shard, call, &ask);
    if (feed == NULL)
        return embd__error_set(&call->error, EMBD_FULL, "follow: %u servers follow, the limit",
                               FOLLOWERS_MAX);
    if (feed->request != NULL || feed->read != NULL)
        return embd__error_set(&call->error, EMBD_INVALID,
                               "follow: an earlier question of this connection is not answered");
    if (feed->session != call->request->session) /* its records are to be compared */
        *feed = (struct feed){.behind_ns = 0};
    feed->session = call->request->session;
    call->request->session->sends_aside = true;
    feed->request = call->request;
    feed->ask = ask;
    feed->asked_ns = clock_ns();
    if (succession_take(&shard->feeding.succession, &feed->ask)) {
        log_event(LOG_INFO, "follower_goes_on", "shard=%u follower=%s position=%llu",
                  shard->config.index, ask.name, (unsigned long long)ask.position);
        answer_nothing(shard, feed);
        return CALL_LATER;
    }
    if (shard->feeding.times == NULL) /* without memory no age is told */
        shard->feeding.times = ack_times_new(shard->commit.reached);
    shard->feeding.n++;
    feeding_look(shard);
    return CALL_LATER;
}

/* ---- figures ---- */

struct feeding_figures feeding_figures(const struct shard *shard)
{
    struct feeding_figures out = {.recent_bytes = recent_bytes(shard->feeding.recent)};
    uint64_t now_ns = clock_ns();
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        const struct feed *feed = &shard->feeding.list[i];
        if (feed->session == NULL || feed->ask.reads)
            continue;
        uint64_t us = feed->behind_ns == 0 ? 0 : (now_ns - feed->behind_ns) / 1000;
        uint64_t bytes = feed->behind_ns == 0 ? 0 : feed->left;
        out.n++;
        out.us = us > out.us ? us : out.us;
        out.bytes = bytes > out.bytes ? bytes : out.bytes;
    }
    return out;
}

/* ---- the end ---- */

void feeding_forget(struct shard *shard, const struct request *request)
{
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        struct feed *feed = &shard->feeding.list[i];
        if (feed->request != request)
            continue;
        feed->request = NULL;
        if (feed->read == NULL)
            continue;
        feed->read->is_left = true;
        request->work->memory = NULL;
    }
}

void feeding_leave(struct shard *shard, const struct shard_session *session)
{
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++)
        if (shard->feeding.list[i].session == session)
            shard->feeding.list[i].session = NULL;
    replicated_look(shard);
}

void feeding_drain(struct shard *shard)
{
    replicated_look(shard);
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++)
        if (shard->feeding.list[i].read == NULL && shard->feeding.list[i].request != NULL)
            answer_nothing(shard, &shard->feeding.list[i]);
}

/* One that stands still is not waited for. */
static bool lacks(const struct feed *feed, uint64_t position)
{
    bool is_asking = feed->request != NULL || feed->read != NULL;
    bool is_silent = !is_asking && clock_ns() - feed->answered_ns > SILENT_NS;
    return feed->session != NULL && feed->is_ours && !feed->ask.is_base && !is_silent &&
           (feed->read != NULL || feed->ask.position < position);
}

bool feeding_lacks(const struct shard *shard, uint64_t position)
{
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++)
        if (lacks(&shard->feeding.list[i], position))
            return true;
    return false;
}

/* Each of them may take this server's place at once. */
static void name_heirs(struct shard *shard)
{
    struct failover_set have = {.n = 0};
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++) {
        const struct feed *feed = &shard->feeding.list[i];
        bool has_all = feed->session != NULL && feed->is_ours && !feed->ask.is_base &&
                       feed->ask.position >= shard->commit.applied.position;
        if (has_all && !feed->ask.reads && feed->ask.start != 0)
            failover_add(&have, feed->ask.start);
    }
    failover_finish(shard->config.failover, shard->config.index, &have);
}

bool feeding_finish(struct shard *shard, bool is_late)
{
    struct feeding *feeding = &shard->feeding;
    bool leads = shard->config.failover != NULL && shard->following == NULL;
    if (!is_late && feeding_lacks(shard, shard->commit.applied.position))
        return false;
    if (leads && !is_late)
        name_heirs(shard);
    feeding->is_over = true;
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++)
        if (feeding->list[i].read == NULL)
            answer_error(shard, &feeding->list[i], EMBD_DRAINING, "the server shuts down");
    return true;
}

void feeding_close(struct shard *shard)
{
    for (uint32_t i = 0; i < FOLLOWERS_MAX; i++)
        if (shard->feeding.list[i].read != NULL)
            end_read(shard, &shard->feeding.list[i]);
    ack_times_free(shard->feeding.times);
    shard->feeding.times = NULL;
}
