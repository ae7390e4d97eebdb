/* archive.c - see archive.h.
 *
 * The happy path: a backup is due, servers are connected to, it is made and told, and the next one
 * is due so many seconds after this one was. Nothing is kept between two but what lies in the
 * place, so a run that is killed goes on where it was. What can fail: servers, the place, a
 * snapshot of somebody else. It is tried again, later each time.
 *
 * All rows take long to copy. Another process does that, while this one goes on with increments, a
 * few of them and ever further apart: the next ones are upon that base. A third process keeps the
 * records that come between backups. */
#include "client/embctl/archive.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/embctl/backupfigures.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/progress.h"

#define PAUSE_MOST_S 60.0                /* after a failure */
#define BASE_PAUSE_S 60.0                /* after that of a base */
#define LOOK_S       0.2                 /* for the end of a base */
#define RESIZED_S    0.1                 /* before records go on with another number of shards */
#define FIGURES_S    1.0                 /* at least, between two of how far records are */
#define ON_SERVERS   (BACKUP_BESIDE + 3) /* snapshots that stay while a base is copied from there */

/* ---- one ---- */

int archive_make(const struct backup_order *order, struct backup_made *made,
                 uint64_t *elapsed_us_out)
{
    struct progress progress;
    struct backup_why why;
    embd_client *client;
    progress_begin(&progress, "backup", NULL);
    int code = connect_servers(&client);
    if (code)
        return code;
    int status = backup_make(client, order, progress_report, &progress, made, &why);
    *elapsed_us_out = progress_end(&progress);
    embd_close(client);
    return end_with(status, why.text);
}

void archive_print(const char *place, const struct backup_made *made, uint64_t elapsed_us)
{
    static const struct column columns[] = {
        {"place", CELL_TEXT},        {"name", CELL_TEXT},
        {"kind", CELL_TEXT},         {"base", CELL_TEXT},
        {"rows", CELL_COUNT},        {"bytes", CELL_BYTES},
        {"elapsed_us", CELL_MICROS}, {"pushes_waited_us", CELL_MICROS},
        {"removed", CELL_COUNT}};
    struct listing l;
    listing_init(&l, "backup", columns, sizeof columns / sizeof *columns);
    listing_row(&l);
    listing_text(&l, 0, place);
    listing_text(&l, 1, made->name);
    listing_text(&l, 2, made->base[0] ? "increment" : "base");
    listing_text(&l, 3, made->base);
    listing_uint(&l, 4, made->rows);
    listing_uint(&l, 5, made->bytes);
    listing_uint(&l, 6, elapsed_us);
    listing_uint(&l, 7, made->pause_us);
    listing_uint(&l, 8, made->n_removed);
    listing_print_fields(&l);
    listing_fini(&l);
}

/* ---- one every so often ---- */

struct archive {
    struct backup_order *order;
    double every_s;
    const char *figures;
    struct backup_figures told;  /* the last ones */
    struct backup_made made;     /* that they are of */
    uint32_t n_failed;           /* since the last complete one */
    pid_t base;                  /* the process that makes one with all rows; 0: none */
    double base_s;               /* not before that */
    uint32_t n_beside;           /* increments that were made meanwhile */
    double records_s;            /* between two files of records; 0: none are kept */
    pid_t records;               /* the process that keeps them; 0: none */
    _Atomic uint64_t *covers_ms; /* that it sets, in memory of both; NULL: none */
};

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* In steps: a signal that comes just before one ends the wait all the same. */
static void wait_until(double due_s)
{
    for (double left; !progress_is_stopped() && (left = due_s - now_s()) > 0;)
        wait_seconds(left < 0.1 ? left : 0.1);
}

static double pause_s(const struct archive *a)
{
    double most = a->every_s < PAUSE_MOST_S ? a->every_s : PAUSE_MOST_S, pause = 1;
    for (uint32_t i = 1; i < a->n_failed && pause < most; i++)
        pause *= 2;
    return pause < most ? pause : most;
}

/* People read a line for each, programs the object of a single backup. */
static void print_line(const struct archive *a, const struct backup_made *made, uint64_t elapsed_us)
{
    char rows[32], bytes[32], elapsed[32];
    listing_format(rows, sizeof rows, CELL_COUNT, made->rows);
    listing_format(bytes, sizeof bytes, CELL_BYTES, made->bytes);
    listing_format(elapsed, sizeof elapsed, CELL_MICROS, elapsed_us);
    if (globals.json)
        archive_print(a->order->to.url, made, elapsed_us);
    else
        printf("%s%s%s: %s rows, %s in %s, %" PRIu32 " removed\n", made->name,
               made->base[0] ? " upon " : "", made->base, rows, bytes, elapsed, made->n_removed);
    fflush(stdout);
}

static void write_figures(struct archive *a, const struct backup_made *made, uint64_t elapsed_us)
{
    a->told = (struct backup_figures){.place = a->order->to.url,
                                      .made = made != NULL ? &a->made : NULL,
                                      .elapsed_us = elapsed_us,
                                      .n_failed = a->n_failed,
                                      .every_s = a->every_s,
                                      .records_ms = a->covers_ms ? *a->covers_ms : 0,
                                      .has_records = a->covers_ms != NULL};
    if (made != NULL)
        a->made = *made;
    if (a->figures != NULL)
        backup_figures_write(a->figures, &a->told);
}

/* Records come between backups, too. */
static void write_figures_again(struct archive *a)
{
    if (a->figures == NULL || !a->told.has_records)
        return;
    a->told.is_again = true;
    a->told.records_ms = *a->covers_ms;
    backup_figures_write(a->figures, &a->told);
}

/* ---- all rows, by another process ---- */

static int make_base(const struct archive *a)
{
    struct backup_order order = *a->order;
    struct backup_made made = {.name = ""};
    uint64_t elapsed_us = 0;
    order.has_all = order.is_beside = true;
    order.n_on_servers = ON_SERVERS;
    int code = archive_make(&order, &made, &elapsed_us);
    if (code == EXIT_DONE)
        print_line(a, &made, elapsed_us);
    return code;
}

/* It ends with this process. */
static void begin_base(struct archive *a)
{
    a->n_beside = 0;
    a->base = fork();
    if (a->base == 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        _exit(make_base(a));
    }
    if (a->base < 0) {
        fprintf(stderr, "embctl backup: no process for a backup with all rows\n");
        a->base = 0;
        a->base_s = now_s() + BASE_PAUSE_S;
    }
}

static void end_base(struct archive *a, int flags)
{
    int status = 0;
    if (a->base == 0 || waitpid(a->base, &status, flags) != a->base)
        return;
    a->base = 0;
    if (status == 0 || progress_is_stopped())
        return;
    fprintf(stderr, "embctl backup: a backup with all rows failed; the next try is in %g s\n",
            BASE_PAUSE_S);
    a->base_s = now_s() + BASE_PAUSE_S;
}

/* ---- the records between them, by another process ---- */

static int keep_once(const struct archive *a, struct backup_known *known)
{
    const struct records_order order = {.to = a->order->to,
                                        .job = a->order->job,
                                        .every_s = a->records_s,
                                        .known = known,
                                        .covers_ms = a->covers_ms};
    struct progress progress;
    struct backup_why why;
    embd_client *client;
    progress_begin(&progress, "records", NULL);
    int code = connect_servers(&client);
    if (code)
        return EMBD_UNREACHABLE;
    int status = backup_records(client, &order, progress_report, &progress, &why);
    embd_close(client);
    bool is_told = status != EMBD_OK && status != EMBD_BUSY && status != EMBD_MOVED;
    if (is_told && !progress_is_stopped())
        fprintf(stderr, "embctl backup: records: %s\n", why.text);
    return status;
}

/* Until a signal ends it. A first backup comes soon; what fails is tried again, later each time
 * that it fails at once. */
static int keep_records(const struct archive *a)
{
    struct backup_known *known = backup_known_new();
    double pause = 1;
    while (!progress_is_stopped()) {
        double begin_s = now_s();
        int status = keep_once(a, known);
        bool has_run = now_s() - begin_s > pause;
        bool is_usual = status == EMBD_BUSY || status == EMBD_MOVED || has_run;
        pause = is_usual ? 1 : pause * 2 < PAUSE_MOST_S ? pause * 2 : PAUSE_MOST_S;
        wait_until(now_s() + (status == EMBD_MOVED ? RESIZED_S : pause));
    }
    backup_known_free(known);
    return EXIT_DONE;
}

static void begin_records(struct archive *a)
{
    a->records = a->records_s > 0 ? fork() : 0;
    if (a->records == 0 && a->records_s > 0) {
        prctl(PR_SET_PDEATHSIG, SIGTERM);
        _exit(keep_records(a));
    }
}

/* One that was killed comes again. */
static void look_for_records(struct archive *a)
{
    if (a->records_s > 0 && (a->records <= 0 || waitpid(a->records, NULL, WNOHANG) == a->records))
        begin_records(a);
}

static void end_records(const struct archive *a)
{
    if (a->records <= 0)
        return;
    kill(a->records, SIGTERM);
    waitpid(a->records, NULL, 0);
}

/* ---- one behind the other ---- */

/* False: it failed, and that was told. */
static bool make_next(struct archive *a)
{
    struct backup_made made = {.name = ""};
    double begin_s = now_s();
    uint64_t elapsed_us = 0;
    a->order->is_beside = a->base != 0;
    a->order->n_on_servers = a->base != 0 ? ON_SERVERS : 0;
    bool is_made = archive_make(a->order, &made, &elapsed_us) == EXIT_DONE;
    if (!is_made && progress_is_stopped())
        return false;
    a->n_failed = is_made ? 0 : a->n_failed + 1;
    elapsed_us = (uint64_t)((now_s() - begin_s) * 1e6);
    if (is_made)
        print_line(a, &made, elapsed_us);
    write_figures(a, is_made ? &made : NULL, elapsed_us);
    if (is_made && a->base != 0)
        a->n_beside++;
    else if (is_made && made.is_due && now_s() >= a->base_s)
        begin_base(a);
    return is_made;
}

/* One that is due, and when the next one is. */
static double go_on(struct archive *a)
{
    double begin_s = now_s();
    end_base(a, WNOHANG);
    look_for_records(a);
    if (a->base != 0 && a->n_beside == BACKUP_BESIDE)
        return begin_s + LOOK_S;
    bool is_made = make_next(a);
    a->order->accepts_other = a->order->accepts_other && !is_made;
    if (is_made)
        return begin_s + a->every_s * (1u << a->n_beside);
    if (!progress_is_stopped())
        fprintf(stderr, "embctl backup: %" PRIu32 " failed since the last one; next try in %g s\n",
                a->n_failed, pause_s(a));
    return now_s() + pause_s(a);
}

static void rest_until(struct archive *a, double due_s)
{
    double every_s = 3 * a->records_s > FIGURES_S ? 3 * a->records_s : FIGURES_S;
    for (double at; (at = now_s() + every_s) < due_s && !progress_is_stopped();) {
        wait_until(at);
        write_figures_again(a);
    }
    wait_until(due_s);
}

/* NULL: no memory; then a figure is missing. */
static _Atomic uint64_t *share_number(void)
{
    void *memory =
        mmap(NULL, sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

/* False: the parent is gone already. */
static bool end_with_parent(pid_t parent)
{
    return parent == 0 || (prctl(PR_SET_PDEATHSIG, SIGTERM) == 0 && getppid() == parent);
}

int archive_run(struct backup_order *order, const struct archive_options *options)
{
    struct archive a = {.order = order,
                        .every_s = options->every_s,
                        .figures = options->figures,
                        .records_s = options->records_s};
    struct progress progress;
    if (!end_with_parent(options->parent))
        return EXIT_DONE;
    progress_begin(&progress, "backup", NULL);
    order->known = backup_known_new();
    if (a.records_s > 0)
        a.covers_ms = share_number();
    while (!progress_is_stopped())
        rest_until(&a, go_on(&a));
    if (a.base != 0)
        kill(a.base, SIGTERM);
    end_base(&a, 0);
    end_records(&a);
    backup_known_free(order->known);
    return EXIT_DONE;
}
