/* spans.c - backup_moments: which moments a restore can bring back.
 *
 * The happy path: files of records are grouped by their names, which count those of a run; of each
 * group the first and the last are read, and say from which record to which it goes. From a
 * backup's cut each shard's groups are followed as far as one goes on where another ends. Where
 * that reaches the next backup's cut there is no gap between them. What can fail: the place. A file
 * that is damaged counts as missing; `embctl verify` reads all of them. */
#include <stdlib.h>
#include <string.h>

#include "client/backup/catalog.h"
#include "client/backup/shelf.h"
#include "embd/embd.h"

/* Records of one shard without a gap. */
struct stretch {
    uint32_t shard, n_shards;
    uint64_t lineage;
    uint64_t from, to;    /* positions */
    uint64_t from_ms, ms; /* when the first of its records had come, and the last */
};

struct spanning {
    const struct catalog *catalog;
    const struct shelf *shelf;
    const char *job;
    struct stretch *stretches; /* [n], by shard */
    uint32_t n;
    struct records_place *cut; /* [LIMIT_SHARDS] of the backup at hand */
    uint64_t *reached;         /* [LIMIT_SHARDS] positions, from the one before */
    struct embd__error *e;
};

/* ---- groups of files ---- */

static int by_run(const void *a, const void *b)
{
    const struct segment_name *x = &((const struct shelf_file *)a)->says;
    const struct segment_name *y = &((const struct shelf_file *)b)->says;
    if (x->shard != y->shard)
        return x->shard < y->shard ? -1 : 1;
    if (x->run != y->run)
        return x->run < y->run ? -1 : 1;
    return x->number < y->number ? -1 : x->number > y->number;
}

static bool goes_on(const struct shelf_file *a, const struct shelf_file *b)
{
    return a->says.shard == b->says.shard && a->says.run == b->says.run &&
           a->says.number + 1 == b->says.number;
}

/* False: it is damaged, or the place failed. */
static bool look(struct spanning *s, const struct shelf_file *file, struct segment *out)
{
    uint8_t *bytes;
    bool is_read = shelf_open(s->shelf, file, out, &bytes, s->e) == EMBD_OK;
    if (s->e->status == EMBD_CORRUPT)
        *s->e = (struct embd__error){0};
    free(bytes);
    return is_read;
}

/* Files [first, end) have consecutive numbers. */
static void add_stretch(struct spanning *s, const struct shelf_file *first,
                        const struct shelf_file *end)
{
    struct segment begin, last;
    while (first < end && !look(s, first, &begin) && s->e->status == EMBD_OK)
        first++;
    while (first < end && s->e->status == EMBD_OK && !look(s, end - 1, &last))
        end--;
    if (first >= end || s->e->status != EMBD_OK)
        return;
    s->stretches[s->n++] = (struct stretch){.shard = begin.shard,
                                            .n_shards = begin.n_shards,
                                            .lineage = begin.lineage,
                                            .from = begin.from.position,
                                            .to = last.to.position,
                                            .from_ms = first->says.ms,
                                            .ms = end[-1].says.ms};
}

static int find_stretches(struct spanning *s)
{
    uint32_t n = s->shelf->n;
    s->stretches = calloc(n + 1, sizeof *s->stretches);
    struct shelf_file *files = malloc((n + 1) * sizeof *files);
    if (s->stretches == NULL || files == NULL) {
        free(files);
        return embd__error_set(s->e, EMBD_NO_MEMORY, "no memory for the list of records");
    }
    memcpy(files, s->shelf->files, n * sizeof *files);
    qsort(files, n, sizeof *files, by_run);
    for (uint32_t i = 0, next; i < n && s->e->status == EMBD_OK; i = next) {
        for (next = i + 1; next < n && goes_on(&files[next - 1], &files[next]);)
            next++;
        add_stretch(s, &files[i], &files[next]);
    }
    free(files);
    return s->e->status;
}

/* ---- from one backup on ---- */

/* How far the records of a shard go. */
struct reach {
    uint64_t position, ms; /* ms 0: there are none behind the cut */
    bool is_broken;        /* there are later ones, which do not join */
};

static bool is_behind(const struct record *r, const struct stretch *t)
{
    bool is_ours = r->cluster != 0 ? t->lineage == r->cluster : t->n_shards == r->n_shards;
    return is_ours && t->ms >= r->time_s * 1000;
}

/* A shard that was added behind the backup has records from the first one on. */
static struct reach reach_of(const struct spanning *s, const struct record *r, uint32_t shard)
{
    bool is_there = shard < r->n_shards;
    struct reach reach = {.position = is_there ? s->cut[shard].position : 0};
    uint64_t most = 0, first_ms = UINT64_MAX;
    for (bool is_new = true; is_new;) {
        is_new = false;
        for (const struct stretch *t = s->stretches; t < s->stretches + s->n; t++) {
            bool is_ours = t->shard == shard && is_behind(r, t);
            most = is_ours && t->to > most ? t->to : most;
            first_ms = is_ours && t->from_ms < first_ms ? t->from_ms : first_ms;
            if (!is_ours || t->from > reach.position || t->to <= reach.position)
                continue;
            reach.position = t->to;
            reach.ms = t->ms;
            is_new = true;
        }
    }
    reach.is_broken = most > reach.position;
    if (reach.is_broken && !is_there && reach.ms == 0)
        reach.ms = first_ms;
    return reach;
}

/* Of the backup, and those that were added behind it. */
static uint32_t count_shards(const struct spanning *s, const struct record *r)
{
    uint32_t n = r->n_shards;
    for (const struct stretch *t = s->stretches; t < s->stretches + s->n; t++)
        n = is_behind(r, t) && t->shard >= n ? t->shard + 1 : n;
    return n;
}

/* Until when; a shard without later records had none. */
static uint64_t follow(struct spanning *s, const struct record *r)
{
    uint64_t last = r->time_s * 1000, least = UINT64_MAX;
    uint32_t n = count_shards(s, r);
    memset(s->reached, 0, LIMIT_SHARDS * sizeof *s->reached);
    for (uint32_t i = 0; i < n; i++) {
        struct reach reach = reach_of(s, r, i);
        s->reached[i] = reach.position;
        last = reach.ms > last ? reach.ms : last;
        if (reach.is_broken && reach.ms < least)
            least = reach.ms;
    }
    last = last < least ? last : least;
    return last > r->time_s * 1000 ? last : r->time_s * 1000;
}

/* From the backup before, as that has reached. */
static bool is_reached(const struct spanning *s, const struct record *before,
                       const struct record *r)
{
    bool is = before != NULL && before->cluster == r->cluster;
    for (uint32_t i = 0; i < r->n_shards && is; i++)
        is = s->reached[i] >= s->cut[i].position;
    return is;
}

/* ---- all ---- */

static bool is_of(const struct spanning *s, const struct catalog_entry *entry)
{
    return entry->state == BACKUP_WHOLE && embd__scope_is_all(&entry->record.scope) &&
           strcmp(catalog_job(&entry->record), s->job) == 0;
}

static uint64_t first_ms(const struct shelf *shelf)
{
    uint64_t ms = UINT64_MAX;
    for (uint32_t i = 0; i < shelf->n; i++)
        ms = shelf->files[i].says.ms < ms ? shelf->files[i].says.ms : ms;
    return ms;
}

/* Records go on from it, or may: the next one is behind the first of them. */
static bool has_use(const struct spanning *s, const struct catalog_entry *entry, uint64_t ms)
{
    const struct catalog_entry *end = s->catalog->entries + s->catalog->n;
    for (const struct catalog_entry *next = entry + 1; next < end; next++)
        if (is_of(s, next))
            return next->record.time_s * 1000 > ms;
    return true;
}

static int visit_spans(struct spanning *s, int (*visit)(void *arg, const struct backup_span *span),
                       void *arg)
{
    struct backup_span span = {.from_ms = 0};
    const struct record *before = NULL;
    uint64_t ms = first_ms(s->shelf);
    int stop = 0;
    for (uint32_t i = 0; i < s->catalog->n && !stop && s->e->status == EMBD_OK; i++) {
        const struct record *r = &s->catalog->entries[i].record;
        if (!is_of(s, &s->catalog->entries[i]) || !has_use(s, &s->catalog->entries[i], ms) ||
            shelf_cut(s->shelf->place, r, s->cut, s->e) != EMBD_OK)
            continue;
        bool joins = is_reached(s, before, r);
        if (before != NULL && !joins)
            stop = visit(arg, &span);
        span.from_ms = joins ? span.from_ms : r->time_s * 1000;
        span.to_ms = follow(s, r);
        before = r;
    }
    return before != NULL && !stop && s->e->status == EMBD_OK ? visit(arg, &span) : stop;
}

static int find(struct spanning *s, int (*visit)(void *arg, const struct backup_span *span),
                void *arg)
{
    int stop = 0;
    s->cut = calloc(LIMIT_SHARDS, sizeof *s->cut);
    s->reached = calloc(LIMIT_SHARDS, sizeof *s->reached);
    if (s->cut == NULL || s->reached == NULL)
        embd__error_set(s->e, EMBD_NO_MEMORY, "no memory for the list of moments");
    else if (s->shelf->n > 0 && find_stretches(s) == EMBD_OK)
        stop = visit_spans(s, visit, arg);
    free(s->stretches);
    free(s->reached);
    free(s->cut);
    return stop;
}

int backup_moments(const struct backup_where *where, const char *job,
                   int (*visit)(void *arg, const struct backup_span *span), void *arg,
                   struct backup_why *why)
{
    struct embd__error e = {0};
    struct place *place = NULL;
    struct catalog c = {.n = 0};
    struct shelf shelf = {.n = 0};
    struct spanning s = {
        .catalog = &c, .shelf = &shelf, .job = job != NULL ? job : BACKUP_JOB, .e = &e};
    int stop = 0;
    if (place_open(where, false, &place, &e) == EMBD_OK && catalog_read(place, &c, &e) == EMBD_OK &&
        shelf_read(place, &shelf, &e) == EMBD_OK)
        stop = find(&s, visit, arg);
    shelf_fini(&shelf);
    catalog_fini(&c);
    place_close(place);
    snprintf(why->text, sizeof why->text, "%s", e.text);
    return e.status ? e.status : stop;
}
