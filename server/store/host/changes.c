/* changes.c - see changes.h. */
#include <string.h>

#include "server/store/host/host.h"

static void set_fini(struct change_set *set)
{
    marks_fini(&set->rows);
    gone_fini(&set->gone);
    *set = (struct change_set){.cut = 0};
}

void changes_fini(struct changes *changes)
{
    for (uint32_t i = 0; i < changes->n; i++)
        set_fini(&changes->sets[i]);
    changes->n = 0;
}

uint64_t changes_bytes(const struct changes *changes)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < changes->n; i++)
        bytes += marks_bytes(&changes->sets[i].rows) + gone_bytes(&changes->sets[i].gone);
    return bytes;
}

/* ---- sets ---- */

void changes_make_room(struct changes *changes)
{
    if (changes->n < CHANGES_MAX)
        return;
    set_fini(&changes->sets[0]);
    memmove(changes->sets, changes->sets + 1, --changes->n * sizeof *changes->sets);
}

void changes_begin(struct store *store, uint64_t cut)
{
    struct changes *changes = &store->changes;
    struct change_set *set = &changes->sets[changes->n++];
    *set = (struct change_set){.cut = cut};
    set->has_all = !marks_reserve(&set->rows, store->rows.n + 1);
}

uint32_t changes_find(const struct changes *changes, uint64_t cut)
{
    uint32_t found = 0;
    while (found < changes->n && changes->sets[found].cut != cut)
        found++;
    for (uint32_t i = found; i < changes->n; i++)
        if (changes->sets[i].gone.is_unsure)
            return changes->n;
    return found;
}

static bool unmark_all(const struct changes *changes, uint32_t first)
{
    for (uint32_t i = first; i < changes->n; i++)
        if (changes->sets[i].has_all)
            return true;
    return false;
}

void changes_unmark(const struct changes *changes, uint32_t first, struct marks *marks,
                    uint64_t n_rows)
{
    bool all = unmark_all(changes, first);
    for (uint64_t word = 0; word * 64 < n_rows; word++) {
        uint64_t changed = all ? UINT64_MAX : 0;
        for (uint32_t i = first; i < changes->n; i++)
            if (word * 64 < changes->sets[i].rows.capacity)
                changed |= changes->sets[i].rows.words[word];
        marks->words[word] = ~changed;
    }
}

/* ---- notes ---- */

static struct change_set *newest(struct store *store)
{
    return &store->changes.sets[store->changes.n - 1];
}

/* Memory for all rows there are. */
static bool has_place(struct store *store, struct change_set *set)
{
    if (!set->has_all && store->rows.n > set->rows.capacity)
        set->has_all = !marks_grow(&set->rows, store->rows.n);
    return !set->has_all;
}

void changes_note_row(struct store *store, uint32_t row)
{
    struct change_set *set = newest(store);
    if (has_place(store, set))
        marks_set(&set->rows, row);
}

void changes_note_merged(struct store *store)
{
    const struct merge *merge = &store->merge;
    struct change_set *set = newest(store);
    if (!has_place(store, set))
        return;
    struct marks rows = set->rows;
    for (uint32_t i = 0; i < merge->n; i++)
        if (merge->distinct[i].ref != 0)
            marks_set(&rows, merge->distinct[i].ref - 1);
}

void changes_note_all(struct store *store)
{
    newest(store)->has_all = true;
}

void changes_note_gone(struct store *store, uint64_t hash, uint32_t slot)
{
    gone_add(&newest(store)->gone, index_key(hash, slot), slot, rows_used(&store->rows));
}
