/* options.c - what every command of embctl takes, and how its errors become exit codes. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "client/embctl/embctl.h"

#define DEFAULT_SERVERS "127.0.0.1:7700"

struct globals globals;

enum { OPTION_DEADLINE = 0x1000 };

static const struct argp_option options[] = {
    {"servers", 's', "HOST:PORT[,...]|dns://NAME:PORT|SOCKET", 0,
     "Servers of the cluster; one that answers is enough. SOCKET, the path of an admin socket "
     "here, "
     "is answered when all data connections are in use (default: $EMBD_SERVERS, "
     "else " DEFAULT_SERVERS ")",
     0},
    {"output", 'o', "table|json", 0,
     "Output format: table for people, json for programs (default: table)", 0},
    {"deadline", OPTION_DEADLINE, "SECONDS", 0, "Longest wait for one answer (default: 30)", 0},
    {0},
};

static void set_output(struct argp_state *state, const char *arg)
{
    if (strcmp(arg, "table") && strcmp(arg, "json"))
        argp_error(state, "--output is '%s'; it can be table or json", arg);
    globals.json = !strcmp(arg, "json");
}

double parse_seconds(struct argp_state *state, const char *flag, const char *arg, double least)
{
    char *end;
    errno = 0;
    double seconds = strtod(arg, &end);
    if (errno || end == arg || *end || !(seconds >= least && seconds <= 86400.0))
        argp_error(state, "%s is '%s'; it can be %g to 86400 seconds", flag, arg, least);
    return seconds;
}

static int parse(int key, char *arg, struct argp_state *state)
{
    switch (key) {
    case ARGP_KEY_INIT:
        help_begin(state);
        return 0;
    case 's':
        globals.servers = arg;
        return 0;
    case 'o':
        set_output(state, arg);
        return 0;
    case OPTION_DEADLINE:
        globals.deadline_ms = (uint32_t)(parse_seconds(state, "--deadline", arg, 0.001) * 1000.0);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp globals_argp = {.options = options, .parser = parse};

static char *filter_help(int key, const char *text, void *input)
{
    (void)input;
    if (key == ARGP_KEY_HELP_PRE_DOC && text)
        return help_first_text(text);
    return (char *)(uintptr_t)text;
}

void parse_command(const struct argp *argp, int argc, char **argv, void *input)
{
    const struct argp_child own = argp->children ? argp->children[0] : (struct argp_child){0};
    const struct argp_child children[] = {
        {&globals_argp, 0, "Options of every command:", 1}, own, {0}};
    struct argp whole = *argp;
    whole.children = children;
    whole.help_filter = filter_help;
    argp_parse(&whole, argc, argv, 0, NULL, input);
}

uint64_t parse_uint(struct argp_state *state, const char *flag, const char *arg, uint64_t least,
                    uint64_t most)
{
    uint64_t value = 0;
    bool is_number = read_uint(arg, most, &value) && value >= least;
    if (!is_number && most == UINT64_MAX)
        argp_error(state, "%s is '%s'; it can be %" PRIu64 " or more", flag, arg, least);
    if (!is_number)
        argp_error(state, "%s is '%s'; it can be %" PRIu64 " to %" PRIu64, flag, arg, least, most);
    return value;
}

static uint64_t unit_of(char letter)
{
    return letter == 'K' ? 1u << 10 : letter == 'M' ? 1u << 20 : letter == 'G' ? 1u << 30 : 1;
}

uint64_t parse_bytes(struct argp_state *state, const char *flag, const char *arg, uint64_t least,
                     uint64_t most)
{
    char *end = NULL;
    errno = 0;
    uint64_t number = strtoull(arg, &end, 10), unit = unit_of(*end);
    bool is_size = arg[0] >= '0' && arg[0] <= '9' && errno == 0 && end[unit > 1] == '\0';
    if (!is_size || number > most / unit || number * unit < least)
        argp_error(state, "%s is '%s'; it can be %" PRIu64 " to %" PRIu64 " bytes, as 50M or 2G",
                   flag, arg, least, most);
    return number * unit;
}

int parse_words(int key, char *arg, struct argp_state *state)
{
    struct words *words = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        if (words->n == words->max)
            argp_error(state, "one argument too many: '%s'", arg);
        words->list[words->n++] = arg;
        return 0;
    case ARGP_KEY_END:
        if (words->n < words->min)
            argp_error(state, "%s", words->wanted);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int parse_no_argument(int key, char *arg, struct argp_state *state)
{
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    argp_error(state, "unexpected argument '%s'", arg);
    return 0;
}

void parse_no_arguments(const char *doc, int argc, char **argv)
{
    const struct argp argp = {.parser = parse_no_argument, .doc = doc};
    parse_command(&argp, argc, argv, NULL);
}

bool read_uint(const char *text, uint64_t max, uint64_t *out)
{
    char *end;
    bool is_hex = text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
    if (text[0] < '0' || text[0] > '9')
        return false;
    errno = 0;
    unsigned long long value = strtoull(text, &end, is_hex ? 16 : 10);
    if (errno || *end || value > max)
        return false;
    *out = value;
    return true;
}

void wait_seconds(double seconds)
{
    struct timespec pause = {.tv_sec = (time_t)seconds};
    pause.tv_nsec = (long)((seconds - (double)pause.tv_sec) * 1e9);
    nanosleep(&pause, NULL);
}

bool views_next(const struct views *views)
{
    if (views->count && views->shown == views->count)
        return false;
    wait_seconds(views->interval);
    return true;
}

void views_begin(struct views *views)
{
    if (!globals.json && isatty(STDOUT_FILENO))
        fputs("\033[H\033[2J", stdout);
    else if (!globals.json && views->shown)
        putchar('\n');
    views->shown++;
}

bool has_colours(void)
{
    const char *no = getenv("NO_COLOR");
    return isatty(STDOUT_FILENO) && !(no && no[0]);
}

/* ---- servers and errors ---- */

static int exit_code(int status)
{
    switch (status) {
    case EMBD_OK:
        return EXIT_DONE;
    case EMBD_UNREACHABLE:
    case EMBD_DEADLINE:
    case EMBD_CLOSED:
        return EXIT_UNREACHABLE;
    case EMBD_UNKNOWN_TABLE:
        return EXIT_NOT_FOUND;
    case EMBD_INVALID:
    case EMBD_TOO_LARGE:
    case EMBD_EXISTS:
    case EMBD_UNSUPPORTED:
    case EMBD_FULL:
    case EMBD_NOT_FINITE:
    case EMBD_BUSY:
    case EMBD_DRAINING:
    case EMBD_LOADING:
    case EMBD_DENIED:
        return EXIT_REFUSED;
    case EMBD_CORRUPT:
        return EXIT_DAMAGED;
    default:
        return EXIT_FAILED;
    }
}

int end_with(int status, const char *why)
{
    if (status != EMBD_OK)
        fprintf(stderr, "embctl: %s\n",
                why[0]                 ? why
                : embd_error_text()[0] ? embd_error_text()
                                       : embd_status_text(status));
    return exit_code(status);
}

int end_client(embd_client *client, int status)
{
    int code = end_with(status, "");
    embd_close(client);
    return code;
}

int end_silent(void)
{
    fprintf(stderr, "embctl: %s\n", embd_error_text());
    return EMBD_UNREACHABLE;
}

int end_told(embd_client *client, int status)
{
    if (status != EMBD_UNREACHABLE)
        return end_client(client, status);
    embd_close(client);
    return exit_code(status);
}

int end_unknown_table(embd_client *client, const char *table)
{
    fprintf(stderr, "embctl: no such table '%s'\n", table);
    embd_close(client);
    return EXIT_NOT_FOUND;
}

void default_servers(void)
{
    const char *from_environment = getenv("EMBD_SERVERS");
    if (!globals.servers)
        globals.servers =
            from_environment && from_environment[0] ? from_environment : DEFAULT_SERVERS;
}

enum { PARTLY_DEADLINE_MS = 5000 };

static int connect_with(bool own_thread, bool partly, embd_client **client_out)
{
    char why[1280] = "";
    embd_options o;
    embd_options_init(&o);
    o.own_thread = own_thread;
    o.partly = partly;
    if (globals.deadline_ms || partly)
        o.deadline_ms = globals.deadline_ms ? globals.deadline_ms : PARTLY_DEADLINE_MS;
    default_servers();
    int status = embd_connect(globals.servers, &o, client_out);
    bool is_default = strcmp(globals.servers, DEFAULT_SERVERS) == 0;
    if (status == EMBD_UNREACHABLE && is_default)
        snprintf(why, sizeof why, "%s (the default; set --servers or $EMBD_SERVERS)",
                 embd_error_text());
    return status == EMBD_INVALID ? (end_with(status, why), EXIT_USAGE) : end_with(status, why);
}

int connect_servers(embd_client **client_out)
{
    return connect_with(false, false, client_out);
}

int connect_servers_partly(embd_client **client_out)
{
    return connect_with(false, true, client_out);
}

int connect_servers_ahead(embd_client **client_out)
{
    return connect_with(true, false, client_out);
}
