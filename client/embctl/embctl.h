/* embctl.h - what the commands of embctl share: the global options, exit codes, and how errors are
 * shown. */
#ifndef EMBCTL_H
#define EMBCTL_H

#include <argp.h>
#include <stdbool.h>

#include "embd/embd.h"

enum exit_code {
    EXIT_DONE = 0,        /* ok */
    EXIT_FAILED = 1,      /* anything not below: input or output, memory, a server's fault */
    EXIT_USAGE = 2,       /* the command line */
    EXIT_UNREACHABLE = 3, /* no server, or not in time */
    EXIT_NOT_FOUND = 4,   /* no such table */
    EXIT_REFUSED = 5,     /* exists, full, busy, invalid, not supported or not allowed */
    EXIT_DAMAGED = 6,     /* a dump or snapshot directory is damaged */
    EXIT_DIFFERS = 7,     /* tables that were compared are not the same */
};

/* One command, or a group of them. */
struct command {
    const char *name;
    const char *summary; /* one line */
    int (*run)(
        int argc,
        char **argv); /* argv[0] is the full name ("embctl table list"); returns an exit code */
    const struct command *group; /* ends with a NULL name; NULL for a command */
};

/* For --help of those that ask every shard's admin listener. */
#define NEEDS_ADMINS                                                                               \
    "Uses the admin listeners of all shards: run it on the servers' host, or set admin_listen "    \
    "there.\n"

/* The commands, by file. */
int command_ping(int argc, char **argv);
int command_cluster(int argc, char **argv);
int command_drain(int argc, char **argv);
int command_rebalance(int argc, char **argv);
int command_promote(int argc, char **argv);
int command_version(int argc, char **argv);
int command_stats(int argc, char **argv);
int command_table_list(int argc, char **argv);
int command_table_describe(int argc, char **argv);
int command_table_create(int argc, char **argv);
int command_table_keys(int argc, char **argv);
int command_tail(int argc, char **argv);
int command_table_drop(int argc, char **argv);
int command_table_set(int argc, char **argv);
int command_table_stats(int argc, char **argv);
int command_top(int argc, char **argv);
int command_hot(int argc, char **argv);
int command_trace(int argc, char **argv);
int command_shard_list(int argc, char **argv);
int command_shard_add(int argc, char **argv);
int command_shard_vshards(int argc, char **argv);
int command_shard_move(int argc, char **argv);
int command_shard_retire(int argc, char **argv);
int command_shard_drain(int argc, char **argv);
int command_wait(int argc, char **argv);
int command_config_check(int argc, char **argv);
int command_token(int argc, char **argv);
int command_bench(int argc, char **argv);
int command_completion(int argc, char **argv);
int command_get(int argc, char **argv);
int command_delete(int argc, char **argv);
int command_snapshot(int argc, char **argv);
int command_dump(int argc, char **argv);
int command_load(int argc, char **argv);
int command_verify(int argc, char **argv);
int command_backup(int argc, char **argv);
int command_restore(int argc, char **argv);
int command_export(int argc, char **argv);
int command_import(int argc, char **argv);
int command_inspect(int argc, char **argv);
int command_digest(int argc, char **argv);
int command_blobs(int argc, char **argv);

/* ---- options every command takes, before or after its name ---- */

struct globals {
    const char *servers;
    uint32_t deadline_ms;
    bool json;
    const struct command *commands; /* all of them; ends with a NULL name */
};
extern struct globals globals;
extern const struct argp globals_argp;

/* Parses a command's line by `argp`, into `input`; globals_argp is added as its child 0, before the
 * one that it may have itself. Exits on a usage error or --help. */
void parse_command(const struct argp *argp, int argc, char **argv, void *input);

/* --help in order (help.c): of a parser, when it begins, and its text before the options, malloc'd
 * as argp wants it. */
void help_begin(struct argp_state *state);
char *help_first_text(const char *text);

/* The value of a flag: seconds from `least` to a day, or a whole number from `least` to `most`,
 * decimal or 0x... They exit on anything else. */
double parse_seconds(struct argp_state *state, const char *flag, const char *arg, double least);
uint64_t parse_uint(struct argp_state *state, const char *flag, const char *arg, uint64_t least,
                    uint64_t most);
/* Bytes: 1048576, 512K, 50M or 2G, of 1024 each. */
uint64_t parse_bytes(struct argp_state *state, const char *flag, const char *arg, uint64_t least,
                     uint64_t most);

/* The arguments of a command that are not options. */
struct words {
    const char *list[2];
    int n, min, max;
    const char *wanted; /* the error for fewer than `min` words: "name a table" */
};

/* A parser that takes words alone; its input is a struct words, or begins with one. */
int parse_words(int key, char *arg, struct argp_state *state);

/* FIELD=VALUE, which it cuts in two. */
embd_field parse_field(struct argp_state *state, char *pair);

/* The default of a parser: refuses arguments, and knows no key. */
int parse_no_argument(int key, char *arg, struct argp_state *state);

/* For commands without arguments or options of their own. `doc` as in struct argp. */
void parse_no_arguments(const char *doc, int argc, char **argv);

/* Reads a whole unsigned number, decimal or 0x..., at most `max`. */
bool read_uint(const char *text, uint64_t max, uint64_t *out);

void wait_seconds(double seconds);

/* ---- views that are shown again and again ---- */

#define SHORTEST_INTERVAL 0.05 /* seconds */

struct views {
    double interval;       /* seconds from one to the next */
    uint64_t count, shown; /* count 0: until interrupted */
};

/* Waits until the next view is due; false: there were enough. */
bool views_next(const struct views *views);

/* On a terminal each view replaces the one before; elsewhere a blank line stands between. JSON is
 * one document per view. */
void views_begin(struct views *views);

/* Whether colours are wanted: stdout is a terminal, and NO_COLOR is not set (no-color.org). */
bool has_colours(void);

/* ---- servers and errors ---- */

/* Sets globals.servers from the environment or the default where no flag did. */
void default_servers(void);

/* Connects to globals.servers. A failure is explained on stderr; returns an exit code. */
int connect_servers(embd_client **client_out);

/* The same for commands that go on without a shard: it is waited for five seconds, where no
 * --deadline says otherwise. */
int connect_servers_partly(embd_client **client_out);

/* As connect_servers; a thread receives answers while the ones before are processed. */
int connect_servers_ahead(embd_client **client_out);

/* Prints `why` on stderr, or where it is empty the library's sentence, and returns the exit code of
 * a status; prints nothing for EMBD_OK. */
int end_with(int status, const char *why);

/* As above with the client's error; closes the client. */
int end_client(embd_client *client, int status);

/* A shard does not answer, which the library's sentence names. Returns EMBD_UNREACHABLE. */
int end_silent(void);

/* As end_client; end_silent has printed EMBD_UNREACHABLE already. */
int end_told(embd_client *client, int status);

/* The same for a requested table that no shard has. */
int end_unknown_table(embd_client *client, const char *table);

#endif
