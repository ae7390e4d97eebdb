/* pushers_inside.h - what pushers.c and rolled.c share: the streams in their array. */
#ifndef EMBD_ENGINE_PUSHERS_INSIDE_H
#define EMBD_ENGINE_PUSHERS_INSIDE_H

#include "server/engine/pushers.h"

struct pusher_stream {
    uint64_t high, low, last;
    uint64_t
        seen_ns; /* when it last pushed, or was opened; does not fall along a principal's list */
    /* With TABLES_BEYOND: no push behind this one is missing in the journal; 0: none is. */
    uint64_t lost;
    uint64_t chosen_ns; /* when it was decided that it goes; 0: never */
    uint32_t stream;
    uint32_t principal;    /* in principals */
    uint32_t chained;      /* the next of its bucket, or that is free */
    uint32_t older, newer; /* 0: none */
    bool is_rolled;        /* while its tables are replaced: it has its position */
};

struct principal {
    uint64_t id;
    uint32_t n; /* streams; 0: it is free */
    uint32_t oldest, newest;
    uint32_t chained;
};

struct principal_place {
    uint64_t id;
    uint32_t at; /* in principals */
};

/* All at once, so that nothing can fail later; the system gives pages as they are used. */
int pushers_open_memory(struct pushers *pushers, struct embd__error *e);

/* In `streams`; 0: none. */
uint32_t pushers_find(const struct pushers *pushers, const struct push_number *stream);
void pushers_forget(struct pushers *pushers, uint32_t i);
/* Calls `fn` for each stream, which it may forget. */
void pushers_each(struct pushers *pushers, void (*fn)(struct pushers *, uint32_t, const void *),
                  const void *arg);
/* The stream is as the entry says, and the last to go. There is room for it. Its place. */
uint32_t pushers_put(struct pushers *pushers, const struct push_stream *entry,
                     const struct table_set *tables, uint64_t now_ns);

static inline struct push_number pushers_number_of(const struct push_stream *entry)
{
    return (struct push_number){.high = entry->high, .low = entry->low, .stream = entry->stream};
}

#endif
