/* outcome.c - the error of a failed call. Its status and the beginning of its text are those of the
 * first shard, by number, that did not do it.
 *
 * A change goes to several shards, and each accepts or refuses it by itself: a table that is full
 * on one has room on another. So the text continues with the shards that applied it, those that did
 * not, and those where that is unknown, unless all did the same. A push that stays applied in part,
 * since keys have moved, is EMBD_MOVED whatever the first shard said. Openings of a pusher's
 * stream, which come first, are not listed: if one was refused, so is the push behind it. */
#include "client/call/call.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum outcome { APPLIED, APPLIED_IN_PART, REFUSED, NOT_SENT, UNKNOWN, OUTCOMES };

static const char *const words[OUTCOMES] = {
    [APPLIED] = "applied by", [APPLIED_IN_PART] = "applied in part by",
    [REFUSED] = "refused by", [NOT_SENT] = "not sent to",
    [UNKNOWN] = "unknown of",
};

/* The result of one shard's messages, with the cause. */
struct shard_outcome {
    enum outcome outcome;
    int status; /* EMBD_OK unless they were refused or not sent */
};

static struct shard_outcome outcome_of(const struct exchange *x)
{
    if (x->error.status == EMBD_OK)
        return (struct shard_outcome){APPLIED, EMBD_OK};
    if (x->is_refused)
        return (struct shard_outcome){REFUSED, x->error.status};
    if (x->is_out)
        return (struct shard_outcome){UNKNOWN, EMBD_OK};
    return (struct shard_outcome){NOT_SENT, x->error.status};
}

/* For the shard whose messages begin at number *at, which moves behind them. */
static struct shard_outcome next_outcome(const struct embd_call *call, uint32_t *at)
{
    uint32_t shard = call->messages[*at]->shard;
    struct shard_outcome all = outcome_of(&call->messages[(*at)++]->x);
    for (; *at < call->n_messages && call->messages[*at]->shard == shard; ++*at) {
        struct shard_outcome one = outcome_of(&call->messages[*at]->x);
        bool in_part = (one.outcome == APPLIED) != (all.outcome == APPLIED);
        if (all.outcome == UNKNOWN || one.outcome == UNKNOWN)
            all = (struct shard_outcome){UNKNOWN, EMBD_OK};
        else if (in_part)
            all = (struct shard_outcome){APPLIED_IN_PART, EMBD_OK};
    }
    return all;
}

/* Whether some shards applied it, or may have, and others did not. */
static bool differ(const struct embd_call *call)
{
    uint32_t n = 0, n_of[OUTCOMES] = {0};
    for (uint32_t at = call->n_openings; at < call->n_messages; n++)
        n_of[next_outcome(call, &at).outcome]++;
    uint32_t n_not = n_of[REFUSED] + n_of[NOT_SENT];
    return n_of[APPLIED_IN_PART] > 0 || (n_not != n && n_of[UNKNOWN] != n);
}

/* ---- the text ---- */

struct told {
    char text[LIMIT_ERROR_TEXT / 2];
    size_t bytes;
};

__attribute__((format(printf, 2, 3))) static void tell(struct told *told, const char *format, ...)
{
    size_t room = sizeof told->text - told->bytes;
    va_list values;
    va_start(values, format);
    int n = vsnprintf(told->text + told->bytes, room, format, values);
    va_end(values);
    bool fits = (size_t)n < room;
    told->bytes += fits ? (size_t)n : room - 1;
    if (!fits)
        memcpy(told->text + sizeof told->text - sizeof "...", "...", sizeof "...");
}

static bool is_same(struct shard_outcome a, struct shard_outcome b)
{
    return a.outcome == b.outcome && a.status == b.status;
}

/* "0, 2-5": the shards with this outcome. */
static void tell_shards(struct told *told, const struct embd_call *call, struct shard_outcome o)
{
    const char *before = "";
    for (uint32_t at = call->n_openings; at < call->n_messages;) {
        uint32_t first = call->messages[at]->shard, last = first;
        if (!is_same(next_outcome(call, &at), o))
            continue;
        for (uint32_t next = at; next < call->n_messages; at = next, last++)
            if (call->messages[next]->shard != last + 1 || !is_same(next_outcome(call, &next), o))
                break;
        tell(told, first == last ? "%s%u" : "%s%u-%u", before, first, last);
        before = ", ";
    }
}

/* How many shards have this outcome, of those whose messages begin before number `end`. */
static uint32_t count_same(const struct embd_call *call, uint32_t end, struct shard_outcome o)
{
    uint32_t n = 0;
    for (uint32_t at = call->n_openings; at < end;)
        n += is_same(next_outcome(call, &at), o);
    return n;
}

static void tell_outcome(struct told *told, const struct embd_call *call, enum outcome outcome)
{
    for (uint32_t at = call->n_openings, begin = at; at < call->n_messages; begin = at) {
        struct shard_outcome o = next_outcome(call, &at);
        if (o.outcome != outcome || count_same(call, begin, o) > 0)
            continue;
        bool is_one = count_same(call, call->n_messages, o) == 1;
        tell(told, "; %s %s ", words[outcome], is_one ? "shard" : "shards");
        tell_shards(told, call, o);
        if (o.status != EMBD_OK)
            tell(told, " (%s)", embd_status_text(o.status));
    }
}

bool embd__call_is_moved(const struct embd_call *call)
{
    for (uint32_t i = 0; i < call->n_messages; i++)
        if (call->messages[i]->x.error.status == EMBD_MOVED)
            return true;
    return false;
}

bool embd__call_is_parted(const struct embd_call *call)
{
    bool is_moved = false, is_taken = false;
    for (uint32_t i = call->n_openings; i < call->n_messages; i++) {
        const struct exchange *x = &call->messages[i]->x;
        enum outcome outcome = outcome_of(x).outcome;
        is_moved = is_moved || (outcome == REFUSED && x->error.status == EMBD_MOVED);
        is_taken = is_taken || outcome == APPLIED || outcome == UNKNOWN;
    }
    return call->kind == PARTS_PUSH && is_moved && is_taken;
}

#define PARTED                                                                                     \
    "; keys have moved since, and it stays applied in part: do not push it again, go back to a "   \
    "checkpoint with a new client"

int embd__call_outcome(struct embd_call *call)
{
    struct embd__error *e = &call->client->error;
    const struct embd__error *first = NULL;
    struct told told = {.bytes = 0};
    for (uint32_t i = 0; i < call->n_messages && first == NULL; i++)
        if (call->messages[i]->x.error.status != EMBD_OK)
            first = &call->messages[i]->x.error;
    if (first == NULL)
        return EMBD_OK;
    for (int o = 0; o < OUTCOMES && call->kind != PARTS_PULL && differ(call); o++)
        tell_outcome(&told, call, (enum outcome)o);
    bool is_parted = embd__call_is_parted(call);
    const char *end = is_parted ? PARTED : "";
    int room = (int)(LIMIT_ERROR_TEXT - 1 - told.bytes - strlen(end));
    return embd__error_set(e, is_parted ? EMBD_MOVED : first->status, "%.*s%s%s", room, first->text,
                           told.text, end);
}
