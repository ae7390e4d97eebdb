/* tail.c - see tail.h.
 *
 * The happy path: the asker says where it was, the segment is opened and its header read, the next
 * record stands right there, and records are copied until the piece is full or the last whole one
 * is reached; a segment that ends is followed by the next. An asker that does not know the file is
 * looked for: headers from the last segment down say where its position is, and the records from
 * there on lead to it.
 *
 * The chain is compared where reading begins: an asker whose records are not those of this journal
 * gets that answer, and never the next one. */
#include "server/journal/tail.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/journal/basefile.h"
#include "server/journal/readfile.h"
#include "server/journal/recent.h"
#include "server/journal/recordfile.h"
#include "server/journal/room.h"
#include "server/journal/withdrawn.h"

struct tail {
    const struct tail_ask *ask;
    struct tail_piece *piece;
    struct embd__error *e;
    struct readfile file;
    char name[64];
    struct segment_header header; /* of the file */
    uint64_t number, at;          /* of the file; of its next byte to be looked at */
    struct tail_place place;      /* of the record at `at` */
    struct withdrawn withdrawn;
    struct record record;  /* that was found last */
    struct recent *recent; /* of the segments; NULL: none */
    uint8_t head[RECORD_HEADER_BYTES];
};

/* ---- the names of a journal's files ---- */

struct names {
    uint64_t segment, base; /* greatest numbers; 0: none */
};

static void see_name(struct names *names, const char *found, uint32_t of)
{
    char name[64];
    unsigned shard;
    unsigned long long number;
    if (sscanf(found, "journal.%u.%llu", &shard, &number) != 2 || shard != of)
        return;
    journal_file_name(name, shard, number);
    if (strcmp(name, found) == 0 && number > names->segment)
        names->segment = number;
    basefile_name(name, shard, number);
    if (strcmp(name, found) == 0 && number > names->base)
        names->base = number;
}

static int failed(uint32_t shard, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "journals of shard %u: the directory cannot be read: %s",
                           shard, strerror(errno));
}

static DIR *open_names(int data_dir)
{
    int fd = openat(data_dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (dir == NULL && fd >= 0)
        close(fd);
    return dir;
}

static int list_names(int data_dir, uint32_t shard, struct names *out, struct embd__error *e)
{
    DIR *dir = open_names(data_dir);
    *out = (struct names){0};
    if (dir == NULL)
        return failed(shard, e);
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        see_name(out, entry->d_name, shard);
    int error = errno;
    closedir(dir);
    errno = error;
    return error == 0 ? EMBD_OK : failed(shard, e);
}

/* ---- a file ---- */

static int file_failed(struct tail *t)
{
    return embd__error_set(t->e, errno == ENOMEM ? EMBD_NO_MEMORY : EMBD_IO, "journal '%s': %s",
                           t->name, strerror(errno));
}

static bool gone(struct tail *t, const char *why)
{
    snprintf(t->piece->gone, sizeof t->piece->gone, "%s", why);
    return false;
}

static bool is_gone(const struct tail *t)
{
    return t->piece->gone[0] != '\0';
}

/* False: it is not there, or with an error. t->name is set. */
static bool open_file(struct tail *t, uint64_t number)
{
    uint8_t *bytes = NULL;
    readfile_close(&t->file);
    errno = readfile_look(&t->file, t->ask->data_dir, t->name);
    if (errno != 0 && errno != ENOENT)
        file_failed(t);
    if (errno != 0)
        return false;
    uint64_t n = t->file.n < SEGMENT_HEADER_BYTES ? t->file.n : SEGMENT_HEADER_BYTES;
    bytes = n > 0 ? readfile_bytes(&t->file, 0, n) : NULL;
    t->at = bytes == NULL ? 0 : segment_header_read(bytes, n, &t->header);
    if (n > 0 && bytes == NULL)
        file_failed(t);
    t->number = number;
    return t->at > 0;
}

static bool open_segment(struct tail *t, uint64_t number)
{
    journal_file_name(t->name, t->ask->shard, number);
    if (!open_file(t, number))
        return false;
    t->place = (struct tail_place){t->header.first_position, t->header.chain, 0};
    return true;
}

static const uint8_t *read_head(struct tail *t)
{
    if (recent_read(t->recent, t->number, t->at, t->head, sizeof t->head))
        return t->head;
    return readfile_bytes(&t->file, t->at, RECORD_HEADER_BYTES);
}

/* Skips the bytes between records. False: no record's header follows. */
static bool find_header(struct tail *t)
{
    struct mark mark;
    while (t->at + RECORD_HEADER_BYTES <= t->file.n) {
        const uint8_t *bytes = read_head(t);
        if (bytes == NULL)
            return file_failed(t) == EMBD_OK;
        if (record_header_read(&t->header.key, bytes, RECORD_HEADER_BYTES, &t->record))
            return true;
        if (mark_read(&t->header.key, bytes, MARK_BYTES, &mark))
            t->at += MARK_BYTES;
        else if (bytes[0] == 0 && t->at % RECORD_BLOCK_BYTES != 0)
            t->at = record_block_end(t->at);
        else
            return false;
    }
    return false;
}

static uint64_t record_size(const struct tail *t)
{
    return RECORD_HEADER_BYTES + t->record.body_bytes;
}

static bool is_next(const struct tail *t)
{
    return t->record.position == t->place.position && t->record.chain == t->place.chain;
}

static void pass(struct tail *t)
{
    t->at += record_size(t);
    t->place = (struct tail_place){t->record.position + 1, t->record.checksum, 0};
}

/* ---- where to begin ---- */

#define BEHIND "the records that it would need next are no longer in the journal"

static bool check_place(struct tail *t)
{
    if (t->place.position != t->ask->from.position)
        return gone(t, BEHIND);
    if (t->place.chain != t->ask->from.chain)
        return gone(t, "its records are not those of this journal");
    return true;
}

/* The place that the asker names. */
static bool take_hint(struct tail *t)
{
    const struct tail_place *from = &t->ask->from;
    if (t->ask->file == 0 || !open_segment(t, t->ask->file) || t->ask->at < t->at ||
        t->ask->at > t->file.n)
        return false;
    t->at = t->ask->at;
    t->place = (struct tail_place){from->position, from->chain, 0};
    if (find_header(t))
        return is_next(t);
    /* The segment may end here; then the next one goes on where the asker is. */
    uint64_t number = t->number + 1;
    return t->e->status == EMBD_OK && open_segment(t, number) &&
           t->place.position == from->position && t->place.chain == from->chain;
}

/* The segment that has the position. */
static bool look_for_segment(struct tail *t)
{
    struct names names;
    bool is_there = false;
    if (list_names(t->ask->data_dir, t->ask->shard, &names, t->e) != EMBD_OK)
        return false;
    for (uint64_t n = names.segment; n > 0; n--) {
        is_there = open_segment(t, n);
        if (t->e->status != EMBD_OK)
            return false;
        if (!is_there && n < names.segment)
            break;
        if (is_there && t->place.position <= t->ask->from.position)
            return true;
    }
    return gone(t, BEHIND);
}

static bool find_place(struct tail *t)
{
    if (take_hint(t))
        return true;
    if (t->e->status != EMBD_OK || !look_for_segment(t))
        return false;
    while (t->place.position < t->ask->from.position && find_header(t) && is_next(t))
        pass(t);
    return t->e->status == EMBD_OK && check_place(t);
}

/* ---- records ---- */

/* Copies n bytes of the record from `offset` on to the end of the piece. */
static int copy(struct tail *t, uint64_t offset, uint64_t n)
{
    struct tail_piece *piece = t->piece;
    bool is_recent = recent_read(t->recent, t->number, t->at + offset, piece->bytes + piece->n, n);
    uint64_t done = is_recent ? n : 0;
    while (done < n) {
        ssize_t got = pread(t->file.fd, piece->bytes + piece->n + done, n - done,
                            (off_t)(t->at + offset + done));
        if (got == 0)
            errno = EIO;
        if (got == 0 || (got < 0 && errno != EINTR))
            return file_failed(t);
        done += got > 0 ? (uint64_t)got : 0;
    }
    piece->n += n;
    return EMBD_OK;
}

static int file_is_damaged(struct tail *t)
{
    if (t->e->status != EMBD_OK)
        return t->e->status;
    return embd__error_set(t->e, EMBD_CORRUPT, "journal '%s' is damaged at offset %llu", t->name,
                           (unsigned long long)t->at);
}

/* A record that the file has damaged goes nowhere. One that comes in several pieces is not in
 * memory as a whole, and is checked by who puts it together. */
static int check_whole(struct tail *t)
{
    struct record record;
    uint64_t n = record_size(t);
    if (record_read(&t->header.key, t->piece->bytes + t->piece->n - n, n, &record))
        return EMBD_OK;
    return file_is_damaged(t);
}

static bool is_skip(const struct tail *t)
{
    const struct record_id id = {t->record.position, t->record.checksum};
    return withdrawn_meets(&t->withdrawn, &id);
}

/* False: the piece is full. */
static bool take_record(struct tail *t, uint64_t offset)
{
    struct tail_piece *piece = t->piece;
    uint64_t n = record_size(t) - offset, room = t->ask->most - piece->n;
    bool is_part = n > room, is_large = record_size(t) > t->ask->most;
    if ((is_part && !is_large && piece->n > 0) || (is_skip(t) && piece->n_skips == TAIL_SKIPS_MOST))
        return false;
    if (copy(t, offset, is_part ? room : n) != EMBD_OK)
        return false;
    if (is_part) {
        t->place.offset = offset + room;
        return false;
    }
    if (offset == 0 && check_whole(t) != EMBD_OK)
        return false;
    if (is_skip(t))
        piece->skips[piece->n_skips++] = t->record.position;
    pass(t);
    return true;
}

/* The next record, in this segment or the one behind it. */
static bool find_next(struct tail *t)
{
    if (find_header(t) && is_next(t))
        return true;
    uint64_t position = t->place.position;
    return t->e->status == EMBD_OK && open_segment(t, t->number + 1) &&
           t->place.position == position && find_header(t) && is_next(t);
}

/* Its records end before those that were asked for. A base may have removed what follows; a file
 * that is still there is damaged. */
static void end_short(struct tail *t, uint64_t number, uint64_t at)
{
    struct readfile last;
    journal_file_name(t->name, t->ask->shard, number);
    errno = readfile_look(&last, t->ask->data_dir, t->name);
    bool is_there = errno == 0;
    readfile_close(&last);
    t->at = at;
    if (is_there)
        file_is_damaged(t);
    else if (errno == ENOENT)
        gone(t, BEHIND);
    else
        file_failed(t);
}

static void count_left(struct tail *t)
{
    char name[64];
    struct readfile other;
    t->piece->left = t->file.n > t->at ? t->file.n - t->at : 0;
    for (uint64_t n = t->number + 1;; n++) {
        journal_file_name(name, t->ask->shard, n);
        int error = readfile_look(&other, t->ask->data_dir, name);
        t->piece->left += error == 0 ? other.n : 0;
        readfile_close(&other);
        if (error != 0)
            return;
    }
}

static void read_records(struct tail *t)
{
    uint64_t offset = t->ask->from.offset;
    if (withdrawn_read(t->ask->data_dir, t->ask->shard, &t->withdrawn, t->e) != EMBD_OK ||
        !find_place(t))
        return;
    bool goes_on = true;
    while (goes_on && t->place.position < t->ask->until) {
        uint64_t number = t->number, at = t->at;
        if (!find_next(t)) {
            if (t->e->status == EMBD_OK && t->piece->n == 0)
                end_short(t, number, at);
            break;
        }
        if (offset >= record_size(t)) {
            gone(t, "it has more of a record than there is");
            return;
        }
        goes_on = take_record(t, offset);
        offset = 0;
    }
    count_left(t);
}

static int end(struct tail *t)
{
    struct tail_piece *piece = t->piece;
    piece->to = t->place;
    piece->file = t->number;
    piece->at = t->at;
    if (t->e->status != EMBD_OK || is_gone(t))
        piece->n = 0;
    withdrawn_fini(&t->withdrawn);
    readfile_close(&t->file);
    return t->e->status;
}

int tail_records(const struct tail_ask *ask, struct tail_piece *piece, struct embd__error *e)
{
    struct tail t = {.ask = ask, .piece = piece, .e = e, .file.fd = -1, .recent = ask->recent};
    piece->n = piece->n_skips = 0;
    piece->gone[0] = '\0';
    read_records(&t);
    return end(&t);
}

/* ---- the base ---- */

/* There never was one: the first segment is the beginning. */
static void begin_without(struct tail *t)
{
    if (!open_segment(t, 1) && t->e->status == EMBD_OK)
        t->place = (struct tail_place){0};
    t->piece->behind = t->place;
    t->number = 0;
}

static bool open_base(struct tail *t, uint64_t number)
{
    basefile_name(t->name, t->ask->shard, number);
    if (!open_file(t, number))
        return t->e->status == EMBD_OK && gone(t, "that base is no longer there");
    if (t->header.base_bytes < t->file.n)
        t->file.n = t->header.base_bytes;
    t->place = (struct tail_place){t->header.first_position, t->header.chain, 0};
    t->piece->behind = t->place;
    return true;
}

static void read_base(struct tail *t)
{
    struct names names = {.base = t->ask->file};
    if (names.base == 0 && list_names(t->ask->data_dir, t->ask->shard, &names, t->e) != EMBD_OK)
        return;
    if (names.base == 0) {
        begin_without(t);
        return;
    }
    if (!open_base(t, names.base))
        return;
    if (t->ask->file != 0 && (t->ask->at < t->at || t->ask->at > t->file.n)) {
        gone(t, "the base has no such place");
        return;
    }
    uint64_t offset = t->ask->file != 0 ? t->ask->from.offset : 0;
    bool goes_on = true, has = false;
    if (t->ask->file != 0) {
        t->at = t->ask->at;
        t->place = (struct tail_place){t->ask->from.position, t->ask->from.chain, 0};
    }
    while (goes_on && (has = find_header(t)) && is_next(t) && offset < record_size(t)) {
        goes_on = take_record(t, offset);
        offset = 0;
    }
    if (has && t->piece->n == 0 && t->e->status == EMBD_OK)
        gone(t, "the base has no such place");
    else if (goes_on && t->at < t->file.n)
        file_is_damaged(t);
    t->piece->left = goes_on ? 0 : t->file.n - t->at;
}

int tail_base(const struct tail_ask *ask, struct tail_piece *piece, struct embd__error *e)
{
    struct tail t = {.ask = ask, .piece = piece, .e = e, .file.fd = -1};
    piece->n = piece->n_skips = 0;
    piece->left = 0;
    piece->gone[0] = '\0';
    read_base(&t);
    return end(&t);
}

int tail_base_position(int data_dir, uint32_t shard, uint64_t *position_out, struct embd__error *e)
{
    struct tail_piece piece = {.n = 0};
    const struct tail_ask ask = {.data_dir = data_dir, .shard = shard};
    struct tail t = {.ask = &ask, .piece = &piece, .e = e, .file.fd = -1};
    struct names names;
    if (list_names(data_dir, shard, &names, e) == EMBD_OK && names.base != 0)
        open_base(&t, names.base);
    *position_out = piece.behind.position;
    readfile_close(&t.file);
    return e->status;
}

bool tail_has_files(int data_dir, uint32_t shard)
{
    struct names names;
    struct embd__error e = {.status = EMBD_OK};
    return list_names(data_dir, shard, &names, &e) != EMBD_OK || names.base + names.segment > 0;
}

/* ---- removing ---- */

int tail_remove(int data_dir, uint32_t shard, struct embd__error *e)
{
    unsigned of;
    char what;
    DIR *dir = open_names(data_dir);
    if (dir == NULL)
        return failed(shard, e);
    int error = 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (sscanf(entry->d_name, "journal.%u.%c", &of, &what) == 2 && of == shard &&
            unlinkat(data_dir, entry->d_name, 0) != 0 && errno != ENOENT)
            error = errno;
    closedir(dir);
    if (error == 0 && fsync(data_dir) != 0)
        error = errno;
    errno = error;
    return error == 0 ? EMBD_OK : failed(shard, e);
}
