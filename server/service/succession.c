/* succession.c - see succession.h. */
#include "server/service/succession.h"

#include <string.h>

#include "server/journal/record.h"
#include "server/journal/tail.h"

void succession_begin(struct succession *s, const struct tail_place *place, uint64_t position,
                      uint64_t chain)
{
    *s = (struct succession){.position = 0};
    if (place->position != position || place->offset != 0)
        return; /* a record was on its way */
    s->position = position;
    s->chain = place->chain;
    s->own = chain;
}

static bool note_told(struct succession *s, uint64_t who)
{
    for (uint32_t i = 0; i < s->n_told; i++)
        if (s->told[i] == who)
            return false;
    if (s->n_told == SUCCESSION_MOST)
        return false;
    s->told[s->n_told++] = who;
    return true;
}

bool succession_take(struct succession *s, struct follow_ask *ask)
{
    bool is_same = s->position != 0 && !ask->is_base && !ask->reads && ask->offset == 0 &&
                   ask->position == s->position && ask->chain == s->chain && s->chain != s->own;
    uint64_t who =
        ask->start != 0 ? ask->start : record_sum((const uint8_t *)ask->name, strlen(ask->name));
    if (!is_same || !note_told(s, who))
        return false;
    ask->chain = s->own;
    ask->file = ask->at = 0;
    return true;
}
