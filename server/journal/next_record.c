/* next_record.c - the next record of a journal that is read at start: behind zeros and marks, and
 * behind damage.
 *
 * What is behind is looked for by this rule. A header that verifies, which only the journal's own
 * thread can have written, says where its record ends: that span is passed over as a whole, and
 * what a client put into it is not looked at. Where no header verifies, nobody knows whose bytes
 * these are, and a header or a mark is looked for at each of them; only its own 56 bytes are
 * hashed, where its magic stands, and a body once, where the header is of the very record that is
 * missing. So what is hashed is no more than 16 times the segment, whatever is in it. Checksums of
 * earlier versions are not keyed: in their segments a record is one where it verifies with its
 * body, wherever it stands. */
#include <string.h>

#include "server/journal/recordfile.h"
#include "server/journal/reading.h"
#include "server/log/log.h"

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

bool next_record(struct journal_reading *r, uint8_t **bytes_out, struct record *out)
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
