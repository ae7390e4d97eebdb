/* data_set.c - embd's reader as a sampler: a batch of the reader becomes a batch of samples. */
#include "client/examples/fm/data_set.h"

#include "client/examples/startup.h"

#include <stdlib.h>
#include <string.h>

#define READ_SAMPLES                                                                               \
    256 /* of one batch of the reader: less than a trainer's, so that little is cut off */

typedef struct data_set {
    embd_reader *reader;
    embd_batch *batch; /* being handed out; or NULL */
    uint32_t next;     /* its first sample that was not */
} data_set;

static embd_reader *open_reader(const char *name)
{
    const embd_data_shape shape = {.label_dim = 1, .slots = SLOTS, .i64_keys = true};
    embd_reader_options options;
    embd_reader_options_init(&options);
    options.batch_samples = READ_SAMPLES;
    options.sample_keys = KEYS_PER_SAMPLE_MAX;
    return startup_open_data(name, shape, &options);
}

static bool count(const char *name, uint64_t *n_out)
{
    embd_reader *reader = open_reader(name);
    embd_batch *b = NULL;
    bool ok = reader != NULL;
    *n_out = 0;
    while (ok && (ok = startup_next_batch(reader, b, &b)) && b)
        *n_out += b->n_samples;
    embd_reader_close(reader);
    return ok;
}

static void copy_sample(batch *out, const embd_batch *from, uint32_t i)
{
    const uint64_t *offsets = from->offsets + (size_t)i * SLOTS;
    uint64_t *to = out->offsets + (size_t)out->n_samples * SLOTS;
    for (uint32_t s = 0; s < SLOTS; s++)
        to[s + 1] = out->n_keys + offsets[s + 1] - offsets[0];
    memcpy(out->keys + out->n_keys, from->keys + offsets[0],
           (offsets[SLOTS] - offsets[0]) * sizeof *out->keys);
    out->n_keys = to[SLOTS];
    out->labels[out->n_samples++] = from->labels[i];
}

static bool fill(sampler *s, batch *out)
{
    data_set *d = s->source;
    batch_clear(out);
    while (out->n_samples < out->room && !s->failed) {
        if (!d->batch || d->next == d->batch->n_samples) {
            d->next = 0;
            s->failed = !startup_next_batch(d->reader, d->batch, &d->batch);
            if (s->failed || !d->batch)
                break;
        }
        copy_sample(out, d->batch, d->next++);
    }
    return out->n_samples > 0 && !s->failed;
}

static void close_source(sampler *s)
{
    data_set *d = s->source;
    embd_reader_close(d->reader);
    free(d);
}

bool data_set_samples(sampler *s, const char *name)
{
    data_set *d = calloc(1, sizeof *d);
    *s = (sampler){.source = d, .fill = fill, .close = close_source};
    if (d && count(name, &s->n_samples) && (d->reader = open_reader(name)))
        return true;
    if (!d)
        fprintf(stderr, "out of memory\n");
    free(d);
    *s = (sampler){0};
    return false;
}
