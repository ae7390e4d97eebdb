/* damage.c - the record of damage that was accepted: a file beside the journal, a line for each time. It is read by
 * people, and outlives the journal it tells of. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "below.h"
#include "journal.h"

static int failed(const char *name, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "'%s': %s", name, strerror(errno));
}

static void file_name(char out[64], uint32_t shard)
{
    snprintf(out, 64, "journal.%u.damage", shard);
}

int journal_damage_note(const struct journal_config *config, const struct journal_damage *damage,
                        struct embd__error *e)
{
    char name[64], line[320], when[32];
    struct tm utc;
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    int n = snprintf(line, sizeof line,
                     "%s damage of journal '%s' was accepted at offset %llu: %s; %llu bytes were "
                     "dropped\n",
                     when, damage->name, (unsigned long long)damage->offset, damage->what,
                     (unsigned long long)damage->dropped_bytes);
    file_name(name, config->shard);
    int fd = below_open(config->data_dir, name, O_WRONLY | O_APPEND | O_CREAT, 0600);
    if (fd < 0)
        return failed(name, e);
    bool is_written = write(fd, line, (size_t)n) == n && fsync(fd) == 0 &&
                      fsync(config->data_dir) == 0;
    if (!is_written)
        failed(name, e);
    else
        fprintf(stderr, "embd: %s", line);
    close(fd);
    return e->status;
}

int journal_damage_count(const struct journal_config *config, uint64_t *count_out,
                         struct embd__error *e)
{
    char name[64], bytes[4096];
    ssize_t n;
    file_name(name, config->shard);
    *count_out = 0;
    int fd = below_open(config->data_dir, name, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(name, e);
    while ((n = read(fd, bytes, sizeof bytes)) > 0)
        for (ssize_t i = 0; i < n; i++)
            *count_out += bytes[i] == '\n';
    if (n < 0)
        failed(name, e);
    close(fd);
    return e->status;
}
