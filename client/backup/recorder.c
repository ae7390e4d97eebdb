/* recorder.c - backup_records: the records of all shards go to a place, as they come.
 *
 * The happy path: look where the records that lie there end; ask all shards for what is behind
 * that, again and again; every few seconds, or when there are many, put them as a file of each
 * shard (segment.h). What can fail: a server, or the place: then the caller begins again, at what
 * lies there. A server may have no more what is wanted: then records go on from the newest backup,
 * or, where that is too old, from the next one.
 *
 * A shard that was added behind that backup has all that it is in its own records: they come from
 * the first one on. That the cluster has another number of shards is itself a record (resized.h):
 * then the caller begins again, with these. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "client/backup/catalog.h"
#include "client/backup/outbox.h"
#include "client/backup/resized.h"
#include "client/backup/shelf.h"
#include "client/formats/table_copy.h"
#include "embd/embd.h"
#include "proto/archived.h"
#include "proto/little.h"

#define WAIT_MS       200u /* for records of a shard: as long as those of others wait for it */
#define CLEAN_EVERY_S 600.0
#define KEPT_MS       (UINT64_C(1000) * BACKUP_RECORDS_S)
#define SLACK_MS      UINT64_C(60000)

/* Of one shard. */
struct shard_log {
    struct records_place from, to; /* of what is not put yet */
    enum { BEGAN_BEHIND_FILES, BEGAN_AT_CUT, BEGAN_AT_FIRST } began;
    uint8_t *bytes; /* [SEGMENT_BYTES_MOST + FOLLOW_BYTES] */
    uint64_t n, first;
    struct segment_time *times; /* [SEGMENT_TIMES_MOST] */
    uint64_t n_times;
    uint64_t *skips; /* [n_skips], malloc'd */
    uint64_t n_skips;
    uint32_t number;        /* of the next file */
    struct resized resized; /* the record whose bytes came last */
};

struct recorder {
    embd_client *client;
    const struct records_order *order;
    struct place *place;
    struct outbox *outbox;
    struct embd__error *e;
    struct records_whose whose;
    struct shard_log *logs;       /* [n] */
    struct records_place *places; /* [LIMIT_SHARDS] that are asked for */
    struct records_place *cut;    /* [LIMIT_SHARDS] of the newest backup */
    uint32_t n;
    bool is_resized; /* there is another number of shards */
    uint64_t run, ms, put_bytes;
    uint64_t newest_ms; /* of the newest backup */
    bool has_more;      /* a server has more records than it has sent */
    bool has_less;      /* a server has no more what is wanted */
    uint64_t had_ms;    /* records of before have come; 0: since they were put, none did */
    uint64_t sent_ms;   /* and are on their way to the place; 0: none are */
    double put_s, clean_s;
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Never earlier than before. */
static uint64_t now_ms(struct recorder *r)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    r->ms = ms > r->ms ? ms : r->ms;
    return r->ms;
}

/* ---- where it begins ---- */

static const struct shelf_file *last_of(const struct shelf *shelf, uint32_t shard)
{
    const struct shelf_file *last = NULL;
    for (uint32_t i = 0; i < shelf->n; i++)
        if (shelf->files[i].says.shard == shard)
            last = &shelf->files[i];
    return last;
}

static void begin_at(struct shard_log *log, const struct records_place *place)
{
    log->from = log->to = *place;
    log->first = SEGMENT_NONE;
    log->n = log->n_times = log->n_skips = 0;
    log->resized = (struct resized){.n_head = 0};
}

/* A record of which a part lies there comes again as a whole. */
static int begin_shard(struct recorder *r, const struct shelf *shelf, uint32_t shard)
{
    const struct shelf_file *last = last_of(shelf, shard);
    struct segment segment = {.n_shards = 0};
    uint8_t *bytes = NULL;
    if (last != NULL && shelf_open(shelf, last, &segment, &bytes, r->e) != EMBD_OK &&
        r->e->status == EMBD_CORRUPT)
        *r->e = (struct embd__error){0}; /* a restore tells it */
    bool goes_on = segment.n_shards != 0 && segment.lineage == r->whose.lineage;
    segment.to.offset = 0;
    begin_at(&r->logs[shard], goes_on ? &segment.to : &r->cut[shard]);
    r->logs[shard].began = goes_on ? BEGAN_BEHIND_FILES : BEGAN_AT_CUT;
    free(bytes);
    return r->e->status;
}

/* Of the newest backup of this cluster; it may have none yet. */
static int read_cut(struct recorder *r)
{
    struct catalog c;
    struct table_scope scope = {.n_names = 0};
    if (catalog_set_job(&scope, r->order->job, r->e) != EMBD_OK ||
        catalog_read(r->place, &c, r->e) != EMBD_OK)
        return r->e->status;
    const struct catalog_entry *newest = catalog_newest(&c, &scope, NULL, UINT64_MAX);
    bool is_ours = newest != NULL &&
                   (newest->record.cluster == r->whose.lineage || newest->record.cluster == 0);
    if (!is_ours)
        embd__error_set(r->e, EMBD_BUSY, "%s: records come behind a first backup of this cluster",
                        r->place->url);
    else if (shelf_cut(r->place, &newest->record, r->cut, r->e) == EMBD_OK)
        r->newest_ms = newest->record.time_s * 1000;
    catalog_fini(&c);
    return r->e->status;
}

static int begin(struct recorder *r)
{
    struct shelf shelf;
    if (read_cut(r) != EMBD_OK || shelf_read(r->place, &shelf, r->e) != EMBD_OK)
        return r->e->status;
    for (uint32_t i = 0; i < r->n && r->e->status == EMBD_OK; i++)
        begin_shard(r, &shelf, i);
    shelf_fini(&shelf);
    if (getrandom(&r->run, sizeof r->run, 0) != sizeof r->run)
        embd__error_set(r->e, EMBD_IO, "the system gives no random numbers");
    snprintf(r->whose.reader, sizeof r->whose.reader, "archive %016" PRIx64, r->run);
    return r->e->status;
}

static int make_room(struct recorder *r)
{
    r->logs = calloc(r->n, sizeof *r->logs);
    r->cut = calloc(2 * (size_t)LIMIT_SHARDS, sizeof *r->cut);
    bool has_all = r->logs != NULL && r->cut != NULL;
    for (uint32_t i = 0; has_all && i < r->n; i++) {
        struct shard_log *log = &r->logs[i];
        log->bytes = malloc(SEGMENT_BYTES_MOST + FOLLOW_BYTES);
        log->times = malloc(SEGMENT_TIMES_MOST * sizeof *log->times);
        has_all = log->bytes != NULL && log->times != NULL;
    }
    if (!has_all)
        return embd__error_set(r->e, EMBD_NO_MEMORY, "no memory for the records of %u shards",
                               r->n);
    r->places = r->cut + LIMIT_SHARDS;
    return EMBD_OK;
}

static void free_room(struct recorder *r)
{
    for (uint32_t i = 0; r->logs != NULL && i < r->n; i++) {
        free(r->logs[i].bytes);
        free(r->logs[i].times);
        free(r->logs[i].skips);
    }
    free(r->logs);
    free(r->cut);
}

/* ---- a file ---- */

static int put(struct recorder *r, uint32_t shard)
{
    struct shard_log *log = &r->logs[shard];
    const struct segment s = {.shard = shard,
                              .n_shards = r->n,
                              .number = log->number,
                              .run = r->run,
                              .lineage = r->whose.lineage,
                              .from = log->from,
                              .to = log->to,
                              .first = log->first,
                              .times = log->times,
                              .skips = log->skips,
                              .bytes = log->bytes,
                              .n_times = log->n_times,
                              .n_skips = log->n_skips,
                              .n_bytes = log->n};
    char name[PLACE_NAME_BYTES];
    size_t bytes;
    if (log->n_times == 0)
        return EMBD_OK;
    uint8_t *file = segment_write(&s, &bytes);
    if (file == NULL)
        return embd__error_set(r->e, EMBD_NO_MEMORY, "no memory for a file of records");
    segment_name(name, &s);
    outbox_add(r->outbox, name, file, bytes, r->e);
    r->put_bytes += bytes;
    log->number++;
    log->from = log->to;
    log->n = log->n_times = log->n_skips = 0;
    log->first = SEGMENT_NONE;
    return r->e->status;
}

/* ---- what comes ---- */

/* Notes where the first record of a file begins, and whether one changes the number of shards. */
static void follow_records(struct recorder *r, struct shard_log *log, uint64_t at)
{
    struct archived_deed deed;
    while (at < log->n) {
        if (resized_begins(&log->resized) && log->first == SEGMENT_NONE)
            log->first = at;
        at += resized_take(&log->resized, log->bytes + at, log->n - at, &deed);
        r->is_resized = r->is_resized || (deed.move == MOVE_MADE && deed.n_shards != r->n);
    }
}

static void add_skips(struct recorder *r, struct shard_log *log, const struct follow_answer *a)
{
    if (a->n_skips == 0)
        return;
    uint64_t *grown = realloc(log->skips, (log->n_skips + a->n_skips) * sizeof *grown);
    if (grown == NULL) {
        embd__error_set(r->e, EMBD_NO_MEMORY, "no memory for records");
        return;
    }
    log->skips = grown;
    memcpy(grown + log->n_skips, a->skips, a->n_skips * sizeof *grown);
    log->n_skips += a->n_skips;
}

/* What came is put first: nobody else has it any more. */
static void begin_again(struct recorder *r, uint32_t shard, const char *why)
{
    struct shard_log *log = &r->logs[shard];
    const struct records_place first = {.position = 0}, *cut = &r->cut[shard];
    bool is_first = log->began == BEGAN_AT_CUT ? cut->position == 0 : log->began == BEGAN_AT_FIRST;
    put(r, shard);
    if (is_first)
        embd__error_set(r->e, EMBD_UNSUPPORTED,
                        "%s: has no more the records behind the newest backup (%s): they are kept "
                        "again from the next one on",
                        embd_shard_address(r->client, shard), why);
    begin_at(log, log->began == BEGAN_BEHIND_FILES ? cut : &first);
    log->began = log->began == BEGAN_BEHIND_FILES ? BEGAN_AT_CUT : BEGAN_AT_FIRST;
    r->run++; /* the files of a run join */
}

static void take(void *arg, const struct records_came *came)
{
    struct recorder *r = arg;
    struct shard_log *log = &r->logs[came->shard];
    const struct follow_answer *a = &came->answer;
    if (a->gone[0] != '\0') {
        begin_again(r, came->shard, a->gone);
        r->has_less = true;
        return;
    }
    uint64_t at = log->n;
    memcpy(log->bytes + at, a->bytes, (size_t)a->n_bytes);
    log->n += a->n_bytes;
    log->to = (struct records_place){a->position, a->chain, a->offset, a->file, a->at};
    r->has_more = r->has_more || a->left > 0;
    add_skips(r, log, a);
    if (a->n_bytes == 0)
        return;
    follow_records(r, log, at);
    log->times[log->n_times++] = (struct segment_time){now_ms(r), a->position};
}

/* ---- what is put ---- */

static int put_due(struct recorder *r)
{
    bool is_due = now_s() >= r->put_s + r->order->every_s;
    for (uint32_t i = 0; i < r->n && r->e->status == EMBD_OK; i++) {
        const struct shard_log *log = &r->logs[i];
        if (is_due || log->n >= SEGMENT_BYTES_MOST || log->n_times == SEGMENT_TIMES_MOST)
            put(r, i);
    }
    r->put_s = is_due ? now_s() : r->put_s;
    if (is_due && r->sent_ms == 0) {
        r->sent_ms = r->had_ms;
        r->had_ms = 0;
    }
    return r->e->status;
}

/* What was sent has come. */
static void tell_covers(struct recorder *r)
{
    if (r->sent_ms == 0 || !outbox_is_empty(r->outbox))
        return;
    if (r->order->covers_ms != NULL)
        atomic_store(r->order->covers_ms, r->sent_ms);
    r->sent_ms = 0;
}

/* ---- what is old ---- */

static int clean(struct recorder *r)
{
    struct shelf shelf;
    uint64_t ms = now_ms(r);
    r->clean_s = now_s();
    if (read_cut(r) != EMBD_OK || shelf_read(r->place, &shelf, r->e) != EMBD_OK)
        return r->e->status;
    for (uint32_t i = 0; i < shelf.n && r->e->status == EMBD_OK; i++) {
        uint64_t of = shelf.files[i].says.ms;
        if (of + KEPT_MS < ms && of + SLACK_MS < r->newest_ms)
            r->place->ops->remove(r->place, shelf.files[i].name, r->e);
    }
    shelf_fini(&shelf);
    return r->e->status;
}

/* ---- all of it ---- */

static int round_of(struct recorder *r, embd_progress *progress, void *arg)
{
    for (uint32_t i = 0; i < r->n; i++)
        r->places[i] = r->logs[i].to;
    uint32_t wait_ms = r->has_more ? 0 : WAIT_MS;
    uint64_t asked_ms = now_ms(r);
    r->has_more = r->has_less = false;
    int status = embd__copy_records(r->client, &r->whose, r->places, wait_ms, take, r);
    if (status != EMBD_OK && r->e->status == EMBD_OK)
        embd__error_set(r->e, status, "%s", embd__copy_error(r->client)->text);
    if (r->e->status == EMBD_OK && !r->has_more && !r->has_less)
        r->had_ms = asked_ms;
    if (r->e->status == EMBD_OK && put_due(r) == EMBD_OK)
        tell_covers(r);
    if (r->e->status == EMBD_OK && now_s() >= r->clean_s + CLEAN_EVERY_S)
        clean(r);
    if (r->e->status == EMBD_OK && (r->is_resized || embd_shard_count(r->client) != r->n))
        embd__error_set(r->e, EMBD_MOVED, "the cluster has another number of shards than %u", r->n);
    return progress != NULL && progress(arg, 0, 0, r->put_bytes) ? 1 : r->e->status;
}

/* Also after an error: the servers may have it no more when this begins again. */
static void put_rest(struct recorder *r)
{
    struct embd__error before = *r->e;
    *r->e = (struct embd__error){0};
    for (uint32_t i = 0; i < r->n && r->e->status == EMBD_OK; i++)
        put(r, i);
    if (before.status != EMBD_OK)
        *r->e = before;
}

static int keep_records(struct recorder *r, embd_progress *progress, void *arg)
{
    r->place->known = r->order->known;
    int stop = begin(r);
    r->put_s = now_s();
    while (stop == EMBD_OK)
        stop = round_of(r, progress, arg);
    put_rest(r);
    return r->e->status;
}

int backup_records(embd_client *client, const struct records_order *order, embd_progress *progress,
                   void *arg, struct backup_why *why)
{
    struct embd__error e = {0};
    struct recorder r = {.client = client, .order = order, .e = &e, .n = embd_shard_count(client)};
    if (embd__copy_records_whose(client, &r.whose) != EMBD_OK)
        embd__error_set(&e, embd__copy_error(client)->status, "%s", embd__copy_error(client)->text);
    else if (place_open(&order->to, true, &r.place, &e) == EMBD_OK && make_room(&r) == EMBD_OK &&
             outbox_open(&order->to, &r.outbox, &e) == EMBD_OK)
        keep_records(&r, progress, arg);
    outbox_close(r.outbox, &e);
    free_room(&r);
    place_close(r.place);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status;
}
