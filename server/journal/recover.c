/* recover.c - reading a journal at start, a record at a time.
 *
 * The happy path is: the last base and the segment behind it, or the first one there ever was;
 * segments in the order of their numbers, records in the order of their positions, each checksum
 * chained to the one before, to the end of the last segment. What is before the base was left by a
 * server that ended when it had just made it, and goes. Earlier versions began a segment with the
 * base instead.
 *
 * What does not verify is a torn tail, and is cut, only where nothing synced can follow: in the
 * last segment, when no record's header or mark behind it says that it was written after that
 * position was on disk, nor `journal.SHARD.reached` (reached.h). Damage between records loses
 * nothing, and is passed over. Everything else refuses to start.
 *
 * What is behind is looked for by this rule. A header that verifies, which only the journal's own
 * thread can have written, says where its record ends: that span is passed over as a whole, and
 * what a client put into it is not looked at. Where no header verifies, nobody knows whose bytes
 * these are, and a header or a mark is looked for at each of them; only its own 56 bytes are
 * hashed, where its magic stands, and a body once, where the header is of the very record that is
 * missing. So what is hashed is no more than 16 times the segment, whatever is in it. Checksums of
 * earlier versions are not keyed: in their segments a record is one where it verifies with its
 * body, wherever it stands. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/journal/reached.h"
#include "server/journal/recordfile.h"
#include "server/journal/reading.h"
#include "server/log/log.h"

#define CUT_OFF "records are missing that were on disk"

static void note(struct journal_reading *r, uint64_t offset, uint64_t bytes, const char *what)
{
    struct journal_damage *damage = &r->end.damages[r->end.n_damages++];
    memcpy(damage->name, r->name, sizeof damage->name);
    snprintf(damage->what, sizeof damage->what, "%s", what);
    damage->offset = offset;
    damage->dropped_bytes = bytes;
    r->end.is_damaged = true;
}

/* `drops`: what is lost where it is accepted. */
static int refuse(struct journal_reading *r, uint64_t offset, const char *what, const char *drops)
{
    return embd__error_set(r->e, EMBD_CORRUPT,
                           "journal '%s' is damaged at offset %llu: %s; nothing was changed. "
                           "embd --accept-journal-damage drops %s",
                           r->name, (unsigned long long)offset, what, drops);
}

int reading_damaged(struct journal_reading *r, uint64_t offset, const char *what)
{
    uint64_t done = r->done_bytes + offset;
    if (!r->config.accepts_damage)
        return refuse(r, offset, what, "what follows");
    note(r, offset, r->total_bytes > done ? r->total_bytes - done : 0, what);
    r->is_over = true;
    r->end.is_there = false;
    r->end.segment = r->greatest;
    return EMBD_OK;
}

int reading_lacks(struct journal_reading *r, uint64_t offset, uint64_t bytes, const char *what)
{
    if (!r->config.accepts_damage)
        return refuse(r, offset, what, "what does not verify, and nothing else");
    note(r, offset, bytes, what);
    return EMBD_OK;
}

int reading_failed(struct journal_reading *r)
{
    return embd__error_set(r->e, EMBD_IO, "journal '%s': %s", r->name, strerror(errno));
}

/* False with r->e set: unknown, and to go on as if it did not exist would lose it. */
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

int reading_open_file(struct journal_reading *r)
{
    r->at = 0;
    errno = readfile_open(&r->file, r->config.data_dir, r->name);
    if (errno == EWOULDBLOCK)
        return embd__error_set(r->e, EMBD_IO, "journal '%s': another process uses it", r->name);
    return errno == 0 ? EMBD_OK : reading_failed(r);
}

void reading_close_file(struct journal_reading *r)
{
    r->done_bytes += r->file.n;
    r->at = 0;
    readfile_close(&r->file);
}

uint8_t *reading_bytes(struct journal_reading *r, uint64_t at, uint64_t n)
{
    uint8_t *bytes = readfile_bytes(&r->file, at, n);
    if (bytes == NULL && errno == ENOMEM)
        embd__error_set(r->e, EMBD_NO_MEMORY, "no memory for %llu bytes of journal '%s'",
                        (unsigned long long)n, r->name);
    else if (bytes == NULL)
        reading_failed(r);
    return bytes;
}

uint8_t *reading_record(struct journal_reading *r, uint64_t at, struct record *out)
{
    uint64_t n = r->file.n - at;
    uint8_t *bytes = n < RECORD_HEADER_BYTES ? NULL : reading_bytes(r, at, RECORD_HEADER_BYTES);
    n = bytes == NULL ? 0 : record_span(bytes, n);
    bytes = n == 0 ? NULL : reading_bytes(r, at, n);
    return bytes != NULL && record_read(&r->key, bytes, n, out) ? bytes : NULL;
}

static int cut(struct journal_reading *r, uint64_t offset)
{
    log_event(
        LOG_WARN, "journal_tail_cut",
        "file=%s offset=%llu bytes=%llu why=\"the last write was not finished when the server "
        "stopped: it is cut off; nothing that was synced is lost\"",
        r->name, (unsigned long long)offset, (unsigned long long)(r->file.n - offset));
    if (ftruncate(r->file.fd, (off_t)offset) != 0 || fsync(r->file.fd) != 0)
        return reading_failed(r);
    return EMBD_OK;
}

/* The record at `offset` does not verify, and no later record or mark does. */
static int check_tail(struct journal_reading *r, uint64_t offset)
{
    if (offset < r->base_bytes)
        return reading_damaged(r, offset, "it is in the base");
    if (r->is_in_base)
        return reading_damaged(r, offset, "it is behind the base");
    if (exists(r, r->end.segment + 1))
        return reading_damaged(r, offset, "another segment follows");
    if (r->e->status != EMBD_OK)
        return r->e->status;
    if (r->has_later)
        return reading_damaged(r, offset, "what was written later follows");
    if (r->end.position < r->reached)
        return reading_damaged(r, offset, CUT_OFF);
    return cut(r, offset);
}

/* Where its records end. */
static uint64_t limit(const struct journal_reading *r)
{
    return r->is_in_base && r->base_bytes < r->file.n ? r->base_bytes : r->file.n;
}

/* Zeros up to a block's end: no record begins with one. */
static void skip_zeros(struct journal_reading *r)
{
    uint64_t n = limit(r);
    uint64_t at = r->at, end = record_block_end(at) < n ? record_block_end(at) : n;
    r->next = r->at;
    const uint8_t *bytes = at < end ? reading_bytes(r, at, end - at) : NULL;
    if (bytes == NULL)
        return;
    while (at < end && bytes[at - r->at] == 0)
        at++;
    if (at < end || r->at == end)
        return;
    r->next = record_block_end(end); /* also where the file ends before */
    r->at = end;
}

static bool mark_at(struct journal_reading *r, uint64_t at, struct mark *out)
{
    const uint8_t *bytes = limit(r) - at < MARK_BYTES ? NULL : reading_bytes(r, at, MARK_BYTES);
    return bytes != NULL && mark_read(&r->key, bytes, MARK_BYTES, out);
}

static bool skip_mark(struct journal_reading *r)
{
    struct mark mark;
    if (r->e->status != EMBD_OK || r->at >= limit(r) || !mark_at(r, r->at, &mark) ||
        mark.position != r->end.position || mark.chain != r->end.chain)
        return false;
    r->at += MARK_BYTES;
    r->next = r->at;
    r->end.is_marked = true;
    return true;
}

static bool is_next(const struct journal_reading *r, const struct record *record)
{
    return record->position == r->end.position && record->chain == r->end.chain;
}

static void tell_between(struct journal_reading *r, uint64_t at)
{
    log_event(
        LOG_WARN, "journal_padding_damaged",
        "file=%s offset=%llu bytes=%llu why=\"bytes between two records are damaged: they carry "
        "no data, and no record is lost; check the disk\"",
        r->name, (unsigned long long)r->at, (unsigned long long)(at - r->at));
    r->at = at;
}

/* As find_next, in a segment of an earlier version. */
static uint8_t *find_next_unkeyed(struct journal_reading *r, struct record *out)
{
    struct mark mark;
    uint64_t n = limit(r);
    for (uint64_t at = r->at + 1; at + RECORD_HEADER_BYTES <= n && r->e->status == EMBD_OK; at++) {
        uint8_t *bytes = reading_record(r, at, out);
        if (bytes != NULL && is_next(r, out)) {
            tell_between(r, at);
            return bytes;
        }
        r->has_later = (bytes != NULL && out->synced > r->end.position) ||
                       (bytes == NULL && mark_at(r, at, &mark) && mark.position > r->end.position);
        if (r->has_later)
            return NULL;
    }
    return NULL;
}

/* The next place from `at` on where a header or a mark may begin, or where the records end. */
static uint64_t next_place(struct journal_reading *r, uint64_t at)
{
    enum { WINDOW_BYTES = 64 << 10 };
    const size_t n_begin = strlen(RECORD_MAGIC_BEGIN);
    uint64_t n = limit(r);
    while (at + RECORD_HEADER_BYTES <= n) {
        uint64_t here = n - at < WINDOW_BYTES ? n - at : WINDOW_BYTES;
        const uint8_t *bytes = reading_bytes(r, at, here), *found;
        if (bytes == NULL)
            return n;
        found = memmem(bytes, here, RECORD_MAGIC_BEGIN, n_begin);
        if (found != NULL)
            return at + (uint64_t)(found - bytes);
        at += here - (n_begin - 1);
    }
    return n;
}

static bool header_at(struct journal_reading *r, uint64_t at, struct record *out)
{
    const uint8_t *bytes = reading_bytes(r, at, RECORD_HEADER_BYTES);
    return bytes != NULL && record_header_read(&r->key, bytes, RECORD_HEADER_BYTES, out);
}

static uint64_t span_end(const struct record *record, uint64_t at, uint64_t n)
{
    uint64_t left = n - at - RECORD_HEADER_BYTES;
    return record->body_bytes > left ? n : at + RECORD_HEADER_BYTES + record->body_bytes;
}

/* The next record, if it is not whole at r->at: between records there are zeros and marks, which
 * are not needed. NULL: there is none behind; then r->has_later says whether it was on disk when
 * that was written. */
static uint8_t *find_next(struct journal_reading *r, struct record *out)
{
    struct mark mark;
    uint64_t n = limit(r), at = r->at;
    while (at + RECORD_HEADER_BYTES <= n && r->e->status == EMBD_OK && !r->has_later) {
        if (header_at(r, at, out)) {
            bool may_be_it = is_next(r, out) && at != r->at;
            uint64_t end = span_end(out, at, n);
            r->has_later = out->synced > r->end.position;
            uint8_t *bytes = may_be_it ? reading_record(r, at, out) : NULL;
            if (bytes != NULL) {
                tell_between(r, at);
                return bytes;
            }
            at = end;
        } else if (mark_at(r, at, &mark)) {
            r->has_later = mark.position > r->end.position;
            at += MARK_BYTES;
        } else {
            at = next_place(r, at + 1);
        }
    }
    return NULL;
}

/* The next record of the segment; false: none follows. */
static bool read_record(struct journal_reading *r, uint8_t **bytes_out, struct record *out)
{
    do
        skip_zeros(r);
    while (skip_mark(r));
    if (r->e->status != EMBD_OK || r->at >= limit(r))
        return false;
    *bytes_out = reading_record(r, r->at, out);
    if (*bytes_out == NULL || !is_next(r, out))
        *bytes_out = r->e->status != EMBD_OK ? NULL
                     : r->key.is_keyed       ? find_next(r, out)
                                             : find_next_unkeyed(r, out);
    if (*bytes_out == NULL)
        return false;
    r->at += RECORD_HEADER_BYTES + out->body_bytes;
    r->end.is_marked = false;
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
        return reading_damaged(r, r->at, "the base is cut off");
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

/* This many bytes of the file, or as many as it has. NULL with r->e set. */
static const uint8_t *first_bytes(struct journal_reading *r, uint64_t *n)
{
    *n = *n < r->file.n ? *n : r->file.n;
    return *n == 0 ? (const uint8_t *)"" : reading_bytes(r, 0, *n);
}

/* A header that does not verify, in the last segment: the server ended while it created the
 * file. */
static int drop_segment(struct journal_reading *r)
{
    uint64_t n = SEGMENT_HEADER_BYTES + 1;
    const uint8_t *bytes = first_bytes(r, &n);
    if (bytes != NULL && (!segment_is_unfinished(bytes, n) || r->end.position < r->reached ||
                          exists(r, r->end.segment + 1)))
        return reading_damaged(r, 0, "its header does not verify");
    if (r->e->status != EMBD_OK)
        return r->e->status;
    if (unlinkat(r->config.data_dir, r->name, 0) != 0 || fsync(r->config.data_dir) != 0)
        return reading_failed(r);
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
        return reading_damaged(r, 0, "it does not go on where the segment before ends");
    return EMBD_OK;
}

/* False with r->e set, or where it does not verify. Then r->at is behind it, and its key is the
 * file's. */
static bool header_read(struct journal_reading *r, struct segment_header *out)
{
    uint64_t n = SEGMENT_HEADER_BYTES;
    const uint8_t *bytes = first_bytes(r, &n);
    r->at = bytes == NULL ? 0 : segment_header_read(bytes, n, out);
    if (r->at > 0)
        r->key = out->key;
    return r->at > 0;
}

static int begin_segment(struct journal_reading *r)
{
    struct segment_header header;
    r->end.segment++;
    journal_file_name(r->name, r->config.shard, r->end.segment);
    if (reading_open_file(r) != EMBD_OK)
        return r->e->status;
    if (!header_read(r, &header)) {
        int status = r->e->status != EMBD_OK ? r->e->status : drop_segment(r);
        reading_close_file(r);
        return status;
    }
    if (check_header(r, &header, r->end.segment) != EMBD_OK || r->is_over)
        return r->e->status;
    r->end.is_there = true;
    r->end.is_marked = true; /* a header alone needs none */
    r->end.key = r->key;
    r->base_bytes = header.base_bytes;
    if (header.base_bytes > 0)
        r->end.base_bytes = header.base_bytes;
    return EMBD_OK;
}

static int begin_base(struct journal_reading *r)
{
    struct segment_header header;
    basefile_name(r->name, r->config.shard, r->end.base);
    if (reading_open_file(r) != EMBD_OK)
        return r->e->status;
    if (!header_read(r, &header)) {
        if (r->e->status != EMBD_OK ||
            reading_lacks(r, 0, 0, "its header does not verify") != EMBD_OK)
            return r->e->status;
        header = (struct segment_header){.shard = r->config.shard,
                                         .n_shards = r->config.n_shards,
                                         .number = r->end.base,
                                         .first_position = r->end.position,
                                         .chain = r->end.chain,
                                         .base_bytes = r->file.n};
        r->key.is_keyed = false; /* of an earlier version, or it would not have been found */
        r->at = OLD_SEGMENT_HEADER_BYTES;
    }
    if (check_header(r, &header, r->end.base) != EMBD_OK || r->is_over)
        return r->e->status;
    r->is_in_base = true;
    r->position = header.first_position;
    r->chain = header.chain;
    r->base_bytes = r->end.base_bytes = header.base_bytes;
    return EMBD_OK;
}

static int check_end(struct journal_reading *r)
{
    if (r->end.segment < r->greatest) {
        journal_file_name(r->name, r->config.shard, r->end.segment + 1);
        return reading_damaged(r, 0, "it is missing, and later ones exist");
    }
    if (r->end.position >= r->reached)
        return EMBD_OK;
    journal_file_name(r->name, r->config.shard, r->end.segment + !r->end.is_there);
    return reading_damaged(r, r->end.offset, CUT_OFF);
}

/* ---- from outside ---- */

/* Where some of it is lost, a push may be applied that was refused. */
static int read_withdrawn(struct journal_reading *r)
{
    const struct withdrawn *list = &r->withdrawn;
    if (withdrawn_read(r->config.data_dir, r->config.shard, &r->withdrawn, r->e) != EMBD_OK ||
        list->n_damaged == 0)
        return r->e->status;
    char what[64]; /* its file has the same name ever again, segments do not */
    withdrawn_name(r->name, r->config.shard);
    snprintf(what, sizeof what, "pushes refused up to segment %llu are not known any more",
             (unsigned long long)r->greatest);
    return reading_lacks(r, list->damaged_at, list->n_damaged * WITHDRAWN_BYTES, what);
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
    if (beginning_find(r) != EMBD_OK || read_withdrawn(r) != EMBD_OK ||
        reached_read(config->data_dir, config->shard, &r->reached, e) != EMBD_OK) {
        journal_reading_close(r, NULL);
        return e->status;
    }
    *out = r;
    return EMBD_OK;
}

static int finish(struct journal_reading *r)
{
    if (r->e->status != EMBD_OK || check_end(r) != EMBD_OK || r->is_over)
        return r->e->status;
    r->is_over = true;
    if (!r->end.is_damaged) /* which is written down first */
        withdrawn_drop_before(r->config.data_dir, r->config.shard, r->from);
    return beginning_drop_others(r);
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
            reading_close_file(r);
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
    reading_close_file(r);
    withdrawn_fini(&r->withdrawn);
    if (end_out != NULL)
        *end_out = r->end;
    free(r);
}
