/* main.c - embd-bench: the command line. run.c measures. */
#include "client/bench/flags.h"
#include "client/bench/mover.h"
#include "client/bench/run.h"

#include <stdio.h>
#include <stdlib.h>

static const char doc[] =
    "Loads a cluster and measures what it answers.\v"
    "It starts a server on this machine, or uses --servers. It creates a table,\n"
    "gives every key a row, sends requests for some rounds, drops the table, and\n"
    "prints medians with min and max. \"foreign\" and \"stolen\" are cores of\n"
    "this machine that were busy with something else or taken by its host: above\n"
    "0.1, repeat the run.\n"
    "\n"
    "Examples:\n"
    "  embd-bench                              1 M rows of 16 floats, 65536 keys\n"
    "  embd-bench --keys 10M --dim 64 --dist zipf:1.05\n"
    "  embd-bench --mix pooled:8 --plan rows   pooled pulls with a forced plan\n"
    "  embd-bench --mix train --in-flight 2    pull ahead while pushing\n"
    "  embd-bench --small                      64 keys one at a time: latency\n"
    "  embd-bench --batch 1024 --rate 2000     latency at 2000 requests a second\n"
    "  embd-bench --servers 10.0.0.5:7700 --clients 4 -o json\n"
    "\n"
    "Exit status: 0 done, 1 failed, 2 usage, 3 no server could be started or\n"
    "reached.";

static error_t parse(int key, char *arg, struct argp_state *state)
{
    if (key == ARGP_KEY_INIT)
        state->child_inputs[0] = state->input;
    else if (key == ARGP_KEY_ARG)
        argp_error(state, "unexpected argument '%s'", arg);
    else
        return ARGP_ERR_UNKNOWN;
    return 0;
}

static void print_version(FILE *out, struct argp_state *state)
{
    (void)state;
    fprintf(out, "embd-bench %s\n", embd_version());
}

int main(int argc, char **argv)
{
    static const struct argp_child children[] = {{&flags_parser, 0, NULL, 0}, {0}};
    static const struct argp argp = {NULL, parse, NULL, doc, children, NULL, NULL};
    static struct options options;
    /* a note on short options, which does not help */
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    argp_err_exit_status = USAGE;
    argp_program_version_hook = print_version;
    flags_defaults(&options);
    argp_parse(&argp, argc, argv, 0, NULL, &options);
    setenv("EMBD_TRANSPORT", options.transport, 1);
    return run_workload(&options);
}
