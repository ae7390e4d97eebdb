/* fuzz_journal.c - any bytes as the files of a journal of a shard that starts: replayed, cut where
 * its tail is torn, or refused; and the next start finds what this one left.
 *
 * The first byte chooses. Bit 0: records get the magic, position, chain and checksum they should
 * have, since no mutation would find them; their lengths and bodies stay. Bit 1: so does the header
 * of the file, which is then put in front. Bit 2: the file is a base, and bit 3: an empty segment
 * behind it is there. Bit 4: there is a list of withdrawn records, whose bytes come first, after
 * one that says how many; bit 5: each 24 of them name a record there is, and have the checksum they
 * should have. Bit 6: damage is accepted: then the next start, which accepts none, finds a journal
 * without any. Bit 7: the file is as an earlier version wrote it, without a secret. The rest is the
 * file. */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/journal/commit.h"
#include "tests/server/old_journal.h"
#include "server/service/metrics/report.h"
#include "server/service/state.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { FILE_BYTES = 1 << 16, ENTRY_BYTES = 24, IDS = 64 };
enum {
    SEALED = 1,
    HEADED = 2,
    BASE = 4,
    BEHIND = 8,
    WITHDRAWN = 16,
    MEETING = 32,
    ACCEPTED = 64,
    OLD = 128
};

static char dir[] = "/dev/shm/embd-fuzz-XXXXXX";
static struct shard_config config;
static uint8_t bytes[FILE_BYTES];
static struct record_id ids[IDS]; /* of the records that were sealed */
static uint32_t n_ids;
static const struct segment_header headers[2] = {
    {.n_shards = 1, .number = 1, .key = {true, "a secret of a segment"}},
    {.n_shards = 1,
     .number = 2,
     .first_position = 5,
     .chain = 77,
     .key = {true, "another"}}, /* of a base, and behind it */
};

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void empty(void)
{
    char path[512];
    DIR *list = opendir(dir);
    must(list != NULL);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;) {
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        must(entry->d_name[0] == '.' || unlink(path) == 0);
    }
    closedir(list);
}

static void remove_all(void)
{
    empty();
    rmdir(dir);
}

static void write_file(const char *name, const void *data, size_t n)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(file >= 0 && write(file, data, n) == (ssize_t)n && close(file) == 0);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const address[] = {"127.0.0.1:7700"}, *const admin[] = {""};
    struct embd__error e = {.status = EMBD_OK};
    (void)argc;
    (void)argv;
    must(mkdtemp(dir) != NULL);
    atexit(remove_all);
    config = (struct shard_config){.n_shards = 1,
                                   .cluster_name = "fuzz",
                                   .addresses = address,
                                   .admin_addresses = admin,
                                   .store = store_find("host", &e),
                                   .data_dir = dir,
                                   .is_first = true};
    must(config.store != NULL);
    return 0;
}

/* As many records as there are, whose lengths are made to end within the file. */
static void seal(uint8_t *at, size_t n, const struct segment_header *header, bool is_old)
{
    uint64_t chain = header->chain, ignored;
    for (uint64_t position = header->first_position; n >= RECORD_HEADER_BYTES; position++) {
        uint64_t body;
        memcpy(&body, at + 16, sizeof body);
        body %= n - RECORD_HEADER_BYTES + 1;
        memcpy(at + 16, &body, sizeof body);
        memcpy(at, "EBDJ", 4);
        chain = is_old ? old_record_seal(at, position, position, chain, &ignored)
                       : record_seal(at, &header->key, position, position, chain, &ignored);
        if (n_ids < IDS)
            ids[n_ids++] = (struct record_id){position, chain};
        at += RECORD_HEADER_BYTES + body;
        n -= RECORD_HEADER_BYTES + body;
    }
}

/* The segment, or base. */
static void make_file(uint8_t choice, const uint8_t *data, size_t n)
{
    bool is_base = (choice & BASE) != 0, is_old = (choice & OLD) != 0;
    struct segment_header header = headers[is_base];
    size_t at = (choice & HEADED) == 0 ? 0
                : is_old               ? OLD_SEGMENT_HEADER_BYTES
                                       : SEGMENT_HEADER_BYTES;
    n = n < FILE_BYTES - at ? n : FILE_BYTES - at;
    header.base_bytes = is_base ? at + n : 0;
    if (at > 0 && is_old)
        old_segment_header_write(bytes, &header);
    else if (at > 0)
        segment_header_write(bytes, &header);
    if (n > 0)
        memcpy(bytes + at, data, n);
    if ((choice & SEALED) != 0)
        seal(bytes + at, n, &header, is_old);
    write_file(is_base ? "journal.0.00000002.base" : "journal.0.00000001", bytes, at + n);
    segment_header_write(bytes, &headers[1]);
    if (is_base && (choice & BEHIND) != 0)
        write_file("journal.0.00000002", bytes, SEGMENT_HEADER_BYTES);
}

static void make_list(uint8_t choice, const uint8_t *data, size_t n)
{
    uint8_t list[256];
    memcpy(list, data, n);
    for (size_t at = 0; (choice & MEETING) != 0 && at + ENTRY_BYTES <= n; at += ENTRY_BYTES) {
        if (n_ids > 0)
            memcpy(list + at, &ids[list[at] % n_ids], sizeof *ids);
        uint64_t xxh3 = XXH3_64bits(list + at, sizeof *ids);
        memcpy(list + at + sizeof *ids, &xxh3, sizeof xxh3);
    }
    write_file("journal.0.withdrawn", list, n);
}

static uint8_t make_files(const uint8_t *data, size_t n)
{
    uint8_t choice = n > 0 ? data[0] : 0;
    size_t at = n > 0, n_list = (choice & WITHDRAWN) != 0 && n > 1 ? data[1] : 0;
    at += (choice & WITHDRAWN) != 0 && n > 1;
    n_list = n_list < n - at ? n_list : n - at;
    n_ids = 0;
    empty();
    make_file(choice, data + at + n_list, n - at - n_list);
    if ((choice & WITHDRAWN) != 0)
        make_list(choice, data + at, n_list);
    return choice;
}

/* What there is, as one number; `kept`: of tables that a journal should have. What replaces it has
 * them alone. */
static uint64_t sum_up(const struct shard *shard, bool kept)
{
    static struct shard_report report;
    uint64_t sum = 0;
    shard_report(shard, &report);
    for (uint32_t i = 0; i < report.n_tables; i++)
        for (uint32_t j = 0; j < report.tables[i].n_figures &&
                             (!kept || table_is_journaled(shard->engine.tables.by_name[i]));
             j++)
            sum = sum * 31 + report.tables[i].figures[j].value;
    return sum;
}

static int start(bool kept, uint64_t *sum_out)
{
    struct embd__error e = {.status = EMBD_OK};
    struct shard *shard = NULL;
    int status = shard_open(&config, &shard, &e);
    must((status == EMBD_OK) == (shard != NULL) && (status == EMBD_OK) == (e.text[0] == '\0'));
    *sum_out = shard != NULL ? sum_up(shard, kept) : 0;
    if (shard != NULL)
        shard_close(shard);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint64_t first, second;
    bool accepts = config.accepts_journal_damage = (make_files(data, n) & ACCEPTED) != 0;
    int status = start(accepts, &first);
    config.accepts_journal_damage = false;
    must(start(accepts, &second) == status && first == second);
    return 0;
}
