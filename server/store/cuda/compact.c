/* compact.c - removes rows that no entry names any more: rows from the end of the table take their
 * places, so row numbers have no gaps. */
#include "server/store/cuda/compact.h"

void compact_lay_out(struct removal *removal, uint32_t n, struct arena *arena)
{
    removal->rows = arena_take(arena, n * sizeof *removal->rows);
    removal->sorted = arena_take(arena, n * sizeof *removal->sorted);
    removal->order = arena_take(arena, n * sizeof *removal->order);
    removal->numbers = arena_take(arena, n * sizeof *removal->numbers);
    removal->movers = arena_take(arena, n * sizeof *removal->movers);
    removal->n_movers = arena_take(arena, sizeof *removal->n_movers);
    removal->is_mover = arena_take(arena, n);
    removal->sort_bytes = sort_bytes(n);
    removal->select_bytes = select_bytes(n);
    bool sort_is_more = removal->sort_bytes > removal->select_bytes;
    removal->temp = arena_take(arena, sort_is_more ? removal->sort_bytes : removal->select_bytes);
}

/* Sorts the removed rows, so that the remaining rows get the same numbers in every run. */
int compact_rows(struct store *store, const struct removal *removal, uint32_t n_gone)
{
    void *stream = store->stream;
    uint64_t n_after = store->n_rows - n_gone;
    if (n_gone == 0)
        return 0;
    lookup_drop_all(store);
    int status = launch_sort(removal->temp, removal->sort_bytes, removal->rows, removal->sorted,
                             removal->rows, removal->order, n_gone, 32, stream);
    if (status == 0)
        status = device_fill(removal->is_mover, 1, n_gone, stream);
    if (status == 0)
        status = launch_list_movers(removal->sorted, n_gone, n_after, removal->is_mover,
                                    removal->numbers, stream);
    if (status == 0)
        status =
            launch_select(removal->temp, removal->select_bytes, removal->numbers, removal->is_mover,
                          removal->movers, removal->n_movers, n_gone, stream);
    if (status == 0)
        status = frozen_keep_rows(store, removal->sorted, n_gone);
    if (status == 0) /* the rows that move, and the removed rows between them */
        status = frozen_keep_range(store, n_after, n_gone);
    if (status == 0)
        status = launch_move_rows(store->view, removal->sorted, removal->movers, removal->n_movers,
                                  n_gone, stream);
    store->n_rows = n_after;
    store->n_tombstones += n_gone;
    return status;
}
