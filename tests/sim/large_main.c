/* large_main.c - runs large.h and prints a line for a cluster without failures, and one for a shard
 * that dies for each of some times.
 *
 * usage: large-cluster [--shards N] [--trainers N] [--keys N] [--compute-ms MS] [--wire-us US]
 *                      [--cold-us US] [--seconds S] [--down-ms MS,MS,...] */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/sim/large.h"

enum { DOWNS_MOST = 8 };

static double downs_ms[DOWNS_MOST];
static uint32_t n_downs;

static double number(const char *flag, const char *text, double least, double most)
{
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value >= least && value <= most)) {
        fprintf(stderr, "large-cluster: --%s %s is not a number from %g to %g\n", flag, text, least,
                most);
        exit(2);
    }
    return value;
}

static void read_downs(char *text)
{
    for (char *next = text; next != NULL && n_downs < DOWNS_MOST; text = next) {
        next = text;
        while (*next != ',' && *next != '\0')
            next++;
        bool is_last = *next == '\0';
        *next = '\0';
        downs_ms[n_downs++] = number("down-ms", text, 0, 1e6);
        next = is_last ? NULL : next + 1;
    }
}

static void read_flags(int argc, char **argv, struct large *of)
{
    static const struct option options[] = {
        {"shards", 1, NULL, 's'},     {"trainers", 1, NULL, 't'}, {"keys", 1, NULL, 'k'},
        {"compute-ms", 1, NULL, 'c'}, {"wire-us", 1, NULL, 'w'},  {"cold-us", 1, NULL, 'o'},
        {"seconds", 1, NULL, 'd'},    {"down-ms", 1, NULL, 'f'},  {NULL, 0, NULL, 0}};
    for (int c, at = 0; (c = getopt_long(argc, argv, "", options, &at)) != -1;) {
        const char *flag = options[at].name;
        switch (c) {
        case 's':
            of->n_shards = (uint32_t)number(flag, optarg, 1, 100000);
            break;
        case 't':
            of->n_trainers = (uint32_t)number(flag, optarg, 1, 1e6);
            break;
        case 'k':
            of->keys = (uint32_t)number(flag, optarg, 1, 1e8);
            break;
        case 'c':
            of->compute_ns = number(flag, optarg, 0, 1e6) * 1e6;
            break;
        case 'w':
            of->wire_ns = number(flag, optarg, 0, 1e6) * 1e3;
            break;
        case 'o':
            of->pull.cold_ns = of->push.cold_ns = number(flag, optarg, 0, 1e6) * 1e3;
            break;
        case 'd':
            of->seconds = number(flag, optarg, 0.1, 1e5);
            break;
        case 'f':
            read_downs(optarg);
            break;
        default:
            exit(2);
        }
    }
}

static struct large_result run(const struct large *of)
{
    struct large_result result;
    if (large_run(of, &result))
        return result;
    fputs("large-cluster: no memory\n", stderr);
    exit(1);
}

static void print(double down_ms, const struct large_result *r, double lost_ms)
{
    printf("%8.0f %9.2f %6.0f%% %9.1f %9.1f %9.1f %9.1f %10.1f %9.0f\n", down_ms,
           r->steps_per_second, r->busy * 100, r->pull_p50_ns / 1e6, r->pull_p99_ns / 1e6,
           r->push_p50_ns / 1e6, r->push_p99_ns / 1e6, r->longest_ns / 1e6, lost_ms);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    struct large of;
    large_init(&of);
    read_flags(argc, argv, &of);
    printf("%u shards, %u trainers, %u keys a pull and a push, %.0f ms between them; times in ms\n",
           of.n_shards, of.n_trainers, of.keys, of.compute_ns / 1e6);
    puts("shard 0    steps/s  shards      pull      pull      push      push    longest      lost\n"
         "down for    each     busy        p50       p99       p50       p99       call");
    struct large_result whole = run(&of);
    print(0, &whole, 0);
    for (uint32_t i = 0; i < n_downs; i++) {
        of.down_ns = downs_ms[i] * 1e6;
        of.down_at_ns = of.seconds * 0.3e9;
        struct large_result r = run(&of);
        double part = 1 - (double)r.n_steps / (double)whole.n_steps;
        print(downs_ms[i], &r, part * of.seconds * 0.9e3);
    }
    return 0;
}
