/* backup_make.c - backup_make: a snapshot of the cluster, copied from its servers to a place.
 *
 * The happy path: read what lies in the place, which tells the base of an increment; have the
 * servers make the snapshot; fetch the files of each process and put them there, comparing each
 * with its manifest; read the manifests back, and look whether all files lie there; put
 * backup.json; remove older backups.
 * What can fail: the servers do not know what changed since the base (then all rows are taken); the
 * snapshot; a server or the place while files are copied: what was put there is removed, and as
 * backup.json is missing it does not count as a backup, even where it cannot be removed.
 *
 * The servers keep the snapshots of the two newest backups: the next increment is upon one. They
 * are of a job of their own, so that no others are removed for them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "client/backup/catalog.h"
#include "client/backup/contents.h"
#include "client/backup/making.h"
#include "client/formats/snapshot_files.h"
#include "embd/embd.h"
#include "proto/xxh3.h"

#define SNAPSHOTS_KEPT 2

/* ---- the snapshot ---- */

static int ask_snapshot(struct making *m, embd_dump_report *report)
{
    static const struct timespec pause = {0, 200000000};
    const char *names[SCOPE_NAMES_MAX];
    embd_snapshot_options options =
        EMBD_SNAPSHOT_OPTIONS(.keep =
                                  m->order->n_on_servers ? m->order->n_on_servers : SNAPSHOTS_KEPT,
                              .job = m->record.scope.job,
                              .base = m->record.base_id ? m->record.base : NULL, .tables = names,
                              .n_tables = m->record.scope.n_names);
    for (uint32_t i = 0; i < options.n_tables; i++)
        names[i] = m->record.scope.names[i];
    time_t end = time(NULL) + (time_t)m->order->wait_s;
    int status = embd_snapshot(m->client, m->record.name, &options, report);
    while (status == EMBD_BUSY && time(NULL) < end &&
           embd__ticker_add(&m->ticker, 0, 0, m->e) == EMBD_OK) {
        nanosleep(&pause, NULL);
        status = embd_snapshot(m->client, m->record.name, &options, report);
    }
    return status;
}

static int ask_snapshot_upon(struct making *m, const struct upon *upon, embd_dump_report *report)
{
    memcpy(m->record.base, upon->name, sizeof m->record.base);
    m->record.base_id = upon->id;
    return ask_snapshot(m, report);
}

/* Servers that were restarted, or whose base is gone, do not know what changed. */
static int make_snapshot(struct making *m)
{
    embd_dump_report report;
    int status = EMBD_UNSUPPORTED;
    for (uint32_t i = 0; i < 2 && m->upon[i].id != 0 && status == EMBD_UNSUPPORTED; i++)
        status = ask_snapshot_upon(m, &m->upon[i], &report);
    if (status == EMBD_UNSUPPORTED)
        status = ask_snapshot_upon(m, &(struct upon){.id = 0}, &report);
    if (status != EMBD_OK)
        return making_fail(m, status);
    m->record.rows = report.rows;
    m->pause_us = report.pause_us;
    m->ticker.rows_total = report.rows;
    return EMBD_OK;
}

/* ---- files ---- */

/* Fills `to` with the file's bytes from `at` on. */
static int fetch(struct making *m, const char *file, uint64_t at, uint8_t *to, size_t bytes,
                 uint64_t file_bytes)
{
    struct file_piece piece;
    for (size_t done = 0; done < bytes;) {
        int status =
            embd__copy_file_piece(m->client, m->shard, m->record.name, file, at + done, &piece);
        if (status != EMBD_OK)
            return making_fail(m, status);
        size_t n = piece.bytes < bytes - done ? (size_t)piece.bytes : bytes - done;
        bool is_right = n > 0 && piece.file_bytes == file_bytes;
        if (is_right)
            memcpy(to + done, piece.data, n);
        embd__copy_piece_free(&piece);
        if (!is_right)
            return embd__error_set(m->e, EMBD_CORRUPT,
                                   "%s: %s of the snapshot '%s' has other bytes than its manifest "
                                   "says",
                                   embd_shard_address(m->client, m->shard), file, m->record.name);
        done += n;
    }
    return EMBD_OK;
}

static int put(struct making *m, const char *name, uint32_t piece, bool is_last, size_t bytes)
{
    char path[PLACE_NAME_BYTES];
    if (!record_path(path, m->record.name, name) || !place_is_name(path))
        return embd__error_set(m->e, EMBD_UNSUPPORTED, "%s: a backup has no file of this name",
                               name);
    return m->place->ops->put(m->place, path, piece, is_last, m->buffer, bytes, m->e);
}

static int copy_pieces(struct making *m, const char *file, const char *name, uint64_t bytes,
                       uint64_t xxh3, XXH3_state_t *hash)
{
    uint32_t n = place_pieces(bytes);
    for (uint32_t piece = 0; piece < n; piece++) {
        size_t part = place_piece_bytes(bytes, piece);
        uint64_t at = (uint64_t)piece * PLACE_PIECE_BYTES;
        if (fetch(m, file, at, m->buffer, part, bytes) != EMBD_OK)
            return m->e->status;
        XXH3_64bits_update_dispatch(hash, m->buffer, part);
        bool is_last = piece + 1 == n;
        if (is_last && XXH3_64bits_digest(hash) != xxh3)
            return embd__error_set(m->e, EMBD_CORRUPT,
                                   "%s: %s of the snapshot '%s' has another checksum than its "
                                   "manifest says",
                                   embd_shard_address(m->client, m->shard), file, m->record.name);
        if (put(m, name, piece, is_last, part) != EMBD_OK ||
            embd__ticker_add(&m->ticker, 0, part, m->e) != EMBD_OK)
            return m->e->status;
    }
    return EMBD_OK;
}

static int copy_file(void *arg, const char *file, uint64_t bytes, uint64_t xxh3, uint64_t rows)
{
    struct making *m = arg;
    char name[PLACE_NAME_BYTES];
    XXH3_state_t *hash = XXH3_createState();
    snprintf(name, sizeof name, "%u/%s", m->shard, file);
    if (hash == NULL)
        return embd__error_set(m->e, EMBD_NO_MEMORY, "no memory for the checksum of %s", file);
    XXH3_64bits_reset(hash);
    if (copy_pieces(m, file, name, bytes, xxh3, hash) == EMBD_OK)
        record_add(&m->record, name, bytes, xxh3, m->e);
    XXH3_freeState(hash);
    return m->e->status ? m->e->status : embd__ticker_add(&m->ticker, rows, 0, m->e);
}

/* ---- shares ---- */

static int check_manifest(struct making *m, const struct manifest *manifest)
{
    struct record *r = &m->record;
    if (r->n_files == 0) {
        r->id = manifest->id;
        r->sequence = manifest->sequence;
        r->n_shards = manifest->n_shards;
    }
    if (manifest->id == r->id && manifest->id != 0 && manifest->base.id == r->base_id &&
        manifest->n_shards == embd_shard_count(m->client) &&
        embd__scope_is_same(&manifest->scope, &r->scope))
        return EMBD_OK;
    return embd__error_set(m->e, EMBD_CORRUPT,
                           "%s: its share of the snapshot '%s' is of another cut, or has another "
                           "base than the backup that it belongs to",
                           embd_shard_address(m->client, m->shard), r->name);
}

/* The files of the manifest, and then the manifest itself. */
static int copy_share(struct making *m, const uint8_t *text, size_t bytes)
{
    struct manifest manifest;
    struct embd__error inner = {0};
    if (embd__manifest_read((const char *)text, bytes, &manifest, &inner) != EMBD_OK)
        return embd__error_set(m->e, inner.status, "%s: the manifest of the snapshot '%s': %.250s",
                               embd_shard_address(m->client, m->shard), m->record.name, inner.text);
    if (check_manifest(m, &manifest) == EMBD_OK &&
        contents_files(&manifest, copy_file, m) == EMBD_OK)
        copy_file(m, "manifest.json", bytes, XXH3_64bits(text, bytes), 0);
    embd__manifest_fini(&manifest);
    return m->e->status;
}

/* The server's manifest, malloc'd; NULL and no error: `shard` is not the first of its process. */
static uint8_t *fetch_manifest(struct making *m, uint64_t *bytes_out)
{
    struct file_piece piece;
    int status =
        embd__copy_file_piece(m->client, m->shard, m->record.name, "manifest.json", 0, &piece);
    if (status == EMBD_INVALID)
        return NULL;
    if (status != EMBD_OK) {
        making_fail(m, status);
        return NULL;
    }
    *bytes_out = piece.file_bytes;
    embd__copy_piece_free(&piece);
    uint8_t *text = *bytes_out <= PLACE_PIECE_BYTES * 8u ? malloc((size_t)*bytes_out + 1) : NULL;
    if (text == NULL)
        embd__error_set(m->e, EMBD_NO_MEMORY, "no memory for a manifest of %llu bytes",
                        (unsigned long long)*bytes_out);
    if (text == NULL ||
        fetch(m, "manifest.json", 0, text, (size_t)*bytes_out, *bytes_out) == EMBD_OK)
        return text;
    free(text);
    return NULL;
}

static int copy_shares(struct making *m)
{
    uint64_t bytes = 0;
    uint32_t n = embd_shard_count(m->client);
    for (m->shard = 0; m->shard < n && m->e->status == EMBD_OK; m->shard++) {
        uint8_t *text = fetch_manifest(m, &bytes);
        if (text != NULL)
            copy_share(m, text, (size_t)bytes);
        free(text);
    }
    return m->e->status;
}

/* ---- the end ---- */

struct look {
    const struct record *record;
    uint32_t n; /* of its files that lie there; of several pieces, the first one */
};

static int look_at(void *arg, const char *name)
{
    struct look *look = arg;
    size_t n = strlen(look->record->name);
    if (strncmp(name, look->record->name, n) != 0 || name[n] != '/')
        return 0;
    const char *below = name + n + 1, *share = strchr(below, '/');
    const char *piece = share != NULL ? strchr(share + 1, '/') : NULL;
    look->n += piece == NULL || strspn(piece + 1, "0") == strlen(piece + 1);
    return 0;
}

/* Somebody may have removed files meanwhile, or the base. */
static int check_place(struct making *m)
{
    struct catalog c;
    struct look look = {.record = &m->record};
    if (m->place->ops->list(m->place, look_at, &look, m->e) != EMBD_OK ||
        catalog_read(m->place, &c, m->e) != EMBD_OK)
        return m->e->status;
    const struct catalog_entry *base = m->record.base_id ? catalog_find(&c, m->record.base) : NULL;
    if (look.n != m->record.n_files)
        embd__error_set(m->e, EMBD_IO,
                        "%s/%s: %u files of it lie there, and not %u: they were "
                        "removed meanwhile",
                        m->place->url, m->record.name, look.n, m->record.n_files);
    if (m->record.base_id != 0 && (base == NULL || base->state != BACKUP_WHOLE))
        embd__error_set(m->e, EMBD_IO, "%s/%s: its base '%s' was removed meanwhile", m->place->url,
                        m->record.name, m->record.base);
    catalog_fini(&c);
    return m->e->status;
}

static int put_record(struct making *m)
{
    char path[PLACE_NAME_BYTES];
    char *text = record_write(&m->record);
    size_t bytes = text == NULL ? 0 : strlen(text);
    record_path(path, m->record.name, RECORD_FILE);
    if (text == NULL)
        embd__error_set(m->e, EMBD_NO_MEMORY, "no memory for " RECORD_FILE);
    else if (bytes > PLACE_PIECE_BYTES)
        embd__error_set(m->e, EMBD_TOO_LARGE, RECORD_FILE " has %zu bytes, the limit is %u", bytes,
                        PLACE_PIECE_BYTES);
    else
        m->place->ops->put(m->place, path, 0, true, text, bytes, m->e);
    free(text);
    return m->e->status;
}

static void give_up(struct making *m)
{
    struct embd__error ignored = {0};
    catalog_remove(m->place, m->record.name, &ignored);
}

static int make(struct making *m, struct backup_made *out)
{
    if (making_plan(m) != EMBD_OK || make_snapshot(m) != EMBD_OK)
        return m->e->status;
    if (copy_shares(m) != EMBD_OK || contents_check(m->place, &m->record, m->e) != EMBD_OK ||
        check_place(m) != EMBD_OK || put_record(m) != EMBD_OK) {
        give_up(m);
        return m->e->status;
    }
    *out = (struct backup_made){.time_s = m->record.time_s,
                                .rows = m->record.rows,
                                .bytes = record_bytes(&m->record),
                                .pause_us = m->pause_us,
                                .is_due = m->is_due && m->record.base_id != 0};
    memcpy(out->name, m->record.name, sizeof out->name);
    memcpy(out->base, m->record.base, sizeof out->base);
    return making_keep(m, out) ? m->e->status : embd__ticker_end(&m->ticker, m->e);
}

int backup_make(embd_client *client, const struct backup_order *order, embd_progress *progress,
                void *arg, struct backup_made *out, struct backup_why *why)
{
    struct embd__error e = {0};
    struct making m = {.client = client, .order = order, .e = &e};
    embd__ticker_begin(&m.ticker, progress, arg, 0);
    m.buffer = malloc(PLACE_PIECE_BYTES);
    if (m.buffer == NULL)
        embd__error_set(&e, EMBD_NO_MEMORY, "no memory for a piece of a backup");
    else if (place_open(&order->to, true, &m.place, &e) == EMBD_OK)
        m.place->known = order->known;
    if (m.place != NULL)
        make(&m, out);
    place_close(m.place);
    free(m.buffer);
    record_fini(&m.record);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status;
}
