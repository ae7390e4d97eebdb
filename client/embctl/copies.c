/* copies.c - embctl snapshot, dump and load: the state of a cluster in directories. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/embctl/blobs.h"
#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/moves.h"
#include "client/embctl/progress.h"
#include "client/embctl/transfer.h"
#include "embd/admin.h"

/* ---- arguments ---- */

/* A,B*,C: the names point into `text`. */
struct table_names {
    char text[EMBD_SNAPSHOT_TABLES_MAX * 80];
    const char *list[EMBD_SNAPSHOT_TABLES_MAX]; /* [n] */
    uint32_t n;
};

/* Adds to those of an earlier --tables. */
static void add_names(struct argp_state *state, struct table_names *names, const char *arg)
{
    size_t at =
        names->n == 0 ? 0 : (size_t)(strchr(names->list[names->n - 1], '\0') + 1 - names->text);
    if (at + strlen(arg) >= sizeof names->text)
        argp_error(state, "--tables: too long; name a prefix of several tables: PREFIX*");
    strcpy(names->text + at, arg);
    for (char *rest = names->text + at, *name; (name = strsep(&rest, ",")) != NULL;) {
        if (names->n == EMBD_SNAPSHOT_TABLES_MAX)
            argp_error(state, "--tables: at most %d names; name a prefix of several: PREFIX*",
                       EMBD_SNAPSHOT_TABLES_MAX);
        names->list[names->n++] = name;
    }
}
#define LOADED_TABLES_MAX 4096 /* as many as a cluster has */
#define SET_FIELDS_MAX    64   /* more than a definition has */

struct copy_arguments {
    struct words words;
    const char *loaded[LOADED_TABLES_MAX]; /* [n_loaded]; of none: all */
    uint32_t n_loaded;
    embd_field set[SET_FIELDS_MAX]; /* [n_set] */
    uint32_t n_set;
    bool all, replaces;
    const char *blobs[EMBD_BLOBS_MAX]; /* NAME=FILE */
    uint32_t n_blobs;
    uint64_t keep;
    const char *base, *job;
    struct table_names tables;
    bool cancels, looks;
    bool has_wait;
    uint64_t wait_s;
};

static int parse_copy(int key, char *arg, struct argp_state *state)
{
    struct copy_arguments *a = state->input;
    switch (key) {
    case 'a':
        a->all = true;
        return 0;
    case 'b':
        if (a->n_blobs == EMBD_BLOBS_MAX)
            argp_error(state, "a snapshot has at most %d blobs", EMBD_BLOBS_MAX);
        a->blobs[a->n_blobs++] = arg;
        return 0;
    case 'c':
        a->cancels = true;
        return 0;
    case 's':
        a->looks = true;
        return 0;
    case 'i':
        a->base = arg;
        return 0;
    case 'k':
        a->keep = parse_uint(state, "--keep", arg, 1, 1000000);
        return 0;
    case 'j':
        a->job = arg;
        return 0;
    case 'T':
        add_names(state, &a->tables, arg);
        return 0;
    case 'w':
        a->has_wait = true;
        a->wait_s = parse_uint(state, "--wait", arg, 0, 1000000);
        return 0;
    case 'r':
        a->replaces = true;
        return 0;
    case 'f':
        if (a->n_set == SET_FIELDS_MAX)
            argp_error(state, "--set: at most %d fields", SET_FIELDS_MAX);
        a->set[a->n_set++] = parse_field(state, arg);
        return 0;
    case 't':
        if (a->n_loaded == LOADED_TABLES_MAX)
            argp_error(state, "a cluster has at most %d tables", LOADED_TABLES_MAX);
        a->loaded[a->n_loaded++] = arg;
        return 0;
    default:
        return parse_words(key, arg, state);
    }
}

/* ---- snapshot ---- */

#define WAIT_S 60
#define WAIT_OPTION                                                                                \
    {                                                                                              \
        "wait", 'w', "SECONDS", 0,                                                                 \
            "Wait so long for another snapshot, dump or replacing load to end (default: 60)", 0    \
    }
#define IN_TURN                                                                                    \
    "A cluster makes one snapshot, dump or replacing load at a time. While another one runs, "     \
    "this command waits for its turn. It ends with exit code 5, and the name of the other one, "   \
    "if its turn has not come after --wait SECONDS.\n"

static const struct argp_option snapshot_options[] = {
    {"cancel", 'c', NULL, 0, "Cancel the snapshot NAME, or remove what a killed server left of it",
     0},
    {"status", 's', NULL, 0,
     "Show the progress of the snapshot NAME, or of the newest one, or how it ended", 0},
    {"blob", 'b', "NAME=FILE", 0, "Add this file as the blob NAME; may be repeated", 0},
    {"incremental", 'i', "BASE", 0,
     "Write only rows that changed since the snapshot BASE, and keys that lost their row", 0},
    {"keep", 'k', "N", 0,
     "Once it is complete, remove older snapshots of this job (or of none), whose tables this one "
     "covers, from the data directories, but for the N newest",
     0},
    {"job", 'j', "JOB", 0, "The snapshot belongs to this job", 0},
    {"tables", 'T', "TABLE,PREFIX*,...", 0,
     "Write these tables alone: names, or prefixes with '*'; may be repeated", 0},
    WAIT_OPTION,
    {0},
};

struct snapshot {
    const char *name;
    embd_blob blobs[EMBD_BLOBS_MAX];
    embd_snapshot_options options; /* its blobs are those */
};

static int snapshot(embd_client *client, void *arg, embd_progress *progress, void *told,
                    embd_dump_report *report)
{
    const struct snapshot *s = arg;
    (void)progress;
    (void)told;
    return embd_snapshot(client, s->name, &s->options, report);
}

static int cancel(embd_client *client, const char *name)
{
    return embd_snapshot_cancel(client, name);
}

static void print_status(const embd_snapshot_report *r)
{
    static const struct column columns[] = {{"name", CELL_TEXT},
                                            {"state", CELL_TEXT},
                                            {"phase", CELL_TEXT},
                                            {"rows", CELL_COUNT},
                                            {"bytes", CELL_BYTES},
                                            {"elapsed", CELL_MICROS},
                                            {"pushes_waited", CELL_MICROS},
                                            {"error", CELL_TEXT},
                                            {"rate", CELL_BYTES},
                                            {"left", CELL_MICROS}};
    bool is_move = r->rate > 0 || r->expected_bytes > 0;
    struct listing l;
    listing_init(&l, "snapshot", columns, is_move ? 10 : 8);
    listing_row(&l);
    listing_text(&l, 0, r->name);
    listing_text(&l, 1, r->is_running ? "running" : r->status == EMBD_OK ? "done" : "failed");
    listing_text(&l, 2, r->phase);
    listing_uint(&l, 3, r->rows);
    listing_uint(&l, 4, r->bytes);
    listing_uint(&l, 5, r->elapsed_us);
    listing_uint(&l, 6, r->pause_us);
    listing_text(&l, 7, r->error);
    if (is_move) {
        listing_uint(&l, 8, move_speed(r));
        listing_uint(&l, 9, move_left_us(r));
    }
    listing_print_fields(&l);
    listing_fini(&l);
}

static int look(embd_client *client, const char *name)
{
    embd_snapshot_report report = {.struct_bytes = sizeof report};
    int status = embd_snapshot_status(client, name, &report);
    if (status == EMBD_OK)
        print_status(&report);
    return status;
}

/* For a snapshot that another command began. */
static int watch_snapshot(int (*what)(embd_client *client, const char *name), const char *name)
{
    embd_client *client;
    int code = connect_servers(&client);
    return code ? code : end_client(client, what(client, name));
}

static int check_snapshot(const struct copy_arguments *a)
{
    bool takes = a->n_blobs || a->keep || a->base || a->job || a->tables.n || a->has_wait;
    const char *why = a->cancels && a->looks ? "--cancel and --status do not go together"
                      : takes && (a->cancels || a->looks)
                          ? "--cancel and --status take no other option"
                      : !a->looks && a->words.n == 0 ? "name a snapshot"
                                                     : NULL;
    if (why)
        fprintf(stderr, "embctl snapshot: %s\n", why);
    return why ? EXIT_USAGE : EXIT_DONE;
}

int command_snapshot(int argc, char **argv)
{
    static const struct argp argp = {
        .options = snapshot_options,
        .parser = parse_copy,
        .args_doc = "NAME",
        .doc = "Writes the snapshot NAME: every server process writes the state of its shards "
               "under its data directory, as one cut over all shards. Pushes wait only for the "
               "moment of the cut; rows are written while they go on. Shard 0's server coordinates "
               "the snapshot, and completes it even if this command ends early.\v"
               "NAME is 1 to 64 characters of a-z, 0-9, '-' and '_', and begins with a letter or "
               "digit. The servers need "
               "a data directory (embd --data-dir). " NEEDS_ADMINS "\n" IN_TURN "Examples:\n"
               "  embctl snapshot nightly-2024-05-01\n"
               "  embctl snapshot --blob dense=weights.npz step-9000\n"
               "  embctl snapshot --keep 7 \"nightly-$(date +%F)\"\n"
               "  embctl snapshot noon --incremental nightly-2024-05-01\n"
               "  embctl snapshot ranker-9000 --job ranker --tables items,'user-*' --keep 3\n"
               "  embctl snapshot --status\n"
               "  embctl snapshot --cancel nightly-2024-05-01\n"
               "  embctl verify /var/lib/embd/nightly-2024-05-01"};
    struct copy_arguments a = {.words = {.max = 1}, .wait_s = WAIT_S};
    struct snapshot taken = {.options = EMBD_SNAPSHOT_OPTIONS()};
    uint32_t *n_blobs = &taken.options.n_blobs;
    parse_command(&argp, argc, argv, &a);
    int code = check_snapshot(&a);
    if (code || a.cancels || a.looks)
        return code ? code : watch_snapshot(a.cancels ? cancel : look, a.words.list[0]);
    for (; *n_blobs < a.n_blobs && !code; ++*n_blobs)
        code = blob_from_file(a.blobs[*n_blobs], &taken.blobs[*n_blobs]);
    taken.name = a.words.list[0];
    taken.options.blobs = taken.blobs;
    taken.options.keep = (uint32_t)a.keep;
    taken.options.base = a.base;
    taken.options.job = a.job;
    taken.options.tables = a.tables.list;
    taken.options.n_tables = a.tables.n;
    const struct transfer transfer = {.what = "snapshot",
                                      .place = taken.name,
                                      .label = "snapshot",
                                      .has_pause = true,
                                      .wait_s = a.wait_s,
                                      .run = snapshot};
    if (!code)
        code = transfer_run(&transfer, &taken);
    for (uint32_t i = 0; i < *n_blobs; i++)
        blob_fini(&taken.blobs[i]);
    return code;
}

/* ---- dump ---- */

static const struct argp_option dump_options[] = {
    {"all", 'a', NULL, 0, "All tables; then TABLE is left out", 0},
    WAIT_OPTION,
    {0},
};

/* TABLE DIR, or --all DIR. */
static int parse_dump(int key, char *arg, struct argp_state *state)
{
    struct copy_arguments *a = state->input;
    if (key == ARGP_KEY_END && a->words.n != (a->all ? 1 : 2))
        argp_error(state, "%s",
                   a->all ? "with --all, name the directory only"
                          : "name a table (or --all) and a directory");
    return parse_copy(key, arg, state);
}

static int dump(embd_client *client, void *arg, embd_progress *progress, void *told,
                embd_dump_report *report)
{
    const struct copy_arguments *a = arg;
    return embd_dump(client, a->all ? NULL : a->words.list[0], a->words.list[a->words.n - 1],
                     progress, told, report);
}

int command_dump(int argc, char **argv)
{
    static const struct argp argp = {
        .options = dump_options,
        .parser = parse_dump,
        .args_doc = "TABLE DIR\n--all DIR",
        .doc =
            "Copies one table, or all, into the new directory DIR on this machine: rows, "
            "optimizer state, step "
            "counters and definitions, as one consistent cut.\v"
            "Pushes wait only for the moment of the cut ('pushes_waited_us' says how long); "
            "rows are copied while they go on. DIR appears when "
            "it is complete and "
            "synced to disk; until then it is DIR.tmp-PID. " NEEDS_ADMINS "\n" IN_TURN "Examples:\n"
            "  embctl dump items ./items-monday\n"
            "  embctl dump --all ./everything && embctl verify ./everything"};
    struct copy_arguments a = {.words = {.min = 1, .max = 2, .wanted = "name a directory"},
                               .wait_s = WAIT_S};
    parse_command(&argp, argc, argv, &a);
    const struct transfer transfer = {.what = "dump",
                                      .place = a.words.list[a.words.n - 1],
                                      .label = "dump",
                                      .has_pause = true,
                                      .wait_s = a.wait_s,
                                      .run = dump};
    return transfer_run(&transfer, &a);
}

/* ---- load ---- */

static const struct argp_option load_options[] = {
    {"table", 't', "NAME", 0, "This table only (default: all in DIR); may be repeated", 0},
    {"replace", 'r', NULL, 0,
     "Tables that exist become those of DIR, all at once; without it they must be empty", 0},
    {"set", 'f', "FIELD=VALUE", 0,
     "Set this field of each loaded table to another value; may be repeated", 0},
    WAIT_OPTION,
    {0},
};

static int load(embd_client *client, void *arg, embd_progress *progress, void *told,
                embd_dump_report *report)
{
    const struct copy_arguments *a = arg;
    const embd_load_options options =
        EMBD_LOAD_OPTIONS(.tables = a->loaded, .n_tables = a->n_loaded, .replace = a->replaces,
                          .set = a->set, .n_set = a->n_set, .progress = progress, .arg = told);
    return embd_load_tables(client, a->words.list[0], &options, report);
}

int command_load(int argc, char **argv)
{
    static const struct argp argp = {
        .options = load_options,
        .parser = parse_copy,
        .args_doc = "DIR",
        .doc =
            "Creates the tables of a dump or snapshot directory "
            "and fills them, bit for bit, on a cluster of any "
            "number of shards.\v"
            "The command verifies DIR first. It changes nothing if DIR is damaged, or if a "
            "table exists and is not empty or has another definition. To load a snapshot of "
            "several server processes, copy their directories into one directory and load that. "
            "If shards of a table are at different steps, each gets its own step back on the "
            "same number of shards; on another number all get the greatest. There a table with a "
            "bound keeps the bound of all shards together: the capacity of each shard becomes its "
            "share, or the rows of the fullest shard if these are more. " NEEDS_ADMINS "\n"
            "\n"
            "With --replace the tables are loaded beside those in use, and take their places on "
            "all shards while pushes wait for a moment: a failure before that changes nothing. "
            "Rows, states, candidates, steps and definitions are those of DIR then; the "
            "durability of a table stays, and other tables are not touched. Streams of numbered "
            "pushes go with the tables: a trainer that goes on from the snapshot is applied, and "
            "one that does not know of the load gets an error. The servers need memory for both "
            "tables. If a server dies while the tables take their places, give the command "
            "again. " IN_TURN "\n"
            "With --set the tables get another definition; fields are named as 'embctl table "
            "describe' names them, and set in the order given. Rows keep their values, rounded to "
            "nearest if dtype is another one. With a larger dim the new columns begin as in a new "
            "row. Optimizer state stays if the optimizer is the same one, and starts again with "
            "another. These cannot be set: slot_sizes; a smaller dim or slots; partition to or "
            "from slot; optimizer.update to or from lazy_global; optimizer.decay away from "
            "decoupled_global; durability with --replace.\n"
            "\n"
            "Examples:\n"
            "  embctl load ./everything\n"
            "  embctl load --table items --set optimizer.lr=0.001 --set dim=64 ./everything\n"
            "  embctl load --table items ./everything\n"
            "  embctl load --replace --table ctr-users --table ctr-items /data/nightly\n"
            "  mkdir all; cp -r /data/a/nightly all/a; cp -r /data/b/nightly all/b\n"
            "  embctl load all"};
    struct copy_arguments a = {.words = {.min = 1, .max = 1, .wanted = "name a directory"},
                               .wait_s = WAIT_S};
    parse_command(&argp, argc, argv, &a);
    if (a.has_wait && !a.replaces) {
        fputs("embctl load: --wait needs --replace: other loads do not wait\n", stderr);
        return EXIT_USAGE;
    }
    const struct transfer transfer = {.what = "load",
                                      .place = a.words.list[0],
                                      .label = "verify",
                                      .next_label = "load",
                                      .is_ahead = true,
                                      .wait_s = a.replaces ? a.wait_s : 0,
                                      .run = load};
    return transfer_run(&transfer, &a);
}
