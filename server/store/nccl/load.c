/* load.c - copies rows and candidates in: a block is cut by owner, and every member loads its
 * portion. */
#include "server/store/cuda/queue.h"
#include "server/store/nccl/group.h"

#include <stdlib.h>
#include <string.h>

/* One member's portion of a block, in memory of its own. */
struct portion {
    struct row_block block;
    uint64_t *keys, *candidate_keys;
    uint16_t *slots, *candidate_slots;
    uint8_t *rows;
    float *states;
    uint32_t *candidate_counts;
};

struct row_shape {
    uint64_t value_bytes, state_bytes;
    bool has_slots;
};

static struct row_shape shape_of_rows(const struct group *group)
{
    const struct table_view *t = &group->tables[0]->view;
    return (struct row_shape){embd__value_bytes(t->dtype, t->dim),
                              (uint64_t)t->state_floats * sizeof(float),
                              group->schema->s.partition == EMBD_PARTITION_SLOT};
}

static void portion_free(struct portion *portion)
{
    free(portion->keys);
    free(portion->candidate_keys);
    free(portion->slots);
    free(portion->candidate_slots);
    free(portion->rows);
    free(portion->states);
    free(portion->candidate_counts);
}

static bool portion_new(struct portion *portion, const struct row_shape *shape, uint64_t n_rows,
                        uint64_t n_candidates)
{
    *portion = (struct portion){
        .keys = malloc((n_rows + 1) * sizeof *portion->keys),
        .slots = malloc((n_rows + 1) * sizeof *portion->slots),
        .rows = malloc(n_rows * shape->value_bytes + 1),
        .states = malloc(n_rows * shape->state_bytes + 1),
        .candidate_keys = malloc((n_candidates + 1) * sizeof *portion->candidate_keys),
        .candidate_slots = malloc((n_candidates + 1) * sizeof *portion->candidate_slots),
        .candidate_counts = malloc((n_candidates + 1) * sizeof *portion->candidate_counts),
    };
    portion->block = (struct row_block){
        .keys = portion->keys,
        .slots = shape->has_slots ? portion->slots : NULL,
        .rows = portion->rows,
        .states = portion->states,
        .candidate_keys = portion->candidate_keys,
        .candidate_slots = shape->has_slots ? portion->candidate_slots : NULL,
        .candidate_counts = portion->candidate_counts,
    };
    return portion->keys && portion->slots && portion->rows && portion->states &&
           portion->candidate_keys && portion->candidate_slots && portion->candidate_counts;
}

static uint32_t owner(const struct group *group, const uint64_t *keys, const uint16_t *slots,
                      uint32_t i)
{
    return owner_of(group->schema->s.partition, group->n, keys[i], slots ? slots[i] : 0);
}

static void take_row(struct portion *portion, const struct row_shape *shape,
                     const struct row_block *block, uint32_t i)
{
    uint64_t to = portion->block.n_rows++;
    portion->keys[to] = block->keys[i];
    if (shape->has_slots)
        portion->slots[to] = block->slots[i];
    memcpy(portion->rows + to * shape->value_bytes,
           (const uint8_t *)block->rows + i * shape->value_bytes, shape->value_bytes);
    if (shape->state_bytes)
        memcpy((uint8_t *)portion->states + to * shape->state_bytes,
               (const uint8_t *)block->states + i * shape->state_bytes, shape->state_bytes);
}

static void take_candidate(struct portion *portion, const struct row_shape *shape,
                           const struct row_block *block, uint32_t i)
{
    uint32_t to = portion->block.n_candidates++;
    portion->candidate_keys[to] = block->candidate_keys[i];
    portion->candidate_counts[to] = block->candidate_counts[i];
    if (shape->has_slots)
        portion->candidate_slots[to] = block->candidate_slots[i];
}

/* False: no memory; the caller frees what was taken. */
static bool split(const struct group *group, const struct row_block *block,
                  struct portion *portions)
{
    struct row_shape shape = shape_of_rows(group);
    uint64_t n_rows[WIRE_MAX] = {0}, n_candidates[WIRE_MAX] = {0};
    for (uint32_t i = 0; i < block->n_rows; i++)
        n_rows[owner(group, block->keys, block->slots, i)]++;
    for (uint32_t i = 0; i < block->n_candidates; i++)
        n_candidates[owner(group, block->candidate_keys, block->candidate_slots, i)]++;
    bool fits = true;
    for (uint32_t d = 0; d < group->n; d++)
        fits &= portion_new(&portions[d], &shape, n_rows[d], n_candidates[d]);
    for (uint32_t i = 0; i < block->n_rows && fits; i++)
        take_row(&portions[owner(group, block->keys, block->slots, i)], &shape, block, i);
    for (uint32_t i = 0; i < block->n_candidates && fits; i++)
        take_candidate(&portions[owner(group, block->candidate_keys, block->candidate_slots, i)],
                       &shape, block, i);
    return fits;
}

/* ---- a bounded table: is there room? ---- */

struct load_key {
    uint64_t key;
    uint32_t slot;
};

static int compare(const void *a, const void *b)
{
    const struct load_key *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->slot > y->slot) - (x->slot < y->slot);
}

static void keep_status(struct store_done *done, int status)
{
    done->error.status = status;
}

/* Counts the distinct keys of a portion without a row. Negative: an error, in e. */
static int64_t count_new(struct store *table, const struct row_block *block, struct embd__error *e)
{
    uint32_t n = block->n_rows;
    struct store_done done = {.fn = keep_status};
    uint8_t *statuses = malloc(n + 1ull);
    uint8_t *values = malloc((uint64_t)n * table->view.dim * sizeof(float) + 1);
    struct load_key *keys = malloc((n + 1ull) * sizeof *keys);
    int64_t n_new = 0;
    uint32_t n_missing = 0;
    if (statuses && values && keys) {
        struct store_pull pull = {.in = {n, n, block->keys, NULL, block->slots, NULL},
                                  .zero_missing = true,
                                  .count = n,
                                  .values = values,
                                  .statuses = statuses};
        store_cuda.pull(table, &pull, &done);
        cuda_wait_all(table);
        cuda_collect(table);
        for (uint32_t i = 0; i < n && done.error.status == EMBD_OK; i++)
            if (statuses[i] == EMBD_KEY_MISSING)
                keys[n_missing++] =
                    (struct load_key){block->keys[i], block->slots ? block->slots[i] : 0};
        qsort(keys, n_missing, sizeof *keys, compare);
        for (uint32_t i = 0; i < n_missing; i++)
            n_new += i == 0 || compare(&keys[i - 1], &keys[i]) != 0;
    } else {
        embd__error_set(&done.error, EMBD_NO_MEMORY, "no memory to load %u rows", n);
    }
    free(statuses);
    free(values);
    free(keys);
    *e = done.error;
    return done.error.status == EMBD_OK ? n_new : -1;
}

static int check_room(struct group *group, const struct portion *portions, struct embd__error *e)
{
    const embd_schema *s = &group->schema->s;
    uint64_t n_rows = 0;
    if (s->on_full == EMBD_ON_FULL_GROW || s->capacity == 0)
        return EMBD_OK;
    for (uint32_t d = 0; d < group->n; d++) {
        int64_t n_new = count_new(group->tables[d], &portions[d].block, e);
        if (n_new < 0)
            return e->status;
        n_rows += group->tables[d]->n_rows + (uint64_t)n_new;
    }
    if (n_rows > s->capacity)
        return embd__error_set(e, EMBD_FULL, "table %s: the block needs %llu rows of capacity %llu",
                               s->name, (unsigned long long)n_rows,
                               (unsigned long long)s->capacity);
    return EMBD_OK;
}

/* If a member runs out of memory after others loaded rows, half a block is loaded: the group fails
 * for good. */
static int load_portions(struct group *group, const struct portion *portions, struct embd__error *e)
{
    for (uint32_t d = 0; d < group->n; d++) {
        int status = device_use(group->tables[d]->device);
        group->tables[d]->n_rows_max = REF_ROWS_MAX;
        if (status != 0)
            return group_error(group, status, "loading rows", e);
        if (cuda_load(group->tables[d], &portions[d].block, e) == EMBD_OK)
            continue;
        struct embd__error cause = *e;
        if (d > 0 || group->tables[d]->failed)
            group_error(group, WIRE_LOST, "loading rows", e);
        *e = cause;
        return e->status;
    }
    return EMBD_OK;
}

/* Members have the latest of all rows. */
static void meet_clocks(struct group *group)
{
    uint64_t clock = 0;
    for (uint32_t d = 0; d < group->n; d++)
        clock = group->tables[d]->clock > clock ? group->tables[d]->clock : clock;
    for (uint32_t d = 0; d < group->n; d++)
        group->tables[d]->clock = clock;
}

int group_load(struct group *group, const struct row_block *block, struct embd__error *e)
{
    struct portion portions[WIRE_MAX];
    memset(portions, 0, sizeof portions);
    flow_wait_all(group);
    e->status = EMBD_OK;
    if (group->failed)
        return embd__error_set(e, EMBD_INTERNAL, "%s", group->why);
    if (!split(group, block, portions))
        embd__error_set(e, EMBD_NO_MEMORY, "table %s: no memory to load rows",
                        group->schema->s.name);
    else if (check_room(group, portions, e) == EMBD_OK)
        load_portions(group, portions, e);
    meet_clocks(group);
    for (uint32_t d = 0; d < group->n; d++)
        portion_free(&portions[d]);
    return e->status;
}
