/* image.h - what the tables of a cluster must hold at one moment: a model for each table and shard,
 * and how far the numbered pushes have come. Nothing here asks a server. */
#ifndef EMBD_TESTS_IMAGE_OF_CLUSTER_H
#define EMBD_TESTS_IMAGE_OF_CLUSTER_H

#include "tests/model/model.h"

#define TABLES_MAX 4u
#define SHARDS_MAX 5u

/* Tables with a journal, and those that snapshots alone keep. A table's number decides. */
enum kind { JOURNALED, UNJOURNALED, KINDS };

static inline enum kind kind_of(uint32_t table)
{
    return table < TABLES_MAX / 2 ? JOURNALED : UNJOURNALED;
}

struct image_table {
    bool is_there;
    uint32_t birth; /* no other table's, also of the same name */
    embd_schema schema;
    struct model *shards[SHARDS_MAX]; /* [n_shards] of the image */
};

/* Numbered pushes of the tables of one kind. */
struct image_stream {
    uint32_t number;
    uint64_t last;   /* push applied; 0: none */
    uint32_t tables; /* bits of those it has pushed to */
};
#define ANY_TABLE (1u << 31) /* it is not known which */

struct image {
    uint32_t n_shards;
    struct image_table tables[TABLES_MAX];
    struct image_stream streams[KINDS];
};

/* Which shard has a key, as PROTOCOL.md has it. */
uint32_t image_shard_of(const embd_schema *schema, uint32_t n_shards, uint64_t key, uint32_t slot);

void image_create(struct image *image, uint32_t table, const embd_schema *schema, uint32_t birth);
void image_drop(struct image *image, uint32_t table);
bool image_has_kind(const struct image *image, enum kind kind);
/* The same rows, states, candidates and steps on `n_shards` shards. image_fini ends a copy. */
struct image image_copy(const struct image *image, uint32_t n_shards);
/* `to` gets a copy of a table, or loses its own where `from` has none. */
void image_take_table(struct image *to, const struct image *from, uint32_t table);
/* The table becomes one of another definition. */
void image_redefine(struct image *image, uint32_t table, const embd_schema *to);
/* The table's bound, of n_before shards, is divided anew: no shard has less than its rows. */
void image_rebound(struct image *image, uint32_t table, uint32_t n_before);
void image_fini(struct image *image);

/* Whether every shard has room for its rows. */
bool image_fits(const struct image *image);
/* Adds the rows that another image has of the same tables. */
void image_add_rows(struct image *image, const struct image *other);

#endif
