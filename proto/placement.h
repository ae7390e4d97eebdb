/* placement.h - which shard has which keys: the map of 1024 virtual shards (vshards) to shards.
 *
 * A key's vshard is the upper 10 bits of its hash. `modulo` and `slot` tables go by residues: there
 * are n_residues = base * (1024 / base) of them, and residue r is a vshard of the shard r % base of
 * the even map of `base` shards. So with that map they are on shard key % base and slot % base, as
 * if there were no vshards, and move with them where it changes. */
#ifndef EMBD_PROTO_PLACEMENT_H
#define EMBD_PROTO_PLACEMENT_H

#include "proto/errors.h"
#include "proto/route.h"

#define PLACEMENT_VSHARDS     1024u
#define PLACEMENT_VERSION_MAX (UINT64_C(1) << 53) /* JSON holds it */
#define PLACEMENT_SET_BYTES   128u                /* of a set of vshards */

struct placement {
    uint64_t version;  /* 1 or more; a later map has a greater one */
    uint32_t n_shards; /* of the cluster */
    uint32_t base;     /* of residues; 1 to 1024 */
    uint32_t n_residues;
    uint32_t n_filled; /* vshards, while it is made */
    bool is_even;      /* vshard v is of shard v * n_shards / 1024, and base is n_shards */
    uint16_t of_vshard[PLACEMENT_VSHARDS], of_residue[PLACEMENT_VSHARDS]; /* shards */
};

/* The shard of a key after its slot offset was added. slot < the table's slots. */
static inline uint32_t embd__placement_shard(const struct placement *p, embd_partition partition,
                                             uint32_t slot, uint64_t key)
{
    switch (partition) {
    case EMBD_PARTITION_MODULO:
        return p->of_residue[key % p->n_residues];
    case EMBD_PARTITION_SLOT:
        return p->of_residue[slot % p->n_residues];
    case EMBD_PARTITION_HASH:
        break;
    }
    return p->of_vshard[embd__mix64_high(key) >> 54];
}

/* A set of vshards, or of residues for tables that go by these: bit v % 8 of byte v / 8 says
 * whether v is in it. */
static inline bool embd__placement_set_has(const uint8_t *set, uint32_t v)
{
    return (set[v / 8] >> v % 8 & 1) != 0;
}
/* set [PLACEMENT_SET_BYTES]: those of a shard. */
void embd__placement_set(const struct placement *p, embd_partition partition, uint32_t shard,
                         uint8_t *set);

/* The map that every cluster begins with, unless another one is given. 1 <= n_shards <= 1024. */
void embd__placement_even(struct placement *p, uint64_t version, uint32_t n_shards);
/* Vshards in proportion to the shards' weights, in the order of the shards; equal weights make the
 * even map. weights [n_shards], at least one above 0. */
void embd__placement_weighted(struct placement *p, uint64_t version, uint32_t n_shards,
                              const uint32_t *weights);

/* The next version of `from`, in which the shards have vshards in proportion to their weights, and
 * as few as possible change their shard. weights [from->n_shards], at least one above 0. */
void embd__placement_rebalance(struct placement *p, const struct placement *from,
                               const uint32_t *weights);
/* The next version of `from`, in which n vshards from `first` on are on the shard `to`. */
void embd__placement_move(struct placement *p, const struct placement *from, uint32_t first,
                          uint32_t n, uint32_t to);
/* The next version of `from` with more shards, which have no vshards, or without its last ones,
 * which had none. */
void embd__placement_resize(struct placement *p, const struct placement *from, uint32_t n_shards);
/* Vshards that are on other shards in b. */
uint32_t embd__placement_moved(const struct placement *a, const struct placement *b);

/* A map of runs: the next `count` vshards are of `shard`. EMBD_INVALID: a number is out of range,
 * or the runs are not of 1024 vshards together. */
int embd__placement_begin(struct placement *p, uint64_t version, uint32_t n_shards, uint64_t base,
                          struct embd__error *e);
int embd__placement_add(struct placement *p, uint64_t shard, uint64_t count, struct embd__error *e);
int embd__placement_end(struct placement *p, struct embd__error *e);

/* The run that begins at vshard `first`: its vshards. */
uint32_t embd__placement_run(const struct placement *p, uint32_t first);
uint32_t embd__placement_runs(const struct placement *p);
/* Vshards of a shard. */
uint32_t embd__placement_count(const struct placement *p, uint32_t shard);
/* Whether both put every key on the same shard; their versions may differ. */
bool embd__placement_is_same(const struct placement *a, const struct placement *b);
/* Of version, base and shards: two maps with the same one are the same. Never 0. */
uint64_t embd__placement_digest(const struct placement *p);

#endif
