/* frozen.c - see frozen.h. */
#include "server/store/cuda/frozen.h"
#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/memory.h"

#include <stdlib.h>
#include <string.h>

uint64_t frozen_chunk_bytes = (uint64_t)64 << 20;

/* ---- memory ---- */

uint64_t kept_lay_out(struct kept_view *view, const struct table_view *t, uint64_t n,
                      struct arena *arena)
{
    view->keys = arena_take(arena, n * sizeof *view->keys);
    view->slots = arena_take(arena, t->row_slots ? n * sizeof *view->slots : 0);
    view->values = arena_take(arena, n * t->stride);
    view->states = arena_take(arena, n * t->state_stride * sizeof(float));
    view->capacity = (uint32_t)n;
    return arena->bytes;
}

/* Device memory, for which lookups give way, else pinned memory: kernels write to both. NULL: there
 * is neither. */
static void *take_memory(struct store *store, uint64_t bytes, bool *is_pinned)
{
    void *memory = NULL;
    *is_pinned = cuda_new(store, &memory, bytes) != 0;
    return *is_pinned ? buffer_new(bytes) : memory;
}

static void give_memory(struct store *store, void *memory, uint64_t bytes, bool is_pinned)
{
    if (is_pinned)
        buffer_free(memory, bytes);
    else
        device_free(memory, store->stream);
}

struct kept_head frozen_read_head(const struct kept_head *head_copy)
{
    struct kept_head head;
    uint64_t both = *(const volatile uint64_t *)(const void *)head_copy;
    memcpy(&head, &both, sizeof head);
    return head;
}

/* ---- the rows that are left ---- */

static bool is_keeping(const struct frozen *f)
{
    return f->is_on && !f->is_broken && f->cursor < f->n_rows;
}

/* The rows not yet done of one word of bits, from `begin` on and before `end`. */
static uint32_t left_of_word(const struct frozen *f, uint64_t begin, uint64_t end)
{
    uint32_t left = ~f->done_at_freeze[begin / 32] >> begin % 32;
    return end - begin < 32 ? left & ((1u << (end - begin)) - 1) : left;
}

uint64_t frozen_range_end(const struct frozen *f, uint64_t begin, uint64_t end, uint64_t most,
                          uint64_t *n_out)
{
    *n_out = 0;
    if (f->done_at_freeze == NULL) {
        *n_out = end - begin < most ? end - begin : most;
        return begin + *n_out;
    }
    while (begin < end) {
        uint64_t next = (begin / 32 + 1) * 32 < end ? (begin / 32 + 1) * 32 : end;
        uint32_t n = (uint32_t)__builtin_popcount(left_of_word(f, begin, next));
        if (*n_out + n > most) /* a part of the word: row by row */
            for (next = begin; *n_out + left_of_word(f, next, next + 1) <= most; next++)
                *n_out += left_of_word(f, next, next + 1);
        else
            *n_out += n;
        begin = next;
        if (*n_out == most)
            break;
    }
    return begin;
}

/* ---- the log ---- */

static uint64_t row_bytes(const struct table_view *t)
{
    return sizeof(uint64_t) + sizeof(uint16_t) + t->stride + t->state_stride * sizeof(float);
}

static void chunk_free(struct store *store, struct frozen_chunk *chunk)
{
    give_memory(store, chunk->memory, chunk->bytes, chunk->is_pinned);
    buffer_free(chunk->head_copy, sizeof *chunk->head_copy);
    free(chunk);
}

/* A chunk for at least n rows and as many again, so that most of it is used before a call needs
 * more than the rest. */
static struct frozen_chunk *chunk_new(struct store *store, uint64_t n)
{
    struct frozen *f = &store->frozen;
    uint64_t capacity = frozen_chunk_bytes / row_bytes(&store->view), left = f->n_rows - f->cursor;
    struct frozen_chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL)
        return NULL;
    capacity = capacity > 2 * n ? capacity : 2 * n;
    chunk->has_room_for_all = capacity >= left;
    capacity = chunk->has_room_for_all ? left : capacity;
    struct arena arena = {.base = NULL};
    chunk->bytes = kept_lay_out(&chunk->view, &store->view, capacity, &arena);
    chunk->head_copy = buffer_new(sizeof *chunk->head_copy);
    chunk->memory = take_memory(store, chunk->bytes, &chunk->is_pinned);
    if (chunk->head_copy == NULL || chunk->memory == NULL) {
        chunk_free(store, chunk);
        return NULL;
    }
    *chunk->head_copy = (struct kept_head){.n = 0};
    arena = (struct arena){.base = chunk->memory};
    kept_lay_out(&chunk->view, &store->view, capacity, &arena);
    return chunk;
}

/* Appends a chunk. The head on the device, which the last chunk used, starts at 0. */
static int add_chunk(struct store *store, struct frozen_chunk *chunk)
{
    struct frozen *f = &store->frozen;
    chunk->view.done = f->done;
    chunk->view.n_rows = f->n_rows;
    chunk->view.head = f->heads + FETCHES;
    if (f->last != NULL)
        f->last->next = chunk;
    else
        f->first = chunk;
    f->last = chunk;
    return device_fill(chunk->view.head, 0, sizeof *chunk->view.head, store->stream);
}

/* Whether the chunk has room for n more rows. Unused room of finished launches counts. */
static bool has_room(const struct frozen_chunk *chunk, uint64_t n)
{
    struct kept_head head = frozen_read_head(chunk->head_copy);
    uint64_t most = (uint64_t)head.n + (chunk->asked - head.asked);
    return (chunk->has_room_for_all || most + n <= chunk->view.capacity) &&
           chunk->asked + n <= UINT32_MAX;
}

static int need_room(struct store *store, uint64_t n)
{
    struct frozen *f = &store->frozen;
    if (f->last != NULL && has_room(f->last, n))
        return 0;
    struct frozen_chunk *chunk = chunk_new(store, n);
    if (chunk != NULL)
        return add_chunk(store, chunk);
    f->is_broken = true;
    return 0;
}

/* `most`: rows that are copied at most. */
static int keep(struct store *store, const uint32_t *list, uint64_t first, uint64_t n,
                uint64_t most)
{
    struct frozen *f = &store->frozen;
    int status = need_room(store, most);
    if (status != 0 || f->is_broken)
        return status;
    struct frozen_chunk *chunk = f->last;
    chunk->asked += (uint32_t)most;
    chunk->view.asked = chunk->asked;
    status = launch_keep(store->view, chunk->view, list, first, n, store->stream);
    return status ? status
                  : device_copy(chunk->head_copy, chunk->view.head, sizeof *chunk->head_copy,
                                store->stream);
}

static int keep_list(struct store *store, const uint32_t *list, uint64_t first, uint64_t n)
{
    const struct frozen *f = &store->frozen;
    if (!is_keeping(f) || n == 0)
        return 0;
    return keep(store, list, first, n, n < f->n_rows - f->cursor ? n : f->n_rows - f->cursor);
}

int frozen_keep_refs(struct store *store, const uint32_t *refs, uint32_t n)
{
    return keep_list(store, refs, UINT64_MAX, n); /* row = ref - 1 */
}

int frozen_keep_rows(struct store *store, const uint32_t *rows, uint32_t n)
{
    return keep_list(store, rows, 0, n);
}

/* Copies as many rows at a time as fit in a chunk. If these are all rows left to read, the cut is
 * copied completely. */
int frozen_keep_range(struct store *store, uint64_t first, uint64_t n)
{
    struct frozen *f = &store->frozen;
    uint64_t begin = first > f->cursor ? first : f->cursor,
             end = first + n < f->n_rows ? first + n : f->n_rows,
             most = frozen_chunk_bytes / row_bytes(&store->view);
    bool is_rest = begin == f->cursor && end == f->n_rows;
    int status = 0;
    while (status == 0 && is_keeping(f) && begin < end) {
        uint64_t kept, next = frozen_range_end(f, begin, end, most ? most : 1, &kept);
        if (kept > 0)
            status = keep(store, NULL, begin, next - begin, kept);
        begin = next;
    }
    if (is_rest && f->is_on)
        f->cursor = f->n_rows;
    return status;
}

/* ---- the moment ---- */

static int take_flags(struct frozen *f)
{
    int status = 0;
    for (uint32_t i = 0; i < FETCHES && status == 0; i++)
        status = device_flag_new(&f->fetches[i].flag);
    return status;
}

static uint64_t words(const struct frozen *f)
{
    return f->n_rows / 32 + 1;
}

static int take_all(struct store *store, bool has_all)
{
    struct frozen *f = &store->frozen;
    struct arena arena = {.base = NULL};
    int status = take_flags(f);
    for (int turn = 0; turn < 2 && status == 0; turn++) {
        arena = (struct arena){.base = f->memory};
        f->done = arena_take(&arena, words(f) * sizeof *f->done);
        f->heads = arena_take(&arena, (FETCHES + 1) * sizeof *f->heads);
        if (turn == 0)
            status = cuda_new(store, &f->memory, arena.bytes);
    }
    if (status == 0)
        status = device_fill(f->memory, 0, arena.bytes, store->stream);
    if (status == 0 && !has_all &&
        (f->done_at_freeze = buffer_new(words(f) * sizeof *f->done)) == NULL)
        status = DEVICE_NO_MEMORY;
    if (status == 0 && f->n_candidates > 0) {
        f->candidates = take_memory(store, f->n_candidates * sizeof *f->candidates, &f->is_pinned);
        status = f->candidates ? 0 : DEVICE_NO_MEMORY;
    }
    return status;
}

static int copy_moment(struct store *store, bool has_all, uint8_t oldest)
{
    struct frozen *f = &store->frozen;
    int status = 0;
    if (!has_all)
        status = launch_mark_unchanged(store->changes.rows.base, f->n_rows, oldest, f->done,
                                       store->stream);
    if (status == 0 && !has_all)
        status = device_copy(f->done_at_freeze, f->done, words(f) * sizeof *f->done, store->stream);
    if (status == 0 && f->n_candidates > 0)
        status = launch_pick_candidates(store->view, f->candidates, &f->heads[FETCHES].n,
                                        f->n_candidates, store->stream);
    return status ? status : device_stream_wait(store->stream);
}

int frozen_begin(struct store *store, bool has_all, uint8_t oldest, struct embd__error *e)
{
    struct frozen *f = &store->frozen;
    *f = (struct frozen){
        .is_on = true, .n_rows = store->n_rows, .n_candidates = store->n_candidates};
    int status = take_all(store, has_all);
    if (status == 0)
        status = copy_moment(store, has_all, oldest);
    if (status == 0)
        return EMBD_OK;
    frozen_end(store);
    return cuda_error(store, status, "for a cut", e);
}

static bool is_settled(const struct frozen_chunk *chunk)
{
    return frozen_read_head(chunk->head_copy).asked == chunk->asked;
}

bool frozen_chunk_is_over(const struct frozen *f, const struct frozen_chunk *chunk)
{
    bool is_last = chunk == f->last && is_keeping(f);
    return !is_last && is_settled(chunk) && frozen_read_head(chunk->head_copy).n == chunk->read;
}

void frozen_drop_first(struct store *store)
{
    struct frozen *f = &store->frozen;
    struct frozen_chunk *chunk = f->first;
    f->first = chunk->next;
    if (f->first == NULL)
        f->last = NULL;
    chunk_free(store, chunk);
}

bool frozen_is_under_way(const struct store *store)
{
    const struct frozen *f = &store->frozen;
    for (const struct frozen_chunk *chunk = f->first; chunk != NULL; chunk = chunk->next)
        if (!is_settled(chunk))
            return true;
    for (uint32_t i = 0; i < f->n_fetches; i++) {
        int error;
        if (device_flag_query(f->fetches[(f->first_fetch + i) % FETCHES].flag, &error) ==
            DEVICE_PENDING)
            return true;
    }
    return false;
}

void frozen_end(struct store *store)
{
    struct frozen *f = &store->frozen;
    if (!f->is_on)
        return;
    if (frozen_is_under_way(store))
        device_stream_wait(store->stream);
    while (f->first != NULL)
        frozen_drop_first(store);
    for (uint32_t i = 0; i < FETCHES; i++) {
        device_flag_free(f->fetches[i].flag);
        buffer_free(f->fetches[i].memory, f->fetches[i].bytes);
    }
    device_free(f->memory, store->stream);
    give_memory(store, f->candidates, f->n_candidates * sizeof *f->candidates, f->is_pinned);
    buffer_free(f->done_at_freeze, words(f) * sizeof *f->done);
    *f = (struct frozen){.is_on = false};
}

uint64_t frozen_bytes(const struct store *store)
{
    const struct frozen *f = &store->frozen;
    uint64_t bytes =
        f->is_on ? words(f) * sizeof *f->done + f->n_candidates * sizeof *f->candidates : 0;
    for (const struct frozen_chunk *chunk = f->first; chunk != NULL; chunk = chunk->next)
        bytes += chunk->bytes;
    return bytes;
}
