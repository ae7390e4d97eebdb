/* base.h - a journal that has grown long begins anew with what its tables hold. */
#ifndef EMBD_SHARD_BASE_H
#define EMBD_SHARD_BASE_H

#include "server/shard/state.h"

/* From now on it may, where it is worth it, though it has not grown beyond the limit. */
void base_ask(struct shard *shard);

/* Begins where it is due; when something is under way, the shard comes to rest first. */
void base_look(struct shard *shard);

/* While it comes to rest: whether what touches tables so has to wait. */
static inline bool base_stops(const struct shard *shard, enum touch touch)
{
    if (!shard->base_rests)
        return false;
    bool is_change = touch == TOUCH_CHANGES || touch == TOUCH_STRUCTURE;
    return is_change || (touch == TOUCH_READS && shard->hold.n_in_flight > shard->n_journaled);
}

/* Hands rows over, and takes note of the end. True: it is to be called again soon. */
bool base_collect(struct shard *shard);

/* Tables are needed for something else: what is not yet copied of them is given up. */
void base_give_up(struct shard *shard);

/* Whether it is due or not, and at once; nothing may be under way. After an error the journal is as
 * it was. */
int base_make_now(struct shard *shard, struct embd__error *e);

struct base_figures {
    uint64_t bytes, base_bytes; /* of the journal, and of its base */
    uint64_t base_age_us;       /* 0: there is none, or not known */
    uint64_t syncs, sync_us, sync_longest_us;
};
struct base_figures base_figures(const struct shard *shard);

/* Ends what is being written. */
void base_close(struct shard *shard);

#endif
