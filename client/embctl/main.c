/* main.c - embctl, the admin command of embd: finds the command and runs it.
 *
 * Reading order: main.c (the list of commands), options.c (what all of them take), listing.h (how
 * results are shown: a table, or JSON from the same cells), figures.h (what the shards say of
 * themselves), then one file per group of commands: cluster.c, shard.c, rebalance.c and
 * shardmove.c (movewatch.h: how far a move is), stats.c, tokenstats.c, top.c, table.c, tableset.c
 * and tablestats.c (settings.h: a definition on the command line), watch.c, tail.c, get.c and
 * delete.c (chosen.h: which keys), copies.c (snapshot, dump, load; progress.h shows how far they
 * are), backup.c (archive.h: one, or one every so often) and restore.c, models.c (export, import),
 * jobs.c (import --job; jobfile.h: its tables), digest.c, inspect.c, blobs.c, token.c. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"

static const struct command table_commands[] = {
    {"list", "Tables, their rows and memory", command_table_list, NULL},
    {"describe", "A table's whole definition", command_table_describe, NULL},
    {"create", "Create a table on every shard", command_table_create, NULL},
    {"set", "Change fields of a table while it lives", command_table_set, NULL},
    {"drop", "Drop a table and its rows", command_table_drop, NULL},
    {"keys", "The keys that have a row", command_table_keys, NULL},
    {"stats", "Figures of a table, added up over the shards", command_table_stats, NULL},
    {0},
};

static const struct command shard_commands[] = {
    {"list", "Shards and their state", command_shard_list, NULL},
    {"add", "Make a new server a member of the cluster", command_shard_add, NULL},
    {"vshards", "Which shard has which vshards", command_shard_vshards, NULL},
    {"move", "Move the keys of some vshards to a shard", command_shard_move, NULL},
    {"retire", "Have a server without keys leave the cluster", command_shard_retire, NULL},
    {"drain", "Drain and stop the process of one shard", command_shard_drain, NULL},
    {0},
};

static const struct command config_commands[] = {
    {"check", "Check a configuration file without starting anything", command_config_check, NULL},
    {0},
};

static const struct command all_commands[] = {
    {"ping", "Round trip to every shard", command_ping, NULL},
    {"cluster", "Shards, their addresses and how full they are", command_cluster, NULL},
    {"stats", "Figures of shards and tables, once or repeatedly", command_stats, NULL},
    {"top", "What shards and tables do now, live", command_top, NULL},
    {"hot", "The keys of a table that are requested most", command_hot, NULL},
    {"trace", "Where the time of single requests went", command_trace, NULL},
    {"table", "List, describe, create, change and drop tables", NULL, table_commands},
    {"get", "Show the rows of keys", command_get, NULL},
    {"tail", "Show what changes in a table, round after round", command_tail, NULL},
    {"delete", "Erase keys and their rows", command_delete, NULL},
    {"snapshot", "Write the servers' state to their data directories", command_snapshot, NULL},
    {"dump", "Copy tables into a directory here", command_dump, NULL},
    {"load", "Fill a cluster from a dump or snapshot directory", command_load, NULL},
    {"backup", "Copy the cluster to a directory or an S3 bucket", command_backup, NULL},
    {"restore", "Bring a backup back into a cluster", command_restore, NULL},
    {"verify", "Check a dump, a snapshot or backups", command_verify, NULL},
    {"digest", "Checksums of tables, to compare clusters and directories", command_digest, NULL},
    {"inspect", "Show what a dump, snapshot or model folder holds", command_inspect, NULL},
    {"blobs", "List or show the files that a trainer gave to a snapshot", command_blobs, NULL},
    {"export", "Write a table as a model folder of HugeCTR", command_export, NULL},
    {"import", "Fill tables from model folders of HugeCTR", command_import, NULL},
    {"shard", "List shards, add and drain some", NULL, shard_commands},
    {"rebalance", "Move keys between shards while trainers go on", command_rebalance, NULL},
    {"wait", "Wait until every shard is ready", command_wait, NULL},
    {"drain", "Drain and stop all servers", command_drain, NULL},
    {"promote", "Have a follower take the place of its server", command_promote, NULL},
    {"config", "Check configuration files", NULL, config_commands},
    {"token", "Make a token for a client", command_token, NULL},
    {"bench", "Run embd-bench, the load generator", command_bench, NULL},
    {"completion", "Print a completion script for bash or zsh", command_completion, NULL},
    {"version", "Version of this program", command_version, NULL},
    {0},
};

/* The heading above a command in the list. */
static const struct {
    const char *command, *text;
} headings[] = {
    {"ping", "Monitoring"},           {"table", "Tables and rows"}, {"snapshot", "Copies"},
    {"shard", "Servers and clients"}, {"bench", "Tools"},
};

static const char main_doc[] =
    "Operates a cluster of embd servers.\v"
    "'embctl COMMAND --help' explains a command and shows examples.\n"
    "\n"
    "Authentication: EMBD_TOKEN_FILE names the file of a token, EMBD_TLS_CA the authorities to "
    "trust ('system': this machine's), EMBD_TLS_CERT and EMBD_TLS_KEY a client certificate and "
    "its key.\n"
    "\n"
    "Exit codes: 0 done; 1 failed; 2 wrong usage; 3 servers cannot be reached; 4 no such table; "
    "5 refused (exists, full, busy, invalid); 6 stored data is damaged; 7 compared tables differ.";

/* The result of parsing a group. */
struct choice {
    const struct command *group;
    int at; /* index of the command's name in argv; 0: none */
};

static int parse_choice(int key, char *arg, struct argp_state *state)
{
    struct choice *choice = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = NULL;
        return 0;
    case ARGP_KEY_ARG:
        choice->at = state->next - 1;
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "name a command");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_heading(FILE *out, const char *command)
{
    for (size_t i = 0; i < sizeof headings / sizeof headings[0]; i++)
        if (!strcmp(headings[i].command, command))
            fprintf(out, " %s\n", headings[i].text);
}

/* The text before the options of --help: the group's purpose, and its commands; malloc'd. */
static char *list_commands(const char *doc, const struct command *group)
{
    char *text = NULL;
    size_t bytes;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    fprintf(out, "%s\n\nCommands:\n", doc);
    for (const struct command *c = group; c->name; c++) {
        if (group == all_commands)
            print_heading(out, c->name);
        fprintf(out, "  %-10s %s\n", c->name, c->summary);
    }
    return fclose(out) ? NULL : text;
}

static char *filter_help(int key, const char *text, void *input)
{
    const struct choice *choice = input;
    if (key != ARGP_KEY_HELP_PRE_DOC || !choice)
        return (char *)(uintptr_t)text;
    char *list = list_commands(text, choice->group);
    char *first = list ? help_first_text(list) : NULL;
    if (first != list)
        free(list);
    return first;
}

static const struct command *find(const struct command *group, const char *name)
{
    for (const struct command *c = group; c->name; c++)
        if (!strcmp(c->name, name))
            return c;
    return NULL;
}

/* Parses options up to a command's name, and runs that with argv[0] = "NAME COMMAND". */
static int run_group(const struct command *group, const char *doc, int argc, char **argv)
{
    struct choice choice = {.group = group};
    const struct argp_child children[] = {{&globals_argp, 0, "Options of every command:", 1}, {0}};
    const struct argp argp = {.parser = parse_choice,
                              .args_doc = "COMMAND [ARGUMENT...]",
                              .doc = doc,
                              .children = children,
                              .help_filter = filter_help};
    argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &choice);
    const struct command *command = find(group, argv[choice.at]);
    if (!command) {
        fprintf(stderr, "%s: no such command '%s'; see '%s --help'\n", argv[0], argv[choice.at],
                argv[0]);
        return EXIT_USAGE;
    }
    char name[128];
    snprintf(name, sizeof name, "%s %s", argv[0], command->name);
    argv[choice.at] = name;
    if (command->group)
        return run_group(command->group, command->summary, argc - choice.at, argv + choice.at);
    return command->run(argc - choice.at, argv + choice.at);
}

/* "--version" beside "version", as people type it. */
static void print_version(FILE *out, struct argp_state *state)
{
    (void)state;
    fprintf(out, "embctl %s\n", embd_version());
}

int main(int argc, char **argv)
{
    setlocale(LC_CTYPE, "");
    /* a note on short options, which does not help */
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    argp_err_exit_status = EXIT_USAGE;
    argp_program_version_hook = print_version;
    static char name[] = "embctl";
    if (argc > 0)
        argv[0] = name;
    globals.commands = all_commands;
    int code = run_group(all_commands, main_doc, argc, argv);
    if (fflush(stdout) || ferror(stdout)) {
        perror("embctl: cannot write the output");
        return code ? code : EXIT_FAILED;
    }
    return code;
}
