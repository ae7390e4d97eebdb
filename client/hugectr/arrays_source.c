/* arrays_source.c - opens a table's arrays and reads blocks of them.
 *
 * Where a state has its own keys, its rows are found by an index of these, and those of rows that
 * have none begin as those of new rows. */
#include "client/hugectr/arrays_source.h"

#include <inttypes.h>
#include <stdlib.h>

#include "proto/convert.h"
#include "proto/schema.h"
#include "proto/stamp.h"

#define KEYS_AT_ONCE 4096u
#define COUNT_MOST   ((1u << 24) - 1) /* of pushes, in a row's use */

/* ---- opening ---- */

static struct array array_of(const struct arrays_source *s, const char *const *paths,
                             uint64_t row_bytes)
{
    return (struct array){.paths = paths,
                          .n_files = s->given->n_files,
                          .head_bytes = s->given->head_bytes,
                          .row_bytes = row_bytes,
                          .file = {.fd = -1}};
}

static uint32_t key_bytes(embd_arrays_key kind)
{
    return kind == EMBD_ARRAYS_64 ? 8 : 4;
}

static int open_state(struct arrays_source *s, struct arrays_state *state, struct embd__error *e)
{
    struct array *keys = state->has_keys ? &state->keys : &s->keys;
    if ((state->has_keys && embd__array_count(keys, e)) ||
        embd__array_compare(&state->values, keys, e))
        return e->status;
    s->bytes += state->values.bytes + state->keys.bytes;
    return EMBD_OK;
}

static void prepare(struct arrays_source *s)
{
    const embd_arrays *given = s->given;
    uint32_t key = key_bytes(given->key), at = 0;
    s->keys = array_of(s, given->keys, key);
    s->values = array_of(s, given->values, s->schema->dim * embd__dtype_bytes(given->dtype));
    s->scores = array_of(s, given->scores, sizeof(uint64_t));
    for (uint32_t i = 0; i < EMBD_ARRAYS_STATES_MAX; i++) {
        bool is_given = i < given->n_states;
        const embd_arrays_state from =
            is_given ? given->states[i] : (embd_arrays_state){.width = 1};
        s->states[i] = (struct arrays_state){
            .values = array_of(s, from.values, from.width * embd__dtype_bytes(from.dtype)),
            .keys = array_of(s, from.keys, key),
            .width = from.width,
            .at = at,
            .dtype = from.dtype,
            .has_keys = from.keys != NULL};
        at += is_given ? from.width : 0;
    }
}

int embd__arrays_open(struct arrays_source *s, const embd_arrays *given, const embd_schema *schema,
                      struct embd__error *e)
{
    *s = (struct arrays_source){.given = given, .schema = schema};
    prepare(s);
    if (embd__array_count(&s->keys, e) || embd__array_compare(&s->values, &s->keys, e) ||
        (given->scores && embd__array_compare(&s->scores, &s->keys, e)))
        return e->status;
    s->bytes = s->keys.bytes + s->values.bytes + s->scores.bytes;
    for (uint32_t i = 0; i < given->n_states && !e->status; i++)
        open_state(s, &s->states[i], e);
    return e->status;
}

void embd__arrays_close(struct arrays_source *s)
{
    if (!s->given)
        return;
    embd__array_close(&s->keys);
    embd__array_close(&s->values);
    embd__array_close(&s->scores);
    for (uint32_t i = 0; i < EMBD_ARRAYS_STATES_MAX; i++) {
        embd__array_close(&s->states[i].values);
        embd__array_close(&s->states[i].keys);
        embd__keyindex_close(&s->states[i].index);
        free(s->states[i].floats);
    }
}

/* ---- keys ---- */

int embd__arrays_read_keys(struct array *array, embd_arrays_key kind, uint64_t row, uint32_t n,
                           uint64_t *to, struct embd__error *e)
{
    /* Narrow keys lie in the rear half of the room, and are widened from the front on. */
    const uint8_t *from = (uint8_t *)to + (kind == EMBD_ARRAYS_64 ? 0 : 4 * (size_t)n);
    if (embd__array_read(array, row, n, (uint8_t *)to + (from - (uint8_t *)to), e))
        return e->status;
    for (uint32_t i = 0; kind != EMBD_ARRAYS_64 && i < n; i++) {
        uint32_t key;
        memcpy(&key, from + 4 * (size_t)i, sizeof key);
        to[i] = kind == EMBD_ARRAYS_U32 ? key : (uint64_t)(int64_t)(int32_t)key;
    }
    return EMBD_OK;
}

int embd__arrays_add_keys(struct keyindex *index, const struct array *array, uint64_t first,
                          const uint64_t *keys, uint32_t n, struct embd__error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t before = embd__keyindex_add(index, keys[i], first + i), rows[2];
        if (before == KEYINDEX_NONE)
            continue;
        uint32_t here = embd__array_file_of(array, first + i, &rows[0]);
        uint32_t there = embd__array_file_of(array, before, &rows[1]);
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: row %" PRIu64 " has key %" PRIu64 ", which row %" PRIu64
                               " of %s has too",
                               array->paths[here], rows[0], keys[i], rows[1], array->paths[there]);
    }
    return EMBD_OK;
}

static int compare_keys(const struct array *array, uint64_t first, const uint64_t *keys, uint32_t n,
                        const struct keyindex *rows, struct embd__error *e)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t row;
        if (embd__keyindex_find(rows, keys[i]) != KEYINDEX_NONE)
            continue;
        uint32_t file = embd__array_file_of(array, first + i, &row);
        return embd__error_set(e, EMBD_CORRUPT,
                               "%s: row %" PRIu64 " has key %" PRIu64
                               ", which has no row in the table",
                               array->paths[file], row, keys[i]);
    }
    return EMBD_OK;
}

static int index_state(const struct arrays_source *s, struct arrays_state *state,
                       const struct keyindex *rows, struct embd__error *e)
{
    uint64_t n_rows = embd__array_rows(&state->keys), keys[KEYS_AT_ONCE];
    if (embd__keyindex_open(&state->index, n_rows, state->keys.paths[0], e))
        return e->status;
    for (uint64_t row = 0; row < n_rows; row += KEYS_AT_ONCE) {
        uint64_t left = n_rows - row;
        uint32_t n = left < KEYS_AT_ONCE ? (uint32_t)left : KEYS_AT_ONCE;
        if (embd__arrays_read_keys(&state->keys, s->given->key, row, n, keys, e) ||
            embd__arrays_add_keys(&state->index, &state->keys, row, keys, n, e) ||
            (rows->cells && compare_keys(&state->keys, row, keys, n, rows, e)))
            return e->status;
    }
    return EMBD_OK;
}

int embd__arrays_index_states(struct arrays_source *s, const struct keyindex *rows,
                              struct embd__error *e)
{
    for (uint32_t i = 0; i < s->given->n_states && !e->status; i++)
        if (s->states[i].has_keys)
            index_state(s, &s->states[i], rows, e);
    return e->status;
}

/* ---- blocks ---- */

static int read_keys(void *arg, struct block *block)
{
    struct arrays_source *s = arg;
    return embd__arrays_read_keys(&s->keys, s->given->key, block->first, block->n, block->keys,
                                  &block->error);
}

/* Rows as floats; `raw` is made with the first. */
static int read_floats(struct array *a, uint64_t row, uint32_t n, uint32_t most, float *to,
                       embd_dtype dtype, struct embd__error *e)
{
    if (!a->raw && !(a->raw = malloc(most * a->row_bytes + 1)))
        return embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory to read it", a->paths[0]);
    if (embd__array_read(a, row, n, a->raw, e))
        return e->status;
    embd__to_f32(to, a->raw, dtype, n * (a->row_bytes / embd__dtype_bytes(dtype)));
    return EMBD_OK;
}

/* The path of the file that has the block's rows, which are of one. */
static const char *path_of(const struct array *a, const struct block *block)
{
    uint64_t row;
    return a->paths[embd__array_file_of(a, block->first, &row)];
}

/* A row of a state that has its own keys, or that of a new row. */
static int read_row(const struct arrays_source *s, struct arrays_state *state, struct block *block,
                    uint32_t i)
{
    float *to = state->floats + (size_t)i * state->width;
    uint64_t row = embd__keyindex_find(&state->index, block->keys[i]);
    if (row != KEYINDEX_NONE)
        return read_floats(&state->values, row, 1, 1, to, state->dtype, &block->error);
    memcpy(to, block->states + (size_t)i * s->blocks->n_state + state->at,
           state->width * sizeof *to);
    return EMBD_OK;
}

/* The path of the file that has the state of the block's row `i`. */
static const char *path_of_row(const struct arrays_state *state, const struct block *block,
                               uint32_t i)
{
    uint64_t row = embd__keyindex_find(&state->index, block->keys[i]), in_file;
    return state->values.paths[embd__array_file_of(&state->values, row, &in_file)];
}

/* All rows at once; then, for the error's sake, one by one: each may be of another file. */
static int check_by_key(const struct arrays_source *s, struct arrays_state *state,
                        struct block *block)
{
    const float *floats = state->floats;
    if (embd__blocks_check_finite(s->blocks, block, "", floats, state->width) == EMBD_OK)
        return EMBD_OK;
    struct block one = {.n = 1};
    for (uint32_t i = 0; i < block->n && one.error.status == EMBD_OK; i++) {
        one.keys = block->keys + i;
        embd__blocks_check_finite(s->blocks, &one, path_of_row(state, block, i),
                                  floats + (size_t)i * state->width, state->width);
    }
    block->error = one.error;
    return block->error.status;
}

/* A block's rows of a state into state->floats. */
static int gather(const struct arrays_source *s, struct arrays_state *state, struct block *block)
{
    if (!state->has_keys) {
        if (read_floats(&state->values, block->first, block->n, s->blocks->capacity, state->floats,
                        state->dtype, &block->error))
            return block->error.status;
        return embd__blocks_check_finite(s->blocks, block, path_of(&state->values, block),
                                         state->floats, state->width);
    }
    for (uint32_t i = 0; i < block->n; i++)
        if (read_row(s, state, block, i))
            return block->error.status;
    return check_by_key(s, state, block);
}

static int read_state(const struct arrays_source *s, struct arrays_state *state,
                      struct block *block)
{
    size_t bytes = (size_t)s->blocks->capacity * state->width * sizeof(float);
    if (!state->floats && !(state->floats = malloc(bytes)))
        return embd__error_set(&block->error, EMBD_NO_MEMORY, "%s: no memory to read it",
                               state->values.paths[0]);
    if (gather(s, state, block))
        return block->error.status;
    for (uint32_t i = 0; i < block->n; i++)
        memcpy(block->states + (size_t)i * s->blocks->n_state + state->at,
               state->floats + (size_t)i * state->width, state->width * sizeof(float));
    return EMBD_OK;
}

/* ---- a row's last step, and its use ---- */

/* The step of the last push that a score tells of. */
static int step_of(const struct arrays_source *s, struct block *block, uint32_t i, uint64_t score,
                   uint64_t *step_out)
{
    uint64_t now = s->given->score_now, step = s->given->step;
    *step_out = step;
    if (!s->given->scores || s->given->score != EMBD_ARRAYS_STEP)
        return EMBD_OK;
    if (score > now)
        return embd__error_set(&block->error, EMBD_CORRUPT,
                               "%s: key %" PRIu64 " has the score %" PRIu64
                               ", the table's greatest is %" PRIu64,
                               path_of(&s->scores, block), block->keys[i], score, now);
    *step_out = now - score < step ? step - (now - score) : 0;
    return EMBD_OK;
}

static void put_use(const struct arrays_source *s, float *use, uint64_t step, uint64_t score)
{
    bool counts = s->given->scores && s->given->score == EMBD_ARRAYS_COUNT;
    if (!embd__schema_is_timed(s->schema)) /* else as embd__blocks_first_states has it */
        embd__stamp_put(use, step);
    if (s->schema->on_full == EMBD_ON_FULL_EVICT_LFU)
        use[EMBD_STAMP_FLOATS] = !counts ? 1.0f : (float)(score < COUNT_MOST ? score : COUNT_MOST);
    if (s->schema->on_full == EMBD_ON_FULL_EVICT_SCORE)
        use[EMBD_STAMP_FLOATS] = 0.0f;
}

/* Rows without a score count as pushed once, by the table's last step. */
static int read_use(struct arrays_source *s, struct block *block)
{
    uint32_t n_use = embd__schema_use_floats(s->schema), n = s->blocks->n_state;
    uint32_t own = embd__schema_optimizer_floats(s->schema);
    bool has_stamp = embd__schema_has_stamp(s->schema);
    uint64_t *scores = block->wide_slots, step; /* arrays have none */
    if (s->given->scores &&
        embd__array_read(&s->scores, block->first, block->n, scores, &block->error))
        return block->error.status;
    for (uint32_t i = 0; i < block->n; i++) {
        float *state = block->states + (size_t)i * n;
        uint64_t score = s->given->scores ? scores[i] : 0;
        if (step_of(s, block, i, score, &step))
            return block->error.status;
        if (has_stamp)
            embd__stamp_put(state + own, s->given->step);
        if (n_use)
            put_use(s, state + n - n_use, step, score);
    }
    return EMBD_OK;
}

static int read_states(struct arrays_source *s, struct block *block)
{
    embd__blocks_first_states(s->blocks, block);
    for (uint32_t i = 0; i < s->given->n_states; i++)
        if (read_state(s, &s->states[i], block))
            return block->error.status;
    return read_use(s, block);
}

static int read_rows(void *arg, struct block *block)
{
    struct arrays_source *s = arg;
    block->path = path_of(&s->values, block);
    if (read_floats(&s->values, block->first, block->n, s->blocks->capacity, block->vectors,
                    s->given->dtype, &block->error) ||
        embd__blocks_check_finite(s->blocks, block, block->path, block->vectors, s->schema->dim))
        return block->error.status;
    return read_states(s, block);
}

static uint64_t rows_from(void *arg, uint64_t row)
{
    const struct arrays_source *s = arg;
    uint64_t n_rows = embd__array_rows(&s->keys), in_file;
    return row < n_rows ? s->keys.starts[embd__array_file_of(&s->keys, row, &in_file) + 1] - row
                        : 0;
}

struct blocks_source embd__arrays_source(struct arrays_source *source)
{
    return (struct blocks_source){
        .rows_from = rows_from, .read_keys = read_keys, .read_rows = read_rows, .arg = source};
}
