/* sample.h - the bytes of norm and raw files: headers and samples, to and from chunks.
 *
 * Decoders believe nothing: every count is checked against the remaining bytes before it is used.
 * Numbers are little-endian, as on every machine that embd runs on. */
#ifndef EMBD_DATA_SAMPLE_H
#define EMBD_DATA_SAMPLE_H

#include "client/data/chunk.h"
#include "embd/data.h"

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "data sets are read and written on little-endian machines"
#endif

#define NORM_HEADER_BYTES 64u
#define NORM_LENGTH_BYTES 4u /* before header and samples that carry a checksum */
#define NORM_CHECK_BYTES  1u /* after them */

enum verdict {
    SAMPLE_GOOD,
    SAMPLE_BAD,     /* complete, but not usable */
    SAMPLE_SHORT,   /* goes on after the available bytes */
    SAMPLE_BROKEN,  /* makes no sense; the beginning of the next one is unknown */
    SAMPLE_REFUSED, /* no memory for it */
};

/* The first `n` bytes as a sample at the end of the chunk. GOOD and BAD set *used_out; all but GOOD
 * leave the chunk's samples as they were, and all but GOOD and SHORT say why. */
enum verdict embd__norm_decode(const struct data_plan *plan, const uint8_t *p, size_t n,
                               struct chunk *chunk, size_t *used_out, struct embd__error *why);

/* A sample of plan->sample_max bytes. GOOD or BAD. */
enum verdict embd__raw_decode(const struct data_plan *plan, const uint8_t *p, struct chunk *chunk,
                              struct embd__error *why);

/* Sum of the bytes modulo 256. */
uint8_t embd__norm_sum(const uint8_t *p, size_t n);

/* Checks the 64 bytes of a header: EMBD_CORRUPT names the field that differs from the shape. */
int embd__norm_decode_header(const uint8_t *p, const embd_data_shape *shape,
                             uint64_t *n_samples_out, struct embd__error *e);

#endif
