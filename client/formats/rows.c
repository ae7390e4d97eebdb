/* rows.c - embd/rows.h: rows of given keys, out of and into the shards that own them.
 *
 * The happy path: keys are put in the order of their shards, stable; each shard's keys go in
 * batches, one request after the other, through one buffer of the size of a batch. What can fail:
 * memory for order and buffer, or a shard. */
#include "embd/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/client.h"
#include "client/core/request.h"
#include "proto/convert.h"
#include "proto/keyed.h"
#include "proto/route.h"
#include "proto/structs.h"

#define BATCH_BYTES (4u << 20)

/* One batch at a time; arrays of `most` rows in `memory`. */
struct batch {
    uint32_t most, n;
    const uint64_t *places; /* [n] places of its rows in the caller's arrays */
    uint64_t *keys;
    uint16_t *slots; /* slot tables only */
    uint8_t *rows;   /* of the table's dtype */
    float *states;
    void *memory;
};

struct transfer {
    embd_client *client;
    embd_rows of;
    const embd_schema *schema;
    enum method method;
    uint64_t row_bytes, value_bytes; /* of a row: the table's, the caller's */
    uint32_t n_floats;               /* of its state; 0: not wanted */
    uint64_t *order;                 /* [n_keys] places, by shard */
    uint64_t *starts;                /* [n_shards + 1] of each shard's in `order` */
    struct batch batch;
    uint32_t shard; /* that was asked last */
    uint64_t n_inserted;
};

uint32_t embd_table_state_floats(const embd_table *table)
{
    return embd__schema_state_floats(&table->schema.s);
}

/* ---- what is asked ---- */

static int take(struct transfer *t, embd_client *client, const embd_rows *rows, enum method method)
{
    struct embd__error *e = &client->error;
    *e = (struct embd__error){0};
    *t = (struct transfer){.client = client, .method = method};
    if (embd__take(embd_rows, &t->of, rows, e) != EMBD_OK)
        return e->status;
    if (t->of.table == NULL)
        return embd__error_set(e, EMBD_INVALID,
                               "rows.table is NULL; open one with embd_table_open");
    const embd_schema *s = t->schema = &t->of.table->schema.s;
    if (t->of.dtype != EMBD_DTYPE_F32 && t->of.dtype != s->dtype)
        return embd__error_set(e, EMBD_INVALID, "rows.dtype is %s; table '%s' allows f32 and %s",
                               embd_dtype_name(t->of.dtype), s->name, embd_dtype_name(s->dtype));
    bool has_slots = s->partition == EMBD_PARTITION_SLOT;
    if (t->of.n_keys > 0 && (t->of.slots != NULL) != has_slots)
        return embd__error_set(e, EMBD_INVALID, "rows.slots is %s, table '%s' has the partition %s",
                               has_slots ? "NULL" : "given", s->name,
                               embd_partition_name(s->partition));
    t->row_bytes = embd__value_bytes(s->dtype, s->dim);
    t->value_bytes = embd__value_bytes(t->of.dtype, s->dim);
    t->n_floats = t->of.states != NULL ? embd__schema_state_floats(s) : 0;
    return EMBD_OK;
}

/* Whether a number that is finite is infinite as f16 or bf16: it is nearest to one beyond their
 * largest. */
static bool becomes_infinite(float value, embd_dtype dtype)
{
    const uint32_t first = dtype == EMBD_DTYPE_F16 ? 0x477ff000u /* 65520 */ : 0x7f7f8000u;
    uint32_t magnitude = embd__f32_bits(value) & 0x7fffffffu;
    return magnitude >= first && magnitude < 0x7f800000u;
}

/* Before anything is sent. What is infinite already, the server refuses or admits. */
static int check_range(const struct transfer *t)
{
    embd_dtype dtype = t->schema->dtype;
    uint64_t dim = t->schema->dim, n = t->of.n_keys * dim;
    if (t->method != METHOD_PUT || t->of.dtype == dtype ||
        (dtype != EMBD_DTYPE_F16 && dtype != EMBD_DTYPE_BF16))
        return EMBD_OK;
    for (uint64_t i = 0; i < n; i++) {
        float value = ((const float *)t->of.values)[i];
        if (becomes_infinite(value, dtype))
            return embd__error_set(&t->client->error, EMBD_NOT_FINITE,
                                   "put: key %llu has %g in column %llu, which is infinite as %s, "
                                   "the dtype of table '%s'",
                                   (unsigned long long)t->of.keys[i / dim], (double)value,
                                   (unsigned long long)(i % dim), embd_dtype_name(dtype),
                                   t->schema->name);
    }
    return EMBD_OK;
}

static uint32_t owner(const struct transfer *t, uint64_t i)
{
    return embd__placement_shard(&t->client->placement, t->schema->partition,
                                 t->of.slots != NULL ? t->of.slots[i] : 0, t->of.keys[i]);
}

static void put_in_order(struct transfer *t)
{
    uint32_t n_shards = t->client->n_shards;
    memset(t->starts, 0, (n_shards + 1u) * sizeof *t->starts);
    for (uint64_t i = 0; i < t->of.n_keys; i++)
        t->starts[owner(t, i) + 1]++;
    for (uint32_t s = 0; s < n_shards; s++)
        t->starts[s + 1] += t->starts[s];
    for (uint64_t i = 0; i < t->of.n_keys; i++)
        t->order[t->starts[owner(t, i)]++] = i;
    for (uint32_t s = n_shards; s > 0; s--)
        t->starts[s] = t->starts[s - 1];
    t->starts[0] = 0;
}

/* ---- memory ---- */

static bool take_batch(struct transfer *t)
{
    struct batch *b = &t->batch;
    uint64_t each = 11 + t->row_bytes + t->n_floats * sizeof(float), n = BATCH_BYTES / each + 1;
    b->most = (uint32_t)(n < t->of.n_keys ? n : t->of.n_keys);
    uint64_t keys_bytes = b->most * 8ull, states_bytes = b->most * t->n_floats * sizeof(float),
             slots_bytes = (b->most * 2ull + 7) / 8 * 8;
    uint8_t *memory = b->memory =
        malloc(keys_bytes + states_bytes + slots_bytes + b->most * t->row_bytes + 8);
    if (memory == NULL)
        return false;
    b->keys = (uint64_t *)(void *)memory;
    b->states = (float *)(void *)(memory + keys_bytes);
    b->slots = (uint16_t *)(void *)(memory + keys_bytes + states_bytes);
    b->rows = memory + keys_bytes + states_bytes + slots_bytes;
    return true;
}

static int take_memory(struct transfer *t)
{
    uint64_t n = t->of.n_keys;
    if (n < SIZE_MAX / sizeof *t->order) {
        t->order = malloc(n * sizeof *t->order + 1);
        t->starts = calloc(LIMIT_SHARDS + 1u, sizeof *t->starts);
    }
    if (t->order != NULL && t->starts != NULL && take_batch(t))
        return EMBD_OK;
    return embd__error_set(&t->client->error, EMBD_NO_MEMORY, "no memory for %llu rows of '%s'",
                           (unsigned long long)n, t->schema->name);
}

static void give_memory(struct transfer *t)
{
    free(t->order);
    free(t->starts);
    free(t->batch.memory);
}

/* ---- one batch ---- */

static struct row_block block_of(const struct transfer *t)
{
    const struct batch *b = &t->batch;
    return (struct row_block){.n_rows = b->n,
                              .keys = b->keys,
                              .slots = b->slots,
                              .rows = b->rows,
                              .states = t->n_floats > 0 ? b->states : NULL};
}

static uint8_t *values_at(const struct transfer *t, uint32_t i)
{
    return (uint8_t *)t->of.values + t->batch.places[i] * t->value_bytes;
}

static float *state_at(const struct transfer *t, uint32_t i)
{
    return t->of.states + t->batch.places[i] * t->n_floats;
}

static void gather_keys(struct transfer *t)
{
    struct batch *b = &t->batch;
    for (uint32_t i = 0; i < b->n; i++) {
        b->keys[i] = t->of.keys[b->places[i]];
        if (t->of.slots != NULL)
            b->slots[i] = t->of.slots[b->places[i]];
    }
}

static void gather_rows(struct transfer *t)
{
    const struct batch *b = &t->batch;
    for (uint32_t i = 0; i < b->n; i++) {
        uint8_t *row = b->rows + i * t->row_bytes;
        if (t->of.dtype == t->schema->dtype)
            memcpy(row, values_at(t, i), t->row_bytes);
        else
            embd__row_from_f32(row, t->schema->dtype, (const float *)(const void *)values_at(t, i),
                               t->schema->dim);
        if (t->n_floats > 0)
            memcpy(b->states + (uint64_t)i * t->n_floats, state_at(t, i),
                   t->n_floats * sizeof(float));
    }
}

static void scatter_rows(struct transfer *t, const struct get_answer *answer)
{
    for (uint32_t i = 0; i < answer->n_keys; i++) {
        const uint8_t *row = (const uint8_t *)answer->rows + i * t->row_bytes;
        if (t->of.dtype == t->schema->dtype)
            memcpy(values_at(t, i), row, t->row_bytes);
        else
            embd__row_to_f32((float *)(void *)values_at(t, i), row, t->schema->dtype,
                             t->schema->dim);
        if (t->n_floats > 0)
            memcpy(state_at(t, i), answer->states + (uint64_t)i * t->n_floats,
                   t->n_floats * sizeof(float));
        if (t->of.statuses != NULL)
            t->of.statuses[t->batch.places[i]] = answer->statuses[i];
    }
}

static int take_rows(struct transfer *t, struct reader *r)
{
    struct get_answer answer;
    if (embd__get_answer_read(r, &answer) != EMBD_OK)
        return r->error->status;
    if (answer.n_keys == t->batch.n && answer.dim == t->schema->dim &&
        answer.dtype == t->schema->dtype && answer.n_states == t->n_floats) {
        scatter_rows(t, &answer);
        return EMBD_OK;
    }
    return embd__error_set(r->error, EMBD_PROTOCOL,
                           "table '%s' has %u %s columns and %u state values now, the handle says "
                           "%u %s and %u: open it again",
                           t->schema->name, answer.dim, embd_dtype_name(answer.dtype),
                           answer.n_states, t->schema->dim, embd_dtype_name(t->schema->dtype),
                           t->n_floats);
}

static int take_count(struct transfer *t, struct reader *r)
{
    uint64_t n = 0;
    int status = embd__put_answer_read(r, &n);
    t->n_inserted += n;
    return status;
}

static void write_request(struct transfer *t, const struct push_number *number)
{
    struct msg *m = embd__request_begin(t->client, t->method);
    struct keyed_fields fields = {.n_keys = t->batch.n,
                                  .has_states = t->n_floats > 0,
                                  .number = *number,
                                  .placement = embd__placement_told(t->client)};
    if (t->method == METHOD_PUT)
        fields.step = t->of.step;
    const struct row_block block = block_of(t);
    snprintf(fields.table, sizeof fields.table, "%s", t->schema->name);
    gather_keys(t);
    embd__keyed_fields_write(m, &fields);
    if (t->method == METHOD_GET) {
        embd__get_bins_write(m, t->schema, &block);
        return;
    }
    gather_rows(t);
    embd__put_bins_write(m, t->schema, &block);
}

static int get_batch(struct transfer *t, uint32_t shard)
{
    struct answer *answer;
    write_request(t, &(struct push_number){.sequence = 0});
    int status = embd__request(t->client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK)
        return status;
    status = take_rows(t, &answer->reader);
    embd__answer_free(answer);
    return status;
}

/* Takes part in the client's numbered pushes, so that it is applied once. */
static int put_batch(struct transfer *t, uint32_t shard)
{
    struct answer *answer;
    struct push_number number;
    if (embd__numbering_put_begin(t->client, t->of.table, shard, &number) != EMBD_OK)
        return t->client->error.status;
    write_request(t, &number);
    if (number.sequence > 0)
        embd__numbering_put_sent(t->client, t->of.table, shard);
    int status = embd__request(t->client, shard, LISTENER_DATA, &answer);
    if (status != EMBD_OK && number.sequence > 0)
        return embd__numbering_put_failed(t->client, t->of.table, shard, &number);
    if (status != EMBD_OK)
        return status;
    status = take_count(t, &answer->reader);
    embd__answer_free(answer);
    return status;
}

static int send_batch(struct transfer *t, uint32_t shard)
{
    return t->method == METHOD_GET ? get_batch(t, shard) : put_batch(t, shard);
}

/* A shard without keys has to know the step all the same. */
static int send_step(struct transfer *t, uint32_t shard)
{
    if (t->method != METHOD_PUT || t->of.step == 0 || t->starts[shard] < t->starts[shard + 1])
        return EMBD_OK;
    t->batch.n = 0;
    return put_batch(t, shard);
}

static int send_split(struct transfer *t)
{
    for (uint32_t shard = 0; shard < t->client->n_shards; shard++) {
        t->shard = shard;
        if (send_step(t, shard) != EMBD_OK)
            return t->client->error.status;
        for (uint64_t at = t->starts[shard]; at < t->starts[shard + 1]; at += t->batch.n) {
            uint64_t left = t->starts[shard + 1] - at;
            t->batch.n = left < t->batch.most ? (uint32_t)left : t->batch.most;
            t->batch.places = t->order + at;
            if (send_batch(t, shard) != EMBD_OK)
                return t->client->error.status;
        }
    }
    return EMBD_OK;
}

/* With a newer map all of it begins anew: a get has no effect, and rows that were put are put once
 * more, which leaves them as they are. */
static int send_all(struct transfer *t)
{
    embd_client *client = t->client;
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)client->options.deadline_ms * 1000000;
    for (bool follows = true;;) {
        put_in_order(t);
        int status = send_split(t);
        if (status != EMBD_MOVED)
            return status;
        struct embd__error why = client->error;
        client->error = (struct embd__error){0};
        if (embd__follow_map(client, t->shard, deadline_ns, &follows) == EMBD_OK && follows)
            continue;
        client->error = why;
        return status;
    }
}

/* ---- the calls ---- */

static int transfer(struct transfer *t, embd_client *client, const embd_rows *rows,
                    enum method method)
{
    int status = take(t, client, rows, method);
    if (status == EMBD_OK)
        status = check_range(t);
    if (status == EMBD_OK)
        status = take_memory(t);
    if (status == EMBD_OK)
        status = send_all(t);
    give_memory(t);
    return embd__error_keep(&client->error, status);
}

int embd_get(embd_client *client, const embd_rows *rows)
{
    struct transfer t;
    return transfer(&t, client, rows, METHOD_GET);
}

int embd_put(embd_client *client, const embd_rows *rows, uint64_t *inserted_out)
{
    struct transfer t;
    int status = transfer(&t, client, rows, METHOD_PUT);
    if (status == EMBD_OK && inserted_out != NULL)
        *inserted_out = t.n_inserted;
    return status;
}
