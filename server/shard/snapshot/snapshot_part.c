/* snapshot_part.c - the part of a table that stands still while it is written: under a hold. */
#include <stdlib.h>

#include "block.h"
#include "part.h"
#include "snapshot.h"

struct still_rows {
    struct part_rows rows; /* first */
    const struct store_ops *ops;
    const struct table *table;
    struct store_scan scan;
    uint32_t max_rows;
    bool is_over;
};

static int next_still(struct part_rows *rows, struct row_block *out, struct embd__error *e)
{
    struct still_rows *s = (struct still_rows *)(void *)rows;
    do {
        if (s->is_over)
            return 0;
        if (s->ops->scan_frozen(s->table->store, s->max_rows, &s->scan, &s->is_over, e) != EMBD_OK)
            return e->status;
    } while (s->scan.n_rows + s->scan.n_candidates == 0);
    *out = block_of(&s->scan);
    return 1;
}

static int write_frozen(int dir, struct still_rows *still, uint32_t shard,
                        struct manifest_part *out, struct embd__error *e)
{
    const embd_schema *schema = &still->table->schema.s;
    still->max_rows = block_rows_in(schema, PARTFILE_BLOCK_BYTES);
    void *memory = block_new(schema, still->max_rows, &still->scan);
    if (memory == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to write a part of table '%s'",
                               schema->name);
    part_write(dir, schema, shard, &still->rows, out, e);
    free(memory);
    return e->status;
}

int snapshot_write_table(int dir, const struct store_ops *ops, const struct table *table,
                         uint32_t shard, struct manifest_part *out, struct embd__error *e)
{
    struct still_rows still = {.rows.next = next_still, .ops = ops, .table = table};
    struct store_cut cut = {.id = 0};
    if (ops->freeze(table->store, &cut, e) != EMBD_OK)
        return e->status;
    write_frozen(dir, &still, shard, out, e);
    ops->thaw(table->store);
    return e->status;
}
