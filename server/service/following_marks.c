/* following_marks.c - a follower compares its tables with those of the server that it follows, at
 * one position, while pushes go on (service/mark.h).
 *
 * The happy path: a question has a mark, and its answer says at which position the server digests
 * its tables. No answer before had records from there on; they wait until the tables here are
 * frozen. Both sides digest, and a later answer has the server's digest. What can fail: one side
 * needs its tables for something else. Then it is tried again. */
#include <stdio.h>
#include <string.h>

#include "server/log/log.h"
#include "server/service/following_inside.h"

#define ASKED_NS UINT64_C(60000000000)   /* the server comes to rest, or has something to do */
#define READS_NS UINT64_C(3600000000000) /* both digest */
#define AGAIN_NS UINT64_C(10000000000)   /* after a failure */

static uint64_t interval_ns(const struct shard *shard)
{
    return shard->config.digest_interval_s * UINT64_C(1000000000);
}

static void end(struct shard *shard, const char *why)
{
    struct following_mark *mark = &shard->following->mark;
    uint64_t wait_ns = interval_ns(shard);
    mark->last_id = mark->id;
    mark->last_at = mark->at;
    mark->last_failed = why != NULL;
    snprintf(mark->last_why, sizeof mark->last_why, "%s", why != NULL ? why : "");
    if (why != NULL && wait_ns > AGAIN_NS)
        wait_ns = AGAIN_NS;
    mark->due_ns = wait_ns > 0 ? clock_ns() + wait_ns : 0;
    mark->id = mark->at = mark->theirs = 0;
    mark->state = MARKS_NOT;
}

void following_mark_fail(struct shard *shard, const char *why)
{
    struct following_mark *mark = &shard->following->mark;
    if (mark->state == MARKS_NOT)
        return;
    mark->n_failed++;
    log_event(LOG_INFO, "digests_not_compared", "shard=%u server=%s why=\"%s\"",
              shard->config.index, shard->following->address, why);
    end(shard, why);
}

/* ---- questions and answers ---- */

static bool begin(struct shard *shard, uint64_t id)
{
    struct following *f = shard->following;
    if (f->mark.state != MARKS_NOT || f->state != FOLLOWING_RECORDS)
        return false;
    f->mark.state = MARKS_ASKED;
    f->mark.id = id;
    f->mark.began_ns = clock_ns();
    return true;
}

void following_mark_ask(const struct following *f, struct follow_ask *ask)
{
    if (f->mark.state == MARKS_NOT || ask->is_base)
        return;
    ask->mark = f->mark.id;
    ask->mark_at = f->mark.at;
}

void following_mark_take(struct shard *shard, const struct follow_answer *found)
{
    struct following *f = shard->following;
    struct following_mark *mark = &f->mark;
    if (mark->state == MARKS_NOT || (mark->state == MARKS_ASKED && found->mark == 0))
        return;
    if (mark->state == MARKS_ASKED && found->mark >= f->place.position) {
        mark->state = MARKS_STOPS;
        mark->at = found->mark;
    }
    mark->theirs = found->digest;
    if (found->mark != mark->at)
        following_mark_fail(shard, "the server needed its tables for something else");
}

void following_mark_refused(struct shard *shard, const struct embd__error *e)
{
    struct following_mark *mark = &shard->following->mark;
    if (mark->state != MARKS_ASKED || e->status != EMBD_INVALID || !strstr(e->text, "'mark'"))
        return;
    following_mark_fail(shard, "the server is of an earlier version");
    mark->due_ns = 0;
}

/* ---- at the position ---- */

void following_mark_freeze(struct shard *shard)
{
    struct following *f = shard->following;
    if (f->mark.state != MARKS_STOPS || f->place.position < f->mark.at)
        return;
    if (f->place.position == f->mark.at && mark_freeze(shard, f->mark.id))
        f->mark.state = MARKS_READS;
    else
        following_mark_fail(shard, "the follower needed its tables for something else");
}

static void compare(struct shard *shard, uint64_t own)
{
    struct following_mark *mark = &shard->following->mark;
    mark->differs = mark->last_differs = own != mark->theirs;
    mark->n_same += !mark->differs;
    mark->n_other += mark->differs;
    mark->compared_ns = clock_ns();
    shard->mark.is_told = true;
    log_event(mark->differs ? LOG_ERROR : LOG_INFO,
              mark->differs ? "digests_differ" : "digests_same",
              "shard=%u server=%s position=%llu digest=%016llx there=%016llx%s",
              shard->config.index, shard->following->address, (unsigned long long)mark->at,
              (unsigned long long)own, (unsigned long long)mark->theirs,
              mark->differs ? " why=\"'embctl digest --against' says which rows differ\"" : "");
    end(shard, NULL);
}

void following_mark_look(struct shard *shard)
{
    struct following_mark *mark = &shard->following->mark;
    if (mark->state == MARKS_NOT && mark->due_ns == 0)
        return;
    uint64_t now_ns = clock_ns(), took_ns = now_ns - mark->began_ns;
    if (mark->state == MARKS_NOT) {
        if (now_ns >= mark->due_ns && !shard->following->is_lost)
            begin(shard, (subscribers_number(shard) >> 1) + 1);
    } else if (took_ns > (mark->state == MARKS_ASKED ? ASKED_NS : READS_NS)) {
        following_mark_fail(shard, "it took too long");
    } else if (mark->state == MARKS_READS && shard->mark.id != mark->id) {
        following_mark_fail(shard, "the follower needed its tables for something else");
    } else if (mark->theirs != 0 && mark_digest(&shard->mark, mark->id) != 0) {
        compare(shard, mark_digest(&shard->mark, mark->id));
    }
}

/* ---- to admins ---- */

static const char *state_of(const struct following_mark *mark, uint64_t id)
{
    if (mark->state != MARKS_NOT && mark->id == id)
        return "compares";
    return mark->last_failed ? "failed" : mark->last_differs ? "differs" : "same";
}

int following_mark_scan(struct call *call, uint64_t id)
{
    struct shard *shard = call->shard;
    if (shard->following == NULL)
        return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                               "scan mark: shard %u follows no server", shard->config.index);
    struct following_mark *mark = &shard->following->mark;
    if (mark->id != id && mark->last_id != id && !begin(shard, id))
        return embd__error_set(&call->error, EMBD_BUSY,
                               "scan mark: another comparison is being made, or a base is taken");
    struct msg *m = call->answer;
    embd__msg_result(m, call->reader.msgid);
    embd__msg_map(m, 3);
    embd__msg_field_str(m, "state", state_of(mark, id));
    embd__msg_field_str(m, "why", mark->id == id ? "" : mark->last_why);
    embd__msg_field_uint(m, "position", mark->id == id ? mark->at : mark->last_at);
    return EMBD_OK;
}
