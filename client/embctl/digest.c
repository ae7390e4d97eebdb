/* digest.c - embctl digest: what tables hold, as checksums, of a cluster or a directory, and beside
 * those of another cluster (digests.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

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

/* ---- of a server and its follower, at one position ---- */

#define TURNS   25        /* sides may need their tables for something else, */
#define TURN_NS 200000000 /* which is waited for */

/* The digests of a mark. */
static int take_marked(const struct digest_arguments *a, embd_client *client, uint64_t mark,
                       struct digests *out)
{
    int status = EMBD_OK;
    if (a->n == 0)
        status = embd_digest_mark(client, mark, NULL, digests_add, out);
    for (int i = 0; i < a->n && status == EMBD_OK; i++)
        status = embd_digest_mark(client, mark, a->tables[i], digests_add, out);
    return status;
}

static int mark_both(embd_client *follower, uint64_t *mark_out)
{
    static const struct timespec turn = {.tv_nsec = TURN_NS};
    int status = EMBD_BUSY;
    bool same;
    for (int i = 0; i < TURNS && status == EMBD_BUSY; i++) {
        if (i > 0)
            nanosleep(&turn, NULL);
        if (getrandom(mark_out, sizeof *mark_out, 0) != sizeof *mark_out)
            return EMBD_IO;
        *mark_out = *mark_out >> 1 | 1;
        status = embd_mark(follower, *mark_out, &same);
    }
    return status;
}

/* False: the other side follows no server that knows marks. */
static bool marks(const struct digest_arguments *a, struct digests *there, uint64_t *mark_out,
                  int *code_out)
{
    embd_client *follower = NULL;
    const char *here = globals.servers;
    globals.servers = a->against;
    *code_out = connect_servers(&follower);
    globals.servers = here;
    if (*code_out != EXIT_DONE)
        return true;
    int status = mark_both(follower, mark_out);
    bool knows = status != EMBD_UNSUPPORTED;
    if (status == EMBD_OK)
        status = take_marked(a, follower, *mark_out, there);
    *code_out = end_client(follower, knows ? status : EMBD_OK);
    return knows;
}

/* The server that is followed; another one has no such mark, and is compared at cuts of its own. */
static int of_marked(const struct digest_arguments *a, uint64_t mark, struct digests *here,
                     bool *other_out)
{
    embd_client *client = NULL;
    int code = connect_servers(&client);
    if (code != EXIT_DONE)
        return code;
    int status = take_marked(a, client, mark, here);
    *other_out = status == EMBD_INVALID;
    return end_client(client, *other_out ? EMBD_OK : status);
}

static int of_directory(const struct digest_arguments *a, struct digests *out)
{
    char *directory = strdup(a->directory);
    int status = directory ? take(a, take_stored, directory, out) : EMBD_NO_MEMORY;
    free(directory);
    return end_with(status, "");
}

/* ---- showing ---- */

static void forget(struct digests *digests)
{
    digests_fini(digests);
    *digests = (struct digests){.n = 0};
}

/* Of a cluster and its follower at one position of each journal, of others as they are now. */
static int take_both(const struct digest_arguments *a, struct digests *here, struct digests *there)
{
    uint64_t mark = 0;
    int code = EXIT_DONE;
    bool is_other = true;
    if (!a->directory && marks(a, there, &mark, &code) && code == EXIT_DONE)
        code = of_marked(a, mark, here, &is_other);
    if (code != EXIT_DONE || !is_other)
        return code;
    forget(here);
    forget(there);
    code = a->directory ? of_directory(a, here) : of_cluster(a, NULL, here);
    return code == EXIT_DONE ? of_cluster(a, a->against, there) : code;
}

static int digest(const struct digest_arguments *a)
{
    struct digests here = {.n = 0}, there = {.n = 0};
    int code;
    if (a->against)
        code = take_both(a, &here, &there);
    else
        code = a->directory ? of_directory(a, &here) : of_cluster(a, NULL, &here);
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
            "rows on both sides. A server and its follower are compared at one position of each "
            "shard's journal ('positions'), also while trainers push: the follower stops there "
            "until its tables are frozen.\n"
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
