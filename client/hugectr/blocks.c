/* blocks.c - see blocks.h.
 *
 * The reader thread fills the blocks of a ring in order, and the caller takes them in order. The
 * mutex hands them over, and their content is touched without it. The error of a block is reported
 * in its turn: so the caller sees the same rows and the same error however far ahead the thread
 * was. A block with an error, or without rows, is the last. */
#include "client/hugectr/blocks.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/convert.h"
#include "proto/stamp.h"

#define BLOCK_BYTES (2u << 20) /* of rows; larger ones leave the cache before they are sent */
#define BLOCK_ROWS  (64u << 10)

/* ---- memory ---- */

static void *cut(uint8_t **next, size_t bytes)
{
    void *piece = *next;
    *next += (bytes + 63) / 64 * 64;
    return piece;
}

static bool allocate(const struct blocks *b, struct block *block)
{
    size_t dim = b->schema->dim, n = b->capacity;
    size_t stored_bytes = embd__value_bytes(b->schema->dtype, b->schema->dim);
    size_t row_bytes = stored_bytes + (dim + b->n_state) * sizeof(float);
    uint8_t *next = block->memory = aligned_alloc(64, (n * (row_bytes + 18) + 12 * 64) / 64 * 64);
    if (!next)
        return false;
    block->keys = cut(&next, n * sizeof *block->keys);
    block->wide_slots = cut(&next, n * sizeof *block->wide_slots);
    block->slots = cut(&next, n * sizeof *block->slots);
    block->vectors = cut(&next, n * dim * sizeof(float));
    block->rows = cut(&next, n * stored_bytes);
    block->states = cut(&next, n * b->n_state * sizeof(float));
    return true;
}

int embd__blocks_open(struct blocks *b, struct embd__error *e)
{
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->n_state = embd__schema_state_floats(b->schema);
    size_t n = BLOCK_BYTES / ((b->schema->dim + b->n_state) * sizeof(float));
    b->capacity = (uint32_t)(n < 1 ? 1 : n > BLOCK_ROWS ? BLOCK_ROWS : n);
    for (uint32_t i = 0; i < BLOCKS_AHEAD; i++)
        if (!allocate(b, &b->ring[i]))
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read %s", b->path);
    return EMBD_OK;
}

/* ---- for sources ---- */

/* The value that new rows' state starts at, as the servers have it. */
static float first_state(const embd_optimizer *o)
{
    bool accumulates =
        o->kind == EMBD_OPTIMIZER_ADAGRAD || o->kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    return accumulates ? o->initial_accumulator : 0.0f;
}

/* The files have the values that rows are rounded from. */
static void fill_masters(const struct blocks *b, struct block *block)
{
    size_t dim = b->schema->dim;
    float *master = block->states + embd__schema_master_at(b->schema);
    for (size_t i = 0; i < block->n; i++)
        memcpy(master + i * b->n_state, block->vectors + i * dim, dim * sizeof *master);
}

void embd__blocks_first_states(const struct blocks *b, struct block *block)
{
    float first = first_state(&b->schema->optimizer);
    uint32_t n_own = embd__schema_optimizer_floats(b->schema); /* stamps and uses start at 0 */
    for (size_t i = 0; i < (size_t)block->n * b->n_state; i++)
        block->states[i] = i % b->n_state < n_own ? first : 0.0f;
    if (embd__schema_master_floats(b->schema) > 0)
        fill_masters(b, block);
    if (!embd__schema_is_timed(b->schema))
        return;
    uint64_t second = (uint64_t)time(NULL); /* rows live from now on */
    for (size_t end = b->n_state; end <= (size_t)block->n * b->n_state; end += b->n_state)
        embd__stamp_put(block->states + end - EMBD_STAMP_FLOATS, second);
}

/* Number `at` of the values of `file`, `width` a row. */
static int refuse_value(const struct blocks *b, struct block *block, const char *file,
                        const float *values, uint64_t at, uint32_t width)
{
    return embd__error_set(
        &block->error, EMBD_NOT_FINITE,
        "%s: key %" PRIu64 " has %g in column %" PRIu64 "; table '%s' admits finite values only",
        file, block->keys[at / width], (double)values[at], at % width, b->schema->name);
}

/* All n values have the exponent of a number, unless the table admits others. */
int embd__blocks_check_finite(const struct blocks *b, struct block *block, const char *file,
                              const float *values, uint32_t width)
{
    const uint32_t exponent = 0x7f800000u;
    uint64_t n = (uint64_t)block->n * width, at = 0;
    uint32_t bad = 0;
    for (uint64_t i = 0; i < n; i++)
        bad |= (embd__f32_bits(values[i]) & exponent) == exponent;
    if (!bad || b->schema->admit_nonfinite)
        return EMBD_OK;
    while ((embd__f32_bits(values[at]) & exponent) != exponent)
        at++;
    return refuse_value(b, block, file, values, at, width);
}

/* ---- the reader's side ---- */

/* Whether values that were finite are so in the table's dtype, which has infinity and 16 bits. */
static int check_range(const struct blocks *b, struct block *block)
{
    embd_dtype dtype = b->schema->dtype;
    uint16_t exponent = dtype == EMBD_DTYPE_F16 ? 0x7c00 : 0x7f80;
    const uint16_t *rows = (const uint16_t *)(const void *)block->rows;
    uint64_t n = (uint64_t)block->n * b->schema->dim, at = 0;
    while (at < n && (rows[at] & exponent) != exponent)
        at++;
    if (at == n || b->schema->admit_nonfinite)
        return EMBD_OK;
    return embd__error_set(&block->error, EMBD_NOT_FINITE,
                           "%s: key %" PRIu64 " has %g in column %" PRIu64
                           ", which is infinite as %s, the dtype of table '%s'",
                           block->path ? block->path : b->path, block->keys[at / b->schema->dim],
                           (double)block->vectors[at], at % b->schema->dim, embd_dtype_name(dtype),
                           b->schema->name);
}

static int read_block(const struct blocks *b, struct block *block)
{
    embd_dtype dtype = b->schema->dtype;
    if (b->source.read_keys(b->source.arg, block) != EMBD_OK || b->keys_only)
        return block->error.status;
    if (b->source.read_rows(b->source.arg, block) != EMBD_OK || dtype == EMBD_DTYPE_F32)
        return block->error.status;
    size_t dim = b->schema->dim, stored_bytes = embd__value_bytes(dtype, b->schema->dim);
    for (uint32_t i = 0; i < block->n; i++)
        embd__row_from_f32((uint8_t *)block->rows + i * stored_bytes, dtype,
                           block->vectors + i * dim, b->schema->dim);
    return dtype == EMBD_DTYPE_F16 || dtype == EMBD_DTYPE_BF16 ? check_range(b, block) : EMBD_OK;
}

/* NULL: the thread is to stop. */
static struct block *wait_for_empty(struct blocks *b)
{
    struct block *block = NULL;
    pthread_mutex_lock(&b->mutex);
    while (b->n_full == BLOCKS_AHEAD && !b->stops)
        pthread_cond_wait(&b->changed, &b->mutex);
    if (!b->stops)
        block = &b->ring[(b->first_full + b->n_full) % BLOCKS_AHEAD];
    pthread_mutex_unlock(&b->mutex);
    return block;
}

static void hand_over(struct blocks *b)
{
    pthread_mutex_lock(&b->mutex);
    b->n_full++;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

static void *run(void *arg)
{
    struct blocks *b = arg;
    uint64_t first = 0;
    for (bool ends = false; !ends;) {
        struct block *block = wait_for_empty(b);
        if (!block)
            break;
        uint64_t left = b->source.rows_from(b->source.arg, first);
        block->first = first;
        block->n = left < b->capacity ? (uint32_t)left : b->capacity;
        block->error = (struct embd__error){0};
        read_block(b, block);
        first += block->n;
        ends = block->n == 0 || block->error.status; /* before the block is another's */
        hand_over(b);
    }
    return NULL;
}

/* ---- the taker's side ---- */

/* Signals are for the threads of the program, not for ours. */
int embd__blocks_start(struct blocks *b, bool keys_only, struct embd__error *e)
{
    sigset_t all, before;
    b->keys_only = keys_only;
    b->first_full = b->n_full = 0;
    b->stops = b->is_taken = false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    b->has_thread = pthread_create(&b->thread, NULL, run, b) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (b->has_thread)
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "the thread that reads %s could not be started",
                           b->path);
}

int embd__blocks_next(struct blocks *b, const struct block **out, struct embd__error *e)
{
    pthread_mutex_lock(&b->mutex);
    if (b->is_taken) {
        b->first_full = (b->first_full + 1) % BLOCKS_AHEAD;
        b->n_full--;
        pthread_cond_signal(&b->changed);
    }
    while (b->n_full == 0)
        pthread_cond_wait(&b->changed, &b->mutex);
    const struct block *block = &b->ring[b->first_full];
    b->is_taken = block->n > 0 && block->error.status == EMBD_OK;
    pthread_mutex_unlock(&b->mutex);
    *out = block;
    if (block->error.status)
        *e = block->error;
    return b->is_taken ? 1 : block->error.status;
}

void embd__blocks_stop(struct blocks *b)
{
    if (!b->has_thread)
        return;
    pthread_mutex_lock(&b->mutex);
    b->stops = true;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->mutex);
    pthread_join(b->thread, NULL);
    b->has_thread = false;
}

void embd__blocks_close(struct blocks *b)
{
    embd__blocks_stop(b);
    for (uint32_t i = 0; i < BLOCKS_AHEAD; i++)
        free(b->ring[i].memory);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
}
