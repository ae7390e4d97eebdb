/* scatter.c - rows from files to the shards that own them here.
 *
 * A block whose rows all belong to one shard (as in a cluster of the size it was taken from) is
 * sent as it lies in memory; otherwise rows are gathered per shard and sent when a shard's block is
 * full. A shard gets its rows in the order of the files, where a later row replaces an earlier one:
 * a block that is sent as it lies waits for the rows gathered for its shard. With a window, copies
 * of blocks are on their way to several shards, two to each, while the next ones are read. What can
 * fail: memory for the gathered rows, or the shard. */
#include <stdlib.h>
#include <string.h>

#include "client/formats/admin.h"
#include "proto/partfile.h"
#include "client/core/client.h"
#include "client/formats/scatter.h"
#include "proto/dtype.h"

#define WINDOW_MOST 16u /* blocks of 8 MiB at most */
#define ALIGN       8u

/* For rows gathered per shard, all shards together; a shard's share is at most one block. */
#define GATHER_BYTES (256u << 20)

int embd__scatter_open(struct scatter *s, embd_client *client, const embd_schema *schema,
                       uint64_t staged)
{
    *s = (struct scatter){
        .client = client, .schema = schema, .staged = staged, .n_shards = embd_shard_count(client)};
    s->batches = calloc(s->n_shards, sizeof *s->batches);
    if (!s->batches)
        return embd__error_set(embd__client_error(client), EMBD_NO_MEMORY,
                               "no memory to load table '%s'", schema->name);
    return EMBD_OK;
}

/* ---- on the way ---- */

struct scatter_sending {
    struct started_request *request;
    uint8_t *bytes; /* [capacity] of the block */
    uint64_t capacity;
    uint32_t shard;
};

int embd__scatter_widen(struct scatter *s)
{
    uint32_t n = 8 * s->n_shards < WINDOW_MOST ? 8 * s->n_shards : WINDOW_MOST;
    s->window = calloc(n, sizeof *s->window);
    if (s->window == NULL)
        return embd__error_set(embd__client_error(s->client), EMBD_NO_MEMORY,
                               "no memory to load table '%s'", s->schema->name);
    for (; s->n_window < n; s->n_window++)
        if (embd__started_new(s->client, &s->window[s->n_window].request) != EMBD_OK)
            return embd__client_error(s->client)->status;
    return EMBD_OK;
}

static int await_first(struct scatter *s)
{
    struct scatter_sending *sending = &s->window[s->first];
    struct answer *answer;
    s->first = (s->first + 1) % s->n_window;
    s->n_sent--;
    int status = embd__started_wait(sending->request, &answer);
    return status ? status : embd__admin_end(s->client, sending->shard, METHOD_LOAD, answer);
}

static int await_all(struct scatter *s)
{
    int status = EMBD_OK;
    while (s->n_sent > 0 && status == EMBD_OK)
        status = await_first(s);
    return status;
}

/* Whatever becomes of them; the client's error stays. */
static void abandon(struct scatter *s)
{
    struct embd__error *e = embd__client_error(s->client), kept = *e;
    while (s->n_sent > 0) {
        *e = (struct embd__error){0};
        await_first(s);
    }
    *e = kept;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static const void *keep(uint8_t **to, const void *from, uint64_t bytes)
{
    uint8_t *at = *to;
    if (from == NULL)
        return NULL;
    memcpy(at, from, bytes);
    *to += aligned(bytes);
    return at;
}

/* A block's memory, malloc'd by the caller. */
struct lent {
    uint8_t **bytes;
    uint64_t *capacity;
};

/* It goes along, and the caller goes on with ours. */
static void take_lent(struct scatter_sending *sending, const struct lent *lent)
{
    uint8_t *bytes = sending->bytes;
    uint64_t capacity = sending->capacity;
    sending->bytes = *lent->bytes;
    sending->capacity = *lent->capacity;
    *lent->bytes = bytes;
    *lent->capacity = capacity;
}

static int reserve(struct scatter *s, struct scatter_sending *sending, uint64_t bytes)
{
    if (bytes <= sending->capacity)
        return EMBD_OK;
    free(sending->bytes);
    sending->bytes = malloc(bytes);
    sending->capacity = sending->bytes != NULL ? bytes : 0;
    if (sending->bytes != NULL)
        return EMBD_OK;
    return embd__error_set(embd__client_error(s->client), EMBD_NO_MEMORY,
                           "no memory for a block of table '%s'", s->schema->name);
}

/* Makes `b` point to copies. */
static int keep_block(struct scatter *s, struct scatter_sending *sending, struct row_block *b)
{
    uint64_t values = embd__value_bytes(s->schema->dtype, s->schema->dim);
    uint64_t states = embd__schema_state_floats(s->schema) * sizeof(float);
    uint64_t n = b->n_rows, m = b->n_candidates;
    if (reserve(s, sending, n * (10 + values + states) + m * 14 + 7 * ALIGN) != EMBD_OK)
        return embd__client_error(s->client)->status;
    uint8_t *to = sending->bytes;
    b->keys = keep(&to, b->keys, n * sizeof *b->keys);
    b->slots = keep(&to, b->slots, n * sizeof *b->slots);
    b->rows = keep(&to, b->rows, n * values);
    b->states = keep(&to, b->states, n * states);
    b->candidate_keys = keep(&to, b->candidate_keys, m * sizeof *b->candidate_keys);
    b->candidate_slots = keep(&to, b->candidate_slots, m * sizeof *b->candidate_slots);
    b->candidate_counts = keep(&to, b->candidate_counts, m * sizeof *b->candidate_counts);
    return EMBD_OK;
}

/* `lent` NULL: the block's memory stays the caller's. */
static int send_block(struct scatter *s, uint32_t shard, const struct row_block *block,
                      const struct lent *lent)
{
    struct row_block own = *block;
    if (s->n_window == 0)
        return embd__admin_load(s->client, shard, s->schema, s->staged, block);
    if (s->n_sent == s->n_window && await_first(s) != EMBD_OK)
        return embd__client_error(s->client)->status;
    struct scatter_sending *sending = &s->window[(s->first + s->n_sent) % s->n_window];
    if (lent != NULL)
        take_lent(sending, lent);
    else if (keep_block(s, sending, &own) != EMBD_OK)
        return embd__client_error(s->client)->status;
    struct msg *m = embd__started_begin(sending->request, METHOD_LOAD, 0, false);
    embd__admin_load_write(m, s->schema, s->staged, &own);
    sending->shard = shard;
    int status = embd__started_send_admin(sending->request, shard);
    s->n_sent += status == EMBD_OK;
    return status;
}

/* ---- gathered ---- */

static int flush(struct scatter *s, uint32_t shard)
{
    struct batch *batch = &s->batches[shard];
    if (batch->n_rows == 0 && batch->n_candidates == 0)
        return EMBD_OK;
    struct row_block block = embd__batch_block(batch);
    batch->n_rows = batch->n_candidates = 0;
    return send_block(s, shard, &block, NULL);
}

int embd__scatter_finish(struct scatter *s)
{
    int status = EMBD_OK;
    for (uint32_t shard = 0; shard < s->n_shards && status == EMBD_OK; shard++)
        status = flush(s, shard);
    return status ? status : await_all(s);
}

static uint32_t owner(const struct scatter *s, const uint64_t *keys, const uint16_t *slots,
                      uint32_t i)
{
    return embd__placement_shard(&s->client->placement, s->schema->partition, slots ? slots[i] : 0,
                                 keys[i]);
}

/* The shard that owns every row and candidate of the block, or n_shards. */
static uint32_t only_owner(const struct scatter *s, const struct row_block *b)
{
    uint32_t shard = b->n_rows ? owner(s, b->keys, b->slots, 0)
                               : owner(s, b->candidate_keys, b->candidate_slots, 0);
    for (uint32_t i = 0; i < b->n_rows; i++)
        if (owner(s, b->keys, b->slots, i) != shard)
            return s->n_shards;
    for (uint32_t i = 0; i < b->n_candidates; i++)
        if (owner(s, b->candidate_keys, b->candidate_slots, i) != shard)
            return s->n_shards;
    return shard;
}

/* The batch of a shard, with room for one more row and candidate; NULL: the error is set. */
static struct batch *room(struct scatter *s, uint32_t shard)
{
    struct batch *batch = &s->batches[shard];
    uint64_t bytes = GATHER_BYTES / s->n_shards;
    if (bytes > PARTFILE_BLOCK_BYTES)
        bytes = PARTFILE_BLOCK_BYTES;
    if (!batch->memory && embd__batch_open(batch, s->schema, bytes, embd__client_error(s->client)))
        return NULL;
    bool is_full = batch->n_rows == batch->capacity || batch->n_candidates == batch->capacity;
    return is_full && flush(s, shard) ? NULL : batch;
}

static int gather(struct scatter *s, const struct row_block *b)
{
    for (uint32_t i = 0; i < b->n_rows; i++) {
        struct batch *batch = room(s, owner(s, b->keys, b->slots, i));
        if (!batch)
            return embd__client_error(s->client)->status;
        embd__batch_add_row(batch, s->schema, b, i);
    }
    for (uint32_t i = 0; i < b->n_candidates; i++) {
        struct batch *batch = room(s, owner(s, b->candidate_keys, b->candidate_slots, i));
        if (!batch)
            return embd__client_error(s->client)->status;
        embd__batch_add_candidate(batch, b, i);
    }
    return EMBD_OK;
}

static int place(struct scatter *s, const struct row_block *block, const struct lent *lent)
{
    if (block->n_rows == 0 && block->n_candidates == 0)
        return EMBD_OK;
    bool is_gone = embd__block_is_gone(block);
    if (is_gone != s->has_gone &&
        embd__scatter_finish(s)) /* blocks are of one kind, in their order */
        return embd__client_error(s->client)->status;
    s->has_gone = is_gone;
    uint32_t shard = only_owner(s, block);
    if (shard == s->n_shards)
        return gather(s, block);
    int status = flush(s, shard); /* rows gathered for it are older */
    return status ? status : send_block(s, shard, block, lent);
}

int embd__scatter_block(struct scatter *s, const struct row_block *block)
{
    return place(s, block, NULL);
}

int embd__scatter_lent(struct scatter *s, const struct row_block *block, uint8_t **bytes,
                       uint64_t *capacity)
{
    return place(s, block, &(struct lent){bytes, capacity});
}

void embd__scatter_close(struct scatter *s)
{
    for (uint32_t shard = 0; s->batches && shard < s->n_shards; shard++)
        embd__batch_close(&s->batches[shard]);
    if (s->client != NULL)
        abandon(s);
    for (uint32_t i = 0; i < s->n_window; i++) {
        embd__started_free(s->window[i].request);
        free(s->window[i].bytes);
    }
    free(s->window);
    free(s->batches);
    *s = (struct scatter){0};
}
