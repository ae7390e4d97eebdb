/* replicated.h - answers that wait for followers.
 *
 * A change of a table of durability `replicated` is written and applied here like one of a
 * `buffered` table, and its answer is made. It is sent once `replicas` followers have applied the
 * change too; of `replicated_durable`, once they have it on their disks. Followers say what they
 * have with each question (feeding.h). Reads wait for nothing.
 *
 * What can fail is that followers are missing. Answers to pushes go on waiting, until the caller's
 * deadline: the change is there, and a numbered push is sent again by its number. After
 * REPLICATED_PATIENCE_NS without enough followers changes of tables that wait are answered with a
 * text that says why, and new changes are refused with it, before they are written.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_SERVICE_REPLICATED_H
#define EMBD_SERVICE_REPLICATED_H

#include "server/engine/op.h"
#include "server/service/shard.h"

#define REPLICATED_PATIENCE_NS 10000000000u /* a follower is started again meanwhile */

struct replicated {
    uint32_t n;             /* followers that take the records of this journal now */
    uint64_t lacks_ns;      /* since when they are fewer than config.replicas; 0: they are not */
    uint64_t applied, disk; /* records before these are with enough followers, so far */
    struct request *first, *last; /* whose answers wait, in the order in which they were made */
    uint32_t n_waiting, n_synced; /* n_synced: of them, those that wait for disks */
};

/* With failover, servers of that many shards: what they do together waits for followers. */
void replicated_note_servers(struct shard *shard, uint32_t n_shards);

/* The shard serves from now on: followers have that long to come. */
void replicated_begin(struct shard *shard);

/* EMBD_BUSY: the operation, which is admitted, would wait, and followers have been missing for
 * long. Not asked of pushes that are there already. */
int replicated_check(const struct shard *shard, const struct op *op, struct embd__error *e);

/* Whether replicated_check may refuse a push: a table of it is replicated, and followers are
 * missing. */
static inline bool replicated_may_refuse(const struct replicated *replicated, const struct op *op)
{
    bool is_replicated = false;
    for (uint32_t i = 0; i < op->n_parts && replicated->lacks_ns != 0; i++)
        is_replicated |= embd__durability_is_replicated(op->parts[i].table->schema.s.durability);
    return is_replicated;
}

/* The push was applied before: its answer waits as the first one did. */
void replicated_again(struct op *op);

/* The request is answered, but for the sending. True: it waits; it is sent later. */
bool replicated_keeps(struct shard *shard, struct request *request);

/* Followers have more, have come or have gone: sends the answers that need not wait any more. */
void replicated_look(struct shard *shard);

static inline bool replicated_waits(const struct replicated *replicated)
{
    return replicated->first != NULL;
}

/* The request, or its connection, is going. */
void replicated_forget(struct shard *shard, struct request *request);

#endif
