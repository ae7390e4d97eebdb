/* hugectr_export.c - embd_hugectr_export: one table as a HugeCTR model folder and optimizer state.
 *
 * The happy path: stage FOLDER.tmp-PID. Read all rows of one cut of the table: their keys into
 * memory, and the rows, with optimizer states for a state file, into an unlinked file on the same
 * disk. Sort the keys by GPU, slot and key, an order that does not depend on the number of shards.
 * Write keys, slots, rows and states in that order. Sync the files, which began their way to the
 * disk as they were written, and rename the state file and then the folder. What can fail: a shard,
 * the disk, or a key or GPU that does not match the options. The staged files are then removed; the
 * names of state file and folder appear complete or never. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/formats/table_copy.h"
#include "client/hugectr/entries.h"
#include "client/hugectr/hugectr.h"
#include "client/hugectr/spool.h"
#include "embd/admin.h"
#include "embd/hugectr.h"
#include "proto/convert.h"
#include "proto/stored/durable.h"
#include "proto/stored/ticker.h"

#define STATE_NAME  "opt_sparse" /* in the staged folder, until it is published */
#define CHUNK_BYTES (1u << 20)
#define FILES_MAX   4 /* keys, slots, rows, states */

/* How far ahead of the copied states others are prefetched. */
#define PREFETCH_ROWS 8u

struct exporting {
    embd_client *client;
    struct embd__error *e; /* the client's */
    const embd_hugectr_options *options;
    struct table_read *cut;
    const struct table_schema *schema; /* valid as long as the cut */
    size_t dim;
    uint32_t n_tensors; /* of the state file; 0: none */
    char *staged;       /* directory being written; NULL: none */
    struct entry *entries;
    uint64_t n_entries, n_rows; /* collected, and promised by the shards */
    uint64_t *gpu_ends;         /* [n_gpus] entries before each GPU's end, once sorted */
    uint64_t gpu_rows;
    size_t record_floats; /* of the spool: a row's values, then its state tensors where wanted */
    float *record;        /* [record_floats] on its way into it */
    struct spool spool;   /* a record for each entry, by its place */
    uint8_t *chunk;       /* [CHUNK_BYTES] on its way to a file */
    size_t chunk_fill;
    struct durable_file files[FILES_MAX]; /* [n_files], the last being written */
    uint32_t n_files;
    struct ticker ticker;
    embd_dump_report report;
};

/* ---- collecting rows, of one cut ---- */

static int begin_cut(struct exporting *x, const char *table)
{
    if (embd__copy_read_open(x->client, table, &x->cut, &x->schema, &x->n_rows))
        return x->e->status;
    if (x->options->state_file && embd__hugectr_tensors(&x->schema->s, &x->n_tensors, x->e))
        return x->e->status;
    x->dim = x->schema->s.dim;
    x->record_floats = x->dim * (1 + x->n_tensors);
    x->record = malloc(x->record_floats * sizeof *x->record);
    x->entries = embd__entries_new(x->n_rows);
    if (!x->entries || !x->record)
        return embd__error_set(x->e, EMBD_NO_MEMORY, "no memory for the keys of %" PRIu64 " rows",
                               x->n_rows);
    return EMBD_OK;
}

/* The row's values, or the master values that it is rounded from. */
static void take_values(struct exporting *x, const struct row_block *block, uint32_t i)
{
    const embd_schema *s = &x->schema->s;
    const uint8_t *rows = block->rows;
    if (embd__schema_master_floats(s) == 0) {
        embd__row_to_f32(x->record, rows + i * embd__value_bytes(s->dtype, s->dim), s->dtype,
                         s->dim);
        return;
    }
    const float *state = block->states + (size_t)i * embd__schema_state_floats(s);
    memcpy(x->record, state + embd__schema_master_at(s), x->dim * sizeof(float));
}

static int add_row(struct exporting *x, const struct row_block *block, uint32_t i)
{
    uint16_t slot = block->slots ? block->slots[i] : 0;
    uint32_t gpu = embd__hugectr_gpu(&x->schema->s, x->options->n_gpus, slot, block->keys[i]);
    x->entries[x->n_entries] = (struct entry){block->keys[i], x->n_entries, (uint16_t)gpu, slot};
    x->n_entries++;
    take_values(x, block, i);
    if (x->n_tensors != 0)
        memcpy(x->record + x->dim,
               block->states + (size_t)i * embd__schema_state_floats(&x->schema->s),
               x->dim * x->n_tensors * sizeof(float));
    return embd__spool_add(&x->spool, x->record, x->e);
}

static void end_cut(struct exporting *x)
{
    if (x->cut)
        embd__copy_read_end(x->cut, &x->report.pause_us);
    x->cut = NULL;
    x->schema = NULL;
}

static int collect_rows(struct exporting *x, embd_progress *progress, void *arg)
{
    const struct row_block *block;
    int got;
    embd__ticker_begin(&x->ticker, progress, arg, x->n_rows);
    while ((got = embd__copy_read_next(x->cut, &block)) > 0) {
        for (uint32_t i = 0; i < block->n_rows && !x->e->status; i++)
            add_row(x, block, i);
        if (x->e->status || embd__ticker_add(&x->ticker, block->n_rows, 0, x->e))
            return x->e->status;
    }
    return got;
}

/* ---- ordering them ---- */

static int check_keys(struct exporting *x)
{
    for (uint64_t i = 0; x->options->u32_keys && i < x->n_entries; i++)
        if (x->entries[i].key > UINT32_MAX)
            return embd__error_set(x->e, EMBD_INVALID,
                                   "table '%s' has key %" PRIu64
                                   ", which is beyond 32 bits; export it with 64-bit keys",
                                   x->schema->s.name, x->entries[i].key);
    return EMBD_OK;
}

/* Where each GPU's rows end; and the rows of a buffer that holds any GPU's. */
static int count_gpus(struct exporting *x)
{
    uint64_t at = 0, fullest = 0;
    x->gpu_ends = calloc(x->options->n_gpus, sizeof *x->gpu_ends);
    if (!x->gpu_ends)
        return embd__error_set(x->e, EMBD_NO_MEMORY, "no memory for %" PRIu32 " GPUs",
                               x->options->n_gpus);
    for (uint32_t gpu = 0; gpu < x->options->n_gpus; gpu++) {
        uint64_t first = at;
        while (at < x->n_entries && x->entries[at].gpu == gpu)
            at++;
        x->gpu_ends[gpu] = at;
        if (at - first > fullest)
            fullest = at - first;
        if (x->n_tensors && x->options->gpu_rows && at - first > x->options->gpu_rows)
            return embd__error_set(x->e, EMBD_INVALID,
                                   "gpu_rows is %" PRIu64 ", but GPU %" PRIu32 " of %" PRIu32
                                   " has %" PRIu64 " keys",
                                   x->options->gpu_rows, gpu, x->options->n_gpus, at - first);
    }
    x->gpu_rows = x->options->gpu_rows ? x->options->gpu_rows : fullest;
    return EMBD_OK;
}

/* A GPU's hash table there has one row a key, whatever the slot: one of the two would be lost. */
static int refuse_twins(struct exporting *x, const struct entry_twins *twins)
{
    return embd__error_set(x->e, EMBD_INVALID,
                           "table '%s' has key %" PRIu64 " in slots %u and %u, both of GPU %u of "
                           "%" PRIu32 ", which holds a key once; export it for %" PRIu32
                           " GPUs, one a slot",
                           x->schema->s.name, twins->a.key, twins->a.slot, twins->b.slot,
                           twins->a.gpu, x->options->n_gpus, x->schema->s.slots);
}

static int order(struct exporting *x)
{
    struct entry_twins twins;
    if (!embd__entries_sort(x->entries, x->n_entries, &twins))
        return embd__error_set(x->e, EMBD_NO_MEMORY, "no memory to sort %" PRIu64 " keys",
                               x->n_entries);
    if (twins.are_there)
        return refuse_twins(x, &twins);
    if (check_keys(x) || count_gpus(x))
        return x->e->status;
    return embd__spool_map(&x->spool, x->e);
}

/* ---- writing the files ---- */

static struct durable_file *file(struct exporting *x)
{
    return &x->files[x->n_files - 1];
}

static int flush_chunk(struct exporting *x)
{
    struct msg_piece piece = {x->chunk, x->chunk_fill};
    x->chunk_fill = 0;
    if (embd__durable_write(file(x), &piece, 1, x->e))
        return x->e->status;
    return embd__ticker_add(&x->ticker, 0, piece.bytes, x->e);
}

/* Room for the next `bytes` of the file, at most CHUNK_BYTES; NULL: the error is set. */
static void *append(struct exporting *x, size_t bytes)
{
    if (x->chunk_fill + bytes > CHUNK_BYTES && flush_chunk(x))
        return NULL;
    x->chunk_fill += bytes;
    return x->chunk + x->chunk_fill - bytes;
}

static int begin_file(struct exporting *x, const char *name)
{
    x->n_files++;
    x->chunk_fill = 0;
    return embd__durable_create_plain(file(x), x->staged, name, x->e);
}

/* Ends the writing of a file, without waiting for the disk. */
static int end_file(struct exporting *x)
{
    if (flush_chunk(x))
        return x->e->status;
    embd__durable_flush(file(x));
    x->report.bytes += file(x)->bytes;
    return EMBD_OK;
}

static int finish_files(struct exporting *x)
{
    for (uint32_t i = 0; i < x->n_files; i++)
        if (embd__durable_finish(&x->files[i], x->e))
            return x->e->status;
    return EMBD_OK;
}

static void put_key(const struct exporting *x, const struct entry *entry, void *to)
{
    (void)x;
    memcpy(to, &entry->key, sizeof entry->key);
}

static void put_slot(const struct exporting *x, const struct entry *entry, void *to)
{
    uint64_t slot = entry->slot;
    (void)x;
    memcpy(to, &slot, sizeof slot);
}

/* A file of one item a row. */
static int write_file(struct exporting *x, const char *name, size_t item_bytes,
                      void (*put)(const struct exporting *, const struct entry *, void *to))
{
    if (begin_file(x, name))
        return x->e->status;
    for (uint64_t i = 0; i < x->n_entries; i++) {
        void *to = append(x, item_bytes);
        if (!to)
            return x->e->status;
        put(x, &x->entries[i], to);
    }
    return end_file(x);
}

/* The record of entry i, while later ones are prefetched. */
static const float *record(const struct exporting *x, uint64_t i)
{
    if (i + PREFETCH_ROWS < x->n_entries)
        embd__spool_prefetch(&x->spool, x->entries[i + PREFETCH_ROWS].place);
    return embd__spool_record(&x->spool, x->entries[i].place);
}

static int write_vectors(struct exporting *x)
{
    size_t bytes = x->dim * sizeof(float);
    if (begin_file(x, HUGECTR_VECTOR))
        return x->e->status;
    for (uint64_t i = 0; i < x->n_entries; i++) {
        void *to = append(x, bytes);
        if (!to)
            return x->e->status;
        memcpy(to, record(x, i), bytes);
    }
    return end_file(x);
}

/* One GPU's buffer of one state tensor: its rows first, then zeros. */
static int write_buffer(struct exporting *x, uint32_t tensor, uint32_t gpu)
{
    size_t dim = x->dim, bytes = dim * embd__dtype_bytes(x->options->state_dtype);
    uint64_t first = gpu ? x->gpu_ends[gpu - 1] : 0, n = x->gpu_ends[gpu] - first;
    for (uint64_t row = 0; row < x->gpu_rows; row++) {
        void *to = append(x, bytes);
        if (!to)
            return x->e->status;
        if (row >= n) {
            memset(to, 0, bytes);
            continue;
        }
        embd__from_f32(to, x->options->state_dtype, record(x, first + row) + (1 + tensor) * dim,
                       dim);
    }
    return EMBD_OK;
}

static int write_state(struct exporting *x)
{
    if (begin_file(x, STATE_NAME))
        return x->e->status;
    for (uint32_t tensor = 0; tensor < x->n_tensors; tensor++)
        for (uint32_t gpu = 0; gpu < x->options->n_gpus; gpu++)
            if (write_buffer(x, tensor, gpu))
                return x->e->status;
    return end_file(x);
}

static int write_table(struct exporting *x)
{
    if (write_file(x, HUGECTR_KEY, 8, put_key))
        return x->e->status;
    if (x->schema->s.partition == EMBD_PARTITION_SLOT && write_file(x, HUGECTR_SLOT, 8, put_slot))
        return x->e->status;
    return write_vectors(x);
}

/* ---- the phases ---- */

static int take_table(struct exporting *x, const char *table, embd_progress *progress, void *arg)
{
    if (begin_cut(x, table))
        return x->e->status;
    if (embd__spool_open(&x->spool, x->staged, x->record_floats * sizeof(float), x->e) ||
        collect_rows(x, progress, arg) || order(x) || write_table(x))
        return x->e->status;
    return x->n_tensors ? write_state(x) : EMBD_OK;
}

static int collect(struct exporting *x, const char *table, embd_progress *progress, void *arg)
{
    x->chunk = malloc(CHUNK_BYTES);
    if (!x->chunk)
        return embd__error_set(x->e, EMBD_NO_MEMORY, "no memory for rows on their way");
    take_table(x, table, progress, arg);
    end_cut(x);
    return x->e->status ? x->e->status : finish_files(x);
}

static int publish(struct exporting *x, const char *folder)
{
    const char *state = x->options->state_file;
    if (embd__ticker_end(&x->ticker, x->e))
        return x->e->status;
    if (x->n_tensors && embd__durable_publish_file(x->staged, STATE_NAME, state, x->e))
        return x->e->status;
    if (embd__durable_publish(x->staged, folder, x->e) && x->n_tensors)
        unlink(state);
    return x->e->status;
}

static int check(struct exporting *x)
{
    struct stat st;
    const char *state = x->options->state_file;
    if (embd__hugectr_check(x->options, x->e))
        return x->e->status;
    if (state && lstat(state, &st) == 0)
        return embd__error_set(x->e, EMBD_EXISTS, "%s exists; remove it first", state);
    return EMBD_OK;
}

static void fini(struct exporting *x)
{
    embd__spool_fini(&x->spool);
    for (uint32_t i = 0; i < x->n_files; i++)
        embd__durable_fini(&x->files[i]);
    free(x->entries);
    free(x->record);
    free(x->gpu_ends);
    free(x->chunk);
    free(x->staged);
}

EMBD_API int embd_hugectr_export(embd_client *client, const char *table, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out)
{
    embd_hugectr_options own;
    struct exporting x = {.client = client, .e = embd__copy_error(client), .options = &own};
    *x.e = (struct embd__error){0};
    int status = embd__hugectr_take(&own, options, x.e);
    if (status == EMBD_OK)
        status = check(&x);
    if (status == EMBD_OK)
        status = embd__durable_stage(folder, &x.staged, x.e);
    if (status == EMBD_OK)
        status = collect(&x, table, progress, arg);
    if (status == EMBD_OK)
        status = publish(&x, folder);
    if (status && x.staged)
        embd__durable_discard(x.staged);
    x.report.rows = x.n_entries;
    if (status == EMBD_OK && report_out)
        *report_out = x.report;
    fini(&x);
    return embd__error_keep(x.e, status);
}
