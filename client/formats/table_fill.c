/* table_fill.c - all rows of one table into a cluster.
 *
 * The happy path: no table is in the way; create it; send every row to the shard that owns its slot
 * or key; count the rows; set the step counter. What can fail: a table in the way, in which case
 * nothing has changed, or a shard while rows are sent: the table is then dropped again where this
 * filling created it. */
#include <stdlib.h>

#include "client/formats/admin.h"
#include "client/formats/scatter.h"
#include "client/formats/table_copy.h"
#include "client/formats/check_empty.h"

struct table_fill {
    embd_client *client;
    const embd_schema *schema;
    bool is_new; /* created here */
    struct scatter scatter;
};

int embd__copy_fill_check(embd_client *client, const embd_schema *schema, const char *source)
{
    int is_new = embd__check_empty(client, schema, source);
    return is_new < 0 ? is_new : EMBD_OK;
}

int embd__copy_fill_open(embd_client *client, const embd_schema *schema, const char *source,
                         struct table_fill **out)
{
    *out = NULL;
    int is_new = embd__check_empty(client, schema, source);
    if (is_new < 0)
        return is_new;
    struct table_fill *f = calloc(1, sizeof *f);
    if (!f)
        return embd__error_set(embd__client_error(client), EMBD_NO_MEMORY,
                               "no memory to fill table '%s'", schema->name);
    *f = (struct table_fill){.client = client, .schema = schema, .is_new = is_new};
    int status = embd_table_create(client, schema);
    if (status == EMBD_OK)
        status = embd__scatter_open(&f->scatter, client, schema, 0);
    if (status == EMBD_OK)
        *out = f;
    else
        embd__copy_fill_end(f, status);
    return status;
}

int embd__copy_fill_add(struct table_fill *f, const struct row_block *block)
{
    return embd__scatter_block(&f->scatter, block);
}

int embd__copy_fill_flush(struct table_fill *f, uint64_t *n_rows_out)
{
    uint64_t n_rows = 0;
    int status = embd__scatter_finish(&f->scatter);
    for (uint32_t shard = 0; shard < embd_shard_count(f->client) && !status; shard++) {
        struct description found;
        status = embd__admin_describe(f->client, shard, f->schema->name, &found);
        if (status)
            break;
        n_rows += found.rows;
        embd__schema_fini(&found.schema);
    }
    if (!status)
        *n_rows_out = n_rows;
    return status;
}

int embd__copy_fill_set_step(struct table_fill *f, uint64_t step)
{
    int status = EMBD_OK;
    for (uint32_t shard = 0; shard < embd_shard_count(f->client) && !status; shard++)
        status = embd__admin_set_step(f->client, shard, f->schema, 0, step);
    return status;
}

/* Drops the table, keeping the client's error. */
static void undo(struct table_fill *f)
{
    struct embd__error *e = embd__client_error(f->client), kept = *e;
    embd_table_drop(f->client, f->schema->name);
    *e = kept;
}

void embd__copy_fill_end(struct table_fill *f, int status)
{
    if (status && f->is_new)
        undo(f);
    embd__scatter_close(&f->scatter);
    free(f);
}
