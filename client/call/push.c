/* push.c - gradients on their way out.
 *
 * Every occurrence (pooled plan): a row's gradient travels once to each shard that has keys of it,
 * with the keys. What a key gets is gradient * embd__key_scale(weight, divisor): without weights
 * the product is made here, once for each row; with weights the scales travel as the keys' weights.
 * Distinct keys (rows plan): the occurrences of each key are summed here in the shape the server
 * would use (runs of EMBD_SUM_RUN, then the runs), so that the bits are the same.
 *
 * Preparing gives everything its place, filling makes the gradients: between the two the keys can
 * be sent, and the server looks them up meanwhile. */
#include <string.h>

#include "client/call/call.h"
#include "proto/combine.h"

static float row_divisor(const struct work *work, uint32_t r)
{
    uint64_t begin = work->offsets[r];
    return embd__divisor(work->schema->combiner, work->offsets[r + 1] - begin,
                         work->weights == NULL ? NULL : work->weights + begin);
}

/* ---- every occurrence ---- */

/* Weights become what a key's gradient is multiplied with. */
static int scale_weights(struct embd_call *call, struct work *work)
{
    if (work->weights == NULL)
        return EMBD_OK;
    float *scales = embd__arena_array(&call->arena, work->n_keys, sizeof *scales);
    if (scales == NULL)
        return embd__call_no_memory(call);
    for (uint32_t r = 0; r < work->n_rows; r++) {
        float divisor = row_divisor(work, r);
        for (uint64_t i = work->offsets[r]; i < work->offsets[r + 1]; i++)
            scales[i] = embd__key_scale(work->weights[i], divisor);
    }
    work->weights = scales;
    return EMBD_OK;
}

static bool scales_rows(const struct work *work)
{
    embd_combiner combiner = work->schema->combiner;
    return work->is_pooled && work->part->weights == NULL &&
           (combiner == EMBD_COMBINER_MEAN || combiner == EMBD_COMBINER_SQRTN);
}

/* ---- on the wire ---- */

/* A key for what a round's worker pushes: any number that differs. */
static uint64_t id_of_worker(const struct push_round *round)
{
    uint64_t id = 14695981039346656037u; /* FNV-1a */
    for (const char *at = round->job; *at != '\0'; at++)
        id = (id ^ (uint8_t)*at) * 1099511628211u;
    return (id ^ round->worker) * 1099511628211u;
}

/* The chances by which gradients become i8 or i4: the same when the push is made again. */
static struct chance chance_of(const struct embd_call *call)
{
    const struct push_extra *extra = &call->extra;
    const embd_pusher *own = &call->client->numbering.pusher;
    if (extra->round.n_workers > 0)
        return (struct chance){.id = id_of_worker(&extra->round), .number = extra->round.clock};
    if (call->own == NULL && extra->number.sequence > 0)
        return (struct chance){.id = extra->number.high ^ extra->number.low,
                               .number = extra->number.sequence ^ extra->number.stream << 32};
    return (struct chance){.id = own->high ^ own->low, .number = extra->order};
}

/* Rows of gradients; the first is row `row` of the push's part. */
static void write_rows(const struct embd_call *call, const struct work *work, uint8_t *to,
                       const float *from, uint32_t row, uint32_t n)
{
    struct chance chance = call->chance;
    chance.table = work->part->table->name_id;
    embd__grads_from_f32(to, call->wire, from, work->dim, n, &chance, row);
}

/* One row of gradients in the wire's dtype; `row` is room for a row of f32. */
static void write_row(const struct embd_call *call, const struct work *work, uint32_t r,
                      bool scales, float *row, uint8_t *to)
{
    const float *from = work->part->values + (size_t)r * work->dim;
    float divisor = scales ? row_divisor(work, r) : 1.0f;
    if (divisor != 1.0f) {
        embd__combine_first_weighted(row, from, embd__key_scale(1.0f, divisor), work->dim);
        from = row;
    }
    write_rows(call, work, to, from, r, 1);
}

#define PREFETCH_KEYS  8u
#define PREFETCH_BYTES 1024u

/* Gradients that travel as they are. */
static void copy_share(const struct work *work, const struct share *share, const uint32_t *rows)
{
    const uint8_t *values = (const uint8_t *)work->part->values;
    uint8_t *to = share->grads;
    for (uint32_t i = 0; i < share->n_rows; i++, to += work->row_bytes) {
        const uint8_t *ahead =
            values +
            rows[i + PREFETCH_KEYS < share->n_rows ? i + PREFETCH_KEYS : i] * work->row_bytes;
        for (size_t at = 0; at < work->row_bytes && at < PREFETCH_BYTES; at += 64)
            __builtin_prefetch(ahead + at);
        memcpy(to, values + rows[i] * work->row_bytes, work->row_bytes);
    }
}

/* The row will be written. */
static void prefetch_row(const uint8_t *row, size_t bytes)
{
    for (size_t at = 0; at < bytes && at < PREFETCH_BYTES; at += 64)
        __builtin_prefetch(row + at, 1);
}

/* The same for all shares, in the caller's order: it is the caller's pages that may be many, while
 * those of shares are few and large. */
static void deal_out(const struct embd_call *call, const struct work *work)
{
    const uint8_t *from = (const uint8_t *)work->part->values;
    size_t bytes = work->row_bytes;
    for (uint32_t s = 0; s < call->n_shards; s++)
        work->ends[s] = work->shares[s].grads;
    for (uint32_t i = 0; i < work->n_keys; i++, from += bytes) {
        if (i + PREFETCH_KEYS < work->n_keys)
            prefetch_row(work->ends[work->shard_of[i + PREFETCH_KEYS]], bytes);
        uint8_t **end = &work->ends[work->shard_of[i]];
        memcpy(*end, from, bytes);
        *end += bytes;
    }
}

static void write_share(const struct embd_call *call, const struct work *work,
                        const struct share *share)
{
    const uint32_t *rows = work->is_pooled ? share->rows : share->from;
    bool scales = scales_rows(work);
    if (rows != NULL && call->wire == EMBD_DTYPE_F32 && !scales) {
        copy_share(work, share, rows);
        return;
    }
    for (uint32_t i = 0; i < share->n_rows; i++)
        write_row(call, work, rows == NULL ? i : rows[i], scales, work->row,
                  share->grads + i * work->row_bytes);
}

static int prepare_every(struct embd_call *call, struct work *work)
{
    int status = scale_weights(call, work);
    if (status == EMBD_OK)
        status = embd__split(call, work);
    if (status != EMBD_OK)
        return status;
    if (call->n_shards == 1 && call->wire == EMBD_DTYPE_F32 && !scales_rows(work)) {
        work->shares[0].given = work->part->values;
        return EMBD_OK;
    }
    work->row = embd__arena_array(&call->arena, work->dim, sizeof *work->row);
    work->ends = embd__arena_array(&call->arena, call->n_shards, sizeof *work->ends);
    for (uint32_t s = 0; s < call->n_shards; s++) {
        struct share *share = &work->shares[s];
        share->grads = embd__lent_take(call, share->n_rows * work->row_bytes);
        if (share->grads == NULL)
            share->grads = embd__arena_array(&call->arena, share->n_rows, work->row_bytes);
        if (share->grads == NULL || work->row == NULL || work->ends == NULL)
            return embd__call_no_memory(call);
    }
    work->is_unfilled = true;
    return EMBD_OK;
}

/* ---- distinct keys ---- */

static bool open_sums(struct embd_call *call, const struct work *work, struct sums *sums)
{
    struct arena *arena = &call->arena;
    uint32_t n = work->n_distinct;
    *sums = (struct sums){.dim = work->dim};
    sums->runs = embd__arena_array(arena, n, work->dim * sizeof(float));
    sums->counts = embd__arena_array(arena, n, sizeof *sums->counts);
    sums->totals_of = embd__arena_array(arena, n, sizeof *sums->totals_of);
    sums->totals = embd__arena_array(arena, work->n_keys / EMBD_SUM_RUN, work->dim * sizeof(float));
    if (sums->runs == NULL || sums->counts == NULL || sums->totals_of == NULL ||
        sums->totals == NULL)
        return false;
    memset(sums->counts, 0, n * sizeof *sums->counts);
    return true;
}

/* A run is full: into the key's total. */
static void close_run(struct sums *sums, uint32_t number)
{
    const float *run = sums->runs + number * sums->dim;
    if (sums->counts[number] == EMBD_SUM_RUN) {
        sums->totals_of[number] = sums->n_totals++;
        embd__combine_first(sums->totals + sums->totals_of[number] * sums->dim, run, sums->dim);
    } else {
        embd__combine_add(sums->totals + sums->totals_of[number] * sums->dim, run, sums->dim);
    }
}

/* One occurrence; `scale` is NULL where nothing is multiplied. */
static inline void add_occurrence(struct sums *sums, uint32_t number, const float *grad,
                                  const float *scale)
{
    float *run = sums->runs + number * sums->dim;
    bool begins = sums->counts[number] % EMBD_SUM_RUN == 0;
    if (begins && sums->counts[number] > 0)
        close_run(sums, number);
    sums->counts[number]++;
    if (scale == NULL && begins)
        embd__combine_first(run, grad, sums->dim);
    else if (scale == NULL)
        embd__combine_add(run, grad, sums->dim);
    else if (begins)
        embd__combine_first_weighted(run, grad, *scale, sums->dim);
    else
        embd__combine_add_weighted(run, grad, *scale, sums->dim);
}

static void close_sums(struct sums *sums, uint32_t n_distinct)
{
    for (uint32_t d = 0; d < n_distinct; d++)
        if (sums->counts[d] > EMBD_SUM_RUN) {
            float *total = sums->totals + sums->totals_of[d] * sums->dim;
            embd__combine_add(total, sums->runs + d * sums->dim, sums->dim);
            embd__combine_first(sums->runs + d * sums->dim, total, sums->dim);
        }
}

/* A gradient for each key. The run of a later key is prefetched meanwhile. */
static void add_single(const struct work *work, struct sums *sums)
{
    for (uint32_t i = 0; i < work->n_keys; i++) {
        if (i + PREFETCH_KEYS < work->n_keys)
            __builtin_prefetch(sums->runs + work->numbers[i + PREFETCH_KEYS] * sums->dim, 1);
        add_occurrence(sums, work->numbers[i], work->part->values + (size_t)i * work->dim, NULL);
    }
}

static void add_pooled(const struct work *work, struct sums *sums)
{
    for (uint32_t r = 0; r < work->n_rows; r++) {
        const float *grad = work->part->values + (size_t)r * work->dim;
        float divisor = row_divisor(work, r);
        for (uint64_t i = work->offsets[r]; i < work->offsets[r + 1]; i++) {
            float scale = embd__key_scale(work->weights == NULL ? 1.0f : work->weights[i], divisor);
            bool scales = work->weights != NULL || divisor != 1.0f;
            add_occurrence(sums, work->numbers[i], grad, scales ? &scale : NULL);
        }
    }
}

static int prepare_distinct(struct embd_call *call, struct work *work)
{
    int status = embd__split_distinct(call, work);
    if (status != EMBD_OK)
        return status;
    if (!open_sums(call, work, &work->sums))
        return embd__call_no_memory(call);
    work->rows = (uint8_t *)work->sums.runs;
    if (call->wire != EMBD_DTYPE_F32)
        work->rows = embd__arena_array(&call->arena, work->n_distinct, work->row_bytes);
    if (work->rows == NULL)
        return embd__call_no_memory(call);
    uint8_t *grads = work->rows;
    for (uint32_t s = 0; s < call->n_shards; s++) {
        work->shares[s].grads = grads;
        grads += work->shares[s].n_rows * work->row_bytes;
    }
    work->is_unfilled = true;
    return EMBD_OK;
}

static void fill_distinct(const struct embd_call *call, struct work *work)
{
    struct sums *sums = &work->sums;
    if (work->is_pooled)
        add_pooled(work, sums);
    else
        add_single(work, sums);
    close_sums(sums, work->n_distinct);
    if (call->wire != EMBD_DTYPE_F32)
        write_rows(call, work, work->rows, sums->runs, 0, work->n_distinct);
}

/* ---- both ---- */

void embd__push_begin(struct embd_call *call)
{
    call->chance = chance_of(call);
}

int embd__push_prepare(struct embd_call *call, struct work *work)
{
    work->is_unfilled = false;
    return work->by_rows ? prepare_distinct(call, work) : prepare_every(call, work);
}

void embd__push_fill(struct embd_call *call, struct work *work)
{
    if (!work->is_unfilled)
        return;
    work->is_unfilled = false;
    if (work->by_rows)
        fill_distinct(call, work);
    else if (work->shard_of != NULL && call->wire == EMBD_DTYPE_F32)
        deal_out(call, work);
    else
        for (uint32_t s = 0; s < call->n_shards; s++)
            write_share(call, work, &work->shares[s]);
}
