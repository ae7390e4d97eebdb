/* recover.c - reading a journal at start, a record at a time.
 *
 * The happy path is: the last base and the segment behind it, or the first one there ever was; segments
 * in the order of their numbers, records in the order of their positions, each checksum chained to
 * the one before, to the end of the last segment. What is before the base was left by a server that
 * ended when it had just made it, and goes. Earlier versions began a segment with the base instead.
 *
 * What does not verify is a torn tail, and is cut, only where nothing synced can follow: in the
 * last segment, when no whole record behind it says that it was written after that position was on
 * disk. Everything else is damage, and refuses to start. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "below.h"
#include "journal.h"
#include "readfile.h"

struct journal_reading {
    struct journal_config config;
    struct journal_end end;
    struct embd__error *e; /* of the call that is being made */
    char name[64];
    struct readfile file; /* the segment or base being read */
    uint64_t at, next;    /* next: where another record may begin, when there is none at `at` */
    uint64_t base_bytes; /* of the segment: before them nothing can be torn */
    uint64_t least, greatest; /* numbers of segments there are, or are behind a base; 0: none */
    uint64_t first;           /* that is read */
    uint64_t bases[2];        /* least and greatest number of a base's file; 0: none */
    bool reads_base;          /* that comes next */
    bool is_in_base;          /* the file being read is one, */
    uint64_t position, chain; /* behind which the records go on from these */
    uint64_t done_bytes, total_bytes;
    struct withdrawn withdrawn;
    bool is_over;
};

/* Where damage is accepted, nothing of the segment and of those behind it is read any more. */
static int damaged(struct journal_reading *r, uint64_t offset, const char *what)
{
    if (!r->config.accepts_damage)
        return embd__error_set(r->e, EMBD_CORRUPT,
                               "journal '%s' is damaged at offset %llu: %s; nothing was changed. "
                               "embd --accept-journal-damage drops what follows",
                               r->name, (unsigned long long)offset, what);
    struct journal_damage *damage = &r->end.damage;
    uint64_t done = r->done_bytes + offset;
    memcpy(damage->name, r->name, sizeof damage->name);
    snprintf(damage->what, sizeof damage->what, "%s", what);
    damage->offset = offset;
    damage->dropped_bytes = r->total_bytes > done ? r->total_bytes - done : 0;
    r->end.is_damaged = r->is_over = true;
    r->end.is_there = false;
    r->end.segment = r->greatest;
    return EMBD_OK;
}

static int failed(struct journal_reading *r)
{
    return embd__error_set(r->e, EMBD_IO, "journal '%s': %s", r->name, strerror(errno));
}

/* False with r->e set: it cannot be known, and to go on as if it were not there would lose it. */
static bool exists(struct journal_reading *r, uint64_t segment)
{
    char name[64];
    struct stat st;
    journal_file_name(name, r->config.shard, segment);
    if (fstatat(r->config.data_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return true;
    if (errno != ENOENT)
        embd__error_set(r->e, EMBD_IO, "journal '%s': cannot look for it: %s", name,
                        strerror(errno));
    return false;
}

static int open_file(struct journal_reading *r)
{
    r->at = 0;
    errno = readfile_open(&r->file, r->config.data_dir, r->name);
    if (errno == EWOULDBLOCK)
        return embd__error_set(r->e, EMBD_IO, "journal '%s': another process uses it", r->name);
    return errno == 0 ? EMBD_OK : failed(r);
}

static void close_file(struct journal_reading *r)
{
    r->done_bytes += r->file.n;
    r->at = 0;
    readfile_close(&r->file);
}

/* NULL with r->e set: they cannot be read. */
static uint8_t *bytes_at(struct journal_reading *r, uint64_t at, uint64_t n)
{
    uint8_t *bytes = readfile_bytes(&r->file, at, n);
    if (bytes == NULL && errno == ENOMEM)
        embd__error_set(r->e, EMBD_NO_MEMORY, "no memory for %llu bytes of journal '%s'",
                        (unsigned long long)n, r->name);
    else if (bytes == NULL)
        failed(r);
    return bytes;
}

/* A whole record's bytes; NULL: there is none, or with r->e set. */
static uint8_t *record_at(struct journal_reading *r, uint64_t at, struct record *out)
{
    uint64_t n = r->file.n - at;
    uint8_t *bytes = n < RECORD_HEADER_BYTES ? NULL : bytes_at(r, at, RECORD_HEADER_BYTES);
    n = bytes == NULL ? 0 : record_span(bytes, n);
    bytes = n == 0 ? NULL : bytes_at(r, at, n);
    return bytes != NULL && record_read(bytes, n, out) ? bytes : NULL;
}

static int cut(struct journal_reading *r, uint64_t offset)
{
    fprintf(stderr, "embd: journal '%s': the torn tail of %llu bytes at offset %llu is cut\n",
            r->name, (unsigned long long)(r->file.n - offset), (unsigned long long)offset);
    if (ftruncate(r->file.fd, (off_t)offset) != 0 || fsync(r->file.fd) != 0)
        return failed(r);
    return EMBD_OK;
}

/* The record at `offset` does not verify. A record behind it was perhaps written when it was on
 * disk already. */
static int check_tail(struct journal_reading *r, uint64_t offset)
{
    struct record record;
    if (offset < r->base_bytes)
        return damaged(r, offset, "it is in the base");
    if (r->is_in_base)
        return damaged(r, offset, "it is behind the base");
    if (exists(r, r->end.segment + 1))
        return damaged(r, offset, "another segment follows");
    if (r->e->status != EMBD_OK)
        return r->e->status;
    for (uint64_t at = offset + 1; at + RECORD_HEADER_BYTES <= r->file.n; at++) {
        if (record_at(r, at, &record) != NULL && record.synced > r->end.position)
            return damaged(r, offset, "records that were written later follow");
        if (r->e->status != EMBD_OK)
            return r->e->status;
    }
    return cut(r, offset);
}

/* Zeros up to a block's end: no record begins with one. */
static void skip_zeros(struct journal_reading *r)
{
    uint64_t n = r->is_in_base && r->base_bytes < r->file.n ? r->base_bytes : r->file.n;
    uint64_t at = r->at, end = record_block_end(at) < n ? record_block_end(at) : n;
    r->next = r->at;
    const uint8_t *bytes = at < end ? bytes_at(r, at, end - at) : NULL;
    if (bytes == NULL)
        return;
    while (at < end && bytes[at - r->at] == 0)
        at++;
    if (at < end || r->at == end)
        return;
    r->next = record_block_end(end); /* also where the file ends before */
    r->at = end;
}

/* The next record of the segment; false: there is none that follows. */
static bool read_record(struct journal_reading *r, uint8_t **bytes_out, struct record *out)
{
    skip_zeros(r);
    if (r->e->status != EMBD_OK || r->at >= r->file.n || (r->is_in_base && r->at >= r->base_bytes))
        return false;
    *bytes_out = record_at(r, r->at, out);
    if (*bytes_out == NULL || out->position != r->end.position || out->chain != r->end.chain) {
        *bytes_out = NULL;
        return false;
    }
    r->at += RECORD_HEADER_BYTES + out->body_bytes;
    r->end.position++;
    r->end.chain = out->checksum;
    return true;
}

static int end_segment(struct journal_reading *r)
{
    r->end.offset = r->next;
    if (r->e->status != EMBD_OK)
        return r->e->status;
    if (r->at == r->file.n && r->at < r->base_bytes)
        return damaged(r, r->at, "the base is cut off");
    r->end.bytes_since += r->at - (r->base_bytes > 0 ? r->base_bytes : 0);
    if (r->at < r->file.n)
        return check_tail(r, r->at);
    if (r->is_in_base) {
        r->end.position = r->position;
        r->end.chain = r->chain;
    }
    r->is_in_base = false;
    return EMBD_OK;
}

/* A header that does not verify, in a segment behind which there is none: it was being made. */
static int drop_segment(struct journal_reading *r)
{
    if (r->file.n > SEGMENT_HEADER_BYTES || exists(r, r->end.segment + 1))
        return damaged(r, 0, "its header does not verify");
    if (r->e->status != EMBD_OK)
        return r->e->status;
    if (unlinkat(r->config.data_dir, r->name, 0) != 0 || fsync(r->config.data_dir) != 0)
        return failed(r);
    r->end.segment--;
    r->greatest = r->end.segment;
    return EMBD_OK;
}

/* `number`: that it should have. */
static int check_header(struct journal_reading *r, const struct segment_header *header,
                        uint64_t number)
{
    if (header->shard != r->config.shard || header->n_shards != r->config.n_shards)
        return embd__error_set(
            r->e, EMBD_CORRUPT,
            "journal '%s' is of shard %u of %u, this is shard %u of %u: start with as many shards "
            "as before",
            r->name, header->shard, header->n_shards, r->config.shard, r->config.n_shards);
    if (header->number != number || header->first_position != r->end.position ||
        header->chain != r->end.chain)
        return damaged(r, 0, "it does not go on where the segment before ends");
    return EMBD_OK;
}

/* False with r->e set, or where it does not verify. */
static bool header_read(struct journal_reading *r, struct segment_header *out)
{
    const uint8_t *bytes =
        r->file.n < SEGMENT_HEADER_BYTES ? NULL : bytes_at(r, 0, SEGMENT_HEADER_BYTES);
    return bytes != NULL && segment_header_read(bytes, SEGMENT_HEADER_BYTES, out);
}

static int begin_segment(struct journal_reading *r)
{
    struct segment_header header;
    r->end.segment++;
    journal_file_name(r->name, r->config.shard, r->end.segment);
    if (open_file(r) != EMBD_OK)
        return r->e->status;
    if (!header_read(r, &header)) {
        int status = r->e->status != EMBD_OK ? r->e->status : drop_segment(r);
        close_file(r);
        return status;
    }
    if (check_header(r, &header, r->end.segment) != EMBD_OK || r->is_over)
        return r->e->status;
    r->end.is_there = true;
    r->at = SEGMENT_HEADER_BYTES;
    r->base_bytes = header.base_bytes;
    if (header.base_bytes > 0)
        r->end.base_bytes = header.base_bytes;
    return EMBD_OK;
}

static int begin_base(struct journal_reading *r)
{
    struct segment_header header;
    basefile_name(r->name, r->config.shard, r->end.base);
    if (open_file(r) != EMBD_OK)
        return r->e->status;
    if (!header_read(r, &header))
        return r->e->status != EMBD_OK ? r->e->status
                                       : damaged(r, 0, "its header does not verify");
    if (check_header(r, &header, r->end.base) != EMBD_OK || r->is_over)
        return r->e->status;
    r->is_in_base = true;
    r->position = header.first_position;
    r->chain = header.chain;
    r->at = SEGMENT_HEADER_BYTES;
    r->base_bytes = r->end.base_bytes = header.base_bytes;
    return EMBD_OK;
}

/* ---- where to begin ---- */

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

/* What is before the beginning, and bases that were not finished. What cannot be removed does no harm. */
static void drop_name(struct journal_reading *r, const char *found)
{
    uint64_t number;
    enum file file = file_of(r, found, &number);
    if ((file == FILE_SEGMENT && number < r->first) || (file == FILE_BASE && number < r->end.base) ||
        file == FILE_STAGED)
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

/* Whether r->name is a base; its header is read again, and checked, with the rest of it. */
static int look_for_base(struct journal_reading *r, uint64_t number, bool *is_base)
{
    uint8_t bytes[SEGMENT_HEADER_BYTES];
    struct segment_header header;
    int fd = below_open(r->config.data_dir, r->name, O_RDONLY, 0);
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

/* A base before this segment, as a file or, from an earlier version, in it. */
static int look_before(struct journal_reading *r, uint64_t number, bool *is_base)
{
    basefile_name(r->name, r->config.shard, number);
    if (look_for_base(r, number, is_base) != EMBD_OK)
        return r->e->status;
    if (*is_base) {
        r->end.base = number;
        return EMBD_OK;
    }
    journal_file_name(r->name, r->config.shard, number);
    return look_for_base(r, number, is_base);
}

static int find_beginning(struct journal_reading *r)
{
    bool is_base = false;
    if (each_name(r, see_name) != EMBD_OK)
        return r->e->status;
    uint64_t lowest = r->least == 0 || (r->bases[0] != 0 && r->bases[0] < r->least) ? r->bases[0]
                                                                                    : r->least;
    for (uint64_t n = r->greatest + 1; lowest > 0 && n >= lowest && !is_base; n--)
        if (look_before(r, n, &is_base) != EMBD_OK)
            return r->e->status;
    if (is_base || r->least == 1 || lowest == 0)
        return EMBD_OK;
    if (r->least == 0)
        basefile_name(r->name, r->config.shard, r->bases[1]);
    else
        journal_file_name(r->name, r->config.shard, r->least);
    return embd__error_set(r->e, EMBD_CORRUPT,
                           "journal '%s' is the first one there is, and no base: what was before it is "
                           "missing; nothing was changed",
                           r->name);
}

static int check_end(struct journal_reading *r)
{
    if (r->end.segment >= r->greatest)
        return EMBD_OK;
    journal_file_name(r->name, r->config.shard, r->end.segment + 1);
    return damaged(r, 0, "it is missing; others behind it are there");
}

/* ---- from outside ---- */

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

int journal_reading_open(const struct journal_config *config, struct journal_reading **out,
                         struct embd__error *e)
{
    struct journal_reading *r = calloc(1, sizeof *r);
    if (r == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read a journal");
    r->config = *config;
    r->e = e;
    r->file.fd = -1;
    if (find_beginning(r) != EMBD_OK ||
        withdrawn_read(config->data_dir, config->shard, &r->withdrawn, e) != EMBD_OK) {
        free(r);
        return e->status;
    }
    r->first = r->end.segment + 1;
    r->reads_base = r->end.base != 0;
    sum_up(r);
    *out = r;
    return EMBD_OK;
}

static int finish(struct journal_reading *r)
{
    if (r->e->status != EMBD_OK || check_end(r) != EMBD_OK || r->is_over)
        return r->e->status;
    r->is_over = true;
    withdrawn_drop_old(r->config.data_dir, r->config.shard, &r->withdrawn);
    return each_name(r, drop_name);
}

int journal_reading_next(struct journal_reading *r, uint8_t **bytes_out, struct record *record_out,
                         struct embd__error *e)
{
    r->e = e;
    *bytes_out = NULL;
    while (!r->is_over) {
        if (r->file.fd >= 0) {
            if (read_record(r, bytes_out, record_out))
                return EMBD_OK;
            if (end_segment(r) != EMBD_OK || r->is_over)
                return e->status;
            close_file(r);
        }
        bool is_base = r->reads_base;
        r->reads_base = false;
        if (!is_base && !exists(r, r->end.segment + 1))
            return finish(r);
        if ((is_base ? begin_base(r) : begin_segment(r)) != EMBD_OK)
            return e->status;
    }
    return EMBD_OK;
}

bool journal_reading_is_in_base(const struct journal_reading *r)
{
    return r->is_in_base;
}

bool journal_reading_is_withdrawn(struct journal_reading *r, const struct record *record)
{
    const struct record_id id = {record->position, record->checksum};
    return !r->is_in_base && withdrawn_meets(&r->withdrawn, &id);
}

void journal_reading_progress(const struct journal_reading *r, uint64_t *done_bytes_out,
                              uint64_t *total_bytes_out)
{
    *done_bytes_out = r->done_bytes + r->at;
    *total_bytes_out = r->total_bytes;
}

void journal_reading_close(struct journal_reading *r, struct journal_end *end_out)
{
    if (r == NULL)
        return;
    close_file(r);
    withdrawn_fini(&r->withdrawn);
    if (end_out != NULL)
        *end_out = r->end;
    free(r);
}
