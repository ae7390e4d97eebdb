/* record.c - see record.h.
 *
 * Segment: "embdjnl2" ("embdjnl1": an earlier version's, which has no marks), shard u32, n_shards u32, number u64, first_position u64, chain u64,
 * base_bytes u64, xxh3 u64 of all before. Record: magic u32, head_bytes u32, n_bins u32, zero u32,
 * body_bytes u64, position u64, synced u64, chain u64, zero u64, checksum u64; then the body: {at
 * u32, bytes u32} for each bin, the head, the bins' payloads. The checksum is XXH3 of the header
 * before it, seeded with XXH3 of the body. Behind a record zeros may stand up to the next multiple of
 * RECORD_BLOCK_BYTES. A mark is a record's header with another magic and of its fields position, synced, which is the same,
 * chain and checksum. */
#include "record.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "little.h"

#define RECORD_MAGIC 0x4a444245u /* "EBDJ" */
#define MARK_MAGIC   0x4d444245u /* "EBDM" */

enum {
    AT_HEAD_BYTES = 4,
    AT_N_BINS = 8,
    AT_BODY_BYTES = 16,
    AT_POSITION = 24,
    AT_SYNCED = 32,
    AT_CHAIN = 40,
    AT_CHECKSUM = 56,
};

/* ---- segments ---- */

void segment_header_write(uint8_t out[SEGMENT_HEADER_BYTES], const struct segment_header *header)
{
    memcpy(out, "embdjnl2", 8);
    embd__put_u32(out + 8, header->shard);
    embd__put_u32(out + 12, header->n_shards);
    embd__put_u64(out + 16, header->number);
    embd__put_u64(out + 24, header->first_position);
    embd__put_u64(out + 32, header->chain);
    embd__put_u64(out + 40, header->base_bytes);
    embd__put_u64(out + 48, XXH3_64bits(out, 48));
}

bool segment_header_read(const uint8_t *bytes, uint64_t n, struct segment_header *out)
{
    if (n < SEGMENT_HEADER_BYTES ||
        (memcmp(bytes, "embdjnl2", 8) != 0 && memcmp(bytes, "embdjnl1", 8) != 0) ||
        embd__get_u64(bytes + 48) != XXH3_64bits(bytes, 48))
        return false;
    *out = (struct segment_header){
        .shard = embd__get_u32(bytes + 8),
        .n_shards = embd__get_u32(bytes + 12),
        .number = embd__get_u64(bytes + 16),
        .first_position = embd__get_u64(bytes + 24),
        .chain = embd__get_u64(bytes + 32),
        .base_bytes = embd__get_u64(bytes + 40),
    };
    return true;
}

/* ---- marks ---- */

void mark_write(uint8_t out[MARK_BYTES], uint64_t position, uint64_t chain)
{
    memset(out, 0, MARK_BYTES);
    embd__put_u32(out, MARK_MAGIC);
    embd__put_u64(out + AT_POSITION, position);
    embd__put_u64(out + AT_SYNCED, position);
    embd__put_u64(out + AT_CHAIN, chain);
    embd__put_u64(out + AT_CHECKSUM, XXH3_64bits(out, AT_CHECKSUM));
}

bool mark_read(const uint8_t *bytes, uint64_t n, struct mark *out)
{
    if (n < MARK_BYTES || embd__get_u32(bytes) != MARK_MAGIC ||
        embd__get_u64(bytes + AT_CHECKSUM) != XXH3_64bits(bytes, AT_CHECKSUM))
        return false;
    *out = (struct mark){embd__get_u64(bytes + AT_POSITION), embd__get_u64(bytes + AT_CHAIN)};
    return true;
}

/* ---- records ---- */

static uint64_t body_bytes(const struct frame_scanner *frame)
{
    uint64_t bytes = frame->head_bytes + (uint64_t)8 * frame->n_bins;
    for (uint32_t i = 0; i < frame->n_bins; i++)
        bytes += frame->bins[i].bytes;
    return bytes;
}

uint64_t record_bytes(const struct frame_scanner *frame)
{
    return RECORD_HEADER_BYTES + body_bytes(frame);
}

void record_write(uint8_t *out, const struct frame_scanner *frame)
{
    memset(out, 0, RECORD_HEADER_BYTES);
    embd__put_u32(out, RECORD_MAGIC);
    embd__put_u32(out + AT_HEAD_BYTES, frame->head_bytes);
    embd__put_u32(out + AT_N_BINS, frame->n_bins);
    embd__put_u64(out + AT_BODY_BYTES, body_bytes(frame));
    uint8_t *at = out + RECORD_HEADER_BYTES;
    for (uint32_t i = 0; i < frame->n_bins; i++, at += 8) {
        embd__put_u32(at, frame->bins[i].at);
        embd__put_u32(at + 4, frame->bins[i].bytes);
    }
    memcpy(at, frame->head, frame->head_bytes);
    at += frame->head_bytes;
    for (uint32_t i = 0; i < frame->n_bins; i++) {
        if (frame->bins[i].bytes > 0)
            memcpy(at, frame->bins[i].data, frame->bins[i].bytes);
        at += frame->bins[i].bytes;
    }
}

/* Of many bytes: with the widest vectors of this processor, where the library looks for them. */
#ifdef EMBD_XXH_DISPATCH
XXH64_hash_t XXH3_64bits_dispatch(const void *bytes, size_t n);
#else
#define XXH3_64bits_dispatch XXH3_64bits
#endif

static uint64_t checksum_of(const uint8_t *record, uint64_t n_body)
{
    return XXH3_64bits_withSeed(record, AT_CHECKSUM,
                                XXH3_64bits_dispatch(record + RECORD_HEADER_BYTES, n_body));
}

uint64_t record_seal(uint8_t *record, uint64_t position, uint64_t synced, uint64_t chain,
                     uint64_t *bytes_out)
{
    uint64_t n_body = embd__get_u64(record + AT_BODY_BYTES);
    embd__put_u64(record + AT_POSITION, position);
    embd__put_u64(record + AT_SYNCED, synced);
    embd__put_u64(record + AT_CHAIN, chain);
    uint64_t checksum = checksum_of(record, n_body);
    embd__put_u64(record + AT_CHECKSUM, checksum);
    *bytes_out = RECORD_HEADER_BYTES + n_body;
    return checksum;
}

struct record_id record_id_of(const uint8_t *record)
{
    return (struct record_id){embd__get_u64(record + AT_POSITION),
                              embd__get_u64(record + AT_CHECKSUM)};
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

/* The head is a request with bins where they are said to be: msgpack-c unpacks nothing else. A
 * right checksum says that somebody wrote these bytes, not that it was this program. */
static bool is_request(const uint8_t *bytes, const struct record *record)
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
    bool is_right = event == FRAME_DONE && used == left && frame.type == 0 && frame.has_msgid &&
                    frame.n_bins == record->n_bins;
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

bool record_read(const uint8_t *bytes, uint64_t n, struct record *out)
{
    if (n < RECORD_HEADER_BYTES || embd__get_u32(bytes) != RECORD_MAGIC)
        return false;
    struct record record = {
        .head_bytes = embd__get_u32(bytes + AT_HEAD_BYTES),
        .n_bins = embd__get_u32(bytes + AT_N_BINS),
        .body_bytes = embd__get_u64(bytes + AT_BODY_BYTES),
        .position = embd__get_u64(bytes + AT_POSITION),
        .synced = embd__get_u64(bytes + AT_SYNCED),
        .chain = embd__get_u64(bytes + AT_CHAIN),
        .checksum = embd__get_u64(bytes + AT_CHECKSUM),
    };
    if (record.body_bytes > n - RECORD_HEADER_BYTES || !adds_up(bytes, &record) ||
        record.checksum != checksum_of(bytes, record.body_bytes) || !is_request(bytes, &record))
        return false;
    *out = record;
    return true;
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
    out->has_msgid = true;
    uint8_t *payload = head + record->head_bytes;
    for (uint32_t i = 0; i < record->n_bins; i++) {
        out->bins[i] = (struct frame_bin){embd__get_u32(bins + 8 * i),
                                          embd__get_u32(bins + 8 * i + 4), payload};
        payload += out->bins[i].bytes;
    }
}
