/* damage.c - the record of damage that was accepted: a file beside the journal, a line for each time. It is read by
 * people, and outlives the journal it tells of. A start that accepted damage, and found no room on the disk to begin the
 * journal anew, will be tried again: the same damage is told once. */
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

/* A line, without the time it begins with. */
enum { LINE_BYTES = 320, TIME_BYTES = 20 };

/* Whether that is what the last whole line tells; *end_out: behind it. */
static bool is_told(int fd, const char *line, off_t *end_out)
{
    char bytes[2 * LINE_BYTES];
    off_t size = lseek(fd, 0, SEEK_END), from = size > (off_t)sizeof bytes ? size - (off_t)sizeof bytes : 0;
    ssize_t n = pread(fd, bytes, sizeof bytes, from), begin;
    while (n > 0 && bytes[n - 1] != '\n')
        n--;
    *end_out = n > 0 ? from + n : from;
    for (begin = n > 0 ? n - 1 : 0; begin > 0 && bytes[begin - 1] != '\n';)
        begin--;
    size_t length = strlen(line);
    return n - begin == (ssize_t)length && length > TIME_BYTES &&
           memcmp(bytes + begin + TIME_BYTES, line + TIME_BYTES, length - TIME_BYTES) == 0;
}

/* 0 or errno. What an earlier one left half goes. */
static int add_line(int fd, const char *line)
{
    off_t end;
    ssize_t n = (ssize_t)strlen(line);
    errno = EIO; /* what a short write leaves unsaid */
    if (is_told(fd, line, &end))
        return 0;
    return ftruncate(fd, end) == 0 && pwrite(fd, line, (size_t)n, end) == n && fsync(fd) == 0 ? 0 : errno;
}

int journal_damage_note(const struct journal_config *config, const struct journal_damage *damage,
                        struct embd__error *e)
{
    char name[64], line[LINE_BYTES], when[32];
    struct tm utc;
    time_t now = time(NULL);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    snprintf(line, sizeof line,
             "%s damage of journal '%s' was accepted at offset %llu: %s; %llu bytes were dropped\n",
             when, damage->name, (unsigned long long)damage->offset, damage->what,
             (unsigned long long)damage->dropped_bytes);
    file_name(name, config->shard);
    int fd = below_open(config->data_dir, name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return failed(name, e);
    errno = add_line(fd, line);
    if (errno != 0 || fsync(config->data_dir) != 0)
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
