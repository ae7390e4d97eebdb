/* flights.h - requests of one connection that wait for their answers, by msgid. */
#ifndef EMBD_CLIENT_FLIGHTS_H
#define EMBD_CLIENT_FLIGHTS_H

#include <stdint.h>

#include "proto/limit.h"

struct exchange;

struct flight {
    uint32_t msgid;
    struct exchange *x; /* NULL: forgotten, its answer will be dropped */
};

/* In the order sent; answers mostly come in that order, so the search is short. */
struct flights {
    struct flight list[LIMIT_REQUESTS_IN_FLIGHT];
    uint32_t n;
};

/* There is room: n < LIMIT_REQUESTS_IN_FLIGHT. */
void embd__flights_add(struct flights *flights, uint32_t msgid, struct exchange *x);
/* NULL: no such msgid was asked. Valid until the next add or remove. */
struct flight *embd__flights_find(struct flights *flights, uint32_t msgid);
void embd__flights_remove(struct flights *flights, struct flight *flight);

#endif
