/* digest.c - embctl digest: what tables hold, as checksums to compare. */
#include <inttypes.h>
#include <stdio.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"
#include "client/embctl/progress.h"
#include "embd/admin.h"

struct digest_arguments {
    struct words words; /* a table, or none */
    const char *directory;
    struct listing listing;
};

static const struct argp_option options[] = {
    {"directory", 'd', "DIR", 0, "Of a dump or snapshot directory; needs no server", 0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct digest_arguments *a = state->input;
    if (key == 'd') {
        a->directory = arg;
        return 0;
    }
    return parse_words(key, arg, state);
}

static int add_table(void *arg, const embd_table_digest *table)
{
    struct listing *l = arg;
    char digest[17];
    snprintf(digest, sizeof digest, "%016" PRIx64, table->digest);
    listing_row(l);
    listing_text(l, 0, table->name);
    listing_text(l, 1, digest);
    listing_uint(l, 2, table->rows);
    listing_uint(l, 3, table->candidates);
    listing_uint(l, 4, table->step);
    return 0;
}

static int of_directory(struct digest_arguments *a, const char *table)
{
    struct progress progress;
    progress_begin(&progress, "digest", NULL);
    int status = embd_digest_directory(a->directory, table, add_table, &a->listing, progress_report,
                                       &progress);
    progress_end(&progress);
    return end_with(status, "");
}

static int of_cluster(struct digest_arguments *a, const char *table)
{
    struct progress progress;
    embd_client *client = NULL;
    int code = connect_servers(&client);
    if (code)
        return code;
    progress_begin(&progress, "digest", NULL);
    int status = embd_digest(client, table, add_table, &a->listing, progress_report, &progress);
    progress_end(&progress);
    return end_client(client, status);
}

static int digest(struct digest_arguments *a)
{
    static const struct column columns[] = {{"table", CELL_TEXT},
                                            {"digest", CELL_TEXT},
                                            {"rows", CELL_COUNT},
                                            {"candidates", CELL_COUNT},
                                            {"steps", CELL_COUNT}};
    const char *table = a->words.n > 0 ? a->words.list[0] : NULL;
    listing_init(&a->listing, "tables", columns, sizeof columns / sizeof columns[0]);
    int code = a->directory ? of_directory(a, table) : of_cluster(a, table);
    if (code == EXIT_DONE)
        listing_print(&a->listing);
    listing_fini(&a->listing);
    return code;
}

int command_digest(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "[TABLE]",
        .doc = "Shows a checksum of what each table holds: keys, rows, optimizer state, and keys "
               "that wait for admission.\v"
               "Tables with the same digest hold the same, on any number of shards and in any "
               "store. The digest covers neither the definition of a table nor its number of "
               "steps, which is a column of its own.\n"
               "The rows travel to this machine, as one consistent cut; pushes wait only for its "
               "moment. " NEEDS_ADMINS "\n"
               "Examples:\n"
               "  embctl digest\n"
               "  embctl dump --all ./copy && embctl digest --directory ./copy\n"
               "  embctl digest -o json items | jq -r '.tables[0].digest'"};
    struct digest_arguments a = {.words = {.min = 0, .max = 1}};
    parse_command(&argp, argc, argv, &a);
    return digest(&a);
}
