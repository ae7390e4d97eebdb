/* reader.c - batches out of chunks, in the order of the data.
 *
 * The happy path: open settles what there is to read and starts the threads; next takes chunk after
 * chunk from the front of the data until a batch is full, and hands the batch out. A chunk that is
 * a batch already, which is so wherever files hold whole batches, changes places with the empty
 * batch; others are copied, so that batches run across the ends of files. What can fail: faults
 * that the chunks bring along are counted; the one too many ends the data, once the samples before
 * it have been handed out. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/data/lanes.h"
#include "client/data/overlap.h"
#include "embd/data.h"

struct embd_reader {
    struct data_plan plan;
    struct lanes lanes;
    struct chunk *now; /* the lanes' chunk being emptied, or NULL */
    uint32_t n_taken;  /* samples of it that are in batches */
    uint64_t piece;    /* being taken */
    uint64_t n_batches;
    struct chunk *made; /* all batches, by next_made */
    struct chunk *free; /* those that are free, by next */
    struct overlap overlap;
    embd_reader_counts counts;
    struct embd__error fault; /* the first that was counted */
    struct embd__error error; /* ends the data */
};

/* ---- opening --------------------------------------------------------------------------------- */

int embd_reader_open(const char *path, const embd_data_shape *shape,
                     const embd_reader_options *options, embd_reader **reader_out)
{
    return embd_reader_open_lists(&path, 1, shape, options, reader_out);
}

int embd_reader_open_lists(const char *const *paths, uint32_t n_paths, const embd_data_shape *shape,
                           const embd_reader_options *options, embd_reader **reader_out)
{
    struct embd__error error = {0};
    embd_reader *reader = calloc(1, sizeof *reader);
    *reader_out = NULL;
    if (reader == NULL)
        embd__error_set(&error, EMBD_NO_MEMORY, "no memory for a reader");
    else if (embd__data_plan_open(&reader->plan, paths, n_paths, shape, options, &error) == EMBD_OK)
        embd__lanes_open(&reader->lanes, &reader->plan, &error);
    if (error.status == EMBD_OK) {
        *reader_out = reader;
        return EMBD_OK;
    }
    embd_reader_close(reader);
    return embd__error_keep(&error, error.status);
}

void embd_reader_close(embd_reader *reader)
{
    if (reader == NULL)
        return;
    embd__lanes_close(&reader->lanes);
    while (reader->made != NULL) {
        struct chunk *batch = reader->made;
        reader->made = batch->next_made;
        embd__chunk_close(batch);
        free(batch);
    }
    embd__overlap_free(&reader->overlap);
    embd__data_plan_close(&reader->plan);
    free(reader);
}

/* ---- batches --------------------------------------------------------------------------------- */

static struct chunk *make_batch(embd_reader *r)
{
    struct chunk *batch = malloc(sizeof *batch);
    if (batch == NULL || embd__chunk_open(batch, &r->plan, &r->error) != EMBD_OK) {
        embd__error_set(&r->error, EMBD_NO_MEMORY, "no memory for a batch");
        if (batch != NULL)
            embd__chunk_close(batch);
        free(batch);
        return NULL;
    }
    batch->next_made = r->made;
    r->made = batch;
    return batch;
}

static struct chunk *empty_batch(embd_reader *r)
{
    struct chunk *batch = r->free;
    if (batch == NULL)
        return make_batch(r);
    r->free = batch->next;
    embd__chunk_reset(batch);
    return batch;
}

void embd_reader_release(embd_reader *reader, embd_batch *batch)
{
    struct chunk *chunk = (struct chunk *)batch;
    if (chunk == NULL)
        return;
    chunk->next = reader->free;
    reader->free = chunk;
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void count_fault(embd_reader *r, const char *what, uint64_t *count, uint64_t limit,
                        const struct embd__error *why)
{
    if (r->fault.status == EMBD_OK)
        r->fault = *why;
    if (++*count > limit)
        embd__error_set(&r->error, EMBD_CORRUPT,
                        "bad %s %" PRIu64 ", and the limit is %" PRIu64 ": %s", what, *count, limit,
                        why->text);
}

static void settle(embd_reader *r, const struct chunk *chunk)
{
    const embd_reader_options *o = &r->plan.options;
    switch (chunk->fault) {
    case FAULT_NONE:
        r->counts.files += chunk->ends_piece;
        return;
    case FAULT_SAMPLE:
        count_fault(r, "sample", &r->counts.bad_samples, o->max_bad_samples, &chunk->why);
        return;
    case FAULT_FILE:
        count_fault(r, "file", &r->counts.bad_files, o->max_bad_files, &chunk->why);
        return;
    case FAULT_FATAL:
        embd__error_set(&r->error, chunk->why.status, "%s", chunk->why.text);
    }
}

/* Data without one usable sample are not an empty data set. */
static void check_some_samples(embd_reader *r)
{
    if (r->counts.samples == 0 && r->fault.status != EMBD_OK)
        embd__error_set(&r->error, EMBD_CORRUPT, "not one good sample: %s", r->fault.text);
}

/* ---- next ------------------------------------------------------------------------------------ */

/* The chunk has been emptied: what comes after its samples. */
static void finish_chunk(embd_reader *r)
{
    uint64_t piece = r->piece;
    settle(r, r->now);
    r->piece += r->now->ends_piece;
    r->now = NULL;
    r->n_taken = 0;
    embd__lanes_return(&r->lanes, piece);
}

static void move_samples(embd_reader *r, struct chunk *batch)
{
    uint32_t room = r->plan.options.batch_samples - batch->n_samples;
    uint32_t left = r->now->n_samples - r->n_taken, n = left < room ? left : room;
    if (left == r->plan.options.batch_samples && batch->n_samples == 0) {
        embd__chunk_swap(batch, r->now);
        r->n_taken = r->now->n_samples; /* none: the batch was empty */
    } else if (embd__chunk_append(batch, r->now, r->n_taken, n, &r->plan.shape, &r->error) ==
               EMBD_OK) {
        r->n_taken += n;
    } else {
        return;
    }
    r->counts.samples += n;
    if (r->n_taken == r->now->n_samples)
        finish_chunk(r);
}

static void fill(embd_reader *r, struct chunk *batch)
{
    while (batch->n_samples < r->plan.options.batch_samples && r->error.status == EMBD_OK &&
           (r->now != NULL || r->piece < r->plan.n_pieces)) {
        if (r->now == NULL)
            r->now = embd__lanes_take(&r->lanes, r->piece);
        move_samples(r, batch);
    }
}

/* The other fields of a batch that the options ask for. */
static int complete(embd_reader *r, struct chunk *batch)
{
    const embd_reader_options *o = &r->plan.options;
    if (o->refuse_overlap &&
        embd__overlap_check(&r->overlap, &batch->batch, r->plan.shape.slots, &r->error) != EMBD_OK)
        return r->error.status;
    return o->n_inputs > 0 ? embd__inputs_divide(&batch->inputs, &batch->batch, &r->plan, &r->error)
                           : EMBD_OK;
}

/* The next batch of all workers; NULL: none. */
static struct chunk *next_of_all(embd_reader *r)
{
    struct chunk *batch = r->error.status == EMBD_OK ? empty_batch(r) : NULL;
    if (batch == NULL)
        return NULL;
    fill(r, batch);
    embd__chunk_show(batch);
    if (batch->n_samples > 0 && complete(r, batch) == EMBD_OK)
        return batch;
    embd_reader_release(r, &batch->batch);
    return NULL;
}

static bool is_mine(const embd_reader *r, uint64_t batch)
{
    const embd_reader_options *o = &r->plan.options;
    return o->share == EMBD_DATA_SHARE_FILES || batch % o->workers == o->worker;
}

int embd_reader_next(embd_reader *reader, embd_batch **batch_out)
{
    struct chunk *batch = next_of_all(reader);
    while (batch != NULL && !is_mine(reader, reader->n_batches++)) {
        embd_reader_release(reader, &batch->batch);
        batch = next_of_all(reader);
    }
    if (batch == NULL)
        check_some_samples(reader);
    *batch_out = batch != NULL ? &batch->batch : NULL;
    return embd__error_keep(&reader->error, batch != NULL ? EMBD_OK : reader->error.status);
}

void embd_reader_count(const embd_reader *reader, embd_reader_counts *counts_out)
{
    *counts_out = reader->counts;
}

const char *embd_reader_fault(const embd_reader *reader)
{
    return reader->error.status != EMBD_OK ? reader->error.text : reader->fault.text;
}
