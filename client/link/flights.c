/* flights.c - a short list in an array. */
#include "client/link/flights.h"

#include <stddef.h>
#include <string.h>

#include "proto/assert.h"

void embd__flights_add(struct flights *flights, uint32_t msgid, struct exchange *x)
{
    EMBD_ASSERT(flights->n < sizeof flights->list / sizeof *flights->list);
    flights->list[flights->n++] = (struct flight){msgid, x};
}

struct flight *embd__flights_find(struct flights *flights, uint32_t msgid)
{
    for (uint32_t i = 0; i < flights->n; i++)
        if (flights->list[i].msgid == msgid)
            return &flights->list[i];
    return NULL;
}

void embd__flights_remove(struct flights *flights, struct flight *flight)
{
    EMBD_ASSERT(flight >= flights->list && flight < flights->list + flights->n);
    size_t after = (size_t)(flights->list + flights->n - (flight + 1));
    memmove(flight, flight + 1, after * sizeof *flight);
    flights->n--;
}
