/* moved.c - calls whose keys were split by another map than the servers have (EMBD_MOVED).
 *
 * The happy path: every shard has refused the call's messages, before any effect. The map is read
 * again from a shard that said so. Then all calls that were started and refused are split by it and
 * sent again, in the order they were started; a push keeps its numbers, so those behind it find no
 * gap. Two rounds are possible where maps follow each other.
 *
 * What can fail: the shard has no newer map than ours, since it is behind: it is asked again until
 * the call's deadline. A push that one shard has applied by its map and another one refused is
 * never split again, as its number on the first stands for other keys: it fails, and says what
 * became of it. A pusher's stream ends with it: the same number is refused here. */
#include <stdio.h>
#include <string.h>

#include "client/call/call.h"

/* Whether a shard has, or may have, taken a part of the push. */
static bool is_partly_applied(const struct embd_call *call)
{
    for (uint32_t i = call->n_openings; i < call->n_messages; i++)
        if (call->kind == PARTS_PUSH && call->messages[i]->x.error.status != EMBD_MOVED)
            return true;
    return false;
}

/* A push that has a number, or is of a round, was applied by all shards before one of them left, or
 * by none: where one that stays has it, so had that one. */
void embd__call_forgive_left(struct embd_call *call)
{
    uint32_t n_done = 0;
    for (uint32_t i = call->n_openings; i < call->n_messages; i++)
        n_done += call->messages[i]->x.error.status == EMBD_OK;
    for (uint32_t i = 0; i < call->n_messages && n_done > 0; i++) {
        struct exchange *x = &call->messages[i]->x;
        bool is_kept =
            x->has_effect || x->is_of_round || i < call->n_openings; /* of a stream (numbered.c) */
        if (is_kept && x->error.status == EMBD_MOVED && embd__link_is_retired(x->link))
            x->error = (struct embd__error){0};
    }
}

void embd__call_part(struct embd_call *call)
{
    if (embd__call_is_numbered(call) && embd__call_is_parted(call))
        embd__numbered_part(&call->client->opened, &call->extra.number);
}

/* A push behind one that stays applied in part finds a gap on the shards that lack that one. */
static bool can_follow(const struct embd_call *call)
{
    bool is_behind = embd__call_is_numbered(call) &&
                     embd__numbered_has_ended(&call->client->opened, &call->extra.number);
    return embd__call_is_moved(call) && !is_partly_applied(call) && !is_behind;
}

/* ---- the map ---- */

/* Shard 0 never leaves. */
static uint32_t who_said_so(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->messages[i]->x.error.status == EMBD_MOVED && call->messages[i]->x.is_refused)
            return call->messages[i]->shard < call->client->n_shards ? call->messages[i]->shard : 0;
    return 0;
}

/* ---- sending again ---- */

/* The next of the calls that were started, by their order. */
static struct embd_call *next_started(const embd_client *client, uint64_t after)
{
    struct embd_call *next = NULL;
    for (struct embd_call *c = client->calls; c != NULL; c = c->next)
        if (c->is_started && c->started > after && (next == NULL || c->started < next->started))
            next = c;
    return next;
}

static void send_all_again(embd_client *client)
{
    for (struct embd_call *c = next_started(client, 0); c != NULL;
         c = next_started(client, c->started)) {
        embd__io_await(&client->io, &c->job);
        embd__call_forgive_left(c);
        embd__call_part(c);
        if (can_follow(c))
            embd__call_again(c);
    }
}

static void say_why(struct embd_call *call, const struct embd__error *why)
{
    for (uint32_t i = 0; i < call->n_messages; i++) {
        struct embd__error *e = &call->messages[i]->x.error;
        size_t at = strlen(e->text);
        if (e->status == EMBD_MOVED)
            snprintf(e->text + at, sizeof e->text - at, "; asked for it: %.250s", why->text);
    }
}

int embd__follow_map(embd_client *client, uint32_t shard, uint64_t deadline_ns, bool *follows_out)
{
    int status = embd__placement_learn(client, shard, deadline_ns, follows_out);
    if (*follows_out)
        send_all_again(client);
    return status;
}

void embd__call_follow(struct embd_call *call)
{
    embd_client *client = call->client;
    bool follows = true;
    while (follows && call->again_status == EMBD_OK && can_follow(call)) {
        uint64_t deadline_ns = call->messages[call->n_openings]->x.deadline_ns;
        if (embd__follow_map(client, who_said_so(call), deadline_ns, &follows) != EMBD_OK) {
            say_why(call, &client->error);
            client->error = (struct embd__error){0};
        }
        embd__io_await(&client->io, &call->job);
    }
}
