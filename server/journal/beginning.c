/* beginning.c - where the reading of a journal begins: at its last base, or the first segment there
 * ever was.
 *
 * The happy path: the names of a shard's files are looked through, then headers from the greatest
 * number down, until one is a base's. Where damage is accepted, an earlier version's base whose
 * header is damaged is known by its first record, which says what the header said; and where no
 * base can be found although there was one, nothing of the journal is left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/journal/recordfile.h"
#include "server/journal/reading.h"

enum file { FILE_OTHER, FILE_SEGMENT, FILE_BASE, FILE_STAGED };

static enum file file_of(const struct journal_reading *r, const char *found, uint64_t *number_out)
{
    char name[72];
    unsigned shard;
    unsigned long long number;
    if (sscanf(found, "journal.%u.%llu", &shard, &number) != 2 || shard != r->config.shard ||
        number == 0)
        return FILE_OTHER;
    *number_out = number;
    journal_file_name(name, shard, number);
    if (strcmp(name, found) == 0)
        return FILE_SEGMENT;
    basefile_name(name, shard, number);
    if (strcmp(name, found) == 0)
        return FILE_BASE;
    strcat(name, ".tmp");
    return strcmp(name, found) == 0 ? FILE_STAGED : FILE_OTHER;
}

static void widen(uint64_t *least, uint64_t *greatest, uint64_t number)
{
    if (*least == 0 || number < *least)
        *least = number;
    if (number > *greatest)
        *greatest = number;
}

static void see_name(struct journal_reading *r, const char *found)
{
    uint64_t number;
    enum file file = file_of(r, found, &number);
    if (file == FILE_SEGMENT)
        widen(&r->least, &r->greatest, number);
    if (file != FILE_BASE)
        return;
    widen(&r->bases[0], &r->bases[1], number);
    if (number - 1 > r->greatest)
        r->greatest = number - 1;
}

/* A file that cannot be removed does no harm. */
static void drop_name(struct journal_reading *r, const char *found)
{
    uint64_t number;
    enum file file = file_of(r, found, &number);
    if ((file == FILE_SEGMENT && number < r->first) ||
        (file == FILE_BASE && number < r->end.base) || file == FILE_STAGED)
        unlinkat(r->config.data_dir, found, 0);
}

static int each_name(struct journal_reading *r,
                     void (*see)(struct journal_reading *r, const char *name))
{
    int fd = openat(r->config.data_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        embd__error_set(r->e, EMBD_IO, "journals of shard %u: the directory cannot be read: %s",
                        r->config.shard, strerror(errno));
        if (fd >= 0)
            close(fd);
        return r->e->status;
    }
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        see(r, entry->d_name);
    if (errno != 0)
        embd__error_set(r->e, EMBD_IO, "journals of shard %u: the directory cannot be read: %s",
                        r->config.shard, strerror(errno));
    closedir(dir);
    return r->e->status;
}

/* Removes an earlier version's base whose header does not verify. */
static int look_in_base(struct journal_reading *r, struct segment_header *out, bool *is_base)
{
    struct record record;
    if (reading_open_file(r) == EMBD_OK)
        *is_base = reading_record(r, OLD_SEGMENT_HEADER_BYTES, &record) != NULL ||
                   (r->e->status == EMBD_OK && r->file.n > RECORD_BLOCK_BYTES &&
                    reading_record(r, RECORD_BLOCK_BYTES, &record) != NULL);
    reading_close_file(r);
    r->done_bytes = 0;
    if (*is_base)
        *out = (struct segment_header){.first_position = record.position, .chain = record.chain};
    return r->e->status;
}

/* Whether r->name is a base; its header is read again, and checked, with the rest of it. */
static int look_for_base(struct journal_reading *r, uint64_t number, bool is_file, bool *is_base)
{
    uint8_t bytes[SEGMENT_HEADER_BYTES];
    struct segment_header header;
    int fd = safe_open(r->config.data_dir, r->name, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : reading_failed(r);
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < 0)
        reading_failed(r);
    close(fd);
    bool is_whole = n > 0 && segment_header_read(bytes, (uint64_t)n, &header) > 0;
    *is_base = is_whole && header.base_bytes > 0 && header.number == number;
    if (n >= (ssize_t)OLD_SEGMENT_HEADER_BYTES && !is_whole && is_file && r->config.accepts_damage)
        look_in_base(r, &header, is_base);
    if (*is_base)
        r->end = (struct journal_end){
            .segment = number - 1, .position = header.first_position, .chain = header.chain};
    return r->e->status;
}

/* A base before this segment, as a file or, from an earlier version, in it. */
static int look_before(struct journal_reading *r, uint64_t number, bool *is_base)
{
    basefile_name(r->name, r->config.shard, number);
    if (look_for_base(r, number, true, is_base) != EMBD_OK)
        return r->e->status;
    if (*is_base) {
        r->end.base = number;
        return EMBD_OK;
    }
    journal_file_name(r->name, r->config.shard, number);
    return look_for_base(r, number, false, is_base);
}

static void add_size(struct journal_reading *r, const char *name)
{
    struct stat st;
    if (fstatat(r->config.data_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        r->total_bytes += (uint64_t)st.st_size;
}

static void sum_up(struct journal_reading *r)
{
    char name[64];
    basefile_name(name, r->config.shard, r->end.base);
    if (r->end.base != 0)
        add_size(r, name);
    for (uint64_t n = r->first; n <= r->greatest; n++) {
        journal_file_name(name, r->config.shard, n);
        add_size(r, name);
    }
}

/* There was a base. */
static int begin_without_base(struct journal_reading *r)
{
    r->first = r->least != 0 ? r->least : r->greatest + 1;
    r->end.base = r->bases[1];
    sum_up(r);
    r->end.base = 0;
    if (r->bases[1] != 0)
        basefile_name(r->name, r->config.shard, r->bases[1]);
    else
        journal_file_name(r->name, r->config.shard, r->least);
    return reading_damaged(r, 0,
                           r->bases[1] != 0
                               ? "its header does not verify"
                               : "it is not a base, and the files before it are missing");
}

int beginning_find(struct journal_reading *r)
{
    bool is_base = false;
    if (each_name(r, see_name) != EMBD_OK)
        return r->e->status;
    uint64_t lowest =
        r->least == 0 || (r->bases[0] != 0 && r->bases[0] < r->least) ? r->bases[0] : r->least;
    for (uint64_t n = r->greatest + 1; lowest > 0 && n >= lowest && !is_base; n--)
        if (look_before(r, n, &is_base) != EMBD_OK)
            return r->e->status;
    if (!is_base && r->least != 1 && lowest != 0)
        return begin_without_base(r);
    r->from = r->end.position;
    r->first = r->end.segment + 1;
    r->reads_base = r->end.base != 0;
    sum_up(r);
    return EMBD_OK;
}

int beginning_drop_others(struct journal_reading *r)
{
    return each_name(r, drop_name);
}
