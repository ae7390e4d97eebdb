/* backup_verify.c - backup_verify: every file of the backups in a place, from its first to its last
 * byte. A backup that was cut off does not count. */
#include <stdio.h>

#include "client/backup/catalog.h"
#include "client/backup/contents.h"
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
    catalog_fini(&c);
    place_close(place);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status;
}
