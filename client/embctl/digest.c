/* digest.c - embctl digest: what tables hold, as checksums, of a cluster or a directory, and beside
 * those of another cluster (digests.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/digests.h"
#include "client/embctl/progress.h"

struct digest_arguments {
    const char **tables; /* [n]; none: all */
    int n;
    const char *directory, *against;
};

static const struct argp_option options[] = {
    {"directory", 'd', "DIR", 0, "Of a dump or snapshot directory; needs no server", 0},
    {"against", 'a', "HOST:PORT[,...]", 0, "Compare with the tables of this cluster or follower",
     0},
    {0},
};

static int parse(int key, char *arg, struct argp_state *state)
{
    struct digest_arguments *a = state->input;
    switch (key) {
    case 'd':
        a->directory = arg;
        return 0;
    case 'a':
        a->against = arg;
        return 0;
    case ARGP_KEY_ARG:
        a->tables[a->n++] = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- taking ---- */

typedef int take_digest(void *from, const char *table, struct digests *out,
                        struct progress *progress);

static int take_stored(void *from, const char *table, struct digests *out,
                       struct progress *progress)
{
    return embd_digest_directory(from, table, digests_add, out, progress_report, progress);
}

static int take_live(void *from, const char *table, struct digests *out, struct progress *progress)
{
    return embd_digest(from, table, digests_add, out, progress_report, progress);
}

static int take(const struct digest_arguments *a, take_digest *one, void *from, struct digests *out)
{
    struct progress progress;
    int status = EMBD_OK;
    progress_begin(&progress, "digest", NULL);
    if (a->n == 0)
        status = one(from, NULL, out, &progress);
    for (int i = 0; i < a->n && status == EMBD_OK; i++)
        status = one(from, a->tables[i], out, &progress);
    progress_end(&progress);
    return status;
}

/* Of the cluster at `servers`; NULL: the one that the global options name. */
static int of_cluster(const struct digest_arguments *a, const char *servers, struct digests *out)
{
    embd_client *client = NULL;
    if (servers != NULL)
        globals.servers = servers;
    int code = connect_servers(&client);
    return code ? code : end_client(client, take(a, take_live, client, out));
}

static int of_directory(const struct digest_arguments *a, struct digests *out)
{
    char *directory = strdup(a->directory);
    int status = directory ? take(a, take_stored, directory, out) : EMBD_NO_MEMORY;
    free(directory);
    return end_with(status, "");
}

/* ---- showing ---- */

static int digest(const struct digest_arguments *a)
{
    struct digests here = {.n = 0}, there = {.n = 0};
    int code = a->directory ? of_directory(a, &here) : of_cluster(a, NULL, &here);
    if (code == EXIT_DONE && a->against)
        code = of_cluster(a, a->against, &there);
    if (code == EXIT_DONE && a->against)
        code = digests_compare(&here, &there);
    else if (code == EXIT_DONE)
        digests_print(&here);
    digests_fini(&here);
    digests_fini(&there);
    return code;
}

int command_digest(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "[TABLE...]",
        .doc =
            "Shows a checksum of what each table holds: keys, rows, optimizer state, and keys "
            "that wait for admission.\v"
            "Tables with the same digest hold the same, on any number of shards and in any "
            "store. The digest covers neither the definition of a table nor its number of "
            "steps, which is a column of its own.\n"
            "The shards make the digests of one consistent cut, and their rows stay there; pushes "
            "wait only for its moment. Each TABLE that is named has a cut of its own. " NEEDS_ADMINS
            "\n"
            "With --against, exit code 7 if a table differs: in rows, state or steps, or in being "
            "there. The second list names vshards that differ, the shards that have them, and the "
            "rows on both sides. A follower differs while it lacks records: 'positions' says how "
            "many each shard's journal had.\n"
            "Examples:\n"
            "  embctl digest\n"
            "  embctl digest --against follower:7700\n"
            "  embctl dump --all ./copy && embctl digest --directory ./copy\n"
            "  embctl digest -o json items | jq -r '.tables[0].digest'"};
    struct digest_arguments a = {.tables = calloc((size_t)argc + 1, sizeof *a.tables)};
    if (a.tables == NULL)
        return end_with(EMBD_NO_MEMORY, "no memory");
    parse_command(&argp, argc, argv, &a);
    int code = digest(&a);
    free(a.tables);
    return code;
}
