/* fuzz_journal.c - any bytes as the journal of a shard that starts: replayed, cut where its tail is
 * torn, or refused; and the next start finds what this one left.
 *
 * The first byte chooses. Bit 0: records get the magic, position, chain and checksum they should have,
 * since no mutation would find them; their lengths and bodies stay. Bit 1: so does the header of the
 * segment, which is then put in front. The rest is the file. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "record.h"
#include "report.h"
#include "shard.h"

enum { FILE_BYTES = 1 << 16 };

static char dir[] = "/dev/shm/embd-fuzz-XXXXXX", path[64];
static struct shard_config config;
static uint8_t bytes[FILE_BYTES];

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void remove_all(void)
{
    unlink(path);
    rmdir(dir);
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const address[] = {"127.0.0.1:7700"}, *const admin[] = {""};
    struct embd__error e = {.status = EMBD_OK};
    (void)argc;
    (void)argv;
    must(mkdtemp(dir) != NULL);
    snprintf(path, sizeof path, "%s/journal.0.00000001", dir);
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
static void seal(uint8_t *at, size_t n)
{
    uint64_t chain = 0, ignored;
    for (uint64_t position = 0; n >= RECORD_HEADER_BYTES; position++) {
        uint64_t body;
        memcpy(&body, at + 16, sizeof body);
        body %= n - RECORD_HEADER_BYTES + 1;
        memcpy(at + 16, &body, sizeof body);
        memcpy(at, "EBDJ", 4);
        chain = record_seal(at, position, position, chain, &ignored);
        at += RECORD_HEADER_BYTES + body;
        n -= RECORD_HEADER_BYTES + body;
    }
}

static size_t make_file(const uint8_t *data, size_t n)
{
    size_t at = 0;
    uint8_t choice = n > 0 ? data[0] : 0;
    if ((choice & 2) != 0) {
        segment_header_write(bytes, &(struct segment_header){.n_shards = 1, .number = 1});
        at = SEGMENT_HEADER_BYTES;
    }
    n = n > 0 ? n - 1 : 0;
    n = n < FILE_BYTES - at ? n : FILE_BYTES - at;
    memcpy(bytes + at, data + 1, n);
    if ((choice & 1) != 0)
        seal(bytes + at, n);
    return at + n;
}

/* What there is, as one number. */
static uint64_t sum_up(const struct shard *shard)
{
    static struct shard_report report;
    uint64_t sum = 0;
    shard_report(shard, &report);
    for (uint32_t i = 0; i < report.n_tables; i++)
        for (uint32_t j = 0; j < report.tables[i].n_figures; j++)
            sum = sum * 31 + report.tables[i].figures[j].value;
    return sum;
}

static int start(uint64_t *sum_out)
{
    struct embd__error e = {.status = EMBD_OK};
    struct shard *shard = NULL;
    int status = shard_open(&config, &shard, &e);
    must((status == EMBD_OK) == (shard != NULL) && (status == EMBD_OK) == (e.text[0] == '\0'));
    *sum_out = shard != NULL ? sum_up(shard) : 0;
    if (shard != NULL)
        shard_close(shard);
    return status;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    uint64_t first, second;
    size_t n_file = make_file(data, n);
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    must(file >= 0 && write(file, bytes, n_file) == (ssize_t)n_file && close(file) == 0);
    int status = start(&first);
    must(start(&second) == status && first == second);
    return 0;
}
