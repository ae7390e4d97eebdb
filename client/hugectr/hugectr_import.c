/* hugectr_import.c - embd_hugectr_import: fills a table from a HugeCTR model folder.
 *
 * The happy path: open the files and compare their sizes; read `key` and `slot_id` once to check
 * each of them; look for an existing table; create it; read all files once more, block by block and
 * ahead of the requests (hugectr_blocks.h), and send every row to the shard that owns its slot or
 * key here; set the step counter. What can fail: the files (then nothing has changed), an existing
 * table (likewise), or a shard while rows are sent: the table that this import created is then
 * dropped again. A repeated key shows in the end, when the table has fewer rows than were sent. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/formats/table_copy.h"
#include "client/hugectr/hugectr_blocks.h"
#include "embd/admin.h"
#include "embd/hugectr.h"
#include "proto/schema_fields.h"
#include "proto/stored/ticker.h"

struct importing {
    embd_client *client;
    struct embd__error *e; /* the client's */
    const embd_schema *schema;
    const embd_hugectr_options *options;
    const char *path;
    struct hugectr_folder folder;
    struct state_reader state; /* open only with options->state_file */
    bool has_slots, has_state_file;
    struct hugectr_blocks blocks; /* open where blocks.path is set */
    struct table_fill *fill;
    struct ticker ticker;
};

/* ---- before anything changes ---- */

static int open_files(struct importing *m)
{
    struct hugectr_wanted wanted = {
        .dim = m->schema->dim,
        .has_slots = m->has_slots,
        .ignore_slots = m->options->ignore_slots,
        .why_no_slots =
            "the table's partition is not slot: a localized embedding has rows of (slot, "
            "key)"};
    if (embd__hugectr_open(&m->folder, m->path, &wanted, m->e))
        return m->e->status;
    m->has_state_file = m->options->state_file != NULL;
    return m->has_state_file ? embd__state_open(&m->state, m->schema, m->options, m->e) : EMBD_OK;
}

static int open_blocks(struct importing *m)
{
    m->blocks = (struct hugectr_blocks){.folder = &m->folder,
                                        .path = m->path,
                                        .schema = m->schema,
                                        .options = m->options,
                                        .state = m->has_state_file ? &m->state : NULL};
    return embd__blocks_open(&m->blocks, m->e);
}

/* Hands every block to `take`, which returns the bytes of the folder that it has used. */
static int each_block(struct importing *m, bool keys_only,
                      int (*take)(struct importing *m, const struct hugectr_block *block, void *arg,
                                  uint64_t *bytes_out),
                      void *arg)
{
    const struct hugectr_block *block;
    uint64_t bytes;
    if (embd__blocks_start(&m->blocks, keys_only, m->e))
        return m->e->status;
    while (embd__blocks_next(&m->blocks, &block, m->e) > 0)
        if (take(m, block, arg, &bytes) || embd__ticker_add(&m->ticker, block->n, bytes, m->e))
            break;
    embd__blocks_stop(&m->blocks);
    return m->e->status;
}

static int count_block(struct importing *m, const struct hugectr_block *block, void *arg,
                       uint64_t *bytes_out)
{
    uint64_t *counts = arg;
    for (uint32_t i = 0; i < block->n; i++)
        counts[embd__blocks_gpu(&m->blocks, block, i)]++;
    *bytes_out = (m->has_slots ? 16 : 8) * (uint64_t)block->n;
    return EMBD_OK;
}

/* Reads all keys and slots, for what is wrong with them and for the keys of each GPU. */
static int count_gpus(struct importing *m, uint64_t *counts)
{
    if (each_block(m, true, count_block, counts))
        return m->e->status;
    return m->has_state_file ? embd__state_check(&m->state, counts, m->e) : EMBD_OK;
}

static int check(struct importing *m, embd_progress *progress, void *arg)
{
    if (embd__hugectr_check(m->options, m->e) || embd__schema_check(m->schema, m->e) ||
        open_files(m) || open_blocks(m))
        return m->e->status;
    uint64_t *counts = calloc(m->options->n_gpus, sizeof *counts);
    if (!counts)
        return embd__error_set(m->e, EMBD_NO_MEMORY, "no memory for the keys of %" PRIu32 " GPUs",
                               m->options->n_gpus);
    embd__ticker_begin(&m->ticker, progress, arg, m->folder.n_rows);
    if (count_gpus(m, counts) == EMBD_OK)
        embd__ticker_end(&m->ticker, m->e);
    free(counts);
    return m->e->status;
}

/* ---- rows ---- */

static int send_block(struct importing *m, const struct hugectr_block *block, void *arg,
                      uint64_t *bytes_out)
{
    struct row_block rows = {
        .n_rows = block->n,
        .keys = block->keys,
        .slots = m->has_slots ? block->slots : NULL,
        .rows = m->schema->dtype == EMBD_DTYPE_F32 ? (const void *)block->vectors : block->rows,
        .states = m->blocks.n_state ? block->states : NULL};
    (void)arg;
    *bytes_out = block->n * (4 * (uint64_t)m->schema->dim + (m->has_slots ? 16 : 8));
    return embd__copy_fill_add(m->fill, &rows);
}

/* Fewer rows than keys were sent: some were the same. */
static int check_distinct(struct importing *m, uint64_t rows)
{
    if (rows >= m->folder.n_rows)
        return EMBD_OK;
    return embd__error_set(m->e, EMBD_CORRUPT,
                           "%s: has %" PRIu64 " keys, but only %" PRIu64 " different ones",
                           m->folder.key.path, m->folder.n_rows, rows);
}

static int send_all(struct importing *m)
{
    uint64_t rows;
    if (each_block(m, false, send_block, NULL))
        return m->e->status;
    if (embd__copy_fill_flush(m->fill, &rows) || check_distinct(m, rows) ||
        embd__copy_fill_set_step(m->fill, m->options->step))
        return m->e->status;
    return embd__ticker_end(&m->ticker, m->e);
}

/* ---- the phases ---- */

static int fill(struct importing *m, embd_progress *progress, void *arg)
{
    if (embd__copy_fill_open(m->client, m->schema, m->path, &m->fill))
        return m->e->status;
    embd__ticker_begin(&m->ticker, progress, arg, m->folder.n_rows);
    int status = send_all(m);
    embd__copy_fill_end(m->fill, status);
    return status;
}

static void fini(struct importing *m)
{
    if (m->blocks.path)
        embd__blocks_close(&m->blocks);
    embd__hugectr_close(&m->folder);
    embd__state_close(&m->state);
}

EMBD_API int embd_hugectr_import(embd_client *client, const embd_schema *schema, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out)
{
    embd_hugectr_options own;
    embd_schema own_schema;
    struct importing m = {.client = client,
                          .e = embd__copy_error(client),
                          .schema = &own_schema,
                          .options = &own,
                          .path = folder,
                          .folder = {{.fd = -1}, {.fd = -1}, {.fd = -1}, 0},
                          .state = {.file = {.fd = -1}}};
    *m.e = (struct embd__error){0};
    int status = embd__hugectr_take(&own, options, m.e);
    if (status == EMBD_OK)
        status = embd__schema_take(&own_schema, schema, m.e);
    m.has_slots = status == EMBD_OK && own_schema.partition == EMBD_PARTITION_SLOT;
    if (status == EMBD_OK)
        status = check(&m, progress, arg);
    if (status == EMBD_OK)
        status = own.check_only ? embd__copy_fill_check(client, m.schema, m.path)
                                : fill(&m, progress, arg);
    if (status == EMBD_OK && report_out)
        *report_out = (embd_dump_report){
            .rows = m.folder.n_rows,
            .bytes = m.folder.key.bytes + (m.has_slots ? m.folder.slot.bytes : 0) +
                     m.folder.vector.bytes + (m.has_state_file ? m.state.file.bytes : 0)};
    fini(&m);
    return embd__error_keep(m.e, status);
}
