/* moment.c - see moment.h.
 *
 * The happy path: of each shard, the files of records are read in the order of their times, from
 * the one that has the backup's cut on, and their bytes go to one file; its records are looked
 * through up to the moment; what shards do not agree about is left out (agree.h); headers are
 * written. What can fail: a file is damaged or lost, which the positions tell.
 *
 * Files of several programs may lie there, or of a server that was killed and lost its last
 * records: then what has other records at the same position is newer, and the shard begins again
 * there.
 *
 * Shards may have been added behind the backup, or have left. The records of shard 0 say how many
 * there are at the moment. One that the backup has not, or whose number another server had then,
 * has all that it is in its own records, from the first one on. Pushes before such a change are on
 * all shards of then: shards agree about those behind it. */
#include "client/backup/moment.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/backup/agree.h"
#include "client/backup/resized.h"
#include "embd/embd.h"

#define SLACK_MS 600000u /* two programs' files overlap by less */
#define CUT_MS   120000u /* a backup's cut is made so long after its time at most */

/* Of one shard. */
struct shard_file {
    int fd;
    struct records_place at; /* behind its bytes */
    uint64_t bytes, bound;   /* records before `bound` are of the moment */
    uint64_t ms, n_replaces;
    uint64_t moved;      /* the decision of the last map of keys that it has taken; 0: none */
    uint64_t prepared;   /* and that of the one that it waits for; 0: none */
    uint32_t n_shards;   /* of the map; 0: it has none yet */
    uint32_t n_prepared; /* of the one that it waits for */
    uint64_t added;      /* the decision of the map by which it was added behind the backup */
    uint64_t since;      /* records from here on are of as many shards */
    uint64_t until;      /* the record of what it waits for */
    uint64_t had;        /* by the moment, as all files of its time say; 0: not known */
    uint64_t *skips;     /* [n_skips], malloc'd */
    uint64_t n_skips;
    char after[PLACE_NAME_BYTES]; /* the file that was taken last; "": none yet */
};

struct writing {
    const struct shelf *shelf;
    const struct record *record;
    const struct moment_ask *ask;
    const char *dir;
    struct moment *out;
    struct embd__error *e;
    struct records_place *cut; /* [LIMIT_SHARDS] */
    struct shard_file *files;  /* [LIMIT_SHARDS] */
    struct agree agree;
    uint32_t n;      /* shards at the moment, */
    uint32_t n_kept; /* of which those before are in the backup */
    uint32_t shard;  /* the one at work */
};

static struct shard_file *mine(struct writing *w)
{
    return &w->files[w->shard];
}

/* ---- where a file of records goes on ---- */

enum fit { FITS, FITS_NOT, IS_OTHER };

/* A record begins at the offset *at_out of the segment's bytes, at the place where ours end. */
static enum fit scan(const struct segment *s, const struct records_place *ours, uint64_t *at_out)
{
    uint64_t at = s->first, n = s->n_bytes;
    struct archived_record r;
    while (at != SEGMENT_NONE && at + ARCHIVED_RECORD_BYTES <= n) {
        embd__archived_header(s->bytes + at, &r);
        *at_out = at;
        if (r.position == ours->position)
            return r.chain == ours->chain ? FITS : IS_OTHER;
        if (r.position > ours->position)
            return FITS_NOT;
        at += r.bytes;
    }
    *at_out = at;
    bool is_last = at != SEGMENT_NONE && at < n && s->to.position == ours->position;
    return !is_last ? FITS_NOT : s->to.chain == ours->chain ? FITS : IS_OTHER;
}

static enum fit fit(const struct segment *s, const struct records_place *ours, uint64_t *at_out)
{
    *at_out = 0;
    bool begins_so = s->from.position == ours->position && s->from.chain == ours->chain &&
                     (s->from.offset == 0 || s->from.offset == ours->offset);
    if (segment_joins(&s->to, ours) || s->to.position < ours->position)
        return FITS_NOT;
    return begins_so ? FITS : scan(s, ours, at_out);
}

/* ---- taking one ---- */

static int fail(const struct writing *w, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "%s: %s", w->dir, strerror(errno));
}

static int write_at(const struct writing *w, int fd, const uint8_t *bytes, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t wrote = pwrite(fd, bytes + done, n - done, (off_t)(at + done));
        if (wrote < 0 && errno != EINTR)
            return fail(w, w->e);
        done += wrote > 0 ? (uint64_t)wrote : 0;
    }
    return EMBD_OK;
}

static int add_skips(struct writing *w, const uint64_t *list, uint64_t n)
{
    struct shard_file *f = mine(w);
    uint64_t *grown = n == 0 ? f->skips : realloc(f->skips, (f->n_skips + n) * sizeof *grown);
    if (n > 0 && grown == NULL)
        return embd__error_set(w->e, EMBD_NO_MEMORY, "no memory for records");
    f->skips = grown;
    if (n > 0)
        memcpy(grown + f->n_skips, list, n * sizeof *grown);
    f->n_skips += n;
    return EMBD_OK;
}

/* How far its times go. */
static void take_times(struct writing *w, const struct segment *s)
{
    struct shard_file *f = mine(w);
    for (uint64_t i = 0; i < s->n_times; i++)
        if (s->times[i].ms <= w->ask->until_ms && s->times[i].position > f->bound) {
            f->bound = s->times[i].position;
            f->ms = s->times[i].ms;
        }
}

/* A part of a record that ours end with is in the segment, too, where that begins with all of it.
 * */
static int take(struct writing *w, const struct shelf_file *file, const struct segment *s,
                uint64_t at)
{
    struct shard_file *f = mine(w);
    bool has_part = at == 0 && s->from.offset == f->at.offset;
    f->bytes -= has_part ? 0 : f->at.offset;
    write_at(w, f->fd, s->bytes + at, s->n_bytes - at, ARCHIVED_HEADER_BYTES + f->bytes);
    f->bytes += s->n_bytes - at;
    f->at = s->to;
    take_times(w, s);
    snprintf(f->after, sizeof f->after, "%s", file->name);
    return w->e->status ? w->e->status : add_skips(w, s->skips, s->n_skips);
}

/* *fit_out: whether it was taken. *next_out: where it begins, and when. */
static int try(struct writing *w, const struct shelf_file *file, enum fit *fit_out,
               uint64_t *position_out, uint64_t *ms_out)
{
    struct segment s;
    uint8_t *bytes;
    uint64_t at;
    if (shelf_open(w->shelf, file, &s, &bytes, w->e) != EMBD_OK)
        return w->e->status;
    bool is_ours = w->record->cluster != 0 ? s.lineage == w->record->cluster
                                           : s.n_shards == w->record->n_shards;
    *position_out = is_ours ? s.from.position : 0;
    for (uint64_t i = 0; is_ours && i < s.n_times; i++)
        if (s.times[i].ms <= w->ask->until_ms && s.times[i].position > mine(w)->had)
            mine(w)->had = s.times[i].position;
    *ms_out = s.times[0].ms;
    *fit_out = is_ours && *ms_out <= w->ask->until_ms ? fit(&s, &mine(w)->at, &at) : FITS_NOT;
    if (*fit_out == FITS)
        take(w, file, &s, at);
    free(bytes);
    return w->e->status;
}

/* ---- all of a shard ---- */

static void begin_again(struct writing *w)
{
    struct shard_file *f = mine(w);
    f->at = w->cut[w->shard];
    f->bytes = f->bound = f->ms = f->n_skips = 0;
    f->after[0] = '\0';
}

static int miss(const struct writing *w)
{
    const struct shard_file *f = &w->files[w->shard];
    return embd__error_set(w->e, EMBD_CORRUPT,
                           "%s: records of shard %u from %" PRIu64
                           " on are lost: no file of " SEGMENT_DIR "/%u goes on behind %s; --at %s "
                           "restores the backup before them",
                           w->shelf->place->url, w->shard, f->at.position, w->shard,
                           f->after[0] ? f->after : w->record->name, w->record->name);
}

/* One of the files from `first` to before `end` that was passed over goes on. */
static int look_back(struct writing *w, const struct shelf_file *first,
                     const struct shelf_file *end, bool *found_out)
{
    uint64_t position, ms;
    enum fit fit = FITS_NOT;
    for (const struct shelf_file *file = first; file < end && fit != FITS; file++)
        if (try(w, file, &fit, &position, &ms) != EMBD_OK)
            return w->e->status;
    *found_out = fit == FITS;
    return EMBD_OK;
}

static int collect(struct writing *w, const struct shelf_file *first, const struct shelf_file *end)
{
    for (const struct shelf_file *file = first; file < end; file++) {
        uint64_t position, ms;
        enum fit fit;
        bool found = false;
        if (try(w, file, &fit, &position, &ms) != EMBD_OK)
            return w->e->status;
        if (fit == IS_OTHER && file > first) {
            begin_again(w);
            first = file--;
            continue;
        }
        bool is_behind = fit != FITS && position > mine(w)->at.position && ms <= w->ask->until_ms;
        if (is_behind && look_back(w, first, file, &found) != EMBD_OK)
            return w->e->status;
        if (is_behind && !found)
            return miss(w);
        file -= is_behind;
        if (ms > w->ask->until_ms && file->says.ms > w->ask->until_ms + SLACK_MS)
            break;
    }
    return EMBD_OK;
}

/* Whether the records that had come by the moment were fewer than the backup has: as of the file
 * before the backup, and those behind it. */
static int look_whether_late(struct writing *w, const struct shelf_file *last)
{
    struct segment s;
    uint8_t *bytes;
    uint64_t cut = w->cut[w->shard].position, had = mine(w)->had;
    if (w->ask->until_ms >= w->record->time_s * 1000 + CUT_MS)
        return EMBD_OK;
    if (had == 0 && last != NULL && shelf_open(w->shelf, last, &s, &bytes, w->e) == EMBD_OK) {
        had = s.times[s.n_times - 1].position;
        free(bytes);
    }
    w->out->is_late = w->out->is_late || (had > 0 && had < cut);
    return w->e->status;
}

/* As far as is wanted: of positions, a backup behind them does not do. */
static int bound_shard(struct writing *w)
{
    struct shard_file *f = mine(w);
    bool has_all = w->ask->n_positions > 0 && w->shard < w->ask->n_positions;
    uint64_t wanted = has_all ? w->ask->positions[w->shard] : f->bound;
    uint64_t cut = w->cut[w->shard].position;
    w->out->is_late = has_all && wanted < cut;
    if (wanted > f->bound && wanted > cut)
        return embd__error_set(w->e, EMBD_INVALID,
                               "%s: has the records of shard %u up to %" PRIu64 ", not %" PRIu64,
                               w->shelf->place->url, w->shard, f->bound, wanted);
    f->bound = wanted;
    return EMBD_OK;
}

/* ---- servers that had the number of a shard ---- */

enum whose { GOES_ON, IS_OURS, IS_OTHERS };

/* Whether the records have the map by which the shard was added. */
static bool has_map_of(const struct writing *w, const struct segment *s, struct resized *reading)
{
    struct archived_deed deed;
    bool has = false;
    for (uint64_t at = 0; at < s->n_bytes && !has;) {
        at += resized_take(reading, s->bytes + at, s->n_bytes - at, &deed);
        bool is_map = deed.move == MOVE_MADE || deed.move == MOVE_PREPARED;
        has = is_map && deed.decision == w->files[w->shard].added;
    }
    return has;
}

/* Whether it is, as far as the segment tells: of a shard of the backup, the record at its cut. */
static enum whose look_at_segment(const struct writing *w, const struct segment *s,
                                  struct resized *reading)
{
    uint64_t at;
    if (w->shard >= w->n_kept)
        return has_map_of(w, s, reading) ? IS_OURS : IS_OTHERS;
    enum fit found = fit(s, &w->cut[w->shard], &at);
    return found == FITS ? IS_OURS : found == IS_OTHER ? IS_OTHERS : GOES_ON;
}

/* A run that begins with the first record of a journal may be that of a server which was added. */
static int look_whose(const struct writing *w, const struct shelf_file *first,
                      const struct shelf_file *end, enum whose *out)
{
    struct resized reading = {.n_head = 0};
    bool begins = true, is_known = false;
    *out = GOES_ON;
    for (const struct shelf_file *at = first;
         at < end && at->says.run == first->says.run && begins && !is_known; at++) {
        struct segment s;
        uint8_t *bytes;
        if (shelf_open(w->shelf, at, &s, &bytes, w->e) != EMBD_OK)
            return w->e->status;
        begins = at > first || (s.from.position == 0 && s.from.offset == 0);
        *out = begins ? look_at_segment(w, &s, &reading) : GOES_ON;
        is_known = *out == IS_OURS || (*out == IS_OTHERS && w->shard < w->n_kept);
        free(bytes);
    }
    return EMBD_OK;
}

/* Leaves those of the shard's server. Of each run the first file is read. */
static int choose_files(const struct writing *w, const struct shelf_file **file,
                        const struct shelf_file **end)
{
    const struct shelf_file *first = *file;
    bool is_found = w->shard < w->n_kept;
    if (is_found && w->cut[w->shard].position == 0)
        return EMBD_OK;
    for (const struct shelf_file *at = first; at < *end; at++) {
        enum whose whose;
        if (at > first && at->says.run == at[-1].says.run)
            continue;
        if (look_whose(w, at, *end, &whose) != EMBD_OK)
            return w->e->status;
        if (whose == IS_OURS && !is_found)
            *file = at;
        is_found = is_found || whose == IS_OURS;
        if (whose == IS_OTHERS && is_found)
            *end = at;
    }
    return EMBD_OK;
}

/* Those that may have records behind the backup. */
static int collect_shard(struct writing *w)
{
    const struct shelf_file *file = w->shelf->files, *end = file + w->shelf->n;
    uint64_t from_ms = w->record->time_s * 1000;
    const struct shelf_file *last = NULL;
    begin_again(w);
    for (; file < end && (file->says.shard < w->shard ||
                          (file->says.shard == w->shard && file->says.ms < from_ms));
         file++)
        last = file->says.shard == w->shard ? file : NULL;
    while (end > file && end[-1].says.shard != w->shard)
        end--;
    if (choose_files(w, &file, &end) != EMBD_OK)
        return w->e->status;
    if (collect(w, file, end) != EMBD_OK || look_whether_late(w, last) != EMBD_OK ||
        w->out->is_late)
        return w->e->status;
    return bound_shard(w);
}

/* ---- its records ---- */

static bool is_skipped(const struct shard_file *f, uint64_t position)
{
    for (uint64_t i = 0; i < f->n_skips; i++)
        if (f->skips[i] == position)
            return true;
    return false;
}

/* The shard counts with another number of shards behind the record. */
static void resize(struct shard_file *f, uint32_t n_shards, uint64_t position)
{
    f->n_shards = n_shards;
    f->since = position + 1;
    f->n_replaces = 0;
}

static void note_move(struct writing *w, const struct archived_deed *deed, uint64_t position)
{
    struct shard_file *f = mine(w);
    if (deed->move == MOVE_NONE)
        return;
    f->prepared = deed->move == MOVE_PREPARED ? deed->decision : 0;
    f->n_prepared = deed->n_shards;
    f->until = position;
    if (deed->move != MOVE_MADE)
        return;
    f->moved = deed->decision;
    if (deed->n_shards == f->n_shards)
        return;
    resize(f, deed->n_shards, position);
    if (w->shard > 0)
        return;
    for (uint32_t i = w->n; i < deed->n_shards; i++)
        w->files[i].added = deed->decision;
    w->n = deed->n_shards;
    w->n_kept = w->n < w->n_kept ? w->n : w->n_kept;
}

static int look_at(struct writing *w, const uint8_t *bytes, const struct archived_record *record)
{
    struct archived_deed deed;
    struct shard_file *f = mine(w);
    if (embd__archived_deed(bytes, record, &deed, w->e) != EMBD_OK)
        return w->e->status;
    if (is_skipped(f, record->position))
        return EMBD_OK;
    f->n_replaces += deed.replaces;
    note_move(w, &deed, record->position);
    return agree_add(&w->agree, w->shard, record->position, &deed, w->e);
}

/* Up to the moment; the file ends there. */
static int look_through(struct writing *w, const uint8_t *bytes)
{
    struct shard_file *f = mine(w);
    struct records_place at = w->cut[w->shard];
    uint64_t done = 0;
    while (at.position < f->bound && w->e->status == EMBD_OK) {
        struct archived_record r;
        if (embd__archived_record(bytes + done, f->bytes - done, &r) != 1 ||
            r.position != at.position || r.chain != at.chain)
            return embd__error_set(w->e, EMBD_CORRUPT,
                                   "%s: record %" PRIu64 " of shard %u is not whole",
                                   w->shelf->place->url, at.position, w->shard);
        look_at(w, bytes + done, &r);
        at = (struct records_place){.position = r.position + 1, .chain = r.checksum};
        done += r.bytes;
        w->out->n_records++;
    }
    f->bytes = done;
    return w->e->status;
}

static int map_through(struct writing *w)
{
    struct shard_file *f = mine(w);
    size_t n = ARCHIVED_HEADER_BYTES + f->bytes;
    if (ftruncate(f->fd, (off_t)n) != 0)
        return fail(w, w->e);
    uint8_t *bytes = mmap(NULL, n, PROT_READ, MAP_SHARED, f->fd, 0);
    if (bytes == MAP_FAILED)
        return fail(w, w->e);
    look_through(w, bytes + ARCHIVED_HEADER_BYTES);
    munmap(bytes, n);
    w->out->ms = f->ms > w->out->ms ? f->ms : w->out->ms;
    return w->e->status;
}

static int read_shard(struct writing *w)
{
    char path[8192], name[ARCHIVED_NAME];
    embd__archived_name(name, w->shard);
    snprintf(path, sizeof path, "%s/%s", w->dir, name);
    mine(w)->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (mine(w)->fd < 0)
        return fail(w, w->e);
    return collect_shard(w) == EMBD_OK && !w->out->is_late ? map_through(w) : w->e->status;
}

/* ---- what counts ---- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static void sort_skips(struct shard_file *f)
{
    uint64_t n = 0;
    if (f->n_skips > 0)
        qsort(f->skips, f->n_skips, sizeof *f->skips, by_number);
    for (uint64_t i = 0; i < f->n_skips; i++)
        if (n == 0 || f->skips[n - 1] != f->skips[i])
            f->skips[n++] = f->skips[i];
    f->n_skips = n;
}

/* Shard 0 decides, once all others are prepared: one that is takes the map when it starts. */
static bool has_map(struct writing *w, uint32_t shard)
{
    const struct shard_file *first = &w->files[0];
    struct shard_file *f = &w->files[shard];
    bool waits = f->prepared != 0 && f->prepared == first->moved;
    if (waits && f->n_prepared != f->n_shards)
        resize(f, f->n_prepared, f->until);
    return waits || f->moved == first->moved;
}

/* What is before a change of the number of shards is on all that there were. */
static void drop_before(struct writing *w)
{
    struct agree *agree = &w->agree;
    uint64_t n = 0;
    for (uint64_t i = 0; i < agree->n; i++)
        if (agree->pushes[i].position >= w->files[agree->pushes[i].shard].since)
            agree->pushes[n++] = agree->pushes[i];
    agree->n = n;
    agree->n_shards = w->n;
}

static int check_maps(struct writing *w)
{
    for (uint32_t i = 1; i < w->n && w->e->status == EMBD_OK; i++) {
        bool has = has_map(w, i);
        if (!has || w->files[i].n_replaces != w->files[0].n_replaces)
            embd__error_set(w->e, EMBD_UNSUPPORTED,
                            "%s: %s at this moment, on some shards: take one before or behind it",
                            w->shelf->place->url,
                            has ? "tables took the places of others" : "keys moved");
    }
    return w->e->status;
}

static int leave_out(struct writing *w)
{
    struct agree_left *left;
    uint64_t n;
    drop_before(w);
    if (agree_end(&w->agree, &left, &n, w->e) != EMBD_OK)
        return w->e->status;
    for (uint64_t i = 0; i < n && w->e->status == EMBD_OK; i++) {
        w->shard = left[i].shard;
        add_skips(w, &left[i].position, 1);
    }
    w->out->n_left_out = n;
    free(left);
    return w->e->status;
}

static int finish_shard(struct writing *w)
{
    struct shard_file *f = mine(w);
    uint8_t header[ARCHIVED_HEADER_BYTES];
    struct archived_file file = {.shard = w->shard,
                                 .n_shards = w->n,
                                 .cut = w->record->id,
                                 .position = w->cut[w->shard].position,
                                 .chain = w->cut[w->shard].chain,
                                 .bytes = f->bytes};
    sort_skips(f);
    file.n_left_out = f->n_skips;
    uint64_t end = ARCHIVED_HEADER_BYTES + f->bytes, n = end + 8 * f->n_skips;
    embd__archived_write(header, &file);
    if (ftruncate(f->fd, (off_t)end) != 0)
        return fail(w, w->e);
    if (write_at(w, f->fd, (const uint8_t *)f->skips, 8 * f->n_skips, end) != EMBD_OK ||
        write_at(w, f->fd, header, sizeof header, 0) != EMBD_OK)
        return w->e->status;
    const uint8_t *bytes = mmap(NULL, n, PROT_READ, MAP_SHARED, f->fd, 0);
    if (bytes == MAP_FAILED)
        return fail(w, w->e);
    file.xxh3 = embd__archived_sum(bytes, n);
    munmap((void *)bytes, n);
    embd__archived_write(header, &file);
    return write_at(w, f->fd, header, sizeof header, 0);
}

static void remove_files(const struct writing *w)
{
    char path[8192], name[ARCHIVED_NAME];
    for (uint32_t i = 0; i < w->n; i++) {
        embd__archived_name(name, i);
        snprintf(path, sizeof path, "%s/%s", w->dir, name);
        unlink(path);
    }
}

/* Shard 0's records say how many shards there are. */
static int read_first(struct writing *w)
{
    if (shelf_cut(w->shelf->place, w->record, w->cut, w->e) != EMBD_OK ||
        read_shard(w) != EMBD_OK || w->out->is_late)
        return w->e->status;
    for (uint32_t i = w->n_kept; i < LIMIT_SHARDS; i++)
        w->cut[i] = (struct records_place){.position = 0};
    for (uint32_t i = w->n_kept; i < w->n; i++)
        w->files[i].n_shards = 0;
    if (w->ask->n_positions == 0 || w->ask->n_positions == w->n)
        return EMBD_OK;
    return embd__error_set(w->e, EMBD_INVALID, "%s: there are %u shards at this moment, not %u",
                           w->shelf->place->url, w->n, w->ask->n_positions);
}

static int write_all(struct writing *w)
{
    read_first(w);
    for (w->shard = 1; w->shard < w->n && w->e->status == EMBD_OK && !w->out->is_late; w->shard++)
        read_shard(w);
    if (w->out->is_late)
        remove_files(w);
    if (w->out->is_late || w->e->status != EMBD_OK || check_maps(w) != EMBD_OK ||
        leave_out(w) != EMBD_OK)
        return w->e->status;
    for (w->shard = 0; w->shard < w->n && w->e->status == EMBD_OK; w->shard++)
        finish_shard(w);
    if (w->out->n_records == 0)
        remove_files(w);
    w->out->n_shards = w->n;
    w->out->n_kept = w->n_kept;
    return w->e->status;
}

int moment_write(const struct shelf *shelf, const struct record *record,
                 const struct moment_ask *ask, const char *dir, struct moment *out,
                 struct embd__error *e)
{
    struct writing w = {
        .shelf = shelf, .record = record, .ask = ask, .dir = dir, .out = out, .e = e};
    *out = (struct moment){.n_records = 0};
    w.n = w.n_kept = record->n_shards;
    w.cut = calloc(LIMIT_SHARDS, sizeof *w.cut);
    w.files = calloc(LIMIT_SHARDS, sizeof *w.files);
    for (uint32_t i = 0; w.files != NULL && i < LIMIT_SHARDS; i++)
        w.files[i] = (struct shard_file){.fd = -1, .n_shards = record->n_shards};
    if (w.cut == NULL || w.files == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the records of %u shards",
                        record->n_shards);
    else
        write_all(&w);
    for (uint32_t i = 0; w.files != NULL && i < LIMIT_SHARDS; i++) {
        if (w.files[i].fd >= 0)
            close(w.files[i].fd);
        free(w.files[i].skips);
    }
    agree_fini(&w.agree);
    free(w.files);
    free(w.cut);
    return e->status;
}
