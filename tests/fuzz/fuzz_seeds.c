/* fuzz_seeds.c - writes the golden messages where the fuzzers begin: fuzz_seeds CORPUS */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/trunk.h"
#include "tests/unit/golden_messages.h"
#include "server/journal/record.h"
#include "tests/unit/part_files.h"
#include "tests/unit/received.h"

/* A seed is `prefix` and then the bytes. */
static void write_seed(const char *corpus, const char *fuzzer, const char *name, const char *prefix,
                       size_t prefix_bytes, const uint8_t *bytes, size_t n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s/%s", corpus, fuzzer, name);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(prefix, 1, prefix_bytes, file) != prefix_bytes ||
        fwrite(bytes, 1, n, file) != n || fclose(file) != 0) {
        perror(path);
        exit(1);
    }
}

static void write_messages(const char *corpus)
{
    for (uint32_t i = 0; i < n_goldens; i++) {
        uint8_t bytes[GOLDEN_BYTES];
        const char *name = goldens[i].name;
        size_t n = read_golden(name, bytes, sizeof bytes);
        if (n == SIZE_MAX) {
            fprintf(stderr, "golden/%s.hex cannot be read\n", name);
            exit(1);
        }
        write_seed(corpus, "frame", name, "\3\xff", 2, bytes, n);
        if (strcmp(name, "pull_request") == 0 || strcmp(name, "push_request") == 0 ||
            strcmp(name, "push_round_request") == 0 || strcmp(name, "erase_request") == 0 ||
            strcmp(name, "push_columns_request") == 0 || strcmp(name, "push_packed_request") == 0)
            write_seed(corpus, "parts", name, "", 0, bytes, n);
        if (strcmp(name, "table_create_request") == 0)
            write_seed(corpus, "schema", name, "", 0, bytes, n);
    }
}

/* Blocks of the table that a first byte of 16 chooses: dim 2, f32, slots, sgd. */
static void write_blocks(const char *corpus)
{
    static const uint64_t keys[2] = {1, 2};
    static const uint16_t slots[2] = {0, 0};
    static const float rows[4] = {1, 2, 3, 4};
    const struct row_block block = {.n_rows = 2, .keys = keys, .slots = slots, .rows = rows};
    embd_schema schema;
    size_t n;
    embd_schema_init(&schema);
    schema.dim = 2;
    schema.partition = EMBD_PARTITION_SLOT;
    uint8_t *file = write_part_file(&schema, &block, 0, &n);
    write_seed(corpus, "partfile", "blocks", "\x10", 1, file + PARTFILE_HEADER_BYTES,
               n - PARTFILE_HEADER_BYTES);
    free(file);
}

static void write_heads(const char *corpus)
{
    static const char get[] =
        "GET /readyz?verbose HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    static const char old[] = "HEAD / HTTP/1.0\n\n";
    write_seed(corpus, "http", "get", "", 0, (const uint8_t *)get, sizeof get - 1);
    write_seed(corpus, "http", "old", "", 0, (const uint8_t *)old, sizeof old - 1);
}

/* Without its checksum, which no mutation would keep. */
static void write_manifest(const char *corpus)
{
    char text[8192];
    FILE *file = fopen(GOLDEN_DIR "/manifest.json", "r");
    size_t n = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    text[n] = '\0';
    char *seal = strstr(text, ",\n \"xxh3\"");
    if (seal == NULL || fclose(file) != 0) {
        fprintf(stderr, "golden/manifest.json cannot be read\n");
        exit(1);
    }
    strcpy(seal, "\n}\n");
    write_seed(corpus, "manifest", "unsealed", "", 0, (const uint8_t *)text, strlen(text));
}

/* What strangers say: a list of tokens, hello with one, a ClientHello's first bytes, and harm. */
static void write_strangers(const char *corpus)
{
    static const char list[] =
        "a reader ads_,user_ sha256:"
        "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae\n# all\nb admin * sha256:"
        "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9\n";
    static const char hello[] = "\1\x91\x82\xa8protocol\1\xa5token\xd9\x25"
                                "embd_0123456789abcdef0123456789abcdef";
    static const char client_hello[] = "\0\x16\3\1\0\xc0\1\0\0\xbc\3\3";
    static const char harm[] = "\1\x64\1\xff\0\xff\x80";
    write_seed(corpus, "hello", "list", "\0", 1, (const uint8_t *)list, sizeof list - 1);
    write_seed(corpus, "hello", "token", "", 0, (const uint8_t *)hello, sizeof hello - 1);
    write_seed(corpus, "tls", "hello", "", 0, (const uint8_t *)client_hello,
               sizeof client_hello - 1);
    write_seed(corpus, "tls", "harm", "", 0, (const uint8_t *)harm, sizeof harm - 1);
    write_seed(corpus, "tls", "whole", "\1", 1, (const uint8_t *)harm, 0);
}

/* Golden requests as the journal of a shard that took them. */
static void write_journal(const char *corpus)
{
    static const char *const requests[] = {"table_create_request", "push_request", "erase_request"};
    static uint8_t journal[1 << 16];
    size_t n = 0;
    for (int i = 0; i < 3; i++) {
        uint8_t bytes[GOLDEN_BYTES];
        struct received r;
        size_t n_bytes = read_golden(requests[i], bytes, sizeof bytes);
        received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
        if (received_feed(&r, bytes, n_bytes, 0) == FRAME_DONE) {
            record_write(journal + n, &r.scanner);
            n += record_bytes(&r.scanner);
        }
        received_fini(&r);
    }
    write_seed(corpus, "journal", "records", "\3", 1, journal, n);
    write_seed(corpus, "journal", "old-records", "\203", 1, journal, n);
    write_seed(corpus, "journal", "old-base", "\217", 1, journal, n);
    write_seed(corpus, "journal", "old-damaged-base", "\317", 1, journal, n - 1);
    write_seed(corpus, "journal", "base", "\17", 1, journal, n);
    write_seed(corpus, "journal", "base-alone", "\7", 1, journal, n);
    write_seed(corpus, "journal", "damaged-base", "\117", 1, journal, n - 1);
    write_seed(corpus, "journal", "accepted", "\103", 1, journal, n - 1);
    write_seed(corpus, "journal", "withdrawn", "\63\30\1.......................", 26, journal, n);
    write_seed(corpus, "journal", "withdrawn-two",
               "\63\60\2.......................\1.......................", 50, journal, n);
    write_seed(corpus, "journal", "torn-list", "\63\37\1..............................", 33,
               journal, n);
}

static void write_configuration(const char *corpus)
{
    static const char text[] =
        "shards: 2\nstore: host\nframe_memory: 25%\ncpus: 0,2-3\nlog_level: warn\ncluster:\n"
        "  name: shop\n  servers:\n    - {name: a, listen: \"127.0.0.1:7700\", data_dir: /tmp}\n"
        "    - {name: b, listen: \"[::1]:7800\", shards: 4, advertise: localhost}\n";
    write_seed(corpus, "config", "cluster", "", 0, (const uint8_t *)text, sizeof text - 1);
}

/* An answer with one SRV record, whose names are pointers into it. */
static void write_services(const char *corpus)
{
    static const uint8_t answer[] = {
        0, 1,   0x81, 0x80, 0,    1,    0, 1,   0,   0,    0,   0, /* one question, one record */
        5, '_', 'e',  'm',  'b',  'd',  4, '_', 't', 'c',  'p', 1, 'x', 0, /* at 12 */
        0, 33,  0,    1,    0xc0, 12,   0, 33,  0,   1,    0,   0, 0,   60,
        0, 11,                                                 /* SRV of that name */
        0, 1,   0,    5,    0x1e, 0x14, 2, 'd', '1', 0xc0, 23, /* 1 5 7700 d1.x */
    };
    write_seed(corpus, "services", "srv", "", 0, answer, sizeof answer);
}

/* Of both sides: a stream that opens, sends, ends and is over; a credit. */
static void write_trunk(const char *corpus)
{
    uint8_t chunks[5 * TRUNK_HEAD_BYTES + 3], *at = chunks;
    embd__trunk_head(at, TRUNK_OPEN, 7, 2);
    embd__trunk_head(at += TRUNK_HEAD_BYTES, TRUNK_DATA, 7, 3);
    memcpy(at + TRUNK_HEAD_BYTES, "abc", 3);
    embd__trunk_head(at += TRUNK_HEAD_BYTES + 3, TRUNK_END, 7, 0);
    embd__trunk_head(at += TRUNK_HEAD_BYTES, TRUNK_CLOSE, 7, 0);
    embd__trunk_head(at + TRUNK_HEAD_BYTES, TRUNK_CREDIT, 7, 1);
    write_seed(corpus, "trunk", "client", "\5", 1, chunks, sizeof chunks);
    write_seed(corpus, "trunk", "server", "\37", 1, chunks + TRUNK_HEAD_BYTES,
               sizeof chunks - TRUNK_HEAD_BYTES);
}

static void write_etcd(const char *corpus)
{
    static const char map[] = "{\"version\":3,\"servers\":{\"a\":[{\"address\":\"10.0.0.7:7700\","
                              "\"admin\":\"/a/7700.sock\"},"
                              "{\"address\":\"10.0.0.7:7701\",\"admin_tcp\":\"\"}],\"z\":[]}}";
    static const char last[] = "{\"version\":9223372036854775807,\"servers\":{}}";
    static const char value[] = "\1\0{\"header\":{\"revision\":\"9\"},\"kvs\":[{\"key\":\"L2E=\","
                                "\"value\":\"e30=\",\"mod_revision\":\"8\"}]}";
    static const char won[] = "\2\0{\"succeeded\":true}";
    static const char lease[] = "\3\0{\"ID\":\"7587\",\"TTL\":\"10\"}";
    static const char lives[] = "\4\0{\"result\":{\"ID\":\"7587\",\"TTL\":\"10\"}}";
    static const char event[] =
        "\5\x40{\"result\":{\"created\":true}}\n{\"result\":{\"events\":[{}]}}";
    write_seed(corpus, "etcd", "map", "\0", 1, (const uint8_t *)map, sizeof map - 1);
    write_seed(corpus, "etcd", "last", "\0", 1, (const uint8_t *)last, sizeof last - 1);
    write_seed(corpus, "etcd", "value", "", 0, (const uint8_t *)value, sizeof value - 1);
    write_seed(corpus, "etcd", "won", "", 0, (const uint8_t *)won, sizeof won - 1);
    write_seed(corpus, "etcd", "lease", "", 0, (const uint8_t *)lease, sizeof lease - 1);
    write_seed(corpus, "etcd", "lives", "", 0, (const uint8_t *)lives, sizeof lives - 1);
    write_seed(corpus, "etcd", "event", "", 0, (const uint8_t *)event, sizeof event - 1);
}

/* A norm file of one sample, and one of raw. */
static void write_samples(const char *corpus)
{
    static const int64_t header[8] = {0, 1, 1, 2, 3};
    static const uint32_t sample[] = {0, 0, 0, 1, 7, 0, 2, 8, 9};
    uint8_t norm[sizeof header + sizeof sample];
    memcpy(norm, header, sizeof header);
    memcpy(norm + sizeof header, sample, sizeof sample);
    write_seed(corpus, "samples", "norm", "\0", 1, norm, sizeof norm);
    write_seed(corpus, "samples", "raw", "\1", 1, (const uint8_t *)sample, 24);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: fuzz_seeds CORPUS\n");
        return 2;
    }
    write_messages(argv[1]);
    write_blocks(argv[1]);
    write_heads(argv[1]);
    write_manifest(argv[1]);
    write_journal(argv[1]);
    write_configuration(argv[1]);
    write_services(argv[1]);
    write_samples(argv[1]);
    write_trunk(argv[1]);
    write_etcd(argv[1]);
    write_strangers(argv[1]);
    return 0;
}
