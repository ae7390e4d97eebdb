/* flags.c - a workload, how embd is asked, on which servers, for how long. */
#include "client/bench/flags.h"

#include "client/bench/cpu.h"
#include "client/bench/measure.h"
#include "client/bench/mover.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX      (4u << 20) /* keys of one request */
#define TABLE_KEYS_MAX 1000000000u

enum flag {
    FLAG_KEYS = 256,
    FLAG_DIM,
    FLAG_BATCH,
    FLAG_DIST,
    FLAG_MIX,
    FLAG_CLIENTS,
    FLAG_SHARDS,
    FLAG_DTYPE,
    FLAG_DURABILITY,
    FLAG_WIRE,
    FLAG_PLAN,
    FLAG_TRANSPORT,
    FLAG_LENT,
    FLAG_SECONDS,
    FLAG_ROUNDS,
    FLAG_IN_FLIGHT,
    FLAG_RATE,
    FLAG_SMALL,
    FLAG_SERVERS,
    FLAG_SERVER_BIN,
    FLAG_SERVER_CPUS,
    FLAG_CLIENT_CPUS,
    FLAG_VERBOSE,
};

static const struct argp_option flags[] = {
    {0, 0, 0, 0, "Workload:", 1},
    {"keys", FLAG_KEYS, "N", 0, "Rows of the table; 10K, 1M (default), 2G are decimal", 1},
    {"dim", FLAG_DIM, "N", 0, "Columns of a row (16)", 1},
    {"batch", FLAG_BATCH, "N", 0, "Keys of a request (65536)", 1},
    {"dist", FLAG_DIST, "DIST", 0, "uniform (default) or zipf:EXPONENT", 1},
    {"mix", FLAG_MIX, "MIX", 0, "pull (default), pooled:K, push, or train: pull, then push", 1},
    {"small", FLAG_SMALL, 0, 0, "64 keys a request", 1},
    {0, 0, 0, 0, "How embd is asked:", 2},
    {"clients", FLAG_CLIENTS, "N", 0, "Threads with a handle each (1)", 2},
    {"in-flight", FLAG_IN_FLIGHT, "N", 0, "Calls a client has under way (1)", 2},
    {"plan", FLAG_PLAN, "PLAN", 0, "auto (default), pooled or rows", 2},
    {"wire", FLAG_WIRE, "TYPE", 0, "Elements on the wire: f32 (default), f16, bf16, i8, i4", 2},
    {"dtype", FLAG_DTYPE, "TYPE", 0, "Elements of stored rows: f32 (default), f16, bf16, i8, e4m3",
     2},
    {"durability", FLAG_DURABILITY, "HOW", 0,
     "Of the table: snapshot (default), buffered, durable, replicated, replicated_durable, auto; "
     "all but the first with --servers that have a data directory",
     2},
    {"transport", FLAG_TRANSPORT, "WAY", 0,
     "tcp (default), or local: the data sockets of servers on this host", 2},
    {"lent", FLAG_LENT, 0, 0, "Rows and gradients in buffers of embd_buffer_new", 2},
    {0, 0, 0, 0, "Servers:", 3},
    {"shards", FLAG_SHARDS, "N", 0, "Shards of the server that is started (1)", 3},
    {"server-bin", FLAG_SERVER_BIN, "FILE", 0, "Its program; default: embd beside this one", 3},
    {"servers", FLAG_SERVERS, "LIST", 0,
     "Use this cluster, host:port[,host:port]; adds a table and drops it", 3},
    {"server-cpus", FLAG_SERVER_CPUS, "LIST", 0, "Processors of shards, like 0,2-3", 3},
    {"client-cpus", FLAG_CLIENT_CPUS, "LIST", 0,
     "Processors of clients; default: those after the shards'", 3},
    {0, 0, 0, 0, "Measuring:", 4},
    {"seconds", FLAG_SECONDS, "S", 0, "Of a round (1)", 4},
    {"rounds", FLAG_ROUNDS, "N", 0, "Rounds (5)", 4},
    {"rate", FLAG_RATE, "R", 0,
     "Requests per second, all clients together; latencies count from the "
     "time a request was meant to be sent",
     4},
    {0, 0, 0, 0, "Output:", 5},
    {"output", 'o', "FORMAT", 0, "table (default) or json", 5},
    {"verbose", FLAG_VERBOSE, 0, 0, "Show the server's log", 5},
    {0},
};

/* ---- values ---------------------------------------------------------------------------------- */

static uint64_t parse_count(struct argp_state *state, const char *flag, const char *text,
                            uint64_t min, uint64_t max)
{
    char *end;
    double value = strtod(text, &end);
    static const char suffixes[] = "KMG";
    const char *suffix = *end ? strchr(suffixes, *end) : NULL;
    if (suffix) {
        value *= pow(1000, (double)(suffix - suffixes) + 1);
        end++;
    }
    if (end == text || *end || !(value >= (double)min && value <= (double)max) ||
        value != floor(value))
        argp_error(state, "--%s is '%s'; it can be %llu to %llu", flag, text,
                   (unsigned long long)min, (unsigned long long)max);
    return (uint64_t)value;
}

static double parse_real(struct argp_state *state, const char *flag, const char *text, double min,
                         double max)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= min && value <= max))
        argp_error(state, "--%s is '%s'; it can be %g to %g", flag, text, min, max);
    return value;
}

static int parse_choice(struct argp_state *state, const char *flag, const char *text,
                        const char *const *choices, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(text, choices[i]) == 0)
            return i;
    }
    argp_error(state, "--%s is '%s'; --help lists what it can be", flag, text);
    return 0;
}

static embd_dtype parse_dtype(struct argp_state *state, const char *flag, const char *text)
{
    static const char *const names[] = {"f32", "f16", "bf16", "i8", "i4"}, *const of_rows[] = {
                                                                               "f32", "f16", "bf16",
                                                                               "i8", "e4m3"};
    bool is_wire = strcmp(flag, "wire") == 0;
    int choice = parse_choice(state, flag, text, is_wire ? names : of_rows, 5);
    return !is_wire && choice == 4 ? EMBD_DTYPE_E4M3 : (embd_dtype)choice;
}

static void parse_dist(struct argp_state *state, const char *text, struct workload_spec *work)
{
    if (strcmp(text, "uniform") == 0)
        work->zipf = 0;
    else if (strncmp(text, "zipf:", 5) == 0)
        work->zipf = parse_real(state, "dist zipf:", text + 5, 0.01, 10);
    else
        argp_error(state, "--dist is '%s'; it can be uniform or zipf:EXPONENT", text);
}

static void parse_mix(struct argp_state *state, const char *text, struct workload_spec *work)
{
    work->keys_per_row = 1;
    if (strcmp(text, "pull") == 0) {
        work->mix = MIX_PULL;
    } else if (strncmp(text, "pooled:", 7) == 0) {
        work->mix = MIX_POOLED;
        work->keys_per_row =
            (uint32_t)parse_count(state, "mix pooled:", text + 7, 1, WORKLOAD_KEYS_PER_ROW_MAX);
    } else if (strcmp(text, "push") == 0) {
        work->mix = MIX_PUSH;
    } else if (strcmp(text, "train") == 0) {
        work->mix = MIX_TRAIN;
    } else {
        argp_error(state, "--mix is '%s'; it can be pull, pooled:K, push or train", text);
    }
}

static void parse_cpus(struct argp_state *state, const char *flag, const char *text,
                       const struct cpu_list *allowed, struct cpu_list *out)
{
    if (cpu_list_parse(text, allowed, out))
        argp_error(state,
                   "--%s is '%s'; it can be a list like 0,2-3 of processors this process may use",
                   flag, text);
}

static void check_options(struct argp_state *state, struct options *o)
{
    if (o->small)
        o->work.batch = 64;
    if (o->work.batch % o->work.keys_per_row)
        argp_error(state, "--batch is %u; it must be a multiple of the %u keys a row",
                   o->work.batch, o->work.keys_per_row);
}

/* The flags of the workload. */
static error_t parse_workload_flag(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case FLAG_KEYS:
        o->work.table_keys = parse_count(state, "keys", arg, 1, TABLE_KEYS_MAX);
        o->keys_given = true;
        break;
    case FLAG_DIM:
        o->work.dim = (uint32_t)parse_count(state, "dim", arg, 1, EMBD_DIM_MAX);
        o->dim_given = true;
        break;
    case FLAG_BATCH:
        o->work.batch = (uint32_t)parse_count(state, "batch", arg, 1, BATCH_MAX);
        break;
    case FLAG_DIST:
        parse_dist(state, arg, &o->work);
        break;
    case FLAG_MIX:
        parse_mix(state, arg, &o->work);
        break;
    case FLAG_SMALL:
        o->small = true;
        break;
    default:
        return ARGP_ERR_UNKNOWN;
    }
    return 0;
}

/* The other flags, and what must hold between flags. */
static error_t parse_flag(int key, char *arg, struct argp_state *state)
{
    static const char *const plans[] = {"auto", "pooled", "rows"};
    static const char *const durabilities[] = {"snapshot", "buffered",   "durable",
                                               "auto",     "replicated", "replicated_durable"};
    static const char *const formats[] = {"table", "json"};
    static const char *const transports[] = {"tcp", "local"};
    struct options *o = state->input;
    switch (key) {
    case FLAG_CLIENTS:
        o->clients = (uint32_t)parse_count(state, "clients", arg, 1, MEASURE_MOVERS_MAX);
        break;
    case FLAG_SHARDS:
        o->shards = (uint32_t)parse_count(state, "shards", arg, 1, 256);
        break;
    case FLAG_DTYPE:
        o->dtype = parse_dtype(state, "dtype", arg);
        break;
    case FLAG_DURABILITY:
        o->durability = (embd_durability)parse_choice(state, "durability", arg, durabilities, 6);
        break;
    case FLAG_WIRE:
        o->wire = parse_dtype(state, "wire", arg);
        break;
    case FLAG_PLAN:
        o->plan = (embd_plan)parse_choice(state, "plan", arg, plans, 3);
        break;
    case FLAG_TRANSPORT:
        o->transport = transports[parse_choice(state, "transport", arg, transports, 2)];
        break;
    case FLAG_LENT:
        o->lent = true;
        break;
    case FLAG_SECONDS:
        o->seconds = parse_real(state, "seconds", arg, 0.01, 3600);
        break;
    case FLAG_ROUNDS:
        o->rounds = (uint32_t)parse_count(state, "rounds", arg, 1, MEASURE_ROUNDS_MAX);
        break;
    case FLAG_IN_FLIGHT:
        o->in_flight = (uint32_t)parse_count(state, "in-flight", arg, 1, MOVER_IN_FLIGHT_MAX);
        break;
    case FLAG_RATE:
        o->rate = parse_real(state, "rate", arg, 0.1, 1e7);
        break;
    case FLAG_SERVERS:
        o->servers = arg;
        break;
    case FLAG_SERVER_BIN:
        o->server_bin = arg;
        break;
    case FLAG_SERVER_CPUS:
        parse_cpus(state, "server-cpus", arg, &o->allowed, &o->server_cpus);
        break;
    case FLAG_CLIENT_CPUS:
        parse_cpus(state, "client-cpus", arg, &o->allowed, &o->client_cpus);
        break;
    case FLAG_VERBOSE:
        o->verbose = true;
        break;
    case 'o':
        o->json = parse_choice(state, "output", arg, formats, 2) == 1;
        break;
    case ARGP_KEY_END:
        check_options(state, o);
        break;
    default:
        return parse_workload_flag(key, arg, state);
    }
    return 0;
}

const struct argp flags_parser = {flags, parse_flag, NULL, NULL, NULL, NULL, NULL};

void flags_defaults(struct options *o)
{
    *o = (struct options){
        .work =
            {.table_keys = 1000000, .dim = 16, .batch = 65536, .keys_per_row = 1, .mix = MIX_PULL},
        .seconds = 1,
        .rounds = 5,
        .in_flight = 1,
        .clients = 1,
        .shards = 1,
        .transport = "tcp",
    };
    cpu_list_allowed(&o->allowed);
}
