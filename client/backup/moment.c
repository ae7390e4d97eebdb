/* moment.c - see moment.h.
 *
 * The happy path: the records of each shard come to one file (moment_files.c); they are looked
 * through up to the moment; what shards do not agree about is left out (agree.h); headers are
 * written.
 *
 * Shards may have been added behind the backup, or have left. The records of shard 0 say how many
 * there are at the moment. One that the backup has not, or whose number another server had then,
 * has all that it is in its own records, from the first one on. Pushes before such a change are on
 * all shards of then: shards agree about those behind it.
 *
 * A map of keys, and tables that take the places of others, are records of every shard, and changes
 * are held meanwhile. The last records may have them on some shards only. The moment before is then
 * that before these records, on the shards that have them: all is done again up to there. */
#include "client/backup/moment.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/backup/moment_inside.h"
#include "embd/embd.h"

/* ---- its records ---- */

static bool is_skipped(const struct shard_file *f, uint64_t position)
{
    for (uint64_t i = 0; i < f->n_skips; i++)
        if (f->skips[i] == position)
            return true;
    return false;
}

/* Of those that shard 0 has taken. */
static int note_map(struct writing *w, uint64_t decision)
{
    uint64_t *grown = w->maps;
    if ((w->n_maps & (w->n_maps - 1)) == 0)
        grown = realloc(grown, (w->n_maps ? 2 * w->n_maps : 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(w->e, EMBD_NO_MEMORY, "no memory for maps of keys");
    w->maps = grown;
    grown[w->n_maps++] = decision;
    return EMBD_OK;
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
    struct shard_file *f = moment_mine(w);
    if (deed->move == MOVE_NONE)
        return;
    f->prepared = deed->move == MOVE_PREPARED ? deed->decision : 0;
    f->n_prepared = deed->n_shards;
    f->until = position;
    if (deed->move != MOVE_MADE)
        return;
    f->moved = deed->decision;
    f->moved_at = position;
    if (w->shard == 0)
        note_map(w, deed->decision);
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
    struct shard_file *f = moment_mine(w);
    if (embd__archived_deed(bytes, record, &deed, w->e) != EMBD_OK)
        return w->e->status;
    if (is_skipped(f, record->position))
        return EMBD_OK;
    f->n_replaces += deed.replaces;
    f->replaced_at = deed.replaces ? record->position : f->replaced_at;
    note_move(w, &deed, record->position);
    return agree_add(&w->agree, w->shard, record->position, &deed, w->e);
}

/* Up to the moment; the file ends there. */
static int look_through(struct writing *w, const uint8_t *bytes)
{
    struct shard_file *f = moment_mine(w);
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
    struct shard_file *f = moment_mine(w);
    size_t n = ARCHIVED_HEADER_BYTES + f->bytes;
    if (ftruncate(f->fd, (off_t)n) != 0)
        return moment_fail(w);
    uint8_t *bytes = mmap(NULL, n, PROT_READ, MAP_SHARED, f->fd, 0);
    if (bytes == MAP_FAILED)
        return moment_fail(w);
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
    moment_mine(w)->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (moment_mine(w)->fd < 0)
        return moment_fail(w);
    return moment_collect(w) == EMBD_OK && !w->out->is_late ? map_through(w) : w->e->status;
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

/* Shard 0 has taken every map that another shard has: where it lacks one its records end before. */
static bool is_ahead(const struct writing *w, uint32_t shard)
{
    bool is_known = w->files[shard].moved == 0;
    for (uint64_t i = 0; i < w->n_maps && !is_known; i++)
        is_known = w->maps[i] == w->files[shard].moved;
    return !is_known;
}

/* Up to before the map of `decision`. */
static void limit_maps(struct writing *w, uint64_t decision)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->files[i].moved == decision)
            w->limits[i] = w->files[i].moved_at;
}

/* Up to before the last tables that took the places of others, on the shards that have so many. */
static void limit_replaces(struct writing *w, uint64_t n_replaces)
{
    for (uint32_t i = 0; i < w->n; i++)
        if (w->files[i].n_replaces == n_replaces)
            w->limits[i] = w->files[i].replaced_at;
}

static int part(struct writing *w, const char *what)
{
    w->is_parted = true;
    return embd__error_set(w->e, EMBD_UNSUPPORTED,
                           "%s: %s at this moment, on some shards: take one before or behind it",
                           w->shelf->place->url, what);
}

static int check_maps(struct writing *w)
{
    const struct shard_file *first = &w->files[0];
    for (uint32_t i = 1; i < w->n; i++) {
        const struct shard_file *f = &w->files[i];
        uint64_t fewer = f->n_replaces < first->n_replaces ? f->n_replaces : first->n_replaces;
        if (!has_map(w, i)) {
            limit_maps(w, is_ahead(w, i) ? f->moved : first->moved);
            return part(w, "keys moved");
        }
        if (f->n_replaces != first->n_replaces) {
            limit_replaces(w, f->n_replaces + first->n_replaces - fewer);
            return part(w, "tables took the places of others");
        }
    }
    return EMBD_OK;
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
        moment_add_skips(w, &left[i].position, 1);
    }
    w->out->n_left_out = n;
    free(left);
    return w->e->status;
}

static int finish_shard(struct writing *w)
{
    struct shard_file *f = moment_mine(w);
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
        return moment_fail(w);
    if (moment_write_at(w, f->fd, (const uint8_t *)f->skips, 8 * f->n_skips, end) != EMBD_OK ||
        moment_write_at(w, f->fd, header, sizeof header, 0) != EMBD_OK)
        return w->e->status;
    const uint8_t *bytes = mmap(NULL, n, PROT_READ, MAP_SHARED, f->fd, 0);
    if (bytes == MAP_FAILED)
        return moment_fail(w);
    file.xxh3 = embd__archived_sum(bytes, n);
    munmap((void *)bytes, n);
    embd__archived_write(header, &file);
    return moment_write_at(w, f->fd, header, sizeof header, 0);
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

static void begin(struct writing *w)
{
    *w->out = (struct moment){.went_back = w->out->went_back};
    w->n = w->n_kept = w->record->n_shards;
    w->shard = 0;
    w->n_maps = 0;
    w->is_parted = false;
    for (uint32_t i = 0; i < LIMIT_SHARDS; i++)
        w->files[i] = (struct shard_file){.fd = -1, .n_shards = w->record->n_shards};
}

static void end(struct writing *w)
{
    for (uint32_t i = 0; i < LIMIT_SHARDS; i++) {
        if (w->files[i].fd >= 0)
            close(w->files[i].fd);
        free(w->files[i].skips);
    }
    agree_fini(&w->agree);
}

/* Each time up to an earlier record. */
static int write_until_whole(struct writing *w)
{
    bool is_again;
    memset(w->limits, 0xff, LIMIT_SHARDS * sizeof *w->limits);
    do {
        begin(w);
        write_all(w);
        is_again = w->is_parted && w->ask->goes_back;
        if (is_again) {
            remove_files(w);
            *w->e = (struct embd__error){0};
            w->out->went_back = true;
        }
        end(w);
    } while (is_again);
    return w->e->status;
}

int moment_write(const struct shelf *shelf, const struct record *record,
                 const struct moment_ask *ask, const char *dir, struct moment *out,
                 struct embd__error *e)
{
    struct writing w = {
        .shelf = shelf, .record = record, .ask = ask, .dir = dir, .out = out, .e = e};
    *out = (struct moment){.n_records = 0};
    w.cut = calloc(LIMIT_SHARDS, sizeof *w.cut);
    w.files = calloc(LIMIT_SHARDS, sizeof *w.files);
    w.limits = calloc(LIMIT_SHARDS, sizeof *w.limits);
    if (w.cut == NULL || w.files == NULL || w.limits == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the records of %u shards",
                        record->n_shards);
    else
        write_until_whole(&w);
    free(w.maps);
    free(w.limits);
    free(w.files);
    free(w.cut);
    return e->status;
}
