/* image.c - models of tables, copied and spread over shards. */
#include "tests/history/image.h"

#include <string.h>

static uint64_t mix64(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdULL;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

uint32_t image_shard_of(const embd_schema *schema, uint32_t n_shards, uint64_t key, uint32_t slot)
{
    if (schema->partition == EMBD_PARTITION_SLOT)
        return slot % n_shards;
    return schema->partition == EMBD_PARTITION_MODULO
               ? (uint32_t)(key % n_shards)
               : (uint32_t)((mix64(key) >> 54) * n_shards / 1024);
}

void image_create(struct image *image, uint32_t table, const embd_schema *schema, uint32_t birth)
{
    struct image_table *t = &image->tables[table];
    *t = (struct image_table){.is_there = true, .birth = birth, .schema = *schema};
    for (uint32_t s = 0; s < image->n_shards; s++)
        t->shards[s] = model_new(schema);
}

void image_drop(struct image *image, uint32_t table)
{
    struct image_table *t = &image->tables[table];
    for (uint32_t s = 0; t->is_there && s < image->n_shards; s++)
        model_free(t->shards[s]);
    *t = (struct image_table){0};
}

bool image_has_kind(const struct image *image, enum kind kind)
{
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (kind_of(i) == kind && image->tables[i].is_there)
            return true;
    return false;
}

static void add_key(struct image *to, struct image_table *table, const struct model_key *k)
{
    uint32_t shard = image_shard_of(&table->schema, to->n_shards, k->key, k->slot);
    if (k->has_row)
        model_copy_row(table->shards[shard], k);
    else if (k->sights > 0)
        model_set_candidate(table->shards[shard], k->key, k->slot, k->sights);
}

static void copy_table(struct image *to, const struct image *from, uint32_t table)
{
    const struct image_table *old = &from->tables[table];
    struct image_table *new = &to->tables[table];
    uint64_t most = 0;
    image_create(to, table, &old->schema, old->birth);
    for (uint32_t s = 0; s < from->n_shards; s++) {
        for (uint64_t i = 0; i < old->shards[s]->n_keys; i++)
            add_key(to, new, old->shards[s]->keys[i]);
        most = old->shards[s]->step > most ? old->shards[s]->step : most;
    }
    for (uint32_t s = 0; s < to->n_shards; s++)
        new->shards[s]->step = to->n_shards == from->n_shards ? old->shards[s]->step : most;
}

struct image image_copy(const struct image *image, uint32_t n_shards)
{
    struct image copy = {.n_shards = n_shards};
    memcpy(copy.streams, image->streams, sizeof copy.streams);
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (image->tables[i].is_there)
            copy_table(&copy, image, i);
    return copy;
}

void image_take_table(struct image *to, const struct image *from, uint32_t table)
{
    image_drop(to, table);
    if (from->tables[table].is_there)
        copy_table(to, from, table);
}

void image_redefine(struct image *image, uint32_t table, const embd_schema *to)
{
    struct image_table *t = &image->tables[table];
    for (uint32_t s = 0; s < image->n_shards; s++) {
        struct model *was = t->shards[s];
        t->shards[s] = model_redefine(was, to);
        model_free(was);
    }
    t->schema = *to;
}

/* How many places of keys, of *whole, the shard with the most of them has. */
static uint64_t most_places(const embd_schema *s, uint32_t n_shards, uint64_t *whole)
{
    uint64_t places[SHARDS_MAX] = {0}, most = 0;
    bool is_hash = s->partition == EMBD_PARTITION_HASH;
    *whole = is_hash ? 1024 : s->partition == EMBD_PARTITION_SLOT ? s->slots : n_shards;
    for (uint64_t v = 0; v < *whole; v++) {
        uint64_t of_shard = ++places[is_hash ? v * n_shards / 1024 : v % n_shards];
        most = of_shard > most ? of_shard : most;
    }
    return most;
}

void image_rebound(struct image *image, uint32_t table, uint32_t n_before)
{
    struct image_table *t = &image->tables[table];
    uint64_t whole, most = most_places(&t->schema, n_before, &whole);
    if (t->schema.on_full == EMBD_ON_FULL_GROW || t->schema.capacity == 0 ||
        n_before == image->n_shards)
        return;
    uint64_t rows = t->schema.capacity * whole / most;
    most = most_places(&t->schema, image->n_shards, &whole);
    uint64_t share = (rows * most + whole - 1) / whole;
    for (uint32_t s = 0; s < image->n_shards; s++)
        share = t->shards[s]->n_rows > share ? t->shards[s]->n_rows : share;
    for (uint32_t s = 0; s < image->n_shards; s++)
        t->shards[s]->schema.capacity = share;
    t->schema.capacity = share;
}

void image_fini(struct image *image)
{
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        image_drop(image, i);
}

bool image_fits(const struct image *image)
{
    for (uint32_t i = 0; i < TABLES_MAX; i++) {
        const struct image_table *t = &image->tables[i];
        for (uint32_t s = 0; t->is_there && s < image->n_shards; s++)
            if (t->schema.on_full != EMBD_ON_FULL_GROW && t->shards[s]->n_rows > t->schema.capacity)
                return false;
    }
    return true;
}

void image_add_rows(struct image *image, const struct image *other)
{
    for (uint32_t i = 0; i < TABLES_MAX; i++) {
        struct image_table *to = &image->tables[i];
        const struct image_table *from = &other->tables[i];
        bool is_same = to->is_there && from->is_there && to->birth == from->birth;
        for (uint32_t s = 0; is_same && s < other->n_shards; s++)
            for (uint64_t k = 0; k < from->shards[s]->n_keys; k++)
                if (from->shards[s]->keys[k]->has_row)
                    add_key(image, to, from->shards[s]->keys[k]);
    }
}
