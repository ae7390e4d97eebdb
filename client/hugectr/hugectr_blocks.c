/* hugectr_blocks.c - see hugectr_blocks.h.
 *
 * The reader thread fills the blocks of a ring in order, and the caller takes them in order. The
 * mutex hands them over, and their content is touched without it. The error of a block is reported
 * in its turn: so the caller sees the same rows and the same error however far ahead the thread
 * was. A block with an error, or without rows, is the last. */
#include "client/hugectr/hugectr_blocks.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>

#include "proto/convert.h"

#define BLOCK_BYTES (2u << 20) /* of rows; larger ones leave the cache before they are sent */
#define BLOCK_ROWS  (64u << 10)

/* ---- memory ---- */

static void *cut(uint8_t **next, size_t bytes)
{
    void *piece = *next;
    *next += (bytes + 63) / 64 * 64;
    return piece;
}

static bool allocate(const struct hugectr_blocks *b, struct hugectr_block *block)
{
    size_t dim = b->schema->dim, n = b->capacity;
    size_t row_bytes = (2 * dim + b->n_state) * sizeof(float);
    uint8_t *next = block->memory = aligned_alloc(64, (n * (row_bytes + 18) + 12 * 64) / 64 * 64);
    if (!next)
        return false;
    block->keys = cut(&next, n * sizeof *block->keys);
    block->wide_slots = cut(&next, n * sizeof *block->wide_slots);
    block->slots = cut(&next, n * sizeof *block->slots);
    block->vectors = cut(&next, n * dim * sizeof(float));
    block->rows = cut(&next, n * dim * sizeof(float));
    block->states = cut(&next, n * b->n_state * sizeof(float));
    return true;
}

int embd__blocks_open(struct hugectr_blocks *b, struct embd__error *e)
{
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->changed, NULL);
    b->n_state = embd__schema_state_floats(b->schema);
    size_t n = BLOCK_BYTES / ((b->schema->dim + b->n_state) * sizeof(float));
    b->capacity = (uint32_t)(n < 1 ? 1 : n > BLOCK_ROWS ? BLOCK_ROWS : n);
    for (uint32_t i = 0; i < HUGECTR_BLOCKS_AHEAD; i++)
        if (!allocate(b, &b->ring[i]))
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read %s", b->path);
    return EMBD_OK;
}

/* ---- the reader's side ---- */

static bool has_slots(const struct hugectr_blocks *b)
{
    return b->schema->partition == EMBD_PARTITION_SLOT;
}

uint32_t embd__blocks_gpu(const struct hugectr_blocks *b, const struct hugectr_block *block,
                          uint32_t i)
{
    return embd__hugectr_gpu(b->schema, b->options->n_gpus, has_slots(b) ? block->slots[i] : 0,
                             block->keys[i]);
}

static int check_keys(const struct hugectr_blocks *b, struct hugectr_block *block)
{
    struct embd__error *e = &block->error;
    for (uint32_t i = 0; b->options->u32_keys && i < block->n; i++)
        if (block->keys[i] > UINT32_MAX)
            return embd__error_set(
                e, EMBD_INVALID, "%s: row %" PRIu64 " has key %" PRIu64 ", which is beyond 32 bits",
                b->folder->key.path, block->first + i, block->keys[i]);
    for (uint32_t i = 0; has_slots(b) && i < block->n; i++) {
        if (block->wide_slots[i] >= b->schema->slots)
            return embd__error_set(
                e, EMBD_CORRUPT, "%s: row %" PRIu64 " has slot %" PRIu64 ", the table has %" PRIu32,
                b->folder->slot.path, block->first + i, block->wide_slots[i], b->schema->slots);
        block->slots[i] = (uint16_t)block->wide_slots[i];
    }
    return EMBD_OK;
}

static int read_keys(const struct hugectr_blocks *b, struct hugectr_block *block)
{
    struct embd__error *e = &block->error;
    uint64_t at = 8 * block->first, bytes = 8 * (uint64_t)block->n;
    if (embd__plain_read(&b->folder->key, at, block->keys, bytes, e))
        return e->status;
    if (has_slots(b) && embd__plain_read(&b->folder->slot, at, block->wide_slots, bytes, e))
        return e->status;
    return check_keys(b, block);
}

/* The value that new rows' state starts at, as the servers have it. */
static float first_state(const embd_optimizer *o)
{
    bool accumulates =
        o->kind == EMBD_OPTIMIZER_ADAGRAD || o->kind == EMBD_OPTIMIZER_ROWWISE_ADAGRAD;
    return accumulates ? o->initial_accumulator : 0.0f;
}

/* Number `at` of the values of `file`, `width` a row. */
static int refuse_value(const struct hugectr_blocks *b, struct hugectr_block *block,
                        const char *file, const float *values, uint64_t at, uint32_t width)
{
    return embd__error_set(
        &block->error, EMBD_NOT_FINITE,
        "%s: key %" PRIu64 " has %g in column %" PRIu64 "; table '%s' admits finite values only",
        file, block->keys[at / width], (double)values[at], at % width, b->schema->name);
}

/* All n values have the exponent of a number, unless the table admits others. */
static int check_finite(const struct hugectr_blocks *b, struct hugectr_block *block,
                        const char *file, const float *values, uint32_t width)
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

static int read_states(const struct hugectr_blocks *b, struct hugectr_block *block)
{
    float first = first_state(&b->schema->optimizer);
    uint32_t n_own = embd__schema_optimizer_floats(b->schema); /* stamps and uses start at 0 */
    for (size_t i = 0; !b->state && i < (size_t)block->n * b->n_state; i++)
        block->states[i] = i % b->n_state < n_own ? first : 0.0f;
    for (uint32_t i = 0; b->state && i < block->n; i++)
        if (embd__state_next(b->state, embd__blocks_gpu(b, block, i),
                             block->states + (size_t)i * b->n_state, &block->error))
            return block->error.status;
    if (!b->state)
        return EMBD_OK;
    return check_finite(b, block, b->state->file.path, block->states, b->n_state);
}

static int read_rows(const struct hugectr_blocks *b, struct hugectr_block *block)
{
    size_t dim = b->schema->dim;
    uint64_t row_bytes = 4 * dim;
    if (embd__plain_read(&b->folder->vector, block->first * row_bytes, block->vectors,
                         block->n * row_bytes, &block->error))
        return block->error.status;
    if (check_finite(b, block, b->folder->vector.path, block->vectors, b->schema->dim))
        return block->error.status;
    if (b->schema->dtype != EMBD_DTYPE_F32)
        embd__from_f32(block->rows, b->schema->dtype, block->vectors, block->n * dim);
    return read_states(b, block);
}

/* NULL: the thread is to stop. */
static struct hugectr_block *wait_for_empty(struct hugectr_blocks *b)
{
    struct hugectr_block *block = NULL;
    pthread_mutex_lock(&b->mutex);
    while (b->n_full == HUGECTR_BLOCKS_AHEAD && !b->stops)
        pthread_cond_wait(&b->changed, &b->mutex);
    if (!b->stops)
        block = &b->ring[(b->first_full + b->n_full) % HUGECTR_BLOCKS_AHEAD];
    pthread_mutex_unlock(&b->mutex);
    return block;
}

static void hand_over(struct hugectr_blocks *b)
{
    pthread_mutex_lock(&b->mutex);
    b->n_full++;
    pthread_cond_signal(&b->changed);
    pthread_mutex_unlock(&b->mutex);
}

static void *run(void *arg)
{
    struct hugectr_blocks *b = arg;
    uint64_t first = 0;
    for (bool ends = false; !ends;) {
        struct hugectr_block *block = wait_for_empty(b);
        if (!block)
            break;
        uint64_t left = b->folder->n_rows - first;
        block->first = first;
        block->n = left < b->capacity ? (uint32_t)left : b->capacity;
        block->error = (struct embd__error){0};
        if (read_keys(b, block) == EMBD_OK && !b->keys_only)
            read_rows(b, block);
        first += block->n;
        ends = block->n == 0 || block->error.status; /* before the block is another's */
        hand_over(b);
    }
    return NULL;
}

/* ---- the taker's side ---- */

/* Signals are for the threads of the program, not for ours. */
int embd__blocks_start(struct hugectr_blocks *b, bool keys_only, struct embd__error *e)
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

int embd__blocks_next(struct hugectr_blocks *b, const struct hugectr_block **out,
                      struct embd__error *e)
{
    pthread_mutex_lock(&b->mutex);
    if (b->is_taken) {
        b->first_full = (b->first_full + 1) % HUGECTR_BLOCKS_AHEAD;
        b->n_full--;
        pthread_cond_signal(&b->changed);
    }
    while (b->n_full == 0)
        pthread_cond_wait(&b->changed, &b->mutex);
    const struct hugectr_block *block = &b->ring[b->first_full];
    b->is_taken = block->n > 0 && block->error.status == EMBD_OK;
    pthread_mutex_unlock(&b->mutex);
    *out = block;
    if (block->error.status)
        *e = block->error;
    return b->is_taken ? 1 : block->error.status;
}

void embd__blocks_stop(struct hugectr_blocks *b)
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

void embd__blocks_close(struct hugectr_blocks *b)
{
    embd__blocks_stop(b);
    for (uint32_t i = 0; i < HUGECTR_BLOCKS_AHEAD; i++)
        free(b->ring[i].memory);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->mutex);
}
