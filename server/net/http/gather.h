/* gather.h - the reports of all shards of the process, by message: this thread asks each shard's
 * loop, the shard's thread writes its report, and this thread reads the reports when all have come.
 *
 * A shard that does not answer in GATHER_MS is marked silent. Its report is not read, since it may
 * be written at any moment, and the shard is not asked again before it has answered. Owner: the
 * thread of the loop given to gather_open. */
#ifndef EMBD_GATHER_H
#define EMBD_GATHER_H

#include "server/net/loop.h"
#include "server/service/metrics/report.h"

#define GATHER_MS 1000u

struct gather;

/* The report of one shard. */
struct shard_view {
    const struct shard_report *report; /* NULL: the shard is silent */
    const char *address;
};

/* Called on the owner's thread; views[n] live until it returns. */
typedef void gather_done(void *arg, const struct shard_view *views, uint32_t n);

/* `loops` [n] and `addresses` [n] outlive the gather. EMBD_NO_MEMORY. */
int gather_open(uv_loop_t *uv, struct loop *const *loops, char *const *addresses, uint32_t n,
                gather_done *done, void *arg, struct gather **out);

/* Asks all; `done` is called once for all calls made before it. */
void gather_ask(struct gather *gather);

/* Asks no more. The handles close with the owner's loop. */
void gather_stop(struct gather *gather);
/* After loop_close of all loops, and after the owner's loop has closed its handles. */
void gather_free(struct gather *gather);

#endif
