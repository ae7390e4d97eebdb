/* stream.h - a file read from front to back through one buffer. */
#ifndef EMBD_DATA_STREAM_H
#define EMBD_DATA_STREAM_H

#include "proto/errors.h"
#include "embd/data.h"

/* Owner: one reader thread. */
struct stream {
    int fd;           /* -1: no file is open */
    const char *path; /* the opener's, while the file is open */
    uint8_t *buffer;
    size_t capacity;
    size_t begin, end; /* of the bytes that were read and not yet skipped */
    bool at_end;       /* the file has no more */
};

/* A stream that can show `window` bytes at once. EMBD_NO_MEMORY. */
int embd__stream_init(struct stream *stream, size_t window, struct embd__error *e);
void embd__stream_fini(struct stream *stream);

/* A descriptor of a regular file, for reading; negative: EMBD_IO. */
int embd__regular_open(const char *path, struct embd__error *e);

/* Opens a regular file at an offset. EMBD_IO. */
int embd__stream_open(struct stream *stream, const char *path, uint64_t offset,
                      struct embd__error *e);
void embd__stream_close(struct stream *stream);

/* Reads until `n` bytes, at most the window, are there; fewer only at the end of the file. EMBD_IO.
 */
int embd__stream_want(struct stream *stream, size_t n, struct embd__error *e);

static inline size_t embd__stream_available(const struct stream *stream)
{
    return stream->end - stream->begin;
}

static inline const uint8_t *embd__stream_bytes(const struct stream *stream)
{
    return stream->buffer + stream->begin;
}

static inline void embd__stream_skip(struct stream *stream, size_t n)
{
    stream->begin += n;
}

#endif
