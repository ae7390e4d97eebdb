/* maps.h - which map of keys each shard of a process that follows has: together they have one.
 *
 * Each shard follows a journal of its own, and may be behind the others. Where keys moved, a shard
 * that has the later map, beside one that lacks the rows that came, would have lost them: the
 * server could not be promoted. So a shard goes on with the later map only where that is complete:
 * shard 0 when all others are prepared (their records before that have the rows), the others behind
 * shard 0. What they lack then, shard 0's decision gives them (server/service/doubt.h).
 *
 * A base may bring a later map at once. Until the other shards are as far, none is promoted.
 *
 * The process may have room for more shards than the cluster has. Those behind the cluster's are
 * spare: they have no tables that count, and no say. Where the cluster gets more shards, shard 0
 * goes on once they are prepared, too. How many there are, its map says. Any thread. */
#ifndef EMBD_FOLLOW_MAPS_H
#define EMBD_FOLLOW_MAPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct follow_maps;

/* Of a shard. */
struct follow_map {
    uint64_t version;  /* of its map; 0: it has no tables yet */
    uint32_t n_shards; /* of the cluster, by that map */
    uint64_t decision; /* by which it has it; 0: by none */
    uint64_t prepared; /* that it waits for, of a map; 0: none */
    bool is_settled;   /* it can do nothing more with the records that it has */
    bool is_connected; /* its server answers */
};

/* `n_shards`: of the process. `wake` has every shard look. NULL: no memory. */
/* Of shards first to first + n_shards - 1; `is_part`: the cluster may have others, which other
 * processes follow. NULL: no memory. */
struct follow_maps *follow_maps_new(uint32_t first, uint32_t n_shards, bool is_part,
                                    void (*wake)(void *arg), void *arg);
/* The process has room for so many, LIMIT_SHARDS at most. */
void follow_maps_set_room(struct follow_maps *maps, uint32_t n_shards);
uint32_t follow_maps_room(struct follow_maps *maps);
void follow_maps_free(struct follow_maps *maps); /* NULL is allowed */

void follow_maps_note(struct follow_maps *maps, uint32_t shard, const struct follow_map *map);

/* Whether the shard may have the map of that version, decision and number of shards. */
bool follow_maps_may_move(struct follow_maps *maps, uint32_t shard, const struct follow_map *next);
/* Whether all shards have said what they have. */
bool follow_maps_are_known(struct follow_maps *maps);
/* Of the cluster, by shard 0's map, whose version *version_out is; 0: shard 0 has no tables. */
uint32_t follow_maps_shards(struct follow_maps *maps, uint64_t *version_out);
/* How many shards from the first have tables, and are connected. */
uint32_t follow_maps_bases(struct follow_maps *maps);
/* Whether all shards are settled. */
bool follow_maps_are_settled(struct follow_maps *maps);
/* Whether the cluster's shards have tables, and, with what shard 0 has decided, one map; else
 * `why_out`. */
bool follow_maps_agree(struct follow_maps *maps, char *why_out, size_t why_bytes);

#endif
