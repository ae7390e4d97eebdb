/* journaled.h - a shard whose tables are kept in a journal, in a directory of its own, and what
 * changes them. */
#ifndef EMBD_TESTS_SERVER_JOURNALED_H
#define EMBD_TESTS_SERVER_JOURNALED_H

#include "tests/server/batch.h"
#include "tests/server/rig.h"

struct journaled {
    char dir[64];
    struct rig rig;
};

/* Starts in a new directory. */
void journaled_new(struct journaled *j);
void journaled_start(struct journaled *j);
void journaled_stop(struct journaled *j);
/* Stops, and removes the directory. */
void journaled_end(struct journaled *j);

/* As a power cut may leave it: nothing says how far the journal was on disk. */
void forget_reached(const char *dir);

/* dim 4, adam. */
embd_schema kept_schema(const char *name, embd_durability durability);

/* A gradient of 4 columns for each key. */
struct part part_of(const char *table, const uint64_t *keys, uint32_t n, const float *grads);

void push_batch(struct rig *rig, const embd_schema *schema);
/* Gradients for keys 1 and 2. */
void push_two(struct rig *rig, const char *name, float value);
void erase_one(struct rig *rig, const char *name);
void drop_table(struct rig *rig, const char *name);

#endif
