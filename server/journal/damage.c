/* damage.c - the record of accepted damage: a file beside the journal, with a line for each time.
 * It is for people, and outlives the journal. If a start accepted damage, and found no room on the
 * disk to compact the journal, the next start meets the same damage: it is recorded once. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/journal/journal.h"
#include "server/log/log.h"

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

/* 0 or errno. Whether a complete line has this damage, however old: each line names a segment, and
 * segment numbers are never used again. *end_out: behind the last complete line. */
static int look_for(int fd, const char *line, bool *is_told_out, off_t *end_out)
{
    char earlier[LINE_BYTES];
    const size_t length = strlen(line);
    ssize_t n;
    *is_told_out = false;
    *end_out = 0;
    for (off_t at = 0; (n = pread(fd, earlier, sizeof earlier, at)) > 0;) {
        const char *end = memchr(earlier, '\n', (size_t)n);
        const size_t bytes = end != NULL ? (size_t)(end - earlier) + 1 : (size_t)n;
        at += (off_t)bytes;
        if (end == NULL)
            continue;
        *end_out = at;
        *is_told_out |= bytes == length && length > TIME_BYTES &&
                        memcmp(earlier + TIME_BYTES, line + TIME_BYTES, length - TIME_BYTES) == 0;
    }
    return n < 0 ? errno : 0;
}

/* 0 or errno. What an earlier one left half goes. */
static int add_line(int fd, const char *line)
{
    off_t end;
    bool is_told;
    ssize_t n = (ssize_t)strlen(line);
    int error = look_for(fd, line, &is_told, &end);
    if (error != 0 || is_told)
        return error;
    errno = EIO; /* what a short write leaves unsaid */
    return ftruncate(fd, end) == 0 && pwrite(fd, line, (size_t)n, end) == n && fsync(fd) == 0
               ? 0
               : errno;
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
    int fd = safe_open(config->data_dir, name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return failed(name, e);
    errno = add_line(fd, line);
    if (errno != 0 || fsync(config->data_dir) != 0)
        failed(name, e);
    else
        log_event(
            LOG_ERROR, "journal_damage_accepted",
            "file=%s offset=%llu dropped_bytes=%llu what=\"%s\" why=\"the journal was damaged "
            "and --accept-journal-damage allows it: changes behind this offset are lost\"",
            damage->name, (unsigned long long)damage->offset,
            (unsigned long long)damage->dropped_bytes, damage->what);
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
    int fd = safe_open(config->data_dir, name, O_RDONLY, 0);
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
