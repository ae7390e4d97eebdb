/* moment_files.c - see moment_inside.h.
 *
 * The happy path: of a shard, the files of records are read in the order of their times, from the
 * one that has the backup's cut on, or the first record of a shard that was added, and their bytes
 * go to one file. What can fail: a file is damaged or lost, which the positions tell.
 *
 * Files of several programs may lie there, or of a server that was killed and lost its last
 * records: then what has other records at the same position is newer, and the shard begins again
 * there. */
#include "client/backup/moment_inside.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/backup/resized.h"
#include "embd/embd.h"

#define SLACK_MS 600000u /* two programs' files overlap by less */
#define CUT_MS   120000u /* a backup's cut is made so long after its time at most */

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

int moment_fail(const struct writing *w)
{
    return embd__error_set(w->e, EMBD_IO, "%s: %s", w->dir, strerror(errno));
}

int moment_write_at(const struct writing *w, int fd, const uint8_t *bytes, uint64_t n, uint64_t at)
{
    for (uint64_t done = 0; done < n;) {
        ssize_t wrote = pwrite(fd, bytes + done, n - done, (off_t)(at + done));
        if (wrote < 0 && errno != EINTR)
            return moment_fail(w);
        done += wrote > 0 ? (uint64_t)wrote : 0;
    }
    return EMBD_OK;
}

int moment_add_skips(struct writing *w, const uint64_t *list, uint64_t n)
{
    struct shard_file *f = moment_mine(w);
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
    struct shard_file *f = moment_mine(w);
    uint64_t limit = w->limits[w->shard];
    for (uint64_t i = 0; i < s->n_times; i++) {
        uint64_t position = s->times[i].position < limit ? s->times[i].position : limit;
        if (s->times[i].ms <= w->ask->until_ms && position > f->bound) {
            f->bound = position;
            f->ms = s->times[i].ms;
        }
    }
}

/* Ours may end with a part of a record: a segment that begins with the whole has that part, too. */
static int take(struct writing *w, const struct shelf_file *file, const struct segment *s,
                uint64_t at)
{
    struct shard_file *f = moment_mine(w);
    bool has_part = at == 0 && s->from.offset == f->at.offset;
    f->bytes -= has_part ? 0 : f->at.offset;
    moment_write_at(w, f->fd, s->bytes + at, s->n_bytes - at, ARCHIVED_HEADER_BYTES + f->bytes);
    f->bytes += s->n_bytes - at;
    f->at = s->to;
    take_times(w, s);
    snprintf(f->after, sizeof f->after, "%s", file->name);
    return w->e->status ? w->e->status : moment_add_skips(w, s->skips, s->n_skips);
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
        if (s.times[i].ms <= w->ask->until_ms && s.times[i].position > moment_mine(w)->had)
            moment_mine(w)->had = s.times[i].position;
    *ms_out = s.times[0].ms;
    *fit_out =
        is_ours && *ms_out <= w->ask->until_ms ? fit(&s, &moment_mine(w)->at, &at) : FITS_NOT;
    if (*fit_out == FITS)
        take(w, file, &s, at);
    free(bytes);
    return w->e->status;
}

/* ---- all of a shard ---- */

static void begin_again(struct writing *w)
{
    struct shard_file *f = moment_mine(w);
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
        bool is_behind =
            fit != FITS && position > moment_mine(w)->at.position && ms <= w->ask->until_ms;
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
    uint64_t cut = w->cut[w->shard].position, had = moment_mine(w)->had;
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
    struct shard_file *f = moment_mine(w);
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

/* The checksum of a journal's first record, with which the segment begins; 0: it does not. */
static uint64_t first_sum(const struct segment *s)
{
    struct archived_record record;
    if (s->from.position != 0 || s->from.offset != 0 || s->n_bytes < ARCHIVED_RECORD_BYTES)
        return 0;
    embd__archived_header(s->bytes, &record);
    return record.checksum;
}

/* Of a shard of the backup: it has the record at the cut. */
static enum whose look_at_cut(const struct writing *w, const struct segment *s)
{
    uint64_t at;
    enum fit found = fit(s, &w->cut[w->shard], &at);
    return found == FITS ? IS_OURS : found == IS_OTHER ? IS_OTHERS : GOES_ON;
}

/* Of one that was added: *sum is that of our journal's first record, once it is known. */
static enum whose look_at_first(const struct writing *w, const struct segment *s,
                                struct resized *reading, uint64_t *sum)
{
    if (*sum != 0)
        return first_sum(s) == *sum ? GOES_ON : IS_OTHERS;
    return has_map_of(w, s, reading) ? IS_OURS : GOES_ON;
}

/* A run that begins with the first record of a journal may be that of a server which had the number
 * before, or later. */
static int look_whose(const struct writing *w, const struct shelf_file *first,
                      const struct shelf_file *end, uint64_t *sum, enum whose *out)
{
    struct resized reading = {.n_head = 0};
    bool is_added = w->shard >= w->n_kept;
    uint64_t own = 0;
    *out = GOES_ON;
    for (const struct shelf_file *at = first; at < end && *out == GOES_ON; at++) {
        struct segment s;
        uint8_t *bytes;
        if (at->says.run != first->says.run)
            continue;
        if (shelf_open(w->shelf, at, &s, &bytes, w->e) != EMBD_OK)
            return w->e->status;
        own = at == first ? first_sum(&s) : own;
        if (own != 0)
            *out = is_added ? look_at_first(w, &s, &reading, sum) : look_at_cut(w, &s);
        free(bytes);
        if (own == 0 || (is_added && *sum != 0))
            break;
    }
    *sum = *out == IS_OURS ? own : *sum;
    return EMBD_OK;
}

/* Leaves those of the shard's server. Of each run the first file is read. */
static int choose_files(const struct writing *w, const struct shelf_file **file,
                        const struct shelf_file **end)
{
    const struct shelf_file *first = *file;
    bool is_found = w->shard < w->n_kept;
    uint64_t sum = 0;
    if (is_found && w->cut[w->shard].position == 0)
        return EMBD_OK;
    for (const struct shelf_file *at = first; at < *end; at++) {
        enum whose whose;
        if (at > first && at->says.run == at[-1].says.run)
            continue;
        if (look_whose(w, at, *end, &sum, &whose) != EMBD_OK)
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
int moment_collect(struct writing *w)
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
