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
