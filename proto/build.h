/* build.h - building messages.
 *
 * `struct msg` is a head of bytes with bins cut out. They point to memory of the caller's, which is
 * gathered by writev and never copied, or to nothing yet: the sender makes their bytes as it sends.
 * It keeps its first error: write straight through, check once. */
#ifndef EMBD_PROTO_BUILD_H
#define EMBD_PROTO_BUILD_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "embd/status.h"
#include "proto/frame.h"
#include "proto/method.h"

/* A bin, or one of several pieces of a bin, which have one place. */
struct msg_bin {
    uint32_t at; /* offset in head where the payload goes */
    uint64_t bytes;
    const void *data; /* NULL: made while sending */
};

/* Shorter bins are sent. */
#define SHARED_LEAST_BYTES 1024u

/* Memory that the receiver has, too. */
struct shared_range {
    const uint8_t *base; /* NULL: none */
    uint64_t bytes;
};

/* Owner: one thread. Buffers are kept between messages. */
struct msg {
    uint8_t *head;
    uint32_t head_bytes, head_capacity;
    struct msg_bin *bins; /* pieces of bins, too */
    uint32_t n_bins, bins_capacity;
    uint32_t n_whole;                  /* bins, however many pieces they have */
    bool has_lent_head, has_lent_bins; /* embd__msg_lend */
    uint8_t *own;                      /* [own_capacity] bytes of a bin that embd__msg_own made */
    uint32_t own_capacity;
    uint32_t count_at; /* offset of the array16 count that embd__msg_end fills in */
    uint32_t limit;    /* of the message's bytes, by its method */
    struct shared_range shared;
    bool names_shared; /* a bin of it lies there */
    int status;        /* EMBD_OK, EMBD_NO_MEMORY or EMBD_TOO_LARGE; sticky */
};

void embd__msg_init(struct msg *m);
void embd__msg_fini(struct msg *m);
/* Its first buffers, which outlive it: what fits there is beside what else its owner has. */
void embd__msg_lend(struct msg *m, uint8_t *head, uint32_t head_bytes, struct msg_bin *bins,
                    uint32_t n_bins);
int embd__msg_grow(struct msg *m, uint32_t head_bytes, uint32_t n_bins);
/* Reserves memory for this many more bytes of head, and bins: adding them does not fail then.
 * EMBD_NO_MEMORY, EMBD_TOO_LARGE. */
static inline int embd__msg_reserve(struct msg *m, uint32_t head_bytes, uint32_t n_bins)
{
    bool has_room =
        head_bytes <= m->head_capacity - m->head_bytes && n_bins <= m->bins_capacity - m->n_bins;
    return has_room ? m->status : embd__msg_grow(m, head_bytes, n_bins);
}

/* Each begins a new message in m, dropping what it held. A request or result goes on with exactly
 * one map, then any number of bins, then embd__msg_end. An error is complete at once: [1, msgid,
 * [number, text], nil]. */
void embd__msg_request(struct msg *m, uint32_t msgid, enum method method);
void embd__msg_result(struct msg *m, uint32_t msgid);
/* A notification, which has no answer: [2, method, params]. A journal's record is
 * one. */
void embd__msg_notice(struct msg *m, enum method method);
void embd__msg_error(struct msg *m, uint32_t msgid, int status, const char *text);
/* [2, "error", [number, text]]: for a peer whose msgid could not be read. */
void embd__msg_error_notice(struct msg *m, int status, const char *text);
int embd__msg_end(struct msg *m); /* returns m->status */

/* ---- values of the head: short ones, as names of fields and most numbers are, are written here
 * where they fit. After an error what is written is sent by nobody. ---- */

void embd__msg_long_map(struct msg *m, uint32_t n_fields);
void embd__msg_long_array(struct msg *m, uint32_t n);
void embd__msg_long_str(struct msg *m, const char *text, size_t bytes);
void embd__msg_long_uint(struct msg *m, uint64_t value);
void embd__msg_long_field_uint(struct msg *m, const char *name, uint64_t value);
void embd__msg_bool(struct msg *m, bool value);
void embd__msg_f32(struct msg *m, float value); /* travels as a float64 of the same value */
void embd__msg_field_bool(struct msg *m, const char *name, bool value);
void embd__msg_field_f32(struct msg *m, const char *name, float value);
void embd__msg_field_str(struct msg *m, const char *name, const char *text);

static inline bool embd__msg_fits(const struct msg *m, size_t bytes)
{
    return bytes <= m->head_capacity - m->head_bytes;
}

static inline void embd__msg_byte(struct msg *m, uint32_t byte)
{
    m->head[m->head_bytes++] = (uint8_t)byte;
}

static inline void embd__msg_short_str(struct msg *m, const char *text, size_t bytes)
{
    embd__msg_byte(m, 0xa0 | (uint32_t)bytes);
    memcpy(m->head + m->head_bytes, text, bytes);
    m->head_bytes += (uint32_t)bytes;
}

static inline void embd__msg_map(struct msg *m, uint32_t n_fields)
{
    if (n_fields < 16 && embd__msg_fits(m, 1))
        embd__msg_byte(m, 0x80 | n_fields);
    else
        embd__msg_long_map(m, n_fields);
}

static inline void embd__msg_array(struct msg *m, uint32_t n)
{
    if (n < 16 && embd__msg_fits(m, 1))
        embd__msg_byte(m, 0x90 | n);
    else
        embd__msg_long_array(m, n);
}

static inline void embd__msg_str(struct msg *m, const char *text)
{
    size_t bytes = strlen(text);
    if (bytes < 32 && embd__msg_fits(m, bytes + 1))
        embd__msg_short_str(m, text, bytes);
    else
        embd__msg_long_str(m, text, bytes);
}

static inline void embd__msg_uint(struct msg *m, uint64_t value)
{
    if (value < 128 && embd__msg_fits(m, 1))
        embd__msg_byte(m, (uint32_t)value);
    else
        embd__msg_long_uint(m, value);
}

/* embd__msg_uint for ids and other numbers of many bytes. */
static inline void embd__msg_wide(struct msg *m, uint64_t value)
{
    bool is_large = value > UINT32_MAX;
    uint32_t bytes = is_large ? 8 : 4;
    if (value <= UINT16_MAX || !embd__msg_fits(m, bytes + 1)) {
        embd__msg_long_uint(m, value);
        return;
    }
    embd__msg_byte(m, is_large ? 0xcf : 0xce);
    for (uint32_t i = 1; i <= bytes; i++)
        embd__msg_byte(m, (uint32_t)(value >> 8 * (bytes - i)) & 0xff);
}

static inline void embd__msg_field_wide(struct msg *m, const char *name, uint64_t value)
{
    embd__msg_str(m, name);
    embd__msg_wide(m, value);
}

static inline void embd__msg_field_uint(struct msg *m, const char *name, uint64_t value)
{
    size_t bytes = strlen(name);
    if (bytes < 32 && value < 128 && embd__msg_fits(m, bytes + 2)) {
        embd__msg_short_str(m, name, bytes);
        embd__msg_byte(m, (uint32_t)value);
    } else {
        embd__msg_long_field_uint(m, name, value);
    }
}

/* ---- bins ---- */

/* Cuts out a bin of `bytes`, at most the message's limit. `data` must stay until the message is
 * sent; NULL: see top. */
void embd__msg_bin(struct msg *m, const void *data, uint64_t bytes);

/* From now on, bins of this message that lie in `shared`, and are long enough for it to pay, are
 * named there and not sent. */
static inline void embd__msg_share(struct msg *m, const struct shared_range *shared)
{
    m->shared = *shared;
}

/* A bin that lies `at` in what the receiver shares with us. */
void embd__msg_bin_shared(struct msg *m, uint64_t at, uint64_t bytes);

/* A bin of `bytes` in pieces, which the caller adds: one or more, `bytes` in all. */
void embd__msg_bin_begin(struct msg *m, uint64_t bytes);
void embd__msg_bin_piece(struct msg *m, const void *data, uint64_t bytes);
/* Memory for one bin's bytes, kept as long as the message; NULL: m->status says why. */
void *embd__msg_own(struct msg *m, uint32_t bytes);

/* The complete message as the scanner would give it: its bins are emptied in m->head, which `out`
 * points to, as to their data: out->pieces. Only what a user of whole frames reads is set. */
void embd__msg_frame(struct msg *m, struct frame_scanner *out);

/* Bytes of the whole message, head and bins. */
uint64_t embd__msg_bytes(const struct msg *m);

/* One piece of the message for writev: pieces are head, bin, head, bin, ... head. */
struct msg_piece {
    const void *data; /* NULL: a bin made while sending */
    uint64_t bytes;   /* may be 0 */
};
static inline uint32_t embd__msg_n_pieces(const struct msg *m)
{
    return 2 * m->n_bins + 1;
}

/* The bytes in front of the last bin's payload. There is a bin. */
uint32_t embd__msg_pieces_before_last(const struct msg *m);

static inline struct msg_piece embd__msg_piece(const struct msg *m, uint32_t i)
{
    if (i % 2 == 1)
        return (struct msg_piece){m->bins[i / 2].data, m->bins[i / 2].bytes};
    uint32_t from = i == 0 ? 0 : m->bins[i / 2 - 1].at;
    uint32_t to = i / 2 == m->n_bins ? m->head_bytes : m->bins[i / 2].at;
    return (struct msg_piece){m->head + from, to - from};
}

#endif
