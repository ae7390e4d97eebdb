/* source.c - reads the pieces of a data set: opens files, checks headers and frames, fills chunks.
 *
 * The happy path: the first fill of a piece opens its file and checks the header; then sample after
 * sample is decoded where it lies in the stream's buffer. What can fail: a sample (it is dropped),
 * or the file (what came before is kept, the rest is left). Either ends the chunk with the fault
 * and a sentence that names the file and the sample. */
#include <inttypes.h>
#include <string.h>

#include "client/data/sample.h"
#include "client/data/source.h"
#include "embd/data.h"

int embd__source_init(struct source *s, const struct data_plan *plan, struct embd__error *e)
{
    size_t frame = (size_t)plan->sample_max + NORM_LENGTH_BYTES + NORM_CHECK_BYTES;
    size_t header = NORM_LENGTH_BYTES + NORM_HEADER_BYTES + NORM_CHECK_BYTES;
    *s = (struct source){.plan = plan};
    return embd__stream_init(&s->stream, frame > header ? frame : header, e);
}

void embd__source_fini(struct source *s)
{
    embd__stream_fini(&s->stream);
}

static const char *path_of(const struct source *s, uint64_t piece)
{
    return s->plan->files.paths[s->plan->shape.format == EMBD_DATA_FORMAT_RAW ? 0 : piece];
}

/* ---- faults ---------------------------------------------------------------------------------- */

/* The chunk ends here. `why` may be empty where the file simply ended. */
static void end_with(struct source *s, struct chunk *c, enum chunk_fault fault,
                     const struct embd__error *why)
{
    bool is_short = why->status == EMBD_OK;
    c->fault = fault;
    c->why.status = EMBD_OK;
    embd__error_set(&c->why, is_short ? EMBD_CORRUPT : why->status, "%s, sample %" PRIu64 ": %s",
                    s->stream.path, s->sample, is_short ? "the file ends within it" : why->text);
    if (fault == FAULT_SAMPLE)
        s->sample++;
}

/* A fault that lies in no sample: its sentence is whole. */
static void leave_file(struct chunk *c, const struct embd__error *why)
{
    c->fault = FAULT_FILE;
    c->why = *why;
}

static void on_bad_verdict(struct source *s, struct chunk *c, enum verdict verdict,
                           const struct embd__error *why)
{
    static const enum chunk_fault faults[] = {[SAMPLE_BAD] = FAULT_SAMPLE,
                                              [SAMPLE_SHORT] = FAULT_FILE,
                                              [SAMPLE_BROKEN] = FAULT_FILE,
                                              [SAMPLE_REFUSED] = FAULT_FATAL};
    end_with(s, c, faults[verdict], why);
}

/* ---- norm ------------------------------------------------------------------------------------ */

static bool sum_fits(const uint8_t *payload, size_t n)
{
    return embd__norm_sum(payload, n) == payload[n];
}

static int load_length(const struct stream *stream, uint64_t low, uint64_t high, size_t *length_out,
                       struct embd__error *why)
{
    int32_t length;
    memcpy(&length, embd__stream_bytes(stream), sizeof length);
    if (length < 0 || (uint64_t)length < low || (uint64_t)length > high)
        return embd__error_set(why, EMBD_CORRUPT,
                               "its length is %" PRId32 " bytes; it can be %" PRIu64 " to %" PRIu64,
                               length, low, high);
    *length_out = (size_t)length;
    return EMBD_OK;
}

/* Shows a frame's payload; it and what surrounds it are in the buffer until skipped. BAD: the
 * checksum differs. */
static enum verdict want_frame(struct stream *stream, uint64_t low, uint64_t high,
                               size_t *length_out, struct embd__error *why)
{
    if (embd__stream_want(stream, NORM_LENGTH_BYTES, why) != EMBD_OK)
        return SAMPLE_BROKEN;
    if (embd__stream_available(stream) < NORM_LENGTH_BYTES)
        return SAMPLE_SHORT;
    if (load_length(stream, low, high, length_out, why) != EMBD_OK)
        return SAMPLE_BROKEN;
    size_t bytes = NORM_LENGTH_BYTES + *length_out + NORM_CHECK_BYTES;
    if (embd__stream_want(stream, bytes, why) != EMBD_OK)
        return SAMPLE_BROKEN;
    if (embd__stream_available(stream) < bytes)
        return SAMPLE_SHORT;
    if (sum_fits(embd__stream_bytes(stream) + NORM_LENGTH_BYTES, *length_out))
        return SAMPLE_GOOD;
    embd__error_set(why, EMBD_CORRUPT, "the checksum of its %zu bytes differs", *length_out);
    return SAMPLE_BAD;
}

/* Inside a frame nothing is broken beyond it: what does not fit is a bad sample. */
static enum verdict read_framed(struct source *s, struct chunk *c, struct embd__error *why)
{
    const struct data_plan *plan = s->plan;
    size_t length, used = 0;
    enum verdict verdict = want_frame(&s->stream, plan->sample_min, plan->sample_max, &length, why);
    if (verdict == SAMPLE_GOOD) {
        const uint8_t *payload = embd__stream_bytes(&s->stream) + NORM_LENGTH_BYTES;
        verdict = embd__norm_decode(plan, payload, length, c, &used, why);
        if (verdict == SAMPLE_REFUSED)
            return verdict;
        if (verdict == SAMPLE_SHORT)
            embd__error_set(why, EMBD_CORRUPT, "its slots hold more keys than its %zu bytes",
                            length);
        if (verdict == SAMPLE_GOOD && used != length) {
            embd__error_set(why, EMBD_CORRUPT, "its slots end after %zu of its %zu bytes", used,
                            length);
            embd_csr_roll_back(&c->csr);
            c->n_samples--;
            verdict = SAMPLE_BAD;
        }
        verdict = verdict == SAMPLE_GOOD ? SAMPLE_GOOD : SAMPLE_BAD;
    }
    if (verdict == SAMPLE_GOOD || verdict == SAMPLE_BAD)
        embd__stream_skip(&s->stream, NORM_LENGTH_BYTES + length + NORM_CHECK_BYTES);
    return verdict;
}

/* Tries what the buffer holds, and after reading on once more. */
static enum verdict read_unframed(struct source *s, struct chunk *c, struct embd__error *why)
{
    struct stream *stream = &s->stream;
    size_t used = 0, available = embd__stream_available(stream);
    enum verdict verdict =
        embd__norm_decode(s->plan, embd__stream_bytes(stream), available, c, &used, why);
    if (verdict == SAMPLE_SHORT) {
        if (embd__stream_want(stream, s->plan->sample_max, why) != EMBD_OK)
            return SAMPLE_BROKEN;
        available = embd__stream_available(stream);
        verdict = embd__norm_decode(s->plan, embd__stream_bytes(stream), available, c, &used, why);
    }
    if (verdict == SAMPLE_GOOD || verdict == SAMPLE_BAD)
        embd__stream_skip(stream, used);
    return verdict;
}

static enum verdict show_header(struct source *s, const uint8_t **header_out, size_t *bytes_out,
                                struct embd__error *why)
{
    struct stream *stream = &s->stream;
    bool framed = s->plan->shape.checksum;
    enum verdict verdict = SAMPLE_GOOD;
    size_t length = NORM_HEADER_BYTES;
    if (framed)
        verdict = want_frame(stream, NORM_HEADER_BYTES, NORM_HEADER_BYTES, &length, why);
    else if (embd__stream_want(stream, NORM_HEADER_BYTES, why) != EMBD_OK)
        verdict = SAMPLE_BROKEN;
    else if (embd__stream_available(stream) < NORM_HEADER_BYTES)
        verdict = SAMPLE_SHORT;
    *header_out = embd__stream_bytes(stream) + (framed ? NORM_LENGTH_BYTES : 0);
    *bytes_out = length + (framed ? NORM_LENGTH_BYTES + NORM_CHECK_BYTES : 0);
    return verdict;
}

static int open_norm(struct source *s, uint64_t piece, struct embd__error *e)
{
    struct embd__error why = {0};
    const uint8_t *header;
    size_t bytes;
    const char *path = path_of(s, piece);
    if (embd__stream_open(&s->stream, path, 0, e) != EMBD_OK)
        return e->status;
    enum verdict verdict = show_header(s, &header, &bytes, &why);
    if (verdict == SAMPLE_SHORT)
        embd__error_set(&why, EMBD_CORRUPT, "the file ends within it");
    if (verdict != SAMPLE_GOOD)
        return embd__error_set(e, why.status, "%s, header: %s", path, why.text);
    if (embd__norm_decode_header(header, &s->plan->shape, &s->end, &why) != EMBD_OK)
        return embd__error_set(e, why.status, "%s: %s", path, why.text);
    embd__stream_skip(&s->stream, bytes);
    s->sample = 0;
    return EMBD_OK;
}

/* A norm file ends with its last sample. */
static int check_end(struct source *s, struct embd__error *e)
{
    if (s->plan->shape.format == EMBD_DATA_FORMAT_RAW ||
        embd__stream_want(&s->stream, 1, e) != EMBD_OK)
        return e->status;
    if (embd__stream_available(&s->stream) == 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s: more bytes follow the last of the %" PRIu64
                           " samples that its header names",
                           s->stream.path, s->end);
}

/* ---- raw ------------------------------------------------------------------------------------- */

static int open_raw(struct source *s, uint64_t piece, struct embd__error *e)
{
    const struct data_plan *plan = s->plan;
    uint64_t left;
    s->sample = piece * plan->piece_samples;
    left = plan->n_samples - s->sample;
    s->end = s->sample + (left < plan->piece_samples ? left : plan->piece_samples);
    return embd__stream_open(&s->stream, path_of(s, piece), s->sample * plan->sample_max, e);
}

static enum verdict read_raw(struct source *s, struct chunk *c, struct embd__error *why)
{
    size_t bytes = (size_t)s->plan->sample_max;
    if (embd__stream_want(&s->stream, bytes, why) != EMBD_OK)
        return SAMPLE_BROKEN;
    if (embd__stream_available(&s->stream) < bytes)
        return SAMPLE_SHORT;
    enum verdict verdict = embd__raw_decode(s->plan, embd__stream_bytes(&s->stream), c, why);
    embd__stream_skip(&s->stream, bytes);
    return verdict;
}

/* ---- filling --------------------------------------------------------------------------------- */

static enum verdict read_sample(struct source *s, struct chunk *c, struct embd__error *why)
{
    if (s->plan->shape.format == EMBD_DATA_FORMAT_RAW)
        return read_raw(s, c, why);
    return s->plan->shape.checksum ? read_framed(s, c, why) : read_unframed(s, c, why);
}

static void read_samples(struct source *s, struct chunk *c)
{
    struct embd__error why = {0};
    while (c->n_samples < s->plan->options.batch_samples && s->sample < s->end) {
        enum verdict verdict = read_sample(s, c, &why);
        if (verdict != SAMPLE_GOOD) {
            on_bad_verdict(s, c, verdict, &why);
            return;
        }
        s->sample++;
    }
    if (s->sample == s->end && check_end(s, &why) != EMBD_OK)
        leave_file(c, &why);
}

static int open_piece(struct source *s, uint64_t piece, struct embd__error *e)
{
    int status = s->plan->shape.format == EMBD_DATA_FORMAT_RAW ? open_raw(s, piece, e)
                                                               : open_norm(s, piece, e);
    s->is_open = status == EMBD_OK;
    return status;
}

void embd__source_fill(struct source *s, uint64_t piece, struct chunk *c)
{
    struct embd__error why = {0};
    embd__chunk_reset(c);
    if (!s->is_open && open_piece(s, piece, &why) != EMBD_OK)
        leave_file(c, &why);
    else
        read_samples(s, c);
    /* After a dropped sample the end is looked at in the next fill, which then finds nothing else.
     */
    c->ends_piece = c->fault == FAULT_FILE || c->fault == FAULT_FATAL ||
                    (c->fault == FAULT_NONE && s->sample == s->end);
    if (c->ends_piece) {
        embd__stream_close(&s->stream);
        s->is_open = false;
    }
}
