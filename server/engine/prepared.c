/* prepared.c - see prepared.h. */
#include "server/engine/prepared.h"

#include <stdlib.h>
#include <string.h>

static struct placement *placement_copy(const struct placement *from, struct embd__error *e)
{
    struct placement *copy = malloc(sizeof *copy);
    if (copy == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a placement");
    else
        *copy = *from;
    return copy;
}

int prepared_copy(const struct prepared *from, struct prepared *out, struct embd__error *e)
{
    *out = *from;
    out->back[0].list = out->back[1].list = NULL;
    out->place = NULL;
    for (int kind = 0; kind < 2 && e->status == EMBD_OK; kind++) {
        const struct rollback *back = &from->back[kind];
        struct push_stream *list = malloc((back->n + 1) * sizeof *list);
        if (list == NULL)
            embd__error_set(e, EMBD_NO_MEMORY, "no memory for %u streams", back->n);
        else if (back->n > 0)
            memcpy(list, back->list, back->n * sizeof *list);
        out->back[kind].list = list;
    }
    if (e->status == EMBD_OK && from->place != NULL)
        out->place = placement_copy(from->place, e);
    if (e->status != EMBD_OK)
        prepared_fini(out);
    return e->status;
}

void prepared_fini(struct prepared *prepared)
{
    for (int kind = 0; kind < 2; kind++)
        free((void *)(uintptr_t)prepared->back[kind].list);
    free(prepared->place);
    *prepared = (struct prepared){.id = 0};
}
