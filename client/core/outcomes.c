/* outcomes.c - the error of a change that failed. Its status and the beginning of its text are
 * those of the first shard, by number, that did not do it.
 *
 * A change goes to several shards, and each accepts or refuses it by itself: a table that is full
 * on one has room on another. So the text continues with the shards that applied it, those that did
 * not, and those where that is unknown, unless all did the same. A push that stays applied in part,
 * since keys have moved, or a shard takes none of its kind, is EMBD_MOVED whatever the first shard
 * said. */
#include "client/core/outcomes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const words[OUTCOMES] = {
    [APPLIED] = "applied by", [APPLIED_IN_PART] = "applied in part by",
    [REFUSED] = "refused by", [NOT_SENT] = "not sent to",
    [UNKNOWN] = "unknown of",
};

struct shard_outcome embd__outcome_of(uint32_t shard, const struct exchange *x)
{
    if (x->error.status == EMBD_OK)
        return (struct shard_outcome){shard, APPLIED, EMBD_OK};
    if (x->is_refused)
        return (struct shard_outcome){shard, REFUSED, x->error.status};
    if (x->is_out)
        return (struct shard_outcome){shard, UNKNOWN, EMBD_OK};
    return (struct shard_outcome){shard, NOT_SENT, x->error.status};
}

bool embd__outcomes_are_taken(const struct shard_outcome *list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (list[i].outcome != REFUSED && list[i].outcome != NOT_SENT)
            return true;
    return false;
}

bool embd__outcomes_are_parted(const struct shard_outcome *list, uint32_t n)
{
    bool is_moved = false, is_taken = false;
    for (uint32_t i = 0; i < n; i++) {
        enum outcome outcome = list[i].outcome;
        is_moved = is_moved || (outcome == REFUSED && list[i].status == EMBD_MOVED);
        is_taken = is_taken || outcome == APPLIED || outcome == UNKNOWN;
    }
    return is_moved && is_taken;
}

/* Whether some shards applied it, or may have, and others did not. */
static bool differ(const struct shard_outcome *list, uint32_t n)
{
    uint32_t n_of[OUTCOMES] = {0};
    for (uint32_t i = 0; i < n; i++)
        n_of[list[i].outcome]++;
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

static bool is_same(const struct shard_outcome *a, const struct shard_outcome *b)
{
    return a->outcome == b->outcome && a->status == b->status;
}

/* How many of the list have this outcome. */
static uint32_t count_same(const struct shard_outcome *list, uint32_t n,
                           const struct shard_outcome *o)
{
    uint32_t n_same = 0;
    for (uint32_t i = 0; i < n; i++)
        n_same += is_same(&list[i], o);
    return n_same;
}

/* "0, 2-5": the shards with this outcome. */
static void tell_shards(struct told *told, const struct shard_outcome *list, uint32_t n,
                        const struct shard_outcome *o)
{
    const char *before = "";
    for (uint32_t i = 0; i < n; i++) {
        uint32_t first = list[i].shard, last = first;
        if (!is_same(&list[i], o))
            continue;
        for (; i + 1 < n && list[i + 1].shard == last + 1 && is_same(&list[i + 1], o); i++)
            last++;
        tell(told, first == last ? "%s%u" : "%s%u-%u", before, first, last);
        before = ", ";
    }
}

static void tell_outcome(struct told *told, const struct shard_outcome *list, uint32_t n,
                         enum outcome outcome)
{
    for (uint32_t i = 0; i < n; i++) {
        const struct shard_outcome *o = &list[i];
        if (o->outcome != outcome || count_same(list, i, o) > 0)
            continue;
        bool is_one = count_same(list, n, o) == 1;
        tell(told, "; %s %s ", words[outcome], is_one ? "shard" : "shards");
        tell_shards(told, list, n, o);
        if (o->status != EMBD_OK)
            tell(told, " (%s)", embd_status_text(o->status));
    }
}

int embd__outcomes_say(struct embd__error *e, const struct embd__error *first,
                       const struct shard_outcome *list, uint32_t n, const char *parted)
{
    struct told told = {.bytes = 0};
    for (int o = 0; o < OUTCOMES && differ(list, n); o++)
        tell_outcome(&told, list, n, (enum outcome)o);
    const char *end = parted != NULL ? parted : "";
    int room = (int)(LIMIT_ERROR_TEXT - 1 - told.bytes - strlen(end));
    return embd__error_set(e, parted != NULL ? EMBD_MOVED : first->status, "%.*s%s%s", room,
                           first->text, told.text, end);
}
