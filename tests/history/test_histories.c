/* test_histories.c - random histories of a cluster beside the model: `test-histories [=MINUTES] [--seed N]
 * PROGRAM STORE ...`.
 *
 * A history is a few dozen deeds, drawn from its seed alone: tables are created and dropped, keys pushed, erased and
 * pulled; snapshots are made, upon one another; the server is ended and started again; and the tables are loaded into
 * clusters of other sizes and stores, where the history goes on. Every row, state, candidate, step and count is
 * compared with the model on the way and at the end.
 *
 * Histories are those of the seeds 1, 2, ... for a minute, and HISTORIES_MIN of them however long they take. With
 * =MINUTES they begin at a seed of the clock's. --seed N plays one. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "deeds.h"

#define SECONDS       60.0
#define HISTORIES_MIN 3u
#define DEEDS_MAX     60u
#define PROGRAMS_MAX  8u

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* A number of shards, mostly another one. */
static uint32_t draw_shards(struct world *w)
{
    uint32_t n = 1 + draw(w, SHARDS_MAX);
    return n != w->now.n_shards ? n : 1 + draw(w, SHARDS_MAX);
}

static void cut(struct world *w)
{
    if (w->n_cuts < CUTS_MAX)
        world_cut(w, one_in(w, 5) ? -1 : world_draw_base(w));
}

static void move(struct world *w)
{
    uint32_t n_shards = draw_shards(w);
    if (w->n_cuts == 0)
        world_move_dump(w, n_shards);
    else
        world_move_cut(w, one_in(w, 4) ? draw(w, w->n_cuts) : w->n_cuts - 1, n_shards);
}

static void one_deed(struct world *w)
{
    uint32_t which = draw(w, 100);
    w->n_deeds++;
    if (which < 50)
        deed_push(w);
    else if (which < 60)
        deed_erase(w);
    else if (which < 66)
        deed_pull(w);
    else if (which < 70)
        deed_create(w);
    else if (which < 72)
        deed_drop(w);
    else if (which < 90)
        cut(w);
    else if (which < 94)
        world_restart(w, one_in(w, 2));
    else if (which < 96)
        world_check(w);
    else
        move(w);
}

static void play(uint64_t seed, const struct program *programs, uint32_t n_programs, bool is_told)
{
    struct world w;
    world_begin(&w, seed, programs, n_programs);
    for (uint32_t i = 0; i < 2 + draw(&w, 2); i++)
        deed_create(&w);
    for (uint32_t n = 20 + draw(&w, DEEDS_MAX - 20); n > 0; n--)
        one_deed(&w);
    world_check(&w);
    if (w.n_cuts < CUTS_MAX)
        world_cut(&w, world_draw_base(&w));
    move(&w);
    if (is_told)
        printf("%s\n", w.told);
    printf("history %" PRIu64 ": %" PRIu32 " deeds, %" PRIu32 " checks, %" PRIu32 " loads, %" PRIu32
           " of them refused\n", seed, w.n_deeds, w.n_checks, w.n_loads, w.n_refused);
    world_end(&w);
}

int main(int argc, char **argv)
{
    struct program programs[PROGRAMS_MAX];
    uint32_t n_programs = 0, n = 0;
    double begin = now_s(), seconds = SECONDS;
    uint64_t first = 1;
    bool is_one = false;
    setvbuf(stdout, NULL, _IOLBF, 0);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '=') {
            seconds = 60 * strtod(argv[i] + 1, NULL);
            first = (uint64_t)time(NULL) * 1000000;
        } else if (i + 1 < argc && strcmp(argv[i], "--seed") == 0) {
            first = strtoull(argv[++i], NULL, 10);
            is_one = true;
        } else if (i + 1 < argc && n_programs < PROGRAMS_MAX) {
            programs[n_programs++] = (struct program){argv[i], argv[i + 1]};
            i++;
        }
    }
    if (n_programs == 0)
        return 2;
    do
        play(first + n++, programs, n_programs, is_one);
    while (!is_one && (n < HISTORIES_MIN || now_s() - begin < seconds));
    printf("%" PRIu32 " histories in %.0f s\n", n, now_s() - begin);
    return 0;
}
