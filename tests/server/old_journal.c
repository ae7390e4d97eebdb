/* old_journal.c - see old_journal.h. */
#include "tests/server/old_journal.h"

#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "proto/little.h"

enum {
    AT_BODY_BYTES = 16,
    AT_POSITION = 24,
    AT_SYNCED = 32,
    AT_CHAIN = 40,
    AT_ZERO = 48,
    AT_CHECKSUM = 56
};

void old_segment_header_write(uint8_t out[OLD_SEGMENT_HEADER_BYTES],
                              const struct segment_header *header)
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

uint64_t old_record_seal(uint8_t *record, uint64_t position, uint64_t synced, uint64_t chain,
                         uint64_t *bytes_out)
{
    uint64_t n_body = embd__get_u64(record + AT_BODY_BYTES);
    embd__put_u64(record + AT_POSITION, position);
    embd__put_u64(record + AT_SYNCED, synced);
    embd__put_u64(record + AT_CHAIN, chain);
    embd__put_u64(record + AT_ZERO, 0);
    uint64_t checksum = XXH3_64bits_withSeed(record, AT_CHECKSUM,
                                             XXH3_64bits(record + RECORD_HEADER_BYTES, n_body));
    embd__put_u64(record + AT_CHECKSUM, checksum);
    *bytes_out = RECORD_HEADER_BYTES + n_body;
    return checksum;
}

size_t old_journal_of(uint8_t *out, const uint8_t *file, size_t n)
{
    static const struct record_key no_key;
    struct segment_header header;
    struct record record;
    struct mark mark;
    size_t at = segment_header_read(file, n, &header), to = OLD_SEGMENT_HEADER_BYTES;
    uint64_t chain = header.chain, bytes;
    while (at + RECORD_HEADER_BYTES <= n) {
        if (record_read(&header.key, file + at, n - at, &record)) {
            memcpy(out + to, file + at, RECORD_HEADER_BYTES + record.body_bytes);
            chain = old_record_seal(out + to, record.position, record.synced, chain, &bytes);
            at += bytes;
            to += bytes;
        } else if (mark_read(&header.key, file + at, n - at, &mark)) {
            mark_write(out + to, &no_key, mark.position, chain);
            at += MARK_BYTES;
            to += MARK_BYTES;
        } else {
            abort(); /* none lies on blocks */
        }
    }
    header.base_bytes = header.base_bytes > 0 ? to : 0;
    old_segment_header_write(out, &header);
    return to;
}
