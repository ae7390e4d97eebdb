/* figures.h - the figures of all shards at one moment, for every command that shows some of them.
 * Names and units are those of proto/PROTOCOL.md. */
#ifndef EMBCTL_FIGURES_H
#define EMBCTL_FIGURES_H

#include <stdbool.h>
#include <stddef.h>

#include "embd/embd.h"

/* One figure of one table, or of the shards themselves. */
struct figure {
    char *table; /* NULL: of the shard */
    char *name;
    uint64_t *values; /* [n_shards] */
    bool *known;      /* [n_shards] */
};

struct figures {
    struct figure **list; /* [n], in the order of the shards' answers */
    size_t n;
    void *index; /* the same by table and name, a tree of tsearch */
    uint32_t n_shards;
    bool *is_up;            /* [n_shards] have answered */
    double at;              /* seconds of the monotonic clock */
    const char *only_table; /* NULL: figures of everything */
    uint32_t shard;         /* being read */
};

struct sums {
    uint64_t total, least, most;
};

/* Reads every shard. EMBD_NO_MEMORY, or the error of the first shard that fails, which ends it.
 * figures_free is due in any case. */
int figures_read(embd_client *client, const char *only_table, struct figures *out);

/* The same shard by shard, for those who go on where one fails: figures_open, then each shard. */
int figures_open(embd_client *client, const char *only_table, struct figures *out);
int figures_read_shard(embd_client *client, uint32_t shard, struct figures *f);
/* Every shard that answers; the others are named on stderr. EMBD_UNREACHABLE: one did not;
 * EMBD_NO_MEMORY. */
int figures_read_some(embd_client *client, const char *only_table, struct figures *out);
void figures_free(struct figures *f);

/* NULL: no shard has it. */
const struct figure *figures_find(const struct figures *f, const char *table, const char *name);

/* Over the shards that have it; zeros for NULL. The total of what does not add up (quantiles, ages,
 * states, steps) is the most. */
struct sums figures_sum(const struct figures *f, const struct figure *figure);

/* The figure of one shard; 0 if absent. */
uint64_t figures_get(const struct figures *f, uint32_t shard, const char *name);
/* The figure of one shard, added up over its tables. */
uint64_t figures_of_tables(const struct figures *f, uint32_t shard, const char *name);

/* Bytes that a table's rows and index take on all shards; and those of all tables on one shard. */
uint64_t figures_table_memory(const struct figures *f, const char *table);
uint64_t figures_shard_memory(const struct figures *f, uint32_t shard);

/* The tables one after the other, in the order of the answers: *at begins with 0. NULL: the end. */
const char *figures_next_table(const struct figures *f, size_t *at);

/* "ready", "loading", "refused" (its data directory is), "draining", or "silent": it did not
 * answer. */
const char *figures_state(const struct figures *f, uint32_t shard);

/* Whether a figure holds for one moment only: a quantile or an age. */
bool figures_is_momentary(const char *name);

/* How much a count grew in a second, rounded; 0 where it did not grow. */
uint64_t figures_rate(uint64_t now, uint64_t before, double seconds);

#endif
