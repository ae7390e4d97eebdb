/* main.c - bench-suite: embd beside what it is built on, and the project's bars. */
#include "client/bench/flags.h"
#include "client/bench/mover.h"
#include "tests/bench/suite/beside.h"
#include "tests/bench/suite/suite.h"

#include <stdlib.h>
#include <string.h>

enum { FLAG_PARTS = 512, FLAG_CHECK };

static const char doc[] =
    "Measures embd beside what it is built on, in alternating rounds.\v"
    "Without an argument it holds embd to the bars of the project; --keys and\n"
    "--dim narrow them. With \"beside\" it runs one workload. Beside embd run\n"
    "  bare transport   a blocking C peer that moves the same bytes (loopback),\n"
    "                   with as many threads as embd has shards\n"
    "  gather ceiling   the same peer with a hash table: finds each key, copies\n"
    "                   its row (pull), adds K rows into one (pooled), adds each\n"
    "                   row to the stored one (push)\n"
    "  memory gather    one thread copying the same rows in memory, no network\n"
    "\n"
    "Examples:\n"
    "  bench-suite --check                     all bars; exit 1 if one is missed\n"
    "  bench-suite --parts pull,push --dim 16 -o json\n"
    "  bench-suite beside --keys 4M --dim 64 --shards 2 --clients 2\n"
    "\n"
    "Exit status: 0 done, 1 failed (or --check and a bar missed), 2 usage,\n"
    "3 no server could be started or reached.";

static const struct argp_option flags[] = {
    {"parts", FLAG_PARTS, "PARTS", 0, "Bars of pull,pooled,push,plans,small,shards; default: all",
     6},
    {"check", FLAG_CHECK, 0, 0, "Exit 1 when a bar is missed", 6},
    {0},
};

struct choice {
    struct options options;
    const char *parts;
    bool check, beside;
};

static void check_choice(struct argp_state *state, const struct choice *c)
{
    if (!suite_has(c->parts))
        argp_error(state, "--parts is '%s'; it can be pull,pooled,push,plans,small,shards",
                   c->parts);
    if (!c->beside && c->options.servers)
        argp_error(state,
                   "the bars are measured on servers of their own; --servers needs 'beside'");
    if (!c->beside && (c->options.rate > 0 || c->options.small))
        argp_error(state, "--rate and --small need 'beside'");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct choice *c = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &c->options;
        break;
    case FLAG_PARTS:
        c->parts = arg;
        break;
    case FLAG_CHECK:
        c->check = true;
        break;
    case ARGP_KEY_ARG:
        if (strcmp(arg, "beside") != 0)
            argp_error(state, "unexpected argument '%s'; it can be 'beside'", arg);
        c->beside = true;
        break;
    case ARGP_KEY_END:
        check_choice(state, c);
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

int main(int argc, char **argv)
{
    static const struct argp_child children[] = {{&flags_parser, 0, NULL, 0}, {0}};
    static const struct argp argp = {flags, parse, "[beside]", doc, children, NULL, NULL};
    static struct choice choice = {.parts = ""};
    setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
    argp_err_exit_status = USAGE;
    flags_defaults(&choice.options);
    argp_parse(&argp, argc, argv, 0, NULL, &choice);
    setenv("EMBD_TRANSPORT", choice.options.transport, 1);
    return choice.beside ? beside_run(&choice.options)
                         : suite_run(&choice.options, choice.parts, choice.check);
}
