/* fuzz_config.c - any bytes as the configuration file of a server: believed whole, within the
 * limits that the program relies on, or refused with a sentence that names the file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "server/config.h"

static int file;
static char path[64];

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    file = memfd_create("config", 0);
    must(file >= 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    return 0;
}

static void check(const struct config *config)
{
    uint32_t shards = 0;
    must(config->n_servers >= 1 && config->self < config->n_servers && config->servers != NULL);
    for (uint32_t i = 0; i < config->n_servers; i++) {
        must(config->servers[i].shards >= 1 && config->servers[i].first_shard == shards);
        shards += config->servers[i].shards;
    }
    must(shards == config->n_shards && shards <= LIMIT_SHARDS && config->n_cpus <= CONFIG_CPUS_MAX);
    must(config->frame_memory > 0 && memchr(config->data_dir, '\0', sizeof config->data_dir));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    char *arguments[] = {(char[]){"embd"},     (char[]){"--config"}, path,
                         (char[]){"--server"}, (char[]){"0"},        NULL};
    struct config config;
    struct embd__error e = {.status = EMBD_OK};
    must(ftruncate(file, 0) == 0 && pwrite(file, data, n, 0) == (ssize_t)n);
    int status = config_read(5, arguments, &config, &e);
    must((status == EMBD_OK) == (e.text[0] == '\0'));
    if (status == EMBD_OK) {
        check(&config);
        config_fini(&config);
    }
    return 0;
}
