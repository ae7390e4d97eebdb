/* shelf.c - see shelf.h. */
#include "client/backup/shelf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/backup/contents.h"
#include "proto/streamsfile.h"

/* ---- which there are ---- */

struct seeing {
    struct shelf *shelf;
    struct embd__error *e;
};

static int see(void *arg, const char *name)
{
    struct seeing *s = arg;
    struct shelf *shelf = s->shelf;
    struct segment_name says;
    if (!segment_name_read(name, &says))
        return 0;
    struct shelf_file *grown = shelf->files;
    if ((shelf->n & (shelf->n - 1)) == 0)
        grown = realloc(grown, (shelf->n ? 2 * (size_t)shelf->n : 1) * sizeof *grown);
    if (grown == NULL)
        return embd__error_set(s->e, EMBD_NO_MEMORY, "no memory for the list of records");
    shelf->files = grown;
    grown[shelf->n].says = says;
    snprintf(grown[shelf->n++].name, sizeof grown->name, "%s", name);
    return 0;
}

static int by_time(const void *a, const void *b)
{
    const struct segment_name *x = &((const struct shelf_file *)a)->says;
    const struct segment_name *y = &((const struct shelf_file *)b)->says;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->ms != y->ms)
        return x->ms < y->ms ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

int shelf_read(struct place *place, struct shelf *out, struct embd__error *e)
{
    *out = (struct shelf){.place = place};
    struct seeing seeing = {out, e};
    if (place->ops->list(place, see, &seeing, e) != EMBD_OK)
        shelf_fini(out);
    if (out->n > 0)
        qsort(out->files, out->n, sizeof *out->files, by_time);
    return e->status;
}

void shelf_fini(struct shelf *shelf)
{
    free(shelf->files);
    *shelf = (struct shelf){.n = 0};
}

int shelf_open(const struct shelf *shelf, const struct shelf_file *file, struct segment *out,
               uint8_t **bytes_out, struct embd__error *e)
{
    size_t n;
    struct embd__error inner = {0};
    uint8_t *bytes = shelf->place->ops->read(shelf->place, file->name, &n, e);
    *bytes_out = NULL;
    if (e->status != EMBD_OK)
        return e->status;
    if (bytes == NULL)
        return embd__error_set(e, EMBD_CORRUPT, "%s/%s: is gone", shelf->place->url, file->name);
    if (segment_read(file->name, bytes, n, out, &inner) == EMBD_OK) {
        *bytes_out = bytes;
        return EMBD_OK;
    }
    free(bytes);
    return embd__error_set(e, inner.status, "%s/%.250s", shelf->place->url, inner.text);
}

/* ---- where backups are ---- */

/* "0/3.writers": the shard is 3. */
static bool is_streams(const char *name, uint32_t *shard_out)
{
    char end;
    return sscanf(name, "%*u/%u.writer%c", shard_out, &end) == 2 && end == 's';
}

struct head {
    uint8_t bytes[STREAMSFILE_HEADER_BYTES];
    bool has;
};

static int take_head(void *arg, uint32_t piece, bool is_last, const void *data, size_t bytes)
{
    struct head *head = arg;
    (void)is_last;
    if (piece == 0 && bytes >= sizeof head->bytes) {
        memcpy(head->bytes, data, sizeof head->bytes);
        head->has = true;
    }
    return 0;
}

static int read_place(struct place *place, const struct record *record,
                      const struct record_file *file, uint32_t shard, struct records_place *out,
                      struct embd__error *e)
{
    struct head head = {.has = false};
    struct streamsfile streams;
    struct embd__error inner = {0};
    if (contents_read(place, record, file, take_head, &head, NULL, e) != EMBD_OK)
        return e->status;
    if (!head.has ||
        embd__streamsfile_read_header(head.bytes, sizeof head.bytes, &streams, &inner) != EMBD_OK ||
        streams.shard != shard || streams.n_shards != record->n_shards)
        return embd__error_set(e, EMBD_CORRUPT, "%s/%s/%s: is not of this shard", place->url,
                               record->name, file->name);
    *out = (struct records_place){.position = streams.position, .chain = streams.chain};
    return EMBD_OK;
}

int shelf_cut(struct place *place, const struct record *record, struct records_place *places,
              struct embd__error *e)
{
    uint32_t n = 0, shard;
    for (uint32_t i = 0; i < record->n_files; i++) {
        if (!is_streams(record->files[i].name, &shard) || shard >= record->n_shards)
            continue;
        if (read_place(place, record, &record->files[i], shard, &places[shard], e) != EMBD_OK)
            return e->status;
        n++;
    }
    if (n == record->n_shards)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT, "%s/%s: has no position of the journals", place->url,
                           record->name);
}
