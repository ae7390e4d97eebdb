/* written.h - the parts that the shards of a process have written for a snapshot. The shard that
 * commits compares its request with them, so that no manifest says anything else. In memory, for
 * each shard the last. Any thread. */
#ifndef EMBD_SNAPSHOT_WRITTEN_H
#define EMBD_SNAPSHOT_WRITTEN_H

#include "server/snapshot/snapshot.h"

struct written_part {
    char table[EMBD_NAME_MAX + 1];
    struct manifest_part part;
    uint64_t step;
};

struct written;

/* For shards first .. first + n. NULL: out of memory. */
struct written *written_new(uint32_t first, uint32_t n);
void written_free(struct written *written); /* NULL is allowed */
/* The process has so many shards of the cluster from now on, no more than it was made for. */
void written_set_shards(struct written *written, uint32_t n);

/* Another snapshot begins: nothing is written for it. */
void written_forget(struct written *written);

/* All that the shard has written for `name`. EMBD_NO_MEMORY. */
int written_note(struct written *written, uint32_t shard, const char *name,
                 const struct written_part *parts, uint32_t n,
                 const struct manifest_streams *streams, struct embd__error *e);

/* Whether that was written for `name`. EMBD_INVALID names the field, the request's value and the
 * written one. */
int written_check_part(struct written *written, const char *name, const struct written_part *told,
                       struct embd__error *e);
int written_check_streams(struct written *written, const char *name,
                          const struct manifest_streams *told, struct embd__error *e);

/* Whether the request has told of that part so far, also one that is left out. */
bool written_tells_part(const struct snapshot_parts *told, const char *table, uint32_t shard);
/* Whether the request is complete: each part, and the pushers of each shard. EMBD_INVALID names
 * what is missing. */
int written_check_all(struct written *written, const char *name, const struct snapshot_parts *told,
                      struct embd__error *e);

#endif
