/* archived.c - see archived.h. */
#include "proto/archived.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "proto/frame.h"
#include "proto/little.h"
#include "proto/message.h"

static const char magic[8] = "EMBDARCH";

enum {
    AT_VERSION = 8,
    AT_SHARD = 12,
    AT_SHARDS = 16,
    AT_CUT = 24,
    AT_POSITION = 32,
    AT_CHAIN = 40,
    AT_BYTES = 48,
    AT_LEFT_OUT = 56,
    AT_XXH3 = ARCHIVED_SUMMED_BYTES,
};

/* ---- the file ---- */

void embd__archived_name(char out[ARCHIVED_NAME], uint32_t shard)
{
    snprintf(out, ARCHIVED_NAME, "%u.archived", shard);
}

void embd__archived_write(uint8_t out[ARCHIVED_HEADER_BYTES], const struct archived_file *file)
{
    memset(out, 0, ARCHIVED_HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    embd__put_u32(out + AT_VERSION, ARCHIVED_VERSION);
    embd__put_u32(out + AT_SHARD, file->shard);
    embd__put_u32(out + AT_SHARDS, file->n_shards);
    embd__put_u64(out + AT_CUT, file->cut);
    embd__put_u64(out + AT_POSITION, file->position);
    embd__put_u64(out + AT_CHAIN, file->chain);
    embd__put_u64(out + AT_BYTES, file->bytes);
    embd__put_u64(out + AT_LEFT_OUT, file->n_left_out);
    embd__put_u64(out + AT_XXH3, file->xxh3);
}

int embd__archived_read(const uint8_t *bytes, uint64_t n, struct archived_file *out,
                        struct embd__error *e)
{
    if (n < ARCHIVED_HEADER_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return embd__error_set(e, EMBD_CORRUPT, "not a file of archived records");
    if (embd__get_u32(bytes + AT_VERSION) != ARCHIVED_VERSION)
        return embd__error_set(e, EMBD_UNSUPPORTED, "has version %u, this program reads version %u",
                               embd__get_u32(bytes + AT_VERSION), ARCHIVED_VERSION);
    *out = (struct archived_file){.shard = embd__get_u32(bytes + AT_SHARD),
                                  .n_shards = embd__get_u32(bytes + AT_SHARDS),
                                  .cut = embd__get_u64(bytes + AT_CUT),
                                  .position = embd__get_u64(bytes + AT_POSITION),
                                  .chain = embd__get_u64(bytes + AT_CHAIN),
                                  .bytes = embd__get_u64(bytes + AT_BYTES),
                                  .n_left_out = embd__get_u64(bytes + AT_LEFT_OUT),
                                  .xxh3 = embd__get_u64(bytes + AT_XXH3)};
    uint64_t behind = n - ARCHIVED_HEADER_BYTES;
    if (out->bytes > behind || out->n_left_out != (behind - out->bytes) / 8 ||
        (behind - out->bytes) % 8 != 0)
        return embd__error_set(e, EMBD_CORRUPT, "has %llu bytes, and its header says others",
                               (unsigned long long)n);
    return EMBD_OK;
}

uint64_t embd__archived_sum(const uint8_t *bytes, uint64_t n)
{
    uint64_t seed = XXH3_64bits(bytes, ARCHIVED_SUMMED_BYTES);
    return XXH3_64bits_withSeed(bytes + ARCHIVED_HEADER_BYTES, n - ARCHIVED_HEADER_BYTES, seed);
}

/* ---- records ---- */

enum {
    AT_HEAD_BYTES = 4,
    AT_N_BINS = 8,
    AT_RECORD_VERSION = 12,
    AT_BODY_BYTES = 16,
    AT_RECORD_POSITION = 24,
    AT_RECORD_CHAIN = 40,
    AT_CHECKSUM = 56,
};

/* The lengths of its parts are that of its body. */
static bool adds_up(const uint8_t *bytes, const struct archived_record *r)
{
    uint64_t body = r->bytes - ARCHIVED_RECORD_BYTES;
    uint64_t sum = r->head_bytes + (uint64_t)8 * r->n_bins;
    if (r->n_bins > LIMIT_BINS || r->head_bytes > LIMIT_HEADER_BYTES || sum > body)
        return false;
    for (uint32_t i = 0; i < r->n_bins; i++)
        sum += embd__get_u32(bytes + ARCHIVED_RECORD_BYTES + 8 * i + 4);
    return sum == body;
}

uint64_t embd__archived_body_bytes(const uint8_t *header)
{
    return embd__get_u64(header + AT_BODY_BYTES);
}

void embd__archived_header(const uint8_t *header, struct archived_record *out)
{
    *out =
        (struct archived_record){.position = embd__get_u64(header + AT_RECORD_POSITION),
                                 .chain = embd__get_u64(header + AT_RECORD_CHAIN),
                                 .checksum = embd__get_u64(header + AT_CHECKSUM),
                                 .bytes = ARCHIVED_RECORD_BYTES + embd__archived_body_bytes(header),
                                 .version = embd__get_u32(header + AT_RECORD_VERSION),
                                 .head_bytes = embd__get_u32(header + AT_HEAD_BYTES),
                                 .n_bins = embd__get_u32(header + AT_N_BINS)};
}

int embd__archived_record(const uint8_t *bytes, uint64_t n, struct archived_record *out)
{
    if (n < ARCHIVED_RECORD_BYTES)
        return 0;
    uint64_t body = embd__get_u64(bytes + AT_BODY_BYTES);
    if (memcmp(bytes, "EBDJ", 4) != 0 || body > (uint64_t)LIMIT_PUSH_BYTES + LIMIT_FRAME_BYTES)
        return EMBD_CORRUPT;
    if (body > n - ARCHIVED_RECORD_BYTES)
        return 0;
    embd__archived_header(bytes, out);
    return adds_up(bytes, out) ? 1 : EMBD_CORRUPT;
}

/* ---- what they do ---- */

/* The head comes to `head`, as the scanner wants it: a right one is a message of the protocol. */
static int scan(const uint8_t *bytes, const struct archived_record *record, uint8_t *head,
                struct frame_scanner *frame, struct embd__error *e)
{
    const uint8_t *at = bytes + ARCHIVED_RECORD_BYTES + (uint64_t)8 * record->n_bins;
    size_t left = record->head_bytes, used;
    int event;
    embd__frame_init(frame, head, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
    while ((event = embd__frame_scan(frame, at, left, &used, e)) == FRAME_BIN) {
        at += used;
        left -= used;
    }
    if (event == FRAME_DONE && used == left && frame->type == 2 && frame->n_bins == record->n_bins)
        return EMBD_OK;
    *e = (struct embd__error){0};
    return embd__error_set(e, EMBD_CORRUPT, "record %llu is not an operation",
                           (unsigned long long)record->position);
}

/* "placed" says which map the shard has, and "decided" what was made before: nothing moves. */
static void read_replace(struct fields *f, struct archived_deed *out)
{
    static const char *const phases[] = {"apply", "prepare", "withdraw", "decided", "placed"};
    static const enum archived_move moves[] = {MOVE_MADE, MOVE_PREPARED, MOVE_WITHDRAWN, MOVE_NONE,
                                               MOVE_NONE};
    int phase = embd__field_enum(f, "phase", phases, sizeof phases / sizeof *phases, 0);
    out->n_shards = (uint32_t)embd__field_uint(f, "shards", 1, LIMIT_SHARDS, 0);
    out->decision = embd__field_uint(f, "decision", 1, UINT64_MAX, 0);
    out->replaces = phase == 0 && out->n_shards == 0;
    out->move = out->n_shards > 0 && phase >= 0 ? moves[phase] : MOVE_NONE;
}

static void read_deed(struct reader *r, struct archived_deed *out)
{
    struct fields f;
    embd__read_fields(&f, r, "record");
    if (r->method == METHOD_TABLE_REPLACE)
        read_replace(&f, out);
    if (r->method != METHOD_PUSH)
        return;
    if (embd__field_has(&f, "writer"))
        embd__push_number_read(&f, &out->number);
    embd__push_sources_read(&f, out->sources, &out->n_sources);
}

int embd__archived_deed(const uint8_t *bytes, const struct archived_record *record,
                        struct archived_deed *out, struct embd__error *e)
{
    uint8_t head[LIMIT_HEADER_BYTES];
    struct frame_scanner frame;
    struct reader r;
    msgpack_zone zone;
    *out = (struct archived_deed){.n_sources = 0};
    if (record->version != 2)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "record %llu has version %u, this program reads version 2",
                               (unsigned long long)record->position, record->version);
    if (scan(bytes, record, head, &frame, e) != EMBD_OK)
        return e->status;
    if (!msgpack_zone_init(&zone, MSGPACK_ZONE_CHUNK_SIZE))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read a record");
    if (embd__reader_init(&r, &frame, &zone, e) == EMBD_OK)
        read_deed(&r, out);
    msgpack_zone_destroy(&zone);
    return e->status;
}
