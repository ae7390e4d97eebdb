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
 * position was on disk, nor `journal.SHARD.reached` (recordfile.h). Damage between records loses
 * nothing, and is passed over (next_record.c). Everything else refuses to start. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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

/* EMBD_CORRUPT; or, if damage is accepted, the reading goes on without this many bytes. */
static int lacks(struct journal_reading *r, uint64_t offset, uint64_t bytes, const char *what)
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
    bool is_fewer = r->config.has_grown && header->n_shards < r->config.n_shards;
    bool is_more = header->n_shards > r->config.n_shards;
    is_more = is_more && header->n_shards <= r->config.most_shards;
    bool is_other = header->n_shards != r->config.n_shards && !r->config.is_by_records;
    if (header->shard != r->config.shard || (is_other && !is_fewer && !is_more))
        return embd__error_set(
            r->e, EMBD_CORRUPT,
            "journal '%s' is of shard %u of %u, this is shard %u of %u: start with as many shards "
            "as before",
            r->name, header->shard, header->n_shards, r->config.shard, r->config.n_shards);
    r->end.is_resized = r->end.is_resized || header->n_shards != r->config.n_shards;
    r->end.n_shards = header->n_shards;
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
        if (r->e->status != EMBD_OK || lacks(r, 0, 0, "its header does not verify") != EMBD_OK)
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
    return lacks(r, list->damaged_at, list->n_damaged * WITHDRAWN_BYTES, what);
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
            if (next_record(r, bytes_out, record_out))
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

uint32_t journal_reading_shards(const struct journal_reading *r)
{
    return r->end.n_shards;
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
