/* cuts_known.c - see cuts_known.h. */
#include "server/snapshot/cuts_known.h"

#include <string.h>

#include <xxhash.h>

bool cuts_known_has(const struct cuts_known *cuts, uint64_t id)
{
    for (uint32_t i = 0; i < cuts->n; i++)
        if (cuts->list[i].id == id)
            return true;
    return false;
}

static void take_out(struct cuts_known *cuts, uint32_t at)
{
    cuts->n--;
    memmove(&cuts->list[at], &cuts->list[at + 1], (cuts->n - at) * sizeof cuts->list[0]);
}

/* The oldest of those with that scope, if they are CUTS_KNOWN; else the oldest of all, if they fill
 * the list. */
static void make_room(struct cuts_known *cuts, uint64_t scope)
{
    uint32_t n = 0, oldest = 0;
    for (uint32_t i = cuts->n; i > 0; i--)
        if (cuts->list[i - 1].scope == scope) {
            n++;
            oldest = i - 1;
        }
    if (n == CUTS_KNOWN)
        take_out(cuts, oldest);
    else if (cuts->n == CUTS_LISTED)
        take_out(cuts, 0);
}

void cuts_known_add(struct cuts_known *cuts, uint64_t id, const struct table_scope *scope)
{
    uint64_t number = XXH3_64bits(scope, sizeof *scope); /* what is not used of it is zero */
    if (id == 0 || cuts_known_has(cuts, id))
        return;
    make_room(cuts, number);
    cuts->list[cuts->n].id = id;
    cuts->list[cuts->n++].scope = number;
}
