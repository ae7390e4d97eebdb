/* backup.c - embctl backup: copies of the cluster in a directory or an S3 bucket. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/embctl/archive.h"
#include "client/embctl/backupfigures.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/moments.h"
#include "client/embctl/places.h"

#define RECENT_S 3600u /* backups of --every that stay */
#define RECENT_N 8u    /* at least so many of them */

enum {
    OPTION_BASE_EVERY = 0x2000,
    OPTION_DAYS,
    OPTION_OTHER_CLUSTER,
    OPTION_RECORDS,
    OPTION_CHILD_OF
};

struct backup_arguments {
    struct words words; /* "list" */
    struct backup_order order;
    struct backup_sequence sequence;
    const char *tables[EMBD_SNAPSHOT_TABLES_MAX];
    uint32_t n_tables;
    struct archive_options archive; /* every_s 0: one backup */
};

static const struct argp_option backup_options[] = {
    {"to", 't', "PLACE", 0, "Where backups lie", 0},
    {"incremental", 'i', NULL, 0,
     "Copy only what changed since the newest backup there, where the servers know that; all rows "
     "otherwise",
     0},
    {"keep", 'k', "N", 0,
     "Then remove all but the N newest backups with all rows, and the increments upon these", 0},
    {"name", 'n', "NAME", 0, "Its name (default: backup-YYYYMMDD-HHMMSS-MMM, UTC)", 0},
    {"job", 'j', "JOB", 0,
     "It belongs to this job; --keep and --incremental look at its backups "
     "alone",
     0},
    {"tables", 'T', "TABLE,PREFIX*,...", 0, "These tables alone; may be repeated", 0},
    {"wait", 'w', "SECONDS", 0, "Wait so long for another snapshot, dump or load (default: 60)", 0},
    {"figures", 'F', "FILE", 0,
     "Replace FILE by figures for Prometheus (node_exporter's textfile collector): when the last "
     "backup was complete, and whether this one failed",
     0},
    {"every", 'E', "SECONDS", 0,
     "Go on: a backup every so many seconds, of what changed, until a signal ends it; what fails "
     "is "
     "tried again; older backups thin out",
     0},
    {"base-every", OPTION_BASE_EVERY, "SECONDS", 0,
     "With --every: all rows at least so often (default: 86400)", 0},
    {"days", OPTION_DAYS, "N", 0,
     "With --every: the last backup with all rows of a day stays for N days (default: 7)", 0},
    {"records", OPTION_RECORDS, "SECONDS", 0,
     "With --every: keep the records of pushes that come between backups, for a day, and write "
     "them "
     "every so many seconds; 0: none (default: 5; 0 with --tables)",
     0},
    {"child-of", OPTION_CHILD_OF, "PID", OPTION_HIDDEN,
     "With --every: end with that process, which has started this one", 0},
    {"other-cluster", OPTION_OTHER_CLUSTER, NULL, 0,
     "Go on where the newest backup is of another cluster, with a backup of all rows", 0},
    S3_OPTIONS,
    {0},
};

static void add_tables(struct argp_state *state, struct backup_arguments *a, char *list)
{
    for (char *name; (name = strsep(&list, ",")) != NULL;) {
        if (a->n_tables == EMBD_SNAPSHOT_TABLES_MAX)
            argp_error(state, "--tables: at most %d names; name a prefix of several: PREFIX*",
                       EMBD_SNAPSHOT_TABLES_MAX);
        a->tables[a->n_tables++] = name;
    }
}

static int parse_sequence(int key, char *arg, struct argp_state *state)
{
    struct backup_arguments *a = state->input;
    switch (key) {
    case 'E':
        a->archive.every_s = parse_seconds(state, "--every", arg, 1);
        return 0;
    case OPTION_BASE_EVERY:
        a->sequence.base_s = parse_uint(state, "--base-every", arg, 1, UINT32_MAX);
        return 0;
    case OPTION_DAYS:
        a->sequence.days = parse_uint(state, "--days", arg, 1, 36500);
        return 0;
    case OPTION_RECORDS:
        a->archive.records_s =
            strcmp(arg, "0") == 0 ? 0 : parse_seconds(state, "--records", arg, 0.1);
        return 0;
    case OPTION_CHILD_OF:
        a->archive.parent = (pid_t)parse_uint(state, "--child-of", arg, 1, INT32_MAX);
        return 0;
    case OPTION_OTHER_CLUSTER:
        a->order.accepts_other = true;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int parse_backup(int key, char *arg, struct argp_state *state)
{
    struct backup_arguments *a = state->input;
    switch (key) {
    case 't':
        a->order.to.url = arg;
        return 0;
    case 'i':
        a->order.is_incremental = true;
        return 0;
    case 'k':
        a->order.keep = (uint32_t)parse_uint(state, "--keep", arg, 1, 1000000);
        return 0;
    case 'n':
        a->order.name = arg;
        return 0;
    case 'T':
        add_tables(state, a, arg);
        return 0;
    case 'F':
        a->archive.figures = arg;
        return 0;
    case 'w':
        a->order.wait_s = parse_uint(state, "--wait", arg, 0, 1000000);
        return 0;
    case 'e':
        a->order.to.endpoint = arg;
        return 0;
    case 'g':
        a->order.to.region = arg;
        return 0;
    case 'j':
        a->order.job = arg;
        return 0;
    default:
        return parse_sequence(key, arg, state);
    }
}

/* ---- one backup, or one every so often ---- */

/* The code of a backup that failed goes before that of its figures. */
static int make_and_tell(const struct backup_arguments *a)
{
    struct backup_made made = {.name = ""};
    struct backup_figures told = {.place = a->order.to.url};
    int code = archive_make(&a->order, &made, &told.elapsed_us);
    told.made = code ? NULL : &made;
    told.n_failed = code != 0;
    if (code == 0)
        archive_print(a->order.to.url, &made, told.elapsed_us);
    int figures =
        a->archive.figures == NULL ? EXIT_DONE : backup_figures_write(a->archive.figures, &told);
    return code ? code : figures;
}

static int make_every(struct backup_arguments *a)
{
    uint64_t some_s = (uint64_t)(a->archive.every_s * RECENT_N);
    a->sequence.recent_s = some_s > RECENT_S ? some_s : RECENT_S;
    a->sequence.defers = true;
    a->order.sequence = &a->sequence;
    a->archive.records_s = a->n_tables == 0 ? a->archive.records_s : 0;
    return archive_run(&a->order, &a->archive);
}

/* NULL: nothing is wrong. */
static const char *find_fault(const struct backup_arguments *a)
{
    bool has_every = a->archive.every_s > 0;
    if (has_every && (a->order.keep != 0 || a->order.name != NULL || a->order.is_incremental))
        return "--every goes without --keep, --name and --incremental";
    if (has_every && a->words.n == 1)
        return "--every goes without list";
    return NULL;
}

/* ---- backup list ---- */

static int add_backup(void *arg, const struct backup_seen *seen)
{
    static const char *const states[] = {"whole", "cut off", "damaged"};
    struct listing *l = arg;
    struct tm day;
    char when[32];
    listing_row(l);
    listing_text(l, 0, seen->name);
    listing_text(l, 1, states[seen->state]);
    listing_text(l, 6, seen->base);
    listing_text(l, 7, seen->job);
    listing_text(l, 8, seen->why);
    if (seen->time_s == 0)
        return 0;
    time_t seconds = (time_t)seen->time_s;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&seconds, &day));
    listing_text(l, 2, when);
    listing_uint(l, 3, seen->n_shards);
    listing_uint(l, 4, seen->rows);
    listing_uint(l, 5, seen->bytes);
    time_t now = time(NULL);
    listing_uint(l, 9, now > seconds ? (uint64_t)(now - seconds) * 1000000 : 0);
    return 0;
}

static int list(const struct backup_where *where, const char *job)
{
    static const struct column columns[] = {
        {"name", CELL_TEXT},  {"state", CELL_TEXT},   {"time", CELL_TEXT}, {"shards", CELL_COUNT},
        {"rows", CELL_COUNT}, {"bytes", CELL_BYTES},  {"base", CELL_TEXT}, {"job", CELL_TEXT},
        {"error", CELL_TEXT}, {"age_us", CELL_MICROS}};
    struct listing l, moments;
    struct backup_why why;
    listing_init(&l, "backups", columns, sizeof columns / sizeof *columns);
    int status = backup_list(where, add_backup, &l, &why);
    if (status == EMBD_OK) {
        status = moments_read(where, job, &moments, &why);
        if (status == EMBD_OK)
            listing_print_pair(&l, &moments);
        listing_fini(&moments);
    }
    listing_fini(&l);
    return end_with(status, why.text);
}

int command_backup(int argc, char **argv)
{
    static const struct argp argp = {
        .options = backup_options,
        .parser = parse_backup,
        .args_doc = "--to PLACE\nlist --to PLACE",
        .doc = "Has the servers make a snapshot, and copies it from all of them to PLACE; or lists "
               "the backups there.\v" PLACES
               "A backup is the directory PLACE/NAME. Its last file is backup.json, with the "
               "checksum of each of the others: without it, there is no backup. In a directory, "
               "embctl load, inspect and blobs read PLACE/NAME too. 'embctl verify PLACE' checks "
               "all backups there, 'embctl restore' brings one back.\n"
               "\n"
               "An increment needs the backup it is upon, and 'list' shows which that is, and the "
               "moments that 'embctl restore --at' brings back from records (of --job), with the "
               "gaps between them. The "
               "servers keep the snapshots of the two newest backups in their data directories. "
               "While another snapshot, dump or replacing load runs, this command waits for its "
               "turn. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl backup --to /backups/shop --keep 4\n"
               "  embctl backup --to s3://backups/shop --incremental\n"
               "  embctl backup --to s3://backups/shop --every 60 --days 14\n"
               "  embctl backup list --to s3://backups/shop\n"
               "  embctl backup --to /backups/ranker --job ranker --tables items,'user-*'"};
    static struct backup_arguments a;
    a = (struct backup_arguments){.words = {.max = 1},
                                  .order = {.wait_s = 60},
                                  .sequence = {.base_s = 86400, .days = 7},
                                  .archive = {.records_s = 5}};
    parse_command(&argp, argc, argv, &a);
    if (a.words.n == 1 && strcmp(a.words.list[0], "list") != 0) {
        fprintf(stderr, "embctl backup: '%s' is not understood; expected list\n", a.words.list[0]);
        return EXIT_USAGE;
    }
    if (a.order.to.url == NULL)
        return end_without_place("backup", "--to");
    const char *fault = find_fault(&a);
    if (fault != NULL) {
        fprintf(stderr, "embctl backup: %s\n", fault);
        return EXIT_USAGE;
    }
    a.order.tables = a.tables;
    a.order.n_tables = a.n_tables;
    if (a.words.n == 1)
        return list(&a.order.to, a.order.job);
    return a.archive.every_s > 0 ? make_every(&a) : make_and_tell(&a);
}
