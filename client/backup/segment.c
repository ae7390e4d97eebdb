/* segment.c - see segment.h. */
#include "client/backup/segment.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "proto/little.h"

#define HEADER_BYTES 136u
#define VERSION      1u
#define TIME_BYTES   16u
#define SUM_BYTES    8u

static const char magic[8] = "EMBDRECS";

enum {
    AT_VERSION = 8,
    AT_SHARD = 12,
    AT_SHARDS = 16,
    AT_NUMBER = 20,
    AT_RUN = 24,
    AT_LINEAGE = 32,
    AT_FROM = 40,
    AT_TO = 64,
    AT_FIRST = 88,
    AT_BYTES = 96,
    AT_TIMES = 104,
    AT_SKIPS = 112,
};

_Static_assert(sizeof(struct segment_time) == TIME_BYTES, "a time in memory is one in a file");

/* ---- names ---- */

void segment_name(char out[PLACE_NAME_BYTES], const struct segment *s)
{
    snprintf(out, PLACE_NAME_BYTES,
             SEGMENT_DIR "/%" PRIu32 "/%013" PRIu64 "-%016" PRIx64 "-%08" PRIu32, s->shard,
             s->times[s->n_times - 1].ms, s->run, s->number);
}

bool segment_name_read(const char *name, struct segment_name *out)
{
    char again[PLACE_NAME_BYTES];
    struct segment_time time = {0};
    struct segment s = {.times = &time, .n_times = 1};
    if (sscanf(name, SEGMENT_DIR "/%" SCNu32 "/%" SCNu64 "-%" SCNx64 "-%" SCNu32, &s.shard,
               &time.ms, &s.run, &s.number) != 4)
        return false;
    segment_name(again, &s);
    *out = (struct segment_name){time.ms, s.run, s.shard, s.number};
    return strcmp(again, name) == 0;
}

bool segment_joins(const struct records_place *before, const struct records_place *next)
{
    return before->position == next->position && before->chain == next->chain &&
           before->offset == next->offset;
}

/* ---- writing ---- */

static void put_place(uint8_t *at, const struct records_place *place)
{
    embd__put_u64(at, place->position);
    embd__put_u64(at + 8, place->chain);
    embd__put_u64(at + 16, place->offset);
}

static void put_header(uint8_t *out, const struct segment *s)
{
    memset(out, 0, HEADER_BYTES);
    memcpy(out, magic, sizeof magic);
    embd__put_u32(out + AT_VERSION, VERSION);
    embd__put_u32(out + AT_SHARD, s->shard);
    embd__put_u32(out + AT_SHARDS, s->n_shards);
    embd__put_u32(out + AT_NUMBER, s->number);
    embd__put_u64(out + AT_RUN, s->run);
    embd__put_u64(out + AT_LINEAGE, s->lineage);
    put_place(out + AT_FROM, &s->from);
    put_place(out + AT_TO, &s->to);
    embd__put_u64(out + AT_FIRST, s->first);
    embd__put_u64(out + AT_BYTES, s->n_bytes);
    embd__put_u64(out + AT_TIMES, s->n_times);
    embd__put_u64(out + AT_SKIPS, s->n_skips);
}

static uint8_t *append(uint8_t *at, const void *from, uint64_t bytes)
{
    if (bytes > 0)
        memcpy(at, from, bytes);
    return at + bytes;
}

uint8_t *segment_write(const struct segment *s, size_t *bytes_out)
{
    size_t n = HEADER_BYTES + TIME_BYTES * s->n_times + 8 * s->n_skips + s->n_bytes + SUM_BYTES;
    uint8_t *out = malloc(n);
    if (out == NULL)
        return NULL;
    put_header(out, s);
    uint8_t *at = append(out + HEADER_BYTES, s->times, TIME_BYTES * s->n_times);
    at = append(at, s->skips, 8 * s->n_skips);
    at = append(at, s->bytes, s->n_bytes);
    embd__put_u64(at, XXH3_64bits(out, n - SUM_BYTES));
    *bytes_out = n;
    return out;
}

/* ---- reading ---- */

static struct records_place get_place(const uint8_t *at)
{
    return (struct records_place){.position = embd__get_u64(at),
                                  .chain = embd__get_u64(at + 8),
                                  .offset = embd__get_u64(at + 16)};
}

/* Its parts have the file's length. */
static bool adds_up(const struct segment *s, size_t n)
{
    uint64_t most = PLACE_PIECE_BYTES, left = n - HEADER_BYTES - SUM_BYTES;
    return s->n_times > 0 && s->n_times < most && s->n_skips < most && s->n_bytes <= most &&
           TIME_BYTES * s->n_times + 8 * s->n_skips + s->n_bytes == left &&
           (s->first == SEGMENT_NONE || s->first <= s->n_bytes);
}

static void get_header(const uint8_t *at, struct segment *out)
{
    *out = (struct segment){.shard = embd__get_u32(at + AT_SHARD),
                            .n_shards = embd__get_u32(at + AT_SHARDS),
                            .number = embd__get_u32(at + AT_NUMBER),
                            .run = embd__get_u64(at + AT_RUN),
                            .lineage = embd__get_u64(at + AT_LINEAGE),
                            .from = get_place(at + AT_FROM),
                            .to = get_place(at + AT_TO),
                            .first = embd__get_u64(at + AT_FIRST),
                            .n_bytes = embd__get_u64(at + AT_BYTES),
                            .n_times = embd__get_u64(at + AT_TIMES),
                            .n_skips = embd__get_u64(at + AT_SKIPS)};
}

static int check_name(const char *name, const struct segment *s, struct embd__error *e)
{
    char own[PLACE_NAME_BYTES];
    segment_name(own, s);
    if (strcmp(own, name) == 0)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT, "%s: is the file %s, in the place of another one", name,
                           own);
}

int segment_read(const char *name, const uint8_t *bytes, size_t n, struct segment *out,
                 struct embd__error *e)
{
    if (n < HEADER_BYTES + SUM_BYTES || memcmp(bytes, magic, sizeof magic) != 0)
        return embd__error_set(e, EMBD_CORRUPT, "%s: not a file of records", name);
    if (embd__get_u64(bytes + n - SUM_BYTES) != XXH3_64bits(bytes, n - SUM_BYTES))
        return embd__error_set(e, EMBD_CORRUPT, "%s: its checksum is not right", name);
    if (embd__get_u32(bytes + AT_VERSION) != VERSION)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "%s: has version %u, this program reads version %u", name,
                               embd__get_u32(bytes + AT_VERSION), VERSION);
    get_header(bytes, out);
    if (!adds_up(out, n))
        return embd__error_set(e, EMBD_CORRUPT, "%s: its header has other lengths", name);
    out->times = (const void *)(bytes + HEADER_BYTES);
    out->skips = (const void *)(out->times + out->n_times);
    out->bytes = (const void *)(out->skips + out->n_skips);
    return check_name(name, out, e);
}
