/* turns.c - see turns.h. */
#include "server/coordinator/turns.h"

#include <string.h>

static void remove_at(struct turns *turns, uint32_t i)
{
    turns->n--;
    memmove(turns->list + i, turns->list + i + 1, (turns->n - i) * sizeof turns->list[0]);
}

static uint32_t find(const struct turns *turns, uint64_t principal)
{
    uint32_t i = 0;
    while (i < turns->n && turns->list[i].principal != principal)
        i++;
    return i;
}

bool turns_is_next(struct turns *turns, uint64_t principal, uint64_t now_ns)
{
    while (turns->n > 0 && now_ns >= turns->list[0].until_ns)
        remove_at(turns, 0);
    return turns->n == 0 || turns->list[0].principal == principal;
}

void turns_wait(struct turns *turns, uint64_t principal, uint64_t now_ns)
{
    uint32_t i = find(turns, principal);
    if (i == TURNS_MAX)
        return;
    if (i == turns->n)
        turns->n++;
    turns->list[i].principal = principal;
    turns->list[i].until_ns = now_ns + (principal == 0 ? TURN_ADMIN_NS : TURN_TRAINER_NS);
}

bool turns_has_other(const struct turns *turns, uint64_t principal, uint64_t now_ns)
{
    for (uint32_t i = 0; i < turns->n; i++)
        if (turns->list[i].principal != principal && now_ns < turns->list[i].until_ns)
            return true;
    return false;
}

void turns_take(struct turns *turns, uint64_t principal)
{
    uint32_t i = find(turns, principal);
    if (i < turns->n)
        remove_at(turns, i);
}

/* ---- resting ---- */

static void remove_ended(struct turns *turns, uint64_t now_ns)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < turns->n_rests; i++)
        if (now_ns < turns->rests[i].until_ns)
            turns->rests[n++] = turns->rests[i];
    turns->n_rests = n;
}

/* Of more than there is room for, who has the least left rests no more. */
static uint32_t find_least(const struct turns *turns)
{
    uint32_t least = 0;
    for (uint32_t i = 1; i < turns->n_rests; i++)
        if (turns->rests[i].until_ns < turns->rests[least].until_ns)
            least = i;
    return least;
}

void turns_rest(struct turns *turns, uint64_t principal, uint64_t held_ns, uint64_t now_ns)
{
    if (principal == 0 || held_ns == 0)
        return;
    turns_take(turns, principal);
    remove_ended(turns, now_ns);
    uint32_t i = turns->n_rests < TURNS_MAX ? turns->n_rests++ : find_least(turns);
    turns->rests[i].principal = principal;
    turns->rests[i].until_ns = now_ns + held_ns;
}

uint64_t turns_left_ns(const struct turns *turns, uint64_t principal, uint64_t now_ns)
{
    for (uint32_t i = 0; i < turns->n_rests; i++)
        if (turns->rests[i].principal == principal && now_ns < turns->rests[i].until_ns)
            return turns->rests[i].until_ns - now_ns;
    return 0;
}
