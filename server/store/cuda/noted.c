/* noted.c - what changed since earlier cuts, so that a cut can be of that alone.
 *
 * From a cut on, what changes is noted in a set of its own until the next cut begins another one;
 * the sets of the last NOTED_MAX cuts are kept. A row has a byte on the device: the number, from 1,
 * of the newest set when it last changed, or 0; it moves with the row. Keys that were erased or
 * evicted are listed on the host. An erase has them there; those of an eviction come from the
 * device into pinned memory, and are taken over at the next pass or cut, when the stream has been
 * waited for anyway.
 *
 * Where there is no memory for the bytes all sets are given up: the next cuts have all rows then.
 */
#include "server/store/cuda/cuda_store.h"

#include <string.h>

static struct gone *newest(struct store *store)
{
    return &store->noted.sets[store->noted.n - 1].gone;
}

/* A cut that still has keys to read is given up too. */
static void give_up(struct store *store)
{
    struct frozen *f = &store->frozen;
    f->is_broken = f->is_broken || f->first_set < f->end_set;
    while (store->noted.n > 0)
        gone_fini(&store->noted.sets[--store->noted.n].gone);
    store->view.row_sets = NULL;
}

static void drop_leaving(struct noted *noted)
{
    buffer_free(noted->leaving, noted->n_leaving * NOTED_LEAVING_BYTES);
    noted->leaving = NULL;
}

void noted_fini(struct store *store)
{
    give_up(store);
    drop_leaving(&store->noted);
    device_range_close(&store->noted.rows);
}

uint64_t noted_bytes(const struct store *store)
{
    uint64_t bytes = store->noted.rows.bytes;
    for (uint32_t i = 0; i < store->noted.n; i++)
        bytes += gone_bytes(&store->noted.sets[i].gone);
    return bytes;
}

/* ---- sets ---- */

int noted_make_room(struct store *store)
{
    struct noted *noted = &store->noted;
    if (noted->n < NOTED_MAX)
        return 0;
    gone_fini(&noted->sets[0].gone);
    memmove(noted->sets, noted->sets + 1, --noted->n * sizeof *noted->sets);
    return launch_age_rows(store->view, store->n_rows, store->stream);
}

uint32_t noted_find(const struct store *store, uint64_t cut)
{
    const struct noted *noted = &store->noted;
    uint32_t found = 0;
    while (found < noted->n && noted->sets[found].cut != cut)
        found++;
    for (uint32_t i = found; i < noted->n; i++)
        if (noted->sets[i].gone.is_unsure)
            return noted->n;
    return found;
}

void noted_grow(struct store *store)
{
    if (store->noted.n > 0 && device_range_grow(&store->noted.rows, store->capacity) != 0)
        give_up(store);
}

/* A byte for each row there is memory for; what was noted before nothing was, is nothing. */
static int open_rows(struct store *store)
{
    struct device_range *rows = &store->noted.rows;
    int status = rows->reserved ? 0 : device_range_open(rows, REF_ROWS_MAX);
    if (status == 0)
        status = device_range_grow(rows, store->capacity);
    if (status == 0)
        status = device_fill(rows->base, 0, store->n_rows, store->stream);
    return status;
}

int noted_begin(struct store *store, uint64_t cut)
{
    struct noted *noted = &store->noted;
    int status = noted->n == 0 ? open_rows(store) : 0;
    if (status == 0) {
        noted->sets[noted->n++] = (struct noted_set){.cut = cut};
        store->view.row_sets = noted->rows.base;
    }
    return status == DEVICE_NO_MEMORY ? 0 : status;
}

/* ---- rows ---- */

int noted_refs(struct store *store, const uint32_t *refs, uint32_t n)
{
    if (store->noted.n == 0 || n == 0)
        return 0;
    return launch_note_rows(store->view, refs, n, (uint8_t)store->noted.n, store->stream);
}

int noted_rows(struct store *store, uint64_t first, uint64_t n)
{
    if (store->noted.n == 0 || n == 0)
        return 0;
    return device_fill(store->view.row_sets + first, (int)store->noted.n, n, store->stream);
}

/* ---- keys ---- */

void noted_erased(struct store *store, const struct store_keys *in, const uint32_t *refs)
{
    for (uint32_t row = 0, k = 0; row < in->n_rows; row++)
        for (uint32_t end = in->offsets ? in->offsets[row + 1] : row + 1; k < end; k++)
            if (refs[k] != 0)
                gone_add(newest(store), in->keys[k], in->slots ? in->slots[row] : 0, store->n_rows);
}

void noted_take(struct store *store)
{
    struct noted *noted = &store->noted;
    const uint64_t *keys = (const uint64_t *)(const void *)noted->leaving;
    const uint16_t *slots = (const uint16_t *)(const void *)(keys + noted->n_leaving);
    if (keys == NULL)
        return;
    for (uint64_t i = 0; i < noted->n_leaving && noted->n > 0; i++)
        gone_add(newest(store), keys[i], slots[i], store->n_rows);
    drop_leaving(noted);
}

int noted_evicted(struct store *store, const uint32_t *rows, uint32_t n)
{
    struct noted *noted = &store->noted;
    if (noted->n == 0)
        return 0;
    noted->leaving = buffer_new(n * NOTED_LEAVING_BYTES);
    noted->n_leaving = n;
    newest(store)->is_unsure |= noted->leaving == NULL;
    if (noted->leaving == NULL)
        return 0;
    uint64_t *keys = (uint64_t *)(void *)noted->leaving;
    return launch_list_keys(store->view, rows, n, keys, (uint16_t *)(void *)(keys + n),
                            store->stream);
}
