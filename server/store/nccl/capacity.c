/* capacity.c - the bound of a table over several devices. It applies to the table as a whole. */
#include "server/store/nccl/group.h"

uint64_t group_room(const struct group *group)
{
    const embd_schema *s = &group->schema->s;
    uint64_t n_rows = 0;
    if (s->on_full == EMBD_ON_FULL_GROW || s->capacity == 0)
        return REF_ROWS_MAX;
    for (uint32_t d = 0; d < group->n; d++)
        n_rows += group->tables[d]->n_rows;
    return s->capacity > n_rows ? s->capacity - n_rows : 0;
}

void group_set_room(struct store *table, uint64_t room)
{
    uint64_t most = table->n_rows + room;
    table->n_rows_max = most < REF_ROWS_MAX ? most : REF_ROWS_MAX;
}

int group_refuse(const struct group *group, uint64_t n_leaders, uint64_t room,
                 struct embd__error *e)
{
    return embd__error_set(e, EMBD_FULL,
                           "table %s: %llu keys need a row, %llu rows are left of capacity %llu",
                           group->schema->s.name, (unsigned long long)n_leaders,
                           (unsigned long long)room, (unsigned long long)group->schema->s.capacity);
}
