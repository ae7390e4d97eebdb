/* access_inside.h - a list of tokens, as access.c reads it and tokens.c searches it. */
#ifndef EMBD_ACCESS_INSIDE_H
#define EMBD_ACCESS_INSIDE_H

#include <stdatomic.h>

#include "server/access/access.h"

struct access {
    atomic_uint n_owners;
    uint32_t n, capacity;
    struct grant *grants; /* [capacity] */
};

#endif
