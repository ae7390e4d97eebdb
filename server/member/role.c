/* role.c - what a process is to be that starts with a name which others may have, too.
 *
 * Somebody else has the name: it follows. Nobody has: the one that had it last serves again, if its
 * data directory is of the last epoch. Followers that were in sync go first, since that directory
 * may have lost its last moments with the power of its host. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "server/log/log.h"
#include "server/member/member_inside.h"

#define LOOK_MS 100

enum finding { FOUND_WAITS, FOUND_SERVES, FOUND_FOLLOWS };

struct question {
    struct etcd *etcd;
    const char *name;
    uint64_t node, epoch;
    bool is_followers;
    struct member_role *out;
};

static enum finding follow(struct question *q, const char *why)
{
    q->out->follows = true;
    snprintf(q->out->why, sizeof q->out->why, "%s", why);
    return FOUND_FOLLOWS;
}

/* A follower that was in sync lives, and is about to take the name. */
static int has_heir(struct question *q, uint64_t epoch, bool *has_out, struct embd__error *e)
{
    struct entry_follower list[FAILOVER_MOST];
    struct entry_insync insync;
    uint32_t n;
    *has_out = false;
    if (entry_read_insync(q->etcd, q->name, epoch, &insync, e) != EMBD_OK ||
        entry_list_followers(q->etcd, q->name, list, &n, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < n; i++)
        *has_out = *has_out || (list[i].is_ready && failover_has(&insync.set, list[i].id));
    return EMBD_OK;
}

static enum finding look_at_epoch(struct question *q, struct embd__error *e)
{
    struct entry_epoch last;
    bool has = false;
    char why[160];
    if (entry_read_epoch(q->etcd, q->name, &last, e) != EMBD_OK)
        return FOUND_WAITS;
    if (last.epoch == 0 && q->is_followers)
        return follow(q, "its data directory is a follower's");
    q->out->epoch = last.epoch > q->epoch ? last.epoch : q->epoch;
    if (last.epoch == 0)
        return FOUND_SERVES;
    snprintf(why, sizeof why, "another process took its place in epoch %llu, its own is %llu",
             (unsigned long long)last.epoch, (unsigned long long)q->epoch);
    if (last.node != q->node || (last.epoch > q->epoch && !q->is_followers))
        return follow(q, why);
    if (has_heir(q, last.epoch, &has, e) != EMBD_OK || has)
        return FOUND_WAITS;
    return FOUND_SERVES;
}

static enum finding look(struct question *q, struct embd__error *e)
{
    char name_key[MEMBER_KEY_BYTES];
    struct failover_place place;
    struct etcd_value there;
    uint64_t node;
    snprintf(name_key, sizeof name_key, "servers/%.63s", q->name);
    if (etcd_get(q->etcd, name_key, &there, e) != EMBD_OK)
        return FOUND_WAITS;
    if (there.text == NULL)
        return look_at_epoch(q, e);
    bool is_read = entry_read_name(there.text, &node, &place);
    free(there.text);
    return is_read && node != q->node ? follow(q, "another process has its name") : FOUND_WAITS;
}

static enum finding find(struct question *q, uint64_t until_ns, struct embd__error *e)
{
    static const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000};
    enum finding found = look(q, e);
    bool is_told = false;
    while (found == FOUND_WAITS && failover_now_ns() < until_ns) {
        if (e->status != EMBD_OK && !is_told)
            log_event(LOG_WARN, "etcd", "why=\"%s\"", e->text);
        is_told = is_told || e->status != EMBD_OK;
        *e = (struct embd__error){0};
        nanosleep(&pause, NULL);
        found = look(q, e);
    }
    return found;
}

int member_find_role(const struct etcd_place *place, uint32_t lease_s, const char *name,
                     uint64_t node, uint64_t epoch, bool is_followers, struct member_role *out,
                     struct embd__error *e)
{
    static const atomic_bool never;
    struct question q = {
        .name = name, .node = node, .epoch = epoch, .is_followers = is_followers, .out = out};
    *out = (struct member_role){.epoch = epoch};
    if (etcd_open(place, &never, &q.etcd, e) != EMBD_OK)
        return e->status;
    etcd_set_patience(q.etcd, lease_s * 1000 / 4);
    uint64_t until_ns = failover_now_ns() + (uint64_t)lease_s * 3 * 1000000000u + 5000000000u;
    if (find(&q, until_ns, e) == FOUND_WAITS && e->status == EMBD_OK)
        embd__error_set(
            e, EMBD_UNREACHABLE,
            "failover: whether this process serves as '%.60s' stayed open: an earlier "
            "process of this data_dir holds the name, or a follower is about to take it",
            name);
    etcd_close(q.etcd);
    return e->status;
}
