/* record.c - see record.h.
 *
 * Header: "embdjnl3", shard u32, n_shards u32, number u64, first_position u64, chain u64,
 * base_bytes u64, the secret, XXH3 of all before as u64; then the same once more, so that no
 * flipped bit loses what follows.
 *
 * Record: magic u32, head_bytes u32, n_bins u32, version u32, body_bytes u64, position u64, synced
 * u64, chain u64, the body's checksum u64, checksum u64 of the header before it; then the body: {at
 * u32, bytes u32} for each bin, the head, the bins' payloads. So a header verifies without its
 * body, and with it where the body ends. Behind a record zeros may stand up to the next multiple of
 * RECORD_BLOCK_BYTES. A mark is a record's header with another magic and of its fields position,
 * synced, which is the same, chain and checksum.
 *
 * Checksums of records and marks are XXH3 with the file's secret, 192 random bytes. It is no
 * cryptographic one, and need not be: who writes requests sees no checksum, and has one try a torn
 * write, told only by whether the server starts. A header made up for 56 bytes, whose four products
 * are of 64 secret bytes, is right with a chance of about 2^-63; a push of 1 GiB has room for
 * 2^28: 2^-35 a torn write of the largest size. SipHash has a proof where checksums are seen, and
 * takes 20 times as long for the body of a push (OpenSSL's, 64 KiB: 23 us; XXH3: 1.2 us, with a
 * secret or without).
 *
 * Earlier versions, "embdjnl1" (without marks) and "embdjnl2": a header without a secret and once;
 * in a record zero u64 in place of the body's checksum, and as checksum XXH3 of the header before
 * it seeded with XXH3 of the body. They are read. */
#include "server/journal/record.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define XXH_INLINE_ALL
#include "proto/xxh3.h"

#include "proto/little.h"
#include "proto/message.h"

#define RECORD_MAGIC 0x4a444245u /* "EBDJ" */
#define MARK_MAGIC   0x4d444245u /* "EBDM" */

enum {
    AT_HEAD_BYTES = 4,
    AT_N_BINS = 8,
    AT_RECORD_VERSION = 12,
    AT_BODY_BYTES = 16,
    AT_POSITION = RECORD_AT_POSITION,
    AT_SYNCED = 32,
    AT_CHAIN = 40,
    AT_BODY_CHECKSUM = 48,
    AT_CHECKSUM = RECORD_AT_CHECKSUM,
};

/* ---- keys ---- */

int record_key_new(struct record_key *out)
{
    out->is_keyed = true;
    errno = EIO; /* what a short answer leaves unsaid */
    return getrandom(out->secret, sizeof out->secret, 0) == (ssize_t)sizeof out->secret ? 0 : errno;
}

/* For few bytes. */
static uint64_t keyed(const struct record_key *key, const uint8_t *bytes, uint64_t n)
{
    return key->is_keyed ? XXH3_64bits_withSecret(bytes, n, key->secret, sizeof key->secret)
                         : XXH3_64bits(bytes, n);
}

/* For many bytes. */
static uint64_t body_checksum(const struct record_key *key, const uint8_t *record, uint64_t n_body)
{
    return XXH3_64bits_withSecret_dispatch(record + RECORD_HEADER_BYTES, n_body, key->secret,
                                           sizeof key->secret);
}

static uint64_t old_checksum(const uint8_t *record, uint64_t n_body)
{
    return XXH3_64bits_withSeed(record, AT_CHECKSUM,
                                XXH3_64bits_dispatch(record + RECORD_HEADER_BYTES, n_body));
}

/* ---- segments ---- */

enum {
    AT_SECRET = 48,
    AT_COPY_CHECKSUM = AT_SECRET + RECORD_SECRET_BYTES,
    COPY_BYTES = AT_COPY_CHECKSUM + 8,
};
_Static_assert(2 * COPY_BYTES == SEGMENT_HEADER_BYTES, "two copies");

void segment_header_write(uint8_t out[SEGMENT_HEADER_BYTES], const struct segment_header *header)
{
    memcpy(out, "embdjnl3", 8);
    embd__put_u32(out + 8, header->shard);
    embd__put_u32(out + 12, header->n_shards);
    embd__put_u64(out + 16, header->number);
    embd__put_u64(out + 24, header->first_position);
    embd__put_u64(out + 32, header->chain);
    embd__put_u64(out + 40, header->base_bytes);
    memcpy(out + AT_SECRET, header->key.secret, RECORD_SECRET_BYTES);
    embd__put_u64(out + AT_COPY_CHECKSUM, XXH3_64bits(out, AT_COPY_CHECKSUM));
    memcpy(out + COPY_BYTES, out, COPY_BYTES);
}

static bool is_whole_copy(const uint8_t *bytes)
{
    return memcmp(bytes, "embdjnl3", 8) == 0 &&
           embd__get_u64(bytes + AT_COPY_CHECKSUM) == XXH3_64bits(bytes, AT_COPY_CHECKSUM);
}

static bool is_whole_old(const uint8_t *bytes)
{
    return (memcmp(bytes, "embdjnl2", 8) == 0 || memcmp(bytes, "embdjnl1", 8) == 0) &&
           embd__get_u64(bytes + 48) == XXH3_64bits(bytes, 48);
}

uint64_t segment_header_read(const uint8_t *bytes, uint64_t n, struct segment_header *out)
{
    bool is_old = n >= OLD_SEGMENT_HEADER_BYTES && is_whole_old(bytes);
    if (!is_old && n < SEGMENT_HEADER_BYTES)
        return 0;
    if (!is_old && !is_whole_copy(bytes))
        bytes += COPY_BYTES;
    if (!is_old && !is_whole_copy(bytes))
        return 0;
    *out = (struct segment_header){
        .shard = embd__get_u32(bytes + 8),
        .n_shards = embd__get_u32(bytes + 12),
        .number = embd__get_u64(bytes + 16),
        .first_position = embd__get_u64(bytes + 24),
        .chain = embd__get_u64(bytes + 32),
        .base_bytes = embd__get_u64(bytes + 40),
        .key = {.is_keyed = !is_old},
    };
    if (!is_old)
        memcpy(out->key.secret, bytes + AT_SECRET, RECORD_SECRET_BYTES);
    return is_old ? OLD_SEGMENT_HEADER_BYTES : SEGMENT_HEADER_BYTES;
}

/* Not where what stands behind an old header would be a record or a mark. */
bool segment_is_unfinished(const uint8_t *bytes, uint64_t n)
{
    const uint8_t *behind = bytes + OLD_SEGMENT_HEADER_BYTES;
    if (n < OLD_SEGMENT_HEADER_BYTES + 4)
        return true;
    return n <= SEGMENT_HEADER_BYTES && embd__get_u32(behind) != RECORD_MAGIC &&
           embd__get_u32(behind) != MARK_MAGIC;
}

/* ---- marks ---- */

void mark_write(uint8_t out[MARK_BYTES], const struct record_key *key, uint64_t position,
                uint64_t chain)
{
    memset(out, 0, MARK_BYTES);
    embd__put_u32(out, MARK_MAGIC);
    embd__put_u64(out + AT_POSITION, position);
    embd__put_u64(out + AT_SYNCED, position);
    embd__put_u64(out + AT_CHAIN, chain);
    embd__put_u64(out + AT_CHECKSUM, keyed(key, out, AT_CHECKSUM));
}

bool mark_read(const struct record_key *key, const uint8_t *bytes, uint64_t n, struct mark *out)
{
    if (n < MARK_BYTES || embd__get_u32(bytes) != MARK_MAGIC ||
        embd__get_u64(bytes + AT_CHECKSUM) != keyed(key, bytes, AT_CHECKSUM))
        return false;
    *out = (struct mark){embd__get_u64(bytes + AT_POSITION), embd__get_u64(bytes + AT_CHAIN)};
    return true;
}

/* ---- records ---- */

static void write_payloads(uint8_t *at, const struct frame_scanner *frame)
{
    for (uint32_t i = 0; i < frame->n_bins && frame->pieces == NULL; i++) {
        if (frame->bins[i].bytes > 0)
            memcpy(at, frame->bins[i].data, frame->bins[i].bytes);
        at += frame->bins[i].bytes;
    }
    for (uint32_t i = 0; i < frame->n_pieces; i++) {
        if (frame->pieces[i].bytes > 0)
            memcpy(at, frame->pieces[i].data, frame->pieces[i].bytes);
        at += frame->pieces[i].bytes;
    }
}

void record_write(uint8_t *out, const struct frame_scanner *frame)
{
    memset(out, 0, RECORD_HEADER_BYTES);
    embd__put_u32(out, RECORD_MAGIC);
    embd__put_u32(out + AT_HEAD_BYTES, frame->head_bytes);
    embd__put_u32(out + AT_N_BINS, frame->n_bins);
    embd__put_u32(out + AT_RECORD_VERSION, RECORD_OPERATION);
    embd__put_u64(out + AT_BODY_BYTES, record_body_bytes(frame));
    uint8_t *at = out + RECORD_HEADER_BYTES;
    for (uint32_t i = 0; i < frame->n_bins; i++, at += 8) {
        embd__put_u32(at, frame->bins[i].at);
        embd__put_u32(at + 4, frame->bins[i].bytes);
    }
    memcpy(at, frame->head, frame->head_bytes);
    at += frame->head_bytes;
    write_payloads(at, frame);
}

uint64_t record_seal(uint8_t *record, const struct record_key *key, uint64_t position,
                     uint64_t synced, uint64_t chain, uint64_t *bytes_out)
{
    uint64_t n_body = embd__get_u64(record + AT_BODY_BYTES);
    embd__put_u64(record + AT_POSITION, position);
    embd__put_u64(record + AT_SYNCED, synced);
    embd__put_u64(record + AT_CHAIN, chain);
    embd__put_u64(record + AT_BODY_CHECKSUM, body_checksum(key, record, n_body));
    uint64_t checksum = keyed(key, record, AT_CHECKSUM);
    embd__put_u64(record + AT_CHECKSUM, checksum);
    *bytes_out = RECORD_HEADER_BYTES + n_body;
    return checksum;
}

void record_fields(const uint8_t *record, struct record *out)
{
    *out = (struct record){
        .head_bytes = embd__get_u32(record + AT_HEAD_BYTES),
        .n_bins = embd__get_u32(record + AT_N_BINS),
        .version = embd__get_u32(record + AT_RECORD_VERSION),
        .body_bytes = embd__get_u64(record + AT_BODY_BYTES),
        .position = embd__get_u64(record + AT_POSITION),
        .synced = embd__get_u64(record + AT_SYNCED),
        .chain = embd__get_u64(record + AT_CHAIN),
        .checksum = embd__get_u64(record + AT_CHECKSUM),
    };
}

/* The bins' lengths and the head's are the body's, and every bin is in the head. */
static bool adds_up(const uint8_t *bytes, const struct record *record)
{
    uint64_t sum = record->head_bytes + (uint64_t)8 * record->n_bins;
    if (record->n_bins > LIMIT_BINS || record->head_bytes > LIMIT_HEADER_BYTES ||
        sum > record->body_bytes)
        return false;
    for (uint32_t i = 0; i < record->n_bins; i++) {
        const uint8_t *bin = bytes + RECORD_HEADER_BYTES + (uint64_t)8 * i;
        if (embd__get_u32(bin) > record->head_bytes)
            return false;
        sum += embd__get_u32(bin + 4);
    }
    return sum == record->body_bytes;
}

/* The head is a message with bins where they are said to be: msgpack-c unpacks nothing else. A
 * right checksum says that somebody wrote these bytes, not that it was this program. */
static bool is_message(const uint8_t *bytes, const struct record *record)
{
    uint8_t head[LIMIT_HEADER_BYTES];
    struct frame_scanner frame;
    struct embd__error e = {.status = EMBD_OK};
    const uint8_t *bins = bytes + RECORD_HEADER_BYTES, *at = bins + (uint64_t)8 * record->n_bins;
    size_t left = record->head_bytes, used;
    int event;
    embd__frame_init(&frame, head, sizeof head, LIMIT_FRAME_BYTES);
    while ((event = embd__frame_scan(&frame, at, left, &used, &e)) == FRAME_BIN) {
        at += used;
        left -= used;
    }
    bool is_request = record->version < RECORD_OPERATION;
    bool is_right = event == FRAME_DONE && used == left && frame.type == (is_request ? 0 : 2) &&
                    frame.has_msgid == is_request && frame.n_bins == record->n_bins;
    for (uint32_t i = 0; is_right && i < frame.n_bins; i++)
        is_right = frame.bins[i].bytes == 0 && frame.bins[i].at == embd__get_u32(bins + 8 * i);
    return is_right;
}

uint64_t record_span(const uint8_t *bytes, uint64_t n)
{
    if (n < RECORD_HEADER_BYTES || embd__get_u32(bytes) != RECORD_MAGIC ||
        embd__get_u64(bytes + AT_BODY_BYTES) > n - RECORD_HEADER_BYTES)
        return RECORD_HEADER_BYTES;
    return RECORD_HEADER_BYTES + embd__get_u64(bytes + AT_BODY_BYTES);
}

bool record_header_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out)
{
    if (n < RECORD_HEADER_BYTES || !key->is_keyed || embd__get_u32(bytes) != RECORD_MAGIC ||
        embd__get_u64(bytes + AT_CHECKSUM) != keyed(key, bytes, AT_CHECKSUM))
        return false;
    record_fields(bytes, out);
    return true;
}

/* Reads a header whose lengths are right. */
static bool is_whole(const struct record_key *key, const uint8_t *bytes,
                     const struct record *record)
{
    if (!key->is_keyed)
        return record->checksum == old_checksum(bytes, record->body_bytes);
    return record->checksum == keyed(key, bytes, AT_CHECKSUM) &&
           embd__get_u64(bytes + AT_BODY_CHECKSUM) == body_checksum(key, bytes, record->body_bytes);
}

/* The body is here, and the lengths in it are right. */
static bool has_body(const uint8_t *bytes, uint64_t n, struct record *out)
{
    if (n < RECORD_HEADER_BYTES || embd__get_u32(bytes) != RECORD_MAGIC)
        return false;
    record_fields(bytes, out);
    return out->body_bytes <= n - RECORD_HEADER_BYTES && adds_up(bytes, out);
}

bool record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n, struct record *out)
{
    struct record record;
    if (!has_body(bytes, n, &record) || !is_whole(key, bytes, &record) ||
        !is_message(bytes, &record))
        return false;
    *out = record;
    return true;
}

bool record_check(const uint8_t *bytes, uint64_t n, struct record *out)
{
    struct record record;
    if (!has_body(bytes, n, &record) || !is_message(bytes, &record))
        return false;
    *out = record;
    return true;
}

uint64_t record_sum(const uint8_t *bytes, uint64_t n)
{
    return XXH3_64bits_dispatch(bytes, n);
}

void record_frame(uint8_t *bytes, const struct record *record, struct frame_scanner *out)
{
    const uint8_t *bins = bytes + RECORD_HEADER_BYTES;
    uint8_t *head = bytes + RECORD_HEADER_BYTES + (uint64_t)8 * record->n_bins;
    memset(out, 0, sizeof *out);
    out->head = head;
    out->head_capacity = out->head_bytes = record->head_bytes;
    out->frame_limit = LIMIT_FRAME_BYTES;
    out->frame_bytes = record->body_bytes;
    out->n_bins = record->n_bins;
    out->has_msgid = record->version < RECORD_OPERATION;
    out->type = out->has_msgid ? 0 : 2;
    uint8_t *payload = head + record->head_bytes;
    for (uint32_t i = 0; i < record->n_bins; i++) {
        out->bins[i] = (struct frame_bin){embd__get_u32(bins + 8 * i),
                                          embd__get_u32(bins + 8 * i + 4), payload};
        payload += out->bins[i].bytes;
    }
}
