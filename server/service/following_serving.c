/* following_serving.c - a follower that answers reads: a replica.
 *
 * The happy path: the follower has its base and takes records; pulls and other reads are answered
 * from its tables, which have the other server's bits at some position. They change nothing, since
 * tables whose pulls make rows have no journal, and a follower does not have them.
 *
 * How far behind it is: a question goes out, and its answer says how many records there are. So
 * nothing that was acknowledged before the question is missing once those are applied. An answer
 * that waited in vain for a record says the same of the end of that wait. Both times are by the
 * clock here. While nothing is heard, the replica counts as further behind every moment.
 *
 * A base may be older than the tables before it. So reads wait until what was there when it was
 * asked for is applied: nobody sees an earlier position than before. */
#include "server/service/following_inside.h"
#include "server/service/lag.h"
#include "server/service/narrow.h"

/* The methods that admins may call on any follower, and everybody on a replica. */
bool following_serves(const struct shard *shard, enum method method)
{
    if (shard->narrow != NULL)
        return narrow_serves(shard, method);
    if (shard->following == NULL || shard->following->state != FOLLOWING_RECORDS ||
        shard->commit.journal == NULL)
        return false;
    return method == METHOD_TABLES || method == METHOD_TABLE_DESCRIBE || method == METHOD_HOLD ||
           method == METHOD_SCAN || method == METHOD_SNAPSHOT ||
           (shard->config.serves && !shard->following->catches_up &&
            (method == METHOD_PULL || method == METHOD_GET || method == METHOD_KEYS ||
             method == METHOD_WRITER));
}

bool following_is_served(const struct shard *shard)
{
    return shard->config.serves && following_serves(shard, METHOD_PULL);
}

int following_refuse_method(struct call *call)
{
    const struct shard *shard = call->shard;
    if (shard->narrow != NULL)
        return narrow_refuse_method(call);
    const struct following *f = shard->following;
    const char *address = f->address[0] != '\0' ? f->address : shard->config.follow->address;
    return embd__error_set(&call->error, EMBD_UNSUPPORTED,
                           "shard %u of this server is a replica of %s, which answers reads alone: "
                           "ask that server for %s",
                           shard->config.index, address, call->reader.method_name);
}

/* ---- how far behind ---- */

void following_note_sure(struct following *f, const struct follow_answer *found)
{
    uint64_t sure_ns = f->asked_ns;
    bool is_nothing = found->n_bytes == 0 && f->state == FOLLOWING_RECORDS && !f->asked_mark;
    if (is_nothing && f->answered_ns - f->asked_ns >= f->asked_wait_ns)
        sure_ns += f->asked_wait_ns;
    *(f->first.ns == 0 ? &f->first : &f->last) = (struct following_sure){sure_ns, found->end};
}

void following_note_fresh(struct shard *shard)
{
    struct following *f = shard->following;
    while (f->state == FOLLOWING_RECORDS && f->first.ns != 0 &&
           shard->commit.applied.position >= f->first.end) {
        f->fresh_ns = f->first.ns;
        f->catches_up = f->catches_up && following_lacks_map(shard);
        f->first = f->last;
        f->last = (struct following_sure){0, 0};
    }
}

/* A base may be older than what this follower had before, and has said that it has. */
bool following_has_all(const struct shard *shard)
{
    const struct following *f = shard->following;
    return f->state == FOLLOWING_RECORDS && shard->commit.journal != NULL && !f->catches_up;
}

int following_check_lag(struct call *call)
{
    struct shard *shard = call->shard;
    struct lag *lag = &call->reader.lag;
    uint64_t most = lag->ms;
    lag->ms = 0;
    lag->position = shard->commit.applied.position;
    if (shard->following == NULL)
        return EMBD_OK;
    following_note_fresh(shard);
    lag->ms = lag_ms(shard->following->fresh_ns);
    return lag_check(call, most);
}
