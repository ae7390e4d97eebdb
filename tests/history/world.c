/* world.c - clusters begin and end, are cut, loaded and compared. */
#include "tests/history/redefine.h"

#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "tests/client/batch.h"
#include "tests/history/compare.h"
#include "embd/admin.h"

#define TOLD_BYTES  (1u << 18)
#define DEADLINE_MS 60000u
#define LATER_CUTS  7u /* that a server remembers */

uint32_t draw(struct world *w, uint32_t n)
{
    return (uint32_t)(batch_random(&w->dice) % n);
}

bool one_in(struct world *w, uint32_t n)
{
    return draw(w, n) == 0;
}

/* ---- telling ---- */

void tell(struct world *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(w->told + w->n_told, TOLD_BYTES - w->n_told, format, arguments);
    va_end(arguments);
    if (n > 0 && w->n_told + (size_t)n + 2 < TOLD_BYTES)
        w->n_told += (size_t)n;
    w->told[w->n_told] = '\0';
}

void fail(struct world *w, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    printf("%s\nhistory %" PRIu64 " is wrong: ", w->told, w->seed);
    vprintf(format, arguments);
    printf("\nIts data: %s. To play it again: --seed %" PRIu64 "\n", w->folder, w->seed);
    va_end(arguments);
    exit(1);
}

void expect(struct world *w, const char *call, int status, int wanted)
{
    if (status != wanted)
        fail(w, "%s answered '%s', it should be '%s': %s", call, embd_status_text(status),
             embd_status_text(wanted), embd_error_text());
}

/* ---- clusters ---- */

static void remove_folder(const char *path)
{
    char command[PATH + 64];
    snprintf(command, sizeof command, "rm -rf %s", path);
    if (system(command) != 0)
        printf("%s: cannot be removed\n", path);
}

void world_open_table(struct world *w, uint32_t table)
{
    expect(w, "embd_table_open",
           embd_table_open(w->client, w->now.tables[table].schema.name, &w->handles[table]),
           EMBD_OK);
}

static void connect_client(struct world *w)
{
    embd_options options;
    const char *why = embd_error_text();
    embd_options_init(&options);
    options.deadline_ms = DEADLINE_MS;
    if (embd_connect(w->cluster.address, &options, &w->client) != EMBD_OK)
        fail(w, "embd_connect: %s", why);
}

static void start_server(struct world *w)
{
    const struct program *program = &w->programs[w->program];
    const char *const flags[] = {"--data-dir", w->data, "--store", program->store, NULL};
    cluster_start_with(&w->cluster, program->path, w->now.n_shards, flags);
    connect_client(w);
}

static void end_server(struct world *w, bool is_killed)
{
    embd_close(w->client);
    if (is_killed) {
        cluster_kill(&w->cluster);
        return;
    }
    int status = cluster_stop(&w->cluster);
    if (status != 0)
        fail(w, "the server ended with status %d, it should be 0", status);
}

static void forget_parts(struct world *w)
{
    for (uint32_t i = 0; i < w->n_parts; i++)
        image_fini(&w->parts[i].image);
    w->n_parts = 0;
}

static void forget_cuts(struct world *w)
{
    for (uint32_t i = 0; i < w->n_cuts; i++)
        image_fini(&w->cuts[i].image);
    w->n_cuts = 0;
    forget_parts(w);
}

/* A cluster of now.n_shards without tables. */
static void start_cluster(struct world *w)
{
    w->program =
        draw(w, 3 * w->n_programs); /* the first is quick, and its data is that of the others */
    w->program = w->program < w->n_programs ? w->program : 0;
    snprintf(w->data, sizeof w->data, "%s/data%" PRIu32, w->folder, w->n_clusters++);
    mkdir(w->data, 0700);
    start_server(w);
    tell(w, "\n= %" PRIu32 " shards, store %s", w->now.n_shards, w->programs[w->program].store);
}

static void begin_stream(struct world *w, enum kind kind)
{
    w->now.streams[kind] = (struct image_stream){.number = w->n_streams++};
}

void world_begin(struct world *w, uint64_t seed, const struct program *programs,
                 uint32_t n_programs)
{
    *w = (struct world){.seed = seed, .dice = seed, .programs = programs, .n_programs = n_programs};
    w->told = malloc(TOLD_BYTES);
    w->told[0] = '\0';
    /* Nothing here is about disks, and in memory there are several times as many histories in a
     * minute. */
    strcpy(w->folder, access("/dev/shm", W_OK) == 0 ? "/dev/shm/embd-history-XXXXXX"
                                                    : "/tmp/embd-history-XXXXXX");
    if (mkdtemp(w->folder) == NULL)
        fail(w, "no directory");
    w->now.n_shards = 1 + draw(w, SHARDS_MAX);
    start_cluster(w);
    begin_stream(w, JOURNALED);
    begin_stream(w, UNJOURNALED);
}

void world_end(struct world *w)
{
    end_server(w, false);
    forget_cuts(w);
    image_fini(&w->now);
    remove_folder(w->folder);
    free(w->told);
}

/* ---- snapshots ---- */

int world_draw_base(struct world *w)
{
    uint32_t n = w->n_cuts < LATER_CUTS ? w->n_cuts : LATER_CUTS;
    if (n == 0)
        return -1;
    /* Mostly the last one, so that chains become long. */
    return (int)(w->n_cuts - 1 - (one_in(w, 4) ? draw(w, n) : 0));
}

/* Until files that are written from now on are younger than those before. */
static void wait_for_next_time(void)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct timespec before, now;
    clock_gettime(CLOCK_REALTIME_COARSE, &before);
    do {
        nanosleep(&pause, NULL);
        clock_gettime(CLOCK_REALTIME_COARSE, &now);
    } while (now.tv_sec == before.tv_sec && now.tv_nsec == before.tv_nsec);
}

void world_cut(struct world *w, int base)
{
    struct cut *cut = &w->cuts[w->n_cuts];
    *cut = (struct cut){.base = base};
    snprintf(cut->name, sizeof cut->name, "s%" PRIu32, w->n_cuts);
    embd_snapshot_options options =
        EMBD_SNAPSHOT_OPTIONS(.base = base < 0 ? NULL : w->cuts[base].name);
    tell(w, "\nsnapshot %s upon %s", cut->name, base < 0 ? "none" : options.base);
    expect(w, "embd_snapshot", embd_snapshot(w->client, cut->name, &options, NULL), EMBD_OK);
    cut->image = image_copy(&w->now, w->now.n_shards);
    w->n_cuts++;
    forget_parts(w);
    wait_for_next_time(); /* a start takes the youngest */
}

void world_cut_some(struct world *w)
{
    char name[16];
    const char *names[TABLES_MAX];
    uint32_t n = 0;
    struct part_cut *cut = &w->parts[w->n_parts];
    *cut = (struct part_cut){.image.n_shards = w->now.n_shards};
    for (uint32_t i = 0; i < TABLES_MAX; i++) {
        cut->covers[i] = w->now.tables[i].is_there && one_in(w, 2);
        if (cut->covers[i])
            names[n++] = w->now.tables[i].schema.name;
    }
    if (n == 0)
        return;
    snprintf(name, sizeof name, "p%" PRIu32, w->n_parts_made++);
    embd_snapshot_options options = EMBD_SNAPSHOT_OPTIONS(.tables = names, .n_tables = n);
    tell(w, "\nsnapshot %s of %" PRIu32 " tables, the first is %s", name, n, names[0]);
    expect(w, "embd_snapshot", embd_snapshot(w->client, name, &options, NULL), EMBD_OK);
    cut->image = image_copy(&w->now, w->now.n_shards);
    w->n_parts++;
}

/* ---- restarts ---- */

/* The snapshots of some tables that a start takes, the newest first, then the newest of all: which
 * of them a table comes from. `none`: it is in none of them. */
static const struct image *source_of(const struct world *w, uint32_t table,
                                     const struct image *none)
{
    for (uint32_t i = w->n_parts; i > 0; i--)
        if (w->parts[i - 1].covers[table])
            return &w->parts[i - 1].image;
    return w->n_cuts > 0 ? &w->cuts[w->n_cuts - 1].image : none;
}

/* Whether the stream stands at one push in all snapshots that tables without a journal come from,
 * and in the newest of all tables. Then it is as there. */
static bool take_stream(struct world *w)
{
    const struct image_stream *all = NULL;
    if (w->n_cuts == 0)
        return false;
    all = &w->cuts[w->n_cuts - 1].image.streams[UNJOURNALED];
    for (uint32_t table = 0; table < TABLES_MAX; table++) {
        const struct image *from = source_of(w, table, NULL);
        const struct image_stream *own = &from->streams[UNJOURNALED];
        if (kind_of(table) == UNJOURNALED && from->tables[table].is_there &&
            (own->number != all->number || own->last != all->last))
            return false;
    }
    w->now.streams[UNJOURNALED] = *all;
    return true;
}

/* Snapshots do not say which tables a stream has pushed to. One that had not pushed by then begins
 * with its next push, and its tables are known. */
static void forget_tables_of(struct image_stream *stream)
{
    stream->tables = stream->last > 0 ? ANY_TABLE : 0;
}

/* Streams of a kind of which there are no tables may come back or not. */
static void check_streams(struct world *w, bool may_be_new)
{
    for (enum kind kind = JOURNALED; kind < KINDS; kind++) {
        struct image_stream *stream = &w->now.streams[kind];
        embd_pusher pusher = {.high = w->seed, .low = (uint64_t)kind, .stream = stream->number};
        uint64_t least, greatest;
        if (may_be_new && !image_has_kind(&w->now, kind)) {
            begin_stream(w, kind);
            continue;
        }
        expect(w, "embd_pusher_last", embd_pusher_last(w->client, &pusher, &least, &greatest),
               EMBD_OK);
        if (least != stream->last || greatest != stream->last)
            fail(w,
                 "stream %" PRIu32 " stands at %" PRIu64 " to %" PRIu64 ", it should be %" PRIu64,
                 stream->number, least, greatest, stream->last);
    }
}

void world_end_and_start(struct world *w, bool is_killed)
{
    const struct image none = {.n_shards = w->now.n_shards};
    tell(w, "\n%s", is_killed ? "kill -9" : "SIGTERM");
    end_server(w, is_killed);
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (kind_of(i) == UNJOURNALED)
            image_take_table(&w->now, source_of(w, i, &none), i);
    start_server(w);
    if (!take_stream(w))
        begin_stream(w, UNJOURNALED);
    forget_tables_of(&w->now.streams[UNJOURNALED]);
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (w->now.tables[i].is_there)
            world_open_table(w, i);
}

void world_restart(struct world *w, bool is_killed)
{
    world_end_and_start(w, is_killed);
    check_streams(w, true);
    world_check(w);
}

/* ---- moves ---- */

static int refuse_name(void *arg, const char *name)
{
    snprintf(arg, EMBD_NAME_MAX + 1, "%s", name);
    return 1;
}

/* A load that is refused has changed nothing. */
static void expect_nothing(struct world *w)
{
    char name[EMBD_NAME_MAX + 1] = "";
    embd_table_list(w->client, refuse_name, name);
    if (name[0] != '\0')
        fail(w, "a load that was refused leaves table %s", name);
}

/* All tables as they are; with `set` one after the other, with fields of each set. */
static int load_tables(struct world *w, const char *path, const struct image *after,
                       const struct redefinition *set)
{
    int status = EMBD_OK;
    if (set == NULL)
        return embd_load(w->client, NULL, path, NULL, NULL, NULL);
    for (uint32_t i = 0; i < TABLES_MAX && status == EMBD_OK; i++) {
        const char *name = after->tables[i].schema.name;
        embd_load_options options = EMBD_LOAD_OPTIONS(.tables = &name, .n_tables = 1,
                                                      .set = set[i].fields, .n_set = set[i].n);
        if (after->tables[i].is_there)
            status = embd_load_tables(w->client, path, &options, NULL);
    }
    return status;
}

/* Whether the tables of `path` are there now. `after` is taken where they are. `most` is what
 * shards may hold on the way. */
static bool load(struct world *w, const char *path, const struct redefinition *set,
                 struct image *after, const struct image *most)
{
    w->now = (struct image){.n_shards = after->n_shards};
    start_cluster(w);
    int status = load_tables(w, path, after, set);
    w->n_loads++;
    if (status == EMBD_FULL && !image_fits(most)) {
        tell(w, "\nload refused: %s", embd_error_text());
        w->n_refused++;
        expect_nothing(w);
        end_server(w, false);
        image_fini(after);
        return false;
    }
    expect(w, "embd_load", status, image_fits(after) ? EMBD_OK : EMBD_FULL);
    w->now = *after;
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (w->now.tables[i].is_there)
            world_open_table(w, i);
    return true;
}

/* Rows that any of a chain has: more of them than the last one has may have to find room on the
 * way. */
static struct image rows_of_chain(const struct world *w, uint32_t cut, uint32_t n_shards)
{
    struct image rows = image_copy(&w->cuts[cut].image, n_shards);
    for (int base = w->cuts[cut].base; base >= 0; base = w->cuts[base].base)
        image_add_rows(&rows, &w->cuts[base].image);
    return rows;
}

static bool sets_capacity(const struct redefinition *set)
{
    for (uint32_t i = 0; set != NULL && i < set->n; i++)
        if (strcmp(set->fields[i].field, "capacity") == 0)
            return true;
    return false;
}

static void rebound(struct image *image, const struct redefinition *set, uint32_t n_before)
{
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (image->tables[i].is_there && !sets_capacity(set != NULL ? &set[i] : NULL))
            image_rebound(image, i, n_before);
}

void world_move_cut(struct world *w, uint32_t cut, uint32_t n_shards)
{
    char path[PATH + 32];
    uint32_t n_before = w->now.n_shards;
    snprintf(path, sizeof path, "%s/%s", w->data, w->cuts[cut].name);
    tell(w, "\nload of %s on %" PRIu32 " shards", w->cuts[cut].name, n_shards);
    end_server(w, one_in(w, 2));
    image_fini(&w->now);
    struct image after = image_copy(&w->cuts[cut].image, n_shards),
                 most = rows_of_chain(w, cut, n_shards);
    rebound(&after, NULL, w->cuts[cut].image.n_shards);
    if (!load(w, path, NULL, &after, &most)) {
        after = image_copy(&w->cuts[cut].image, n_before);
        image_fini(&most);
        most = image_copy(&after, n_before);
        load(w, path, NULL, &after, &most);
    }
    image_fini(&most);
    forget_cuts(w);
    for (enum kind kind = JOURNALED; kind < KINDS; kind++)
        forget_tables_of(&w->now.streams[kind]);
    check_streams(w, true);
    world_check(w);
}

/* Other definitions for the tables, one a table. NULL: they stay, also where rows of one would not
 * fit the bound that it drew. */
static const struct redefinition *redefine(struct world *w, struct image *after)
{
    static struct redefinition set[TABLES_MAX];
    struct image other = image_copy(after, after->n_shards);
    for (uint32_t i = 0; i < TABLES_MAX; i++) {
        embd_schema to = other.tables[i].schema;
        if (!other.tables[i].is_there)
            continue;
        redefinition_draw(w, &set[i], &to);
        image_redefine(&other, i, &to);
    }
    bool fits = image_fits(&other);
    w->n_redefined += fits;
    if (!fits) {
        image_fini(&other);
        return NULL;
    }
    image_fini(after);
    *after = other;
    return set;
}

void world_move_dump(struct world *w, uint32_t n_shards)
{
    char path[PATH + 32];
    struct image before = w->now, after = image_copy(&before, n_shards);
    snprintf(path, sizeof path, "%s/dump%" PRIu32, w->folder, w->n_dumps++);
    tell(w, "\nload of a dump on %" PRIu32 " shards", n_shards);
    expect(w, "embd_dump", embd_dump(w->client, NULL, path, NULL, NULL, NULL), EMBD_OK);
    end_server(w, one_in(w, 2));
    const struct redefinition *set = !one_in(w, 3) ? redefine(w, &after) : NULL;
    rebound(&after, set, before.n_shards);
    if (!load(w, path, set, &after, &after)) {
        after = image_copy(&before, before.n_shards);
        load(w, path, NULL, &after, &after);
    }
    image_fini(&before);
    forget_cuts(w);
    begin_stream(w, JOURNALED);
    begin_stream(w, UNJOURNALED);
    world_check(w);
}

/* ---- replacing ---- */

/* As PROTOCOL.md has it. */
static void roll_back(struct world *w, const struct image *cut, enum kind kind, uint32_t replaced)
{
    struct image_stream *stream = &w->now.streams[kind];
    const struct image_stream *then = &cut->streams[kind];
    bool is_in_cut = then->number == stream->number && then->last > 0;
    uint32_t own = stream->tables;
    for (uint32_t i = 0; i < TABLES_MAX && (stream->tables & ANY_TABLE) != 0; i++)
        if (kind_of(i) == kind && w->now.tables[i].is_there)
            own |= 1u << i;
    own &= ~ANY_TABLE;
    if (replaced == 0 || stream->last == 0 || ((own & replaced) == 0 && (own != 0 || !is_in_cut)))
        return;
    if (is_in_cut && (own & ~replaced) == 0) {
        stream->last = then->last;
        stream->tables = own != 0 ? stream->tables : replaced;
        w->n_rolled++;
        return;
    }
    embd_pusher pusher = {.high = w->seed, .low = (uint64_t)kind, .stream = stream->number};
    uint64_t least, greatest;
    expect(w, "embd_pusher_last", embd_pusher_last(w->client, &pusher, &least, &greatest), EMBD_OK);
    if (greatest != 0)
        fail(w, "stream %" PRIu32 " is known, it should be forgotten", stream->number);
    begin_stream(w, kind);
    w->n_forgotten++;
}

static int load_in_place(struct world *w, uint32_t cut, uint32_t tables)
{
    char path[PATH + 32];
    const char *names[TABLES_MAX];
    embd_load_options options = EMBD_LOAD_OPTIONS(.tables = names, .replace = true);
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if ((tables >> i & 1) != 0)
            names[options.n_tables++] = w->cuts[cut].image.tables[i].schema.name;
    snprintf(path, sizeof path, "%s/%s", w->data, w->cuts[cut].name);
    tell(w, "\n%" PRIu32 " tables of %s in place", options.n_tables, w->cuts[cut].name);
    return embd_load_tables(w->client, path, &options, NULL);
}

void world_replace(struct world *w, uint32_t cut, uint32_t tables)
{
    struct image *image = &w->cuts[cut].image, most = rows_of_chain(w, cut, w->now.n_shards);
    int status = load_in_place(w, cut, tables);
    bool is_refused = status == EMBD_FULL && !image_fits(&most);
    image_fini(&most);
    w->n_refused += is_refused;
    if (!is_refused)
        expect(w, "embd_load_tables", status, EMBD_OK);
    for (uint32_t i = 0; i < TABLES_MAX && !is_refused; i++)
        if ((tables >> i & 1) != 0) {
            image_take_table(&w->now, image, i);
            w->now.tables[i].birth = w->n_births++;
        }
    for (enum kind kind = JOURNALED; kind < KINDS && !is_refused; kind++) {
        uint32_t replaced = 0;
        for (uint32_t i = 0; i < TABLES_MAX; i++)
            replaced |= kind_of(i) == kind ? tables & 1u << i : 0;
        roll_back(w, image, kind, replaced);
    }
    embd_close(w->client); /* its own numbers are taken back too */
    connect_client(w);
    for (uint32_t i = 0; i < TABLES_MAX; i++)
        if (w->now.tables[i].is_there)
            world_open_table(w, i);
    w->n_replaced += !is_refused;
    check_streams(w, false);
    world_check(w);
}

/* ---- comparing ---- */

struct figures {
    struct world *w;
    uint32_t shard;
};

static int compare_figure(void *arg, const char *table, const char *name, uint64_t value)
{
    const struct figures *f = arg;
    const struct image_table *t = NULL;
    for (uint32_t i = 0; table && i < TABLES_MAX; i++)
        if (f->w->now.tables[i].is_there && !strcmp(f->w->now.tables[i].schema.name, table))
            t = &f->w->now.tables[i];
    if (t == NULL)
        return 0;
    const struct model *model = t->shards[f->shard];
    uint64_t wanted = !strcmp(name, "rows")         ? model->n_rows
                      : !strcmp(name, "candidates") ? model->n_candidates
                      : !strcmp(name, "steps")      ? model->step
                                                    : value;
    if (value != wanted)
        fail(f->w,
             "table %s, shard %" PRIu32 ": the figure %s is %" PRIu64 ", it should be %" PRIu64,
             table, f->shard, name, value, wanted);
    return 0;
}

void world_check(struct world *w)
{
    char path[PATH + 32], why[256] = "";
    snprintf(path, sizeof path, "%s/dump%" PRIu32, w->folder, w->n_dumps++);
    tell(w, "\ncheck");
    w->n_checks++;
    for (uint32_t shard = 0; shard < w->now.n_shards; shard++) {
        struct figures figures = {w, shard};
        expect(w, "embd_stats", embd_stats(w->client, shard, compare_figure, &figures), EMBD_OK);
    }
    expect(w, "embd_dump", embd_dump(w->client, NULL, path, NULL, NULL, NULL), EMBD_OK);
    if (!compare_dump(path, &w->now, why, sizeof why))
        fail(w, "%s", why);
    remove_folder(path);
}
