/* change_sets.c - records what changed since earlier cuts, so that a cut can contain only that.
 *
 * Each cut begins a new set, which records changes until the next cut. The sets of the last
 * CHANGE_SETS_MAX cuts are kept. Each row has a byte on the device: the number, from 1, of the
 * newest set when the row last changed, or 0. It moves with the row. The host lists keys that were
 * erased or evicted. It knows the erased ones; the device writes evicted ones to pinned memory, and
 * the host takes them over at the next pass or cut, which wait for the stream anyway.
 *
 * Without memory for the bytes all sets are dropped, and the next cuts contain all rows. */
#include "server/store/cuda/cuda_store.h"
#include "server/store/cuda/memory.h"

#include <string.h>

static struct gone *newest(struct store *store)
{
    return &store->changes.sets[store->changes.n - 1].gone;
}

/* Drops all sets. A cut that still has removed keys to read is broken. */
static void give_up(struct store *store)
{
    struct frozen *f = &store->frozen;
    f->is_broken = f->is_broken || f->first_set < f->end_set;
    while (store->changes.n > 0)
        gone_fini(&store->changes.sets[--store->changes.n].gone);
    store->view.row_sets = NULL;
}

static void drop_evicted(struct change_sets *changes)
{
    buffer_free(changes->evicted, changes->n_evicted * CHANGE_SETS_EVICTED_BYTES);
    changes->evicted = NULL;
}

void change_sets_fini(struct store *store)
{
    give_up(store);
    drop_evicted(&store->changes);
    device_range_close(&store->changes.rows);
}

uint64_t change_sets_bytes(const struct store *store)
{
    uint64_t bytes = store->changes.rows.bytes;
    for (uint32_t i = 0; i < store->changes.n; i++)
        bytes += gone_bytes(&store->changes.sets[i].gone);
    return bytes;
}

/* ---- sets ---- */

/* The rows of the set get the number of the set before it, and those of later sets follow. */
static int drop_set(struct store *store, uint32_t at)
{
    struct change_sets *changes = &store->changes;
    gone_fini(&changes->sets[at].gone);
    changes->n--;
    memmove(changes->sets + at, changes->sets + at + 1, (changes->n - at) * sizeof *changes->sets);
    return launch_age_rows(store->view, store->n_rows, (uint8_t)(at + 1), store->stream);
}

int change_sets_make_room(struct store *store)
{
    return store->changes.n < CHANGE_SETS_MAX ? 0 : drop_set(store, 0);
}

static void join_gone(struct store *store, struct gone *gone, const struct gone *later)
{
    gone->is_unsure = gone->is_unsure || later->is_unsure;
    for (uint64_t i = 0; i < later->n; i++)
        gone_add(gone, later->keys[i].key, later->keys[i].slot, store->n_rows);
}

void change_sets_drop(struct store *store, uint64_t cut)
{
    struct change_sets *changes = &store->changes;
    uint32_t at = 0;
    while (at < changes->n && changes->sets[at].cut != cut)
        at++;
    if (at == changes->n)
        return;
    change_sets_take_evicted(store);
    if (at > 0)
        join_gone(store, &changes->sets[at - 1].gone, &changes->sets[at].gone);
    if (drop_set(store, at) != 0)
        give_up(store);
    if (changes->n == 0)
        store->view.row_sets = NULL;
}

void change_sets_forget(struct store *store)
{
    if (store->changes.n > 0)
        newest(store)->is_unsure = true;
}

uint32_t change_sets_find(const struct store *store, uint64_t cut)
{
    const struct change_sets *changes = &store->changes;
    uint32_t found = 0;
    while (found < changes->n && changes->sets[found].cut != cut)
        found++;
    for (uint32_t i = found; i < changes->n; i++)
        if (changes->sets[i].gone.is_unsure)
            return changes->n;
    return found;
}

void change_sets_grow(struct store *store)
{
    if (store->changes.n > 0 && device_range_grow(&store->changes.rows, store->capacity) != 0)
        give_up(store);
}

/* Takes a byte for each row there is memory for, all 0: changes before the first set do not count.
 */
static int open_rows(struct store *store)
{
    struct device_range *rows = &store->changes.rows;
    int status = rows->reserved ? 0 : device_range_open(rows, REF_ROWS_MAX);
    if (status == 0)
        status = device_range_grow(rows, store->capacity);
    if (status == 0)
        status = device_fill(rows->base, 0, store->n_rows, store->stream);
    return status;
}

int change_sets_begin(struct store *store, uint64_t cut)
{
    struct change_sets *changes = &store->changes;
    int status = changes->n == 0 ? open_rows(store) : 0;
    if (status == 0) {
        changes->sets[changes->n++] = (struct change_set){.cut = cut};
        store->view.row_sets = changes->rows.base;
    }
    return status == DEVICE_NO_MEMORY ? 0 : status;
}

/* ---- rows ---- */

int change_sets_note_refs(struct store *store, const uint32_t *refs, uint32_t n)
{
    if (store->changes.n == 0 || n == 0)
        return 0;
    return launch_note_rows(store->view, refs, n, (uint8_t)store->changes.n, store->stream);
}

int change_sets_note_rows(struct store *store, uint64_t first, uint64_t n)
{
    if (store->changes.n == 0 || n == 0)
        return 0;
    return device_fill(store->view.row_sets + first, (int)store->changes.n, n, store->stream);
}

/* ---- keys ---- */

void change_sets_note_erased(struct store *store, const struct store_keys *in, const uint32_t *refs)
{
    for (uint32_t row = 0, k = 0; row < in->n_rows; row++)
        for (uint32_t end = in->offsets ? in->offsets[row + 1] : row + 1; k < end; k++)
            if (refs[k] != 0)
                gone_add(newest(store), in->keys[k], in->slots ? in->slots[row] : 0, store->n_rows);
}

void change_sets_take_evicted(struct store *store)
{
    struct change_sets *changes = &store->changes;
    const uint64_t *keys = (const uint64_t *)(const void *)changes->evicted;
    const uint16_t *slots = (const uint16_t *)(const void *)(keys + changes->n_evicted);
    if (keys == NULL)
        return;
    for (uint64_t i = 0; i < changes->n_evicted && changes->n > 0; i++)
        gone_add(newest(store), keys[i], slots[i], store->n_rows);
    drop_evicted(changes);
}

int change_sets_note_evicted(struct store *store, const uint32_t *rows, uint32_t n)
{
    struct change_sets *changes = &store->changes;
    if (changes->n == 0)
        return 0;
    changes->evicted = buffer_new(n * CHANGE_SETS_EVICTED_BYTES);
    changes->n_evicted = n;
    newest(store)->is_unsure |= changes->evicted == NULL;
    if (changes->evicted == NULL)
        return 0;
    uint64_t *keys = (uint64_t *)(void *)changes->evicted;
    return launch_list_keys(store->view, rows, n, keys, (uint16_t *)(void *)(keys + n),
                            store->stream);
}
