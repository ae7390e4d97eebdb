/* test_sim.c - seeds of sim.h one after the other, and that what it checks can fail.
 *
 * usage: test-sim [--first S] [--seeds N] [--minutes M] [--without PART] [--print]
 *
 * N seeds from S on, or as many as M minutes have. --without: a part of the protocol is left out:
 * heed, client-epoch, wait, chain, one-of, again, fence, epoch, insync, taken, even, heir, finish;
 * the first seed that fails for it is told, and that none does is an error. --print: the schedule.
 * Without arguments: what CI runs, seeds and parts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/sim/sim.h"

enum { CI_SEEDS = 1500, TAKEN_SEED = 1820 }; /* where one that fails without it is near */

static struct sim sim;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void print_failure(uint64_t seed, const char *why)
{
    uint32_t first = sim.n_lines > LINES ? sim.n_lines - LINES : 0;
    for (uint32_t i = first; i < sim.n_lines && !sim.prints; i++)
        puts(sim.lines[i % LINES]);
    printf("%6llu %s\nseed %llu fails; again: test-sim --first %llu --seeds 1 --print\n",
           (unsigned long long)sim.now, why, (unsigned long long)seed, (unsigned long long)seed);
}

static void print_seen(uint64_t n, double took)
{
    const struct seen *s = &sim.seen;
    printf("%llu seeds in %.1f s: %llu messages (%llu lost), %llu records applied, %llu digests, "
           "%llu acknowledgements, %llu pushes repeated, %llu gaps, %llu refused, %llu crashes, "
           "%llu promotions (%llu double), %llu deposed, %llu begun anew (%llu places gone, %llu "
           "other records), %llu own records compared, %llu compactions; with leases %llu names "
           "taken, "
           "%llu lost, %llu stalls, %llu answers fenced, %llu changes of who is in sync, %llu "
           "heirs named, %llu "
           "of which took the name as such\n",
           (unsigned long long)n, took, (unsigned long long)s->events,
           (unsigned long long)s->lost_messages, (unsigned long long)s->applied,
           (unsigned long long)s->digests, (unsigned long long)s->acks,
           (unsigned long long)s->again, (unsigned long long)s->gaps,
           (unsigned long long)s->refused, (unsigned long long)s->crashes,
           (unsigned long long)s->promotions, (unsigned long long)s->doubles,
           (unsigned long long)s->deposed, (unsigned long long)s->anew, (unsigned long long)s->gone,
           (unsigned long long)s->other, (unsigned long long)s->compared,
           (unsigned long long)s->compactions, (unsigned long long)s->names_taken,
           (unsigned long long)s->names_lost, (unsigned long long)s->stalls,
           (unsigned long long)s->fenced, (unsigned long long)s->insync,
           (unsigned long long)s->handed_over, (unsigned long long)s->heirs);
}

/* Many seeds come to everything that they are meant for. */
static bool has_seen_all(void)
{
    const struct seen *s = &sim.seen;
    return s->lost_messages > 0 && s->acks > 0 && s->again > 0 && s->gaps > 0 && s->refused > 0 &&
           s->crashes > 0 && s->promotions > 0 && s->doubles > 0 && s->deposed > 0 && s->gone > 0 &&
           s->other > 0 && s->compared > 0 && s->compactions > 0 && s->names_taken > 0 &&
           s->names_lost > 0 && s->stalls > 0 && s->fenced > 0 && s->insync > 0 &&
           s->handed_over > 0 && s->heirs > 0;
}

static int run_seeds(uint64_t first, uint64_t n, double minutes, bool prints)
{
    double began = now();
    uint64_t seed = first;
    for (; minutes > 0 ? now() - began < minutes * 60 : seed - first < n; seed++) {
        const char *why = sim_run(&sim, seed, OUT_NOTHING, prints);
        if (why == NULL)
            continue;
        print_failure(seed, why);
        return 1;
    }
    print_seen(seed - first, now() - began);
    if (seed - first < CI_SEEDS || has_seen_all())
        return 0;
    puts("these seeds did not come to everything");
    return 1;
}

static int run_without(enum part_out part, uint64_t first, uint64_t n)
{
    for (uint64_t seed = first; seed - first < n; seed++) {
        const char *why = sim_run(&sim, seed, part, false);
        if (why == NULL)
            continue;
        printf("without %s, seed %llu: %s\n", part_names[part], (unsigned long long)seed, why);
        return 0;
    }
    printf("without %s, no seed of %llu fails\n", part_names[part], (unsigned long long)n);
    return 1;
}

static int run_ci(void)
{
    int n_failed = run_seeds(1, CI_SEEDS, 0, false);
    for (enum part_out part = OUT_NOTHING + 1; part < PARTS_OUT; part++)
        n_failed += run_without(part, part == OUT_TAKEN ? TAKEN_SEED : 1, CI_SEEDS);
    return n_failed > 0;
}

static int usage(const char *why)
{
    fprintf(
        stderr,
        "test-sim: '%s' is not understood\nusage: test-sim [--first S] [--seeds N] [--minutes M] "
        "[--without PART] [--print]\n",
        why);
    return 2;
}

static enum part_out find_part(const char *name)
{
    enum part_out part = OUT_NOTHING + 1;
    while (part < PARTS_OUT && strcmp(part_names[part], name) != 0)
        part++;
    return part;
}

int main(int argc, char **argv)
{
    uint64_t first = 1, n = CI_SEEDS;
    double minutes = 0;
    enum part_out part = OUT_NOTHING;
    bool prints = false;
    if (argc == 1)
        return run_ci();
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--print") == 0)
            prints = true;
        else if (strcmp(argv[i], "--first") == 0 && i++)
            first = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--seeds") == 0 && i++)
            n = strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--minutes") == 0 && i++)
            minutes = atof(value);
        else if (strcmp(argv[i], "--without") == 0 && i++)
            part = find_part(value);
        else
            return usage(argv[i]);
    }
    if (part == PARTS_OUT)
        return usage("--without");
    return part == OUT_NOTHING ? run_seeds(first, n, minutes, prints) : run_without(part, first, n);
}
