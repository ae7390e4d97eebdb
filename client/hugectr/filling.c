/* filling.c - see filling.h. What can fail: the files, an existing table (nothing has changed
 * then), or a shard while rows are sent. A repeated key shows in the end, when the table has fewer
 * rows than were sent. */
#include "client/hugectr/filling.h"

#include <inttypes.h>

#include "client/formats/table_copy.h"

typedef int take_block(struct filling *f, const struct block *block, void *arg);

int embd__filling_open(struct filling *f)
{
    f->blocks.path = f->path;
    f->blocks.schema = f->schema;
    return embd__blocks_open(&f->blocks, f->e);
}

void embd__filling_close(struct filling *f)
{
    if (f->blocks.path)
        embd__blocks_close(&f->blocks);
}

static int each_block(struct filling *f, bool keys_only, take_block *take, void *arg)
{
    const struct block *block;
    uint32_t row_bytes = f->key_bytes + (keys_only ? 0 : 4 * f->schema->dim);
    if (embd__blocks_start(&f->blocks, keys_only, f->e))
        return f->e->status;
    while (embd__blocks_next(&f->blocks, &block, f->e) > 0)
        if (take(f, block, arg) ||
            embd__ticker_add(&f->ticker, block->n, block->n * (uint64_t)row_bytes, f->e))
            break;
    embd__blocks_stop(&f->blocks);
    return f->e->status;
}

int embd__filling_check(struct filling *f, bool has_values, take_block *take, void *arg,
                        embd_progress *progress, void *progress_arg)
{
    embd__ticker_begin(&f->ticker, progress, progress_arg, f->blocks.n_rows);
    if (each_block(f, !has_values, take, arg))
        return f->e->status;
    return embd__ticker_end(&f->ticker, f->e);
}

/* ---- rows ---- */

static int send_block(struct filling *f, const struct block *block, void *arg)
{
    bool has_slots = f->schema->partition == EMBD_PARTITION_SLOT;
    struct row_block rows = {
        .n_rows = block->n,
        .keys = block->keys,
        .slots = has_slots ? block->slots : NULL,
        .rows = f->schema->dtype == EMBD_DTYPE_F32 ? (const void *)block->vectors : block->rows,
        .states = f->blocks.n_state ? block->states : NULL};
    (void)arg;
    return embd__copy_fill_add(f->target, &rows);
}

/* Fewer rows than keys were sent: some were the same. */
static int check_distinct(struct filling *f, uint64_t rows)
{
    if (rows >= f->blocks.n_rows)
        return EMBD_OK;
    return embd__error_set(f->e, EMBD_CORRUPT,
                           "%s: has %" PRIu64 " keys, but only %" PRIu64 " different ones",
                           f->keys_path, f->blocks.n_rows, rows);
}

static int send_all(struct filling *f)
{
    uint64_t rows;
    if (each_block(f, false, send_block, NULL))
        return f->e->status;
    if (embd__copy_fill_flush(f->target, &rows) || check_distinct(f, rows) ||
        embd__copy_fill_set_step(f->target, f->step))
        return f->e->status;
    return embd__ticker_end(&f->ticker, f->e);
}

int embd__filling_run(struct filling *f, bool check_only, embd_progress *progress, void *arg)
{
    if (check_only)
        return embd__copy_fill_check(f->client, f->schema, f->path);
    if (embd__copy_fill_open(f->client, f->schema, f->path, &f->target))
        return f->e->status;
    embd__ticker_begin(&f->ticker, progress, arg, f->blocks.n_rows);
    int status = send_all(f);
    embd__copy_fill_end(f->target, status);
    return status;
}
