/* restore.c - embctl restore: a backup into a cluster. */
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/moments.h"
#include "client/embctl/places.h"
#include "client/embctl/progress.h"

#define TABLES_MAX 4096

struct restore_arguments {
    struct words words; /* none */
    struct restore_order restore;
    const char *tables[TABLES_MAX];
    uint32_t n_tables;
};

static const struct argp_option restore_options[] = {
    {"from", 'f', "PLACE", 0, "Where backups lie", 0},
    {"at", 'a', "NAME|TIME", 0,
     "This backup, or the moment TIME (UTC: 2026-11-23, 2026-11-23T18:00:00.250, @SECONDS), or "
     "records:N,N,...: so many records of each shard's journal (default: all there is). Without "
     "records of an archive: the newest backup of that time or before",
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
    struct restore_arguments *a = state->input;
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
    case 'e':
        a->restore.from.endpoint = arg;
        return 0;
    case 'g':
        a->restore.from.region = arg;
        return 0;
    case 'j':
        a->restore.job = arg;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

static void print_restored(const char *place, const struct restored *done, uint64_t elapsed_us)
{
    static const struct column columns[] = {{"place", CELL_TEXT},        {"name", CELL_TEXT},
                                            {"rows", CELL_COUNT},        {"bytes", CELL_BYTES},
                                            {"elapsed_us", CELL_MICROS}, {"damaged", CELL_COUNT},
                                            {"records", CELL_COUNT},     {"left_out", CELL_COUNT},
                                            {"until", CELL_TEXT},        {"before", CELL_TEXT}};
    struct listing l;
    char until[MOMENT_BYTES]; /* "": there were no records */
    moment_text(until, done->records_ms);
    listing_init(&l, "restore", columns, sizeof columns / sizeof *columns);
    listing_row(&l);
    listing_text(&l, 0, place);
    listing_text(&l, 1, done->name);
    listing_uint(&l, 2, done->report.rows);
    listing_uint(&l, 3, done->report.bytes);
    listing_uint(&l, 4, elapsed_us);
    listing_uint(&l, 5, done->n_passed_over);
    listing_uint(&l, 6, done->n_records);
    listing_uint(&l, 7, done->n_left_out);
    listing_text(&l, 8, until);
    if (done->went_back)
        listing_text(&l, 9, "a change that not all shards have");
    listing_print_fields(&l);
    listing_fini(&l);
}

static int restore(const struct restore_order *order)
{
    struct progress progress;
    struct restored done;
    struct backup_why why;
    embd_client *client;
    int code = connect_servers_ahead(&client);
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
        .doc =
            "Brings the tables of a backup back, bit for bit, on a cluster of any number of "
            "shards.\v" PLACES
            "The backup, and those it is upon, are verified first. The command changes nothing "
            "if one of them is damaged, or if a table exists and is not empty or has another "
            "definition. With --replace tables in use take the backup's place as 'embctl load "
            "--replace' has it. Records that an archive kept behind the backup are replayed by a "
            "server within a child of this command, which needs libembd-inproc, and memory for "
            "the tables here. " NEEDS_ADMINS "\n"
            "Examples:\n"
            "  embctl restore --from /backups/shop\n"
            "  embctl restore --from s3://backups/shop --at 2026-11-23T18:00:00\n"
            "  embctl restore --from /backups/shop --at backup-20261123-180000-000 --replace "
            "--table items"};
    static struct restore_arguments a;
    a = (struct restore_arguments){.words = {.max = 0}};
    parse_command(&argp, argc, argv, &a);
    if (a.restore.from.url == NULL)
        return end_without_place("restore", "--from");
    a.restore.tables = a.tables;
    a.restore.n_tables = a.n_tables;
    return restore(&a.restore);
}
