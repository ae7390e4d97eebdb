/* recover.c - reading a journal at start.
 *
 * The happy path is: from the last segment that is a base, or the first one there ever was; segments
 * in the order of their numbers, records in the order of their positions, each checksum chained to
 * the one before, to the end of the last segment. What is before the base was left by a server that
 * ended when it had just made it, and goes.
 *
 * What does not verify is a torn tail, and is cut, only where nothing synced can follow: in the
 * last segment, when no whole record behind it says that it was written after that position was on
 * disk. Everything else is damage, and refuses to start. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "journal.h"

struct reading {
    const struct journal_config *config;
    int (*take)(void *arg, uint8_t *bytes, const struct record *record, struct embd__error *e);
    void *arg;
    struct journal_end end;
    struct embd__error *e;
    /* The segment being read. */
    char name[64];
    int fd;
    uint8_t *bytes;
    uint64_t n;
    uint64_t base_bytes; /* of the segment: before them nothing can be torn */
    uint64_t least, greatest; /* numbers of segments there are; 0: none */
};

static int damaged(struct reading *r, uint64_t offset, const char *what)
{
    return embd__error_set(r->e, EMBD_CORRUPT,
                           "journal '%s' is damaged at offset %llu: %s; nothing was changed",
                           r->name, (unsigned long long)offset, what);
}

static int failed(struct reading *r)
{
    return embd__error_set(r->e, EMBD_IO, "journal '%s': %s", r->name, strerror(errno));
}

/* False with r->e set: it cannot be known, and to go on as if it were not there would lose it. */
static bool exists(struct reading *r, uint64_t segment)
{
    char name[64];
    struct stat st;
    journal_file_name(name, r->config->shard, segment);
    if (fstatat(r->config->data_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    if (errno != ENOENT)
        embd__error_set(r->e, EMBD_IO, "journal '%s': cannot look for it: %s", name,
                        strerror(errno));
    return false;
}

static int map_segment(struct reading *r)
{
    struct stat st;
    r->bytes = NULL;
    r->n = 0;
    r->fd = openat(r->config->data_dir, r->name, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    if (r->fd < 0 || fstat(r->fd, &st) != 0)
        return failed(r);
    if (st.st_size == 0)
        return EMBD_OK;
    void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_PRIVATE, r->fd, 0);
    if (bytes == MAP_FAILED)
        return failed(r);
    r->bytes = bytes;
    r->n = (uint64_t)st.st_size;
    return EMBD_OK;
}

static void unmap_segment(struct reading *r)
{
    if (r->bytes != NULL)
        munmap(r->bytes, r->n);
    if (r->fd >= 0)
        close(r->fd);
}

static int cut(struct reading *r, uint64_t offset)
{
    fprintf(stderr, "embd: journal '%s': the torn tail of %llu bytes at offset %llu is cut\n",
            r->name, (unsigned long long)(r->n - offset), (unsigned long long)offset);
    if (ftruncate(r->fd, (off_t)offset) != 0 || fsync(r->fd) != 0)
        return failed(r);
    return EMBD_OK;
}

/* The record at `offset` does not verify. A record behind it was perhaps written when it was on
 * disk already. */
static int check_tail(struct reading *r, uint64_t offset)
{
    struct record record;
    if (offset < r->base_bytes)
        return damaged(r, offset, "it is in the base");
    if (exists(r, r->end.segment + 1))
        return damaged(r, offset, "another segment follows");
    if (r->e->status != EMBD_OK)
        return r->e->status;
    for (uint64_t at = offset + 1; at + RECORD_HEADER_BYTES <= r->n; at++)
        if (record_read(r->bytes + at, r->n - at, &record) && record.synced > r->end.position)
            return damaged(r, offset, "records that were written later follow");
    return cut(r, offset);
}

static int read_records(struct reading *r)
{
    uint64_t at = SEGMENT_HEADER_BYTES;
    struct record record;
    while (at < r->n) {
        if (!record_read(r->bytes + at, r->n - at, &record) || record.position != r->end.position ||
            record.chain != r->end.chain)
            break;
        if (r->take(r->arg, r->bytes + at, &record, r->e) != EMBD_OK)
            return r->e->status;
        at += RECORD_HEADER_BYTES + record.body_bytes;
        r->end.position++;
        r->end.chain = record.checksum;
    }
    r->end.offset = at;
    if (at == r->n && at < r->base_bytes)
        return damaged(r, at, "the base is cut off");
    r->end.bytes_since += at - (r->base_bytes > 0 ? r->base_bytes : 0);
    return at < r->n ? check_tail(r, at) : EMBD_OK;
}

/* A header that does not verify, in a segment behind which there is none: it was being made. */
static int drop_segment(struct reading *r)
{
    if (r->n > SEGMENT_HEADER_BYTES || exists(r, r->end.segment + 1))
        return damaged(r, 0, "its header does not verify");
    if (r->e->status != EMBD_OK)
        return r->e->status;
    if (unlinkat(r->config->data_dir, r->name, 0) != 0 || fsync(r->config->data_dir) != 0)
        return failed(r);
    r->end.segment--;
    return EMBD_OK;
}

static int check_header(struct reading *r, const struct segment_header *header)
{
    if (header->shard != r->config->shard || header->n_shards != r->config->n_shards)
        return embd__error_set(
            r->e, EMBD_CORRUPT,
            "journal '%s' is of shard %u of %u, this is shard %u of %u: start with as many shards "
            "as before",
            r->name, header->shard, header->n_shards, r->config->shard, r->config->n_shards);
    if (header->number != r->end.segment || header->first_position != r->end.position ||
        header->chain != r->end.chain)
        return damaged(r, 0, "it does not go on where the segment before ends");
    return EMBD_OK;
}

static int read_segment(struct reading *r)
{
    struct segment_header header;
    if (!segment_header_read(r->bytes, r->n, &header))
        return drop_segment(r);
    if (check_header(r, &header) != EMBD_OK)
        return r->e->status;
    r->end.is_there = true;
    r->base_bytes = header.base_bytes;
    if (header.base_bytes > 0)
        r->end.base_bytes = header.base_bytes;
    return read_records(r);
}

/* ---- where to begin ---- */

static void see_name(struct reading *r, const char *found)
{
    char name[64];
    unsigned shard;
    unsigned long long number;
    if (sscanf(found, "journal.%u.%llu", &shard, &number) != 2 || shard != r->config->shard)
        return;
    journal_file_name(name, shard, number);
    if (strcmp(name, found) != 0 || number == 0)
        return;
    if (r->least == 0 || number < r->least)
        r->least = number;
    if (number > r->greatest)
        r->greatest = number;
}

static int list_segments(struct reading *r)
{
    int fd = openat(r->config->data_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL) {
        embd__error_set(r->e, EMBD_IO, "journals of shard %u: the directory cannot be read: %s",
                        r->config->shard, strerror(errno));
        if (fd >= 0)
            close(fd);
        return r->e->status;
    }
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        see_name(r, entry->d_name);
    if (errno != 0)
        embd__error_set(r->e, EMBD_IO, "journals of shard %u: the directory cannot be read: %s",
                        r->config->shard, strerror(errno));
    closedir(dir);
    return r->e->status;
}

/* Whether the segment is a base; its header is read again, and checked, with the rest of it. */
static int look_for_base(struct reading *r, uint64_t number, bool *is_base)
{
    uint8_t bytes[SEGMENT_HEADER_BYTES];
    struct segment_header header;
    journal_file_name(r->name, r->config->shard, number);
    int fd = openat(r->config->data_dir, r->name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(r);
    ssize_t n = pread(fd, bytes, sizeof bytes, 0);
    if (n < 0)
        failed(r);
    close(fd);
    *is_base = n == (ssize_t)sizeof bytes && segment_header_read(bytes, sizeof bytes, &header) &&
               header.base_bytes > 0 && header.number == number;
    if (*is_base)
        r->end = (struct journal_end){
            .segment = number - 1, .position = header.first_position, .chain = header.chain};
    return r->e->status;
}

static int find_beginning(struct reading *r)
{
    bool is_base = false;
    if (list_segments(r) != EMBD_OK)
        return r->e->status;
    for (uint64_t n = r->greatest; n > 0 && n >= r->least && !is_base; n--)
        if (look_for_base(r, n, &is_base) != EMBD_OK)
            return r->e->status;
    if (is_base || r->least <= 1)
        return EMBD_OK;
    journal_file_name(r->name, r->config->shard, r->least);
    return damaged(r, 0, "it is the first one there is, and no base");
}

static int check_end(struct reading *r)
{
    if (r->end.segment >= r->greatest)
        return EMBD_OK;
    journal_file_name(r->name, r->config->shard, r->end.segment + 1);
    return embd__error_set(r->e, EMBD_CORRUPT, "journal '%s' is missing; others behind it are there",
                           r->name);
}

static void drop_before(struct reading *r, uint64_t first)
{
    for (uint64_t n = first - 1; r->least > 0 && n >= r->least; n--) {
        journal_file_name(r->name, r->config->shard, n);
        unlinkat(r->config->data_dir, r->name, 0);
    }
}

int journal_recover(const struct journal_config *config,
                    int (*take)(void *arg, uint8_t *bytes, const struct record *record,
                                struct embd__error *e),
                    void *arg, struct journal_end *end_out, struct embd__error *e)
{
    struct reading r = {.config = config, .take = take, .arg = arg, .e = e, .fd = -1};
    int status = find_beginning(&r);
    uint64_t first = r.end.segment + 1;
    while (status == EMBD_OK && exists(&r, r.end.segment + 1)) {
        r.end.segment++;
        journal_file_name(r.name, config->shard, r.end.segment);
        status = map_segment(&r);
        uint64_t number = r.end.segment;
        if (status == EMBD_OK)
            status = read_segment(&r);
        unmap_segment(&r);
        if (r.end.segment < number) {
            r.greatest = r.end.segment; /* it is gone */
            break;
        }
    }
    if (e->status != EMBD_OK || check_end(&r) != EMBD_OK)
        return e->status;
    drop_before(&r, first);
    *end_out = r.end;
    return EMBD_OK;
}
