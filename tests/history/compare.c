/* compare.c - part files of a dump against the models of their shards. */
#include "tests/history/compare.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER_BYTES       64u
#define BLOCK_HEADER_BYTES 24u

/* Where a part is read, and the model it is held against. */
struct part {
    const char *table;
    uint32_t shard;
    struct model *model;
    uint8_t *data;
    size_t bytes, at;
    uint64_t n_rows, n_candidates; /* so far */
    char *why;
    size_t why_bytes;
};

static bool differs(const struct part *p, const char *what, uint64_t is, uint64_t should_be)
{
    snprintf(p->why, p->why_bytes, "table %s, shard %u: %s is %" PRIu64 ", it should be %" PRIu64,
             p->table, p->shard, what, is, should_be);
    return false;
}

static bool key_differs(const struct part *p, const char *what, uint64_t key, uint32_t slot,
                        double is, double should_be)
{
    snprintf(p->why, p->why_bytes,
             "table %s, shard %u, key %" PRIu64 " of slot %u: %s is %.9g, it should be %.9g",
             p->table, p->shard, key, slot, what, is, should_be);
    return false;
}

/* ---- values ---- */

static float half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double x = exponent == 31 ? (fraction ? NAN : INFINITY)
               : exponent     ? ldexp(1024 + fraction, exponent - 25)
                              : ldexp(fraction, -24);
    return (float)(bits & 0x8000 ? -x : x);
}

static float value_at(const uint8_t *values, embd_dtype dtype, size_t i)
{
    float x;
    uint16_t bits;
    if (dtype == EMBD_DTYPE_F32) {
        memcpy(&x, values + 4 * i, sizeof x);
        return x;
    }
    memcpy(&bits, values + 2 * i, sizeof bits);
    if (dtype == EMBD_DTYPE_F16)
        return half(bits);
    uint32_t wide = (uint32_t)bits << 16;
    memcpy(&x, &wide, sizeof x);
    return x;
}

static bool same_bits(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0;
}

static size_t value_bytes_of(const embd_schema *schema)
{
    if (model_has_codes(schema->dtype))
        return 4 + (schema->dim + 3) / 4 * 4;
    return schema->dim * (schema->dtype == EMBD_DTYPE_F32 ? 4 : 2);
}

static bool codes_are_right(const struct part *p, const struct model_key *k, const uint8_t *row)
{
    uint8_t expected[4 + EMBD_DIM_MAX];
    size_t bytes = value_bytes_of(&p->model->schema);
    model_write_codes(p->model, k, expected);
    for (size_t i = 0; i < bytes; i++)
        if (row[i] != expected[i])
            return key_differs(p, "a byte of its codes", k->key, k->slot, row[i], expected[i]);
    return true;
}

static bool row_is_right(const struct part *p, const struct model_key *k, const uint8_t *values,
                         const uint8_t *states, size_t row)
{
    const embd_schema *schema = &p->model->schema;
    bool has_codes = model_has_codes(schema->dtype);
    if (has_codes && !codes_are_right(p, k, values + row * value_bytes_of(schema)))
        return false;
    for (uint32_t c = 0; c < schema->dim && !has_codes; c++) {
        float x = value_at(values, schema->dtype, row * schema->dim + c);
        if (!same_bits(x, k->w[c]))
            return key_differs(p, "a value", k->key, k->slot, x, k->w[c]);
    }
    for (uint32_t c = 0; c < p->model->state_floats; c++) {
        float x = value_at(states, EMBD_DTYPE_F32, row * p->model->state_floats + c);
        if (!same_bits(x, k->state[c]))
            return key_differs(p, "a state", k->key, k->slot, x, k->state[c]);
    }
    return true;
}

/* ---- blocks ---- */

/* The next array of a block, padded to 8 bytes; NULL where the part is too short. */
static const uint8_t *array(struct part *p, uint64_t bytes)
{
    const uint8_t *at = p->data + p->at;
    uint64_t padded = (bytes + 7) / 8 * 8;
    if (padded > p->bytes - p->at)
        return NULL;
    p->at += padded;
    return at;
}

static uint64_t key_at(const uint8_t *keys, size_t i)
{
    uint64_t key;
    memcpy(&key, keys + 8 * i, sizeof key);
    return key;
}

static uint32_t slot_at(const uint8_t *slots, bool has_slots, size_t i)
{
    uint16_t slot = 0;
    if (has_slots)
        memcpy(&slot, slots + 2 * i, sizeof slot);
    return slot;
}

/* The key's entry in the model, seen for the first time in this part. */
static struct model_key *take(const struct part *p, uint64_t key, uint32_t slot)
{
    struct model_key *k = model_find(p->model, key, slot);
    if (k == NULL || k->index == 1)
        return NULL;
    k->index = 1;
    return k;
}

static bool block_is_right(struct part *p, uint32_t n_rows, uint32_t n_candidates)
{
    const embd_schema *schema = &p->model->schema;
    bool has_slots = schema->partition == EMBD_PARTITION_SLOT;
    const uint8_t *keys = array(p, 8ull * n_rows), *slots = array(p, has_slots ? 2ull * n_rows : 0);
    const uint8_t *values = array(p, value_bytes_of(schema) * n_rows);
    const uint8_t *states = array(p, 4ull * p->model->state_floats * n_rows);
    const uint8_t *waiting = array(p, 8ull * n_candidates);
    const uint8_t *waiting_slots = array(p, has_slots ? 2ull * n_candidates : 0);
    const uint8_t *counts = array(p, 4ull * n_candidates);
    if (!keys || !slots || !values || !states || !waiting || !waiting_slots || !counts)
        return differs(p, "the end of the file", p->bytes, p->at);
    for (uint32_t i = 0; i < n_rows; i++) {
        uint64_t key = key_at(keys, i);
        uint32_t slot = slot_at(slots, has_slots, i);
        struct model_key *k = take(p, key, slot);
        if (k == NULL || !k->has_row)
            return key_differs(p, "the number of its rows", key, slot, k ? 1 : 2, k ? 0 : 1);
        if (!row_is_right(p, k, values, states, i))
            return false;
    }
    for (uint32_t i = 0; i < n_candidates; i++) {
        uint64_t key = key_at(waiting, i);
        uint32_t slot = slot_at(waiting_slots, has_slots, i), count;
        struct model_key *k = take(p, key, slot);
        memcpy(&count, counts + 4 * (size_t)i, sizeof count);
        if (k == NULL || k->sights != count)
            return key_differs(p, "the candidate's count", key, slot, count, k ? k->sights : 0);
    }
    p->n_rows += n_rows;
    p->n_candidates += n_candidates;
    return true;
}

static bool blocks_are_right(struct part *p)
{
    uint32_t counts[2];
    for (p->at = HEADER_BYTES; p->at + BLOCK_HEADER_BYTES <= p->bytes;) {
        memcpy(counts, p->data + p->at, sizeof counts);
        p->at += BLOCK_HEADER_BYTES;
        if (counts[0] == 0 && counts[1] == 0)
            break;
        if (!block_is_right(p, counts[0], counts[1]))
            return false;
    }
    if (p->at != p->bytes)
        return differs(p, "the end of the last block", p->at, p->bytes);
    if (p->n_rows != p->model->n_rows)
        return differs(p, "the number of rows", p->n_rows, p->model->n_rows);
    return p->n_candidates == p->model->n_candidates ||
           differs(p, "the number of candidates", p->n_candidates, p->model->n_candidates);
}

/* ---- parts ---- */

static bool read_file(const char *path, uint8_t **data_out, size_t *bytes_out)
{
    FILE *file = fopen(path, "rb");
    long bytes = file && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    *data_out = bytes >= 0 ? malloc((size_t)bytes + 1) : NULL;
    *bytes_out = bytes >= 0 ? (size_t)bytes : 0;
    bool is_read = *data_out && fseek(file, 0, SEEK_SET) == 0 &&
                   fread(*data_out, 1, *bytes_out, file) == *bytes_out;
    if (file)
        fclose(file);
    return is_read;
}

static bool part_is_right(const char *dir, struct part *p, const char *file)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, file);
    for (uint64_t i = 0; i < p->model->n_keys; i++)
        p->model->keys[i]->index = 0;
    bool is_right = read_file(path, &p->data, &p->bytes)
                        ? blocks_are_right(p)
                        : differs(p, "the bytes of its file", 0, 1);
    free(p->data);
    return is_right;
}

static bool table_is_right(const char *dir, const json_t *entry, const struct image *image,
                           char *why, size_t why_bytes)
{
    const char *name = json_string_value(json_object_get(json_object_get(entry, "schema"), "name"));
    const json_t *parts = json_object_get(entry, "parts"), *part;
    size_t i, at = TABLES_MAX;
    for (size_t t = 0; t < TABLES_MAX; t++)
        if (name && image->tables[t].is_there && strcmp(image->tables[t].schema.name, name) == 0)
            at = t;
    snprintf(why, why_bytes, "table %s of %zu parts is there, it should not be", name ? name : "",
             json_array_size(parts));
    if (at == TABLES_MAX || json_array_size(parts) != image->n_shards)
        return false;
    uint64_t most = 0;
    for (uint32_t s = 0; s < image->n_shards; s++)
        most = image->tables[at].shards[s]->step > most ? image->tables[at].shards[s]->step : most;
    json_array_foreach(parts, i, part)
    {
        uint32_t shard = (uint32_t)json_integer_value(json_object_get(part, "shard"));
        struct part p = {.table = name,
                         .shard = shard,
                         .model = image->tables[at].shards[shard % image->n_shards],
                         .why = why,
                         .why_bytes = why_bytes};
        const json_t *own = json_object_get(part, "step"),
                     *greatest = json_object_get(entry, "step");
        uint64_t step = (uint64_t)json_integer_value(greatest);
        if (step != most)
            return differs(&p, "the table's step", step, most);
        step = (uint64_t)json_integer_value(own ? own : greatest);
        if (step != p.model->step)
            return differs(&p, "the step", step, p.model->step);
        if (!part_is_right(dir, &p, json_string_value(json_object_get(part, "file"))))
            return false;
    }
    return true;
}

bool compare_dump(const char *dir, const struct image *image, char *why, size_t why_bytes)
{
    char path[512];
    size_t i, n = 0;
    snprintf(path, sizeof path, "%s/manifest.json", dir);
    json_t *manifest = json_load_file(path, 0, NULL), *entry,
           *tables = json_object_get(manifest, "tables");
    bool is_right = true;
    for (uint32_t t = 0; t < TABLES_MAX; t++)
        n += image->tables[t].is_there;
    if (json_array_size(tables) != n) {
        snprintf(why, why_bytes, "%zu tables are there, it should be %zu", json_array_size(tables),
                 n);
        is_right = false;
    }
    json_array_foreach(tables, i, entry) is_right =
        is_right && table_is_right(dir, entry, image, why, why_bytes);
    json_decref(manifest);
    return is_right;
}
