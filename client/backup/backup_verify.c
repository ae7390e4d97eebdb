/* backup_verify.c - backup_verify: every file of the backups in a place, from its first to its last
 * byte, and the records between them. A backup that was cut off does not count. */
#include <stdio.h>
#include <stdlib.h>

#include "client/backup/catalog.h"
#include "client/backup/contents.h"
#include "client/backup/shelf.h"
#include "embd/embd.h"

static int verify_entry(struct place *place, const struct catalog_entry *entry,
                        struct ticker *ticker, embd_dump_report *out, struct embd__error *e)
{
    const struct record *r = &entry->record;
    if (entry->state == BACKUP_CUT_OFF)
        return EMBD_OK;
    if (entry->state == BACKUP_DAMAGED)
        return embd__error_set(e, entry->error.status, "%s/%s: %.250s", place->url, entry->name,
                               entry->error.text);
    if (contents_check(place, r, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < r->n_files; i++)
        if (contents_read(place, r, &r->files[i], NULL, NULL, ticker, e) != EMBD_OK)
            return e->status;
    out->rows += r->rows;
    out->bytes += record_bytes(r);
    return embd__ticker_add(ticker, r->rows, 0, e);
}

static int verify_all(const struct catalog *c, const char *name, struct ticker *ticker,
                      embd_dump_report *out, struct embd__error *e)
{
    const struct catalog_entry *only = name == NULL ? NULL : catalog_find(c, name);
    if (name != NULL && only == NULL)
        return embd__error_set(e, EMBD_INVALID, "%s: has no backup '%s'", c->place->url, name);
    for (uint32_t i = 0; i < c->n; i++)
        ticker->rows_total += c->entries[i].record.rows;
    for (uint32_t i = 0; only == NULL && i < c->n; i++)
        if (verify_entry(c->place, &c->entries[i], ticker, out, e) != EMBD_OK)
            return e->status;
    for (; only != NULL; only = catalog_base(c, only))
        if (verify_entry(c->place, only, ticker, out, e) != EMBD_OK)
            return e->status;
    return embd__ticker_end(ticker, e);
}

/* ---- records ---- */

/* The one of the same run that comes before it; NULL: none is there any more. */
static const struct shelf_file *before(const struct shelf *shelf, const struct shelf_file *file)
{
    for (const struct shelf_file *at = file; at-- > shelf->files;)
        if (at->says.shard == file->says.shard && at->says.run == file->says.run)
            return at;
    return NULL;
}

static int verify_file(const struct shelf *shelf, const struct shelf_file *file,
                       struct ticker *ticker, embd_dump_report *out, struct embd__error *e)
{
    struct segment segment;
    uint8_t *bytes;
    const struct shelf_file *last = before(shelf, file);
    if (shelf_open(shelf, file, &segment, &bytes, e) != EMBD_OK)
        return e->status;
    out->bytes += segment.n_bytes;
    embd__ticker_add(ticker, 0, segment.n_bytes, e);
    free(bytes);
    if (last == NULL || last->says.number + 1 == file->says.number)
        return e->status;
    return embd__error_set(e, EMBD_CORRUPT,
                           "%s: a file of records is lost, number %u between %s and %s",
                           shelf->place->url, last->says.number + 1, last->name, file->name);
}

static int verify_records(struct place *place, struct ticker *ticker, embd_dump_report *out,
                          struct embd__error *e)
{
    struct shelf shelf;
    if (shelf_read(place, &shelf, e) != EMBD_OK)
        return e->status;
    for (uint32_t i = 0; i < shelf.n && e->status == EMBD_OK; i++)
        verify_file(&shelf, &shelf.files[i], ticker, out, e);
    shelf_fini(&shelf);
    return e->status;
}

int backup_verify(const struct backup_where *where, const char *name, embd_progress *progress,
                  void *arg, embd_dump_report *out, struct backup_why *why)
{
    struct embd__error e = {0};
    struct place *place = NULL;
    struct catalog c = {.n = 0};
    struct ticker ticker;
    *out = (embd_dump_report){.rows = 0};
    embd__ticker_begin(&ticker, progress, arg, 0);
    if (place_open(where, false, &place, &e) == EMBD_OK && catalog_read(place, &c, &e) == EMBD_OK)
        verify_all(&c, name, &ticker, out, &e);
    if (e.status == EMBD_OK && name == NULL)
        verify_records(place, &ticker, out, &e);
    catalog_fini(&c);
    place_close(place);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status;
}
