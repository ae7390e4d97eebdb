/* keyindex.c - a table of cells, two thirds full at most, where a key is in the first free cell
 * from its own on. */
#include "client/hugectr/keyindex.h"

#include <inttypes.h>
#include <stdlib.h>

#include "proto/route.h"

int embd__keyindex_open(struct keyindex *index, uint64_t n, const char *what, struct embd__error *e)
{
    uint64_t n_cells = 16;
    while (n_cells < UINT64_MAX / 4 && n_cells < n + n / 2)
        n_cells *= 2;
    index->mask = n_cells - 1;
    index->cells =
        n_cells <= SIZE_MAX / sizeof *index->cells ? calloc(n_cells, sizeof *index->cells) : NULL;
    if (index->cells)
        return EMBD_OK;
    return embd__error_set(e, EMBD_NO_MEMORY, "%s: no memory for its %" PRIu64 " keys", what, n);
}

void embd__keyindex_close(struct keyindex *index)
{
    free(index->cells);
    *index = (struct keyindex){0};
}

/* The key's cell, or the free one that it would take. */
static struct keyindex_cell *find(const struct keyindex *index, uint64_t key)
{
    uint64_t at = embd__mix64(key) & index->mask;
    while (index->cells[at].number && index->cells[at].key != key)
        at = (at + 1) & index->mask;
    return &index->cells[at];
}

uint64_t embd__keyindex_add(struct keyindex *index, uint64_t key, uint64_t row)
{
    struct keyindex_cell *cell = find(index, key);
    if (cell->number)
        return cell->number - 1;
    *cell = (struct keyindex_cell){key, row + 1};
    return KEYINDEX_NONE;
}

uint64_t embd__keyindex_find(const struct keyindex *index, uint64_t key)
{
    return find(index, key)->number - 1; /* 0 - 1 is KEYINDEX_NONE */
}
