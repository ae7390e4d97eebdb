/* backup.c - embctl backup and restore: copies of the cluster in a directory or an S3 bucket. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/embctl/backupfigures.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/places.h"
#include "client/embctl/progress.h"

#define TABLES_MAX 4096

struct backup_arguments {
    struct words words; /* "list" */
    struct backup_order order;
    struct restore_order restore;
    const char *tables[TABLES_MAX];
    uint32_t n_tables;
    const char *figures;
};

/* Of both commands, into both orders. */
static int parse_place(int key, char *arg, struct argp_state *state)
{
    struct backup_arguments *a = state->input;
    switch (key) {
    case 'e':
        a->order.to.endpoint = a->restore.from.endpoint = arg;
        return 0;
    case 'g':
        a->order.to.region = a->restore.from.region = arg;
        return 0;
    case 'j':
        a->order.job = a->restore.job = arg;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static int no_place(const char *command, const char *flag)
{
    fprintf(stderr, "embctl %s: name a place: %s DIR, or %s s3://BUCKET/PREFIX\n", command, flag,
            flag);
    return EXIT_USAGE;
}

/* ---- backup ---- */

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
        a->figures = arg;
        return 0;
    case 'w':
        a->order.wait_s = parse_uint(state, "--wait", arg, 0, 1000000);
        return 0;
    default:
        return parse_place(key, arg, state);
    }
}

static void print_made(const char *place, const struct backup_made *made, uint64_t elapsed_us)
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

static int make(const struct backup_order *order, struct backup_made *made, uint64_t *elapsed_out)
{
    struct progress progress;
    struct backup_why why;
    embd_client *client;
    int code = connect_servers(&client);
    if (code)
        return code;
    progress_begin(&progress, "backup", NULL);
    int status = backup_make(client, order, progress_report, &progress, made, &why);
    *elapsed_out = progress_end(&progress);
    if (status == EMBD_OK)
        print_made(order->to.url, made, *elapsed_out);
    embd_close(client);
    return end_with(status, why.text);
}

/* The code of a backup that failed goes before that of its figures. */
static int make_and_tell(const struct backup_arguments *a)
{
    struct backup_made made = {.name = ""};
    uint64_t elapsed_us = 0;
    int code = make(&a->order, &made, &elapsed_us), told = EXIT_DONE;
    if (a->figures != NULL)
        told = backup_figures_write(a->figures, a->order.to.url, code ? NULL : &made, elapsed_us);
    return code ? code : told;
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
    return 0;
}

static int list(const struct backup_where *where)
{
    static const struct column columns[] = {
        {"name", CELL_TEXT},    {"state", CELL_TEXT}, {"time", CELL_TEXT},
        {"shards", CELL_COUNT}, {"rows", CELL_COUNT}, {"bytes", CELL_BYTES},
        {"base", CELL_TEXT},    {"job", CELL_TEXT},   {"error", CELL_TEXT}};
    struct listing l;
    struct backup_why why;
    listing_init(&l, "backups", columns, sizeof columns / sizeof *columns);
    int status = backup_list(where, add_backup, &l, &why);
    if (status == EMBD_OK)
        listing_print(&l);
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
               "checksum of each of the others: without it, it is no backup. In a directory, "
               "embctl load, inspect and blobs read PLACE/NAME too. 'embctl verify PLACE' checks "
               "all backups there, 'embctl restore' brings one back.\n"
               "\n"
               "An increment needs the backup it is upon, and 'list' shows which that is. The "
               "servers keep the snapshots of the two newest backups in their data directories. "
               "While another snapshot, dump or replacing load runs, this command waits for its "
               "turn. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl backup --to /backups/shop --keep 4\n"
               "  embctl backup --to s3://backups/shop --incremental\n"
               "  embctl backup list --to s3://backups/shop\n"
               "  embctl backup --to /backups/ranker --job ranker --tables items,'user-*'"};
    static struct backup_arguments a;
    a = (struct backup_arguments){.words = {.max = 1}, .order = {.wait_s = 60}};
    parse_command(&argp, argc, argv, &a);
    if (a.words.n == 1 && strcmp(a.words.list[0], "list") != 0) {
        fprintf(stderr, "embctl backup: '%s' is not understood; expected list\n", a.words.list[0]);
        return EXIT_USAGE;
    }
    if (a.order.to.url == NULL)
        return no_place("backup", "--to");
    a.order.tables = a.tables;
    a.order.n_tables = a.n_tables;
    return a.words.n == 1 ? list(&a.order.to) : make_and_tell(&a);
}

/* ---- restore ---- */

static const struct argp_option restore_options[] = {
    {"from", 'f', "PLACE", 0, "Where backups lie", 0},
    {"at", 'a', "NAME|TIME", 0,
     "This backup, or the newest of that time (UTC: 2026-11-23, 2026-11-23T18:00:00, @SECONDS) or "
     "before (default: the newest)",
     0},
    {"job", 'j', "JOB", 0, "Choose among the backups of this job", 0},
    {"table", 't', "NAME", 0, "This table only (default: all of the backup); may be repeated", 0},
    {"replace", 'r', NULL, 0,
     "Tables that exist become those of the backup, all at once; without it they must be empty", 0},
    {"staging", 'd', "DIR", 0,
     "Where files of a bucket go before they are loaded (default: $TMPDIR, then /tmp)", 0},
    S3_OPTIONS,
    {0},
};

static int parse_restore(int key, char *arg, struct argp_state *state)
{
    struct backup_arguments *a = state->input;
    switch (key) {
    case 'f':
        a->restore.from.url = arg;
        return 0;
    case 'a':
        a->restore.at = arg;
        return 0;
    case 't':
        if (a->n_tables == TABLES_MAX)
            argp_error(state, "a cluster has at most %d tables", TABLES_MAX);
        a->tables[a->n_tables++] = arg;
        return 0;
    case 'r':
        a->restore.replaces = true;
        return 0;
    case 'd':
        a->restore.staging = arg;
        return 0;
    default:
        return parse_place(key, arg, state);
    }
}

static void print_restored(const char *place, const struct restored *done, uint64_t elapsed_us)
{
    static const struct column columns[] = {{"place", CELL_TEXT},
                                            {"name", CELL_TEXT},
                                            {"rows", CELL_COUNT},
                                            {"bytes", CELL_BYTES},
                                            {"elapsed_us", CELL_MICROS}};
    struct listing l;
    listing_init(&l, "restore", columns, sizeof columns / sizeof *columns);
    listing_row(&l);
    listing_text(&l, 0, place);
    listing_text(&l, 1, done->name);
    listing_uint(&l, 2, done->report.rows);
    listing_uint(&l, 3, done->report.bytes);
    listing_uint(&l, 4, elapsed_us);
    listing_print_fields(&l);
    listing_fini(&l);
}

static int restore(const struct restore_order *order)
{
    struct progress progress;
    struct restored done;
    struct backup_why why;
    embd_client *client;
    int code = connect_servers(&client);
    if (code)
        return code;
    progress_begin(&progress, "read", "restore");
    int status = backup_restore(client, order, progress_report, &progress, &done, &why);
    uint64_t elapsed_us = progress_end(&progress);
    if (status == EMBD_OK)
        print_restored(order->from.url, &done, elapsed_us);
    embd_close(client);
    return end_with(status, why.text);
}

int command_restore(int argc, char **argv)
{
    static const struct argp argp = {
        .options = restore_options,
        .parser = parse_restore,
        .args_doc = "--from PLACE",
        .doc = "Brings the tables of a backup back, bit for bit, on a cluster of any number of "
               "shards.\v" PLACES
               "The backup, and those it is upon, are verified first. The command changes nothing "
               "if one of them is damaged, or if a table exists and is not empty or has another "
               "definition. With --replace tables in use take the backup's place as 'embctl load "
               "--replace' has it. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl restore --from /backups/shop\n"
               "  embctl restore --from s3://backups/shop --at 2026-11-23T18:00:00\n"
               "  embctl restore --from /backups/shop --at backup-20261123-180000-000 --replace "
               "--table items"};
    static struct backup_arguments a;
    a = (struct backup_arguments){.words = {.max = 0}};
    parse_command(&argp, argc, argv, &a);
    if (a.restore.from.url == NULL)
        return no_place("restore", "--from");
    a.restore.tables = a.tables;
    a.restore.n_tables = a.n_tables;
    return restore(&a.restore);
}
