/* hugectr_import.c - embd_hugectr_import: fills a table from a HugeCTR model folder.
 *
 * The happy path: open the files and compare their sizes; read `key` and `slot_id` once to check
 * each of them; look for an existing table; create it; read all files once more, block by block and
 * ahead of the requests (blocks.h, filling.h), and send every row to the shard that owns its slot
 * or key here; set the step counter. What can fail: the files (then nothing has changed), an
 * existing table (likewise), or a shard while rows are sent: the table that this import created is
 * then dropped again. A repeated key shows in the end, when the table has fewer rows than were
 * sent. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/formats/table_copy.h"
#include "client/hugectr/filling.h"
#include "client/hugectr/hugectr_source.h"
#include "embd/hugectr.h"
#include "proto/schema_fields.h"

struct importing {
    struct filling filling;
    const embd_schema *schema;
    const embd_hugectr_options *options;
    const char *path;
    struct hugectr_folder folder;
    struct hugectr_source source;
    struct state_reader state; /* open only with options->state_file */
    bool has_slots, has_state_file;
};

/* ---- checks ---- */

static int open_files(struct importing *m, struct embd__error *e)
{
    struct hugectr_wanted wanted = {
        .dim = m->schema->dim,
        .has_slots = m->has_slots,
        .ignore_slots = m->options->ignore_slots,
        .why_no_slots =
            "the table's partition is not slot: a localized embedding has rows of (slot, "
            "key)"};
    if (embd__hugectr_open(&m->folder, m->path, &wanted, e))
        return e->status;
    m->has_state_file = m->options->state_file != NULL;
    return m->has_state_file ? embd__state_open(&m->state, m->schema, m->options, e) : EMBD_OK;
}

static int open_blocks(struct importing *m)
{
    struct filling *f = &m->filling;
    m->source = (struct hugectr_source){.folder = &m->folder,
                                        .schema = m->schema,
                                        .options = m->options,
                                        .state = m->has_state_file ? &m->state : NULL,
                                        .blocks = &f->blocks};
    f->blocks.source = embd__hugectr_source(&m->source);
    f->blocks.n_rows = m->folder.n_rows;
    f->schema = m->schema;
    f->path = m->path;
    f->keys_path = m->folder.key.path;
    f->step = m->options->step;
    f->key_bytes = m->has_slots ? 16 : 8;
    return embd__filling_open(f);
}

static int count_block(struct filling *f, const struct block *block, void *arg)
{
    const struct hugectr_source *source = f->blocks.source.arg;
    uint64_t *counts = arg;
    for (uint32_t i = 0; i < block->n; i++)
        counts[embd__hugectr_source_gpu(source, block, i)]++;
    return EMBD_OK;
}

/* Reads all keys and slots, for what is wrong with them and for the keys of each GPU. */
static int check_rows(struct importing *m, embd_progress *progress, void *arg)
{
    struct embd__error *e = m->filling.e;
    uint64_t *counts = calloc(m->options->n_gpus, sizeof *counts);
    if (!counts)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the keys of %" PRIu32 " GPUs",
                               m->options->n_gpus);
    if (embd__filling_check(&m->filling, false, count_block, counts, progress, arg) == EMBD_OK &&
        m->has_state_file)
        embd__state_check(&m->state, counts, e);
    free(counts);
    return e->status;
}

static int check(struct importing *m, embd_progress *progress, void *arg)
{
    struct embd__error *e = m->filling.e;
    if (embd__hugectr_check(m->options, e) || embd__schema_check(m->schema, e) ||
        open_files(m, e) || open_blocks(m))
        return e->status;
    return check_rows(m, progress, arg);
}

/* ---- the call ---- */

static void fini(struct importing *m)
{
    embd__filling_close(&m->filling);
    embd__hugectr_close(&m->folder);
    embd__state_close(&m->state);
}

static uint64_t bytes_of(const struct importing *m)
{
    return m->folder.key.bytes + (m->has_slots ? m->folder.slot.bytes : 0) +
           m->folder.vector.bytes + (m->has_state_file ? m->state.file.bytes : 0);
}

EMBD_API int embd_hugectr_import(embd_client *client, const embd_schema *schema, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out)
{
    embd_hugectr_options own;
    embd_schema own_schema;
    struct embd__error *e = embd__copy_error(client);
    struct importing m = {.filling = {.client = client, .e = e},
                          .schema = &own_schema,
                          .options = &own,
                          .path = folder,
                          .folder = {{.fd = -1}, {.fd = -1}, {.fd = -1}, 0},
                          .state = {.file = {.fd = -1}}};
    *e = (struct embd__error){0};
    int status = embd__hugectr_take(&own, options, e);
    if (status == EMBD_OK)
        status = embd__schema_take(&own_schema, schema, e);
    m.has_slots = status == EMBD_OK && own_schema.partition == EMBD_PARTITION_SLOT;
    if (status == EMBD_OK)
        status = check(&m, progress, arg);
    if (status == EMBD_OK)
        status = embd__filling_run(&m.filling, own.check_only, progress, arg);
    if (status == EMBD_OK && report_out)
        *report_out = (embd_dump_report){.rows = m.folder.n_rows, .bytes = bytes_of(&m)};
    fini(&m);
    return embd__error_keep(e, status);
}
