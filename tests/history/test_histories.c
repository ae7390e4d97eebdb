/* test_histories.c - random histories of a cluster beside the model: `test-histories [=MINUTES]
 * [--seconds N] [--seed N] PROGRAM STORE ...`.
 *
 * A history is a few dozen deeds, drawn from its seed alone: tables are created and dropped; keys
 * are pushed, erased and pulled, of two tables at once too, and some shards refuse what others
 * apply; snapshots are made, upon one another, and of some tables, and tables go back to them in
 * place; the server is ended and started again; and the tables are loaded into clusters of other
 * sizes and stores, where the history goes on. Every row, state, candidate, step and count is
 * compared with the model on the way and at the end.
 *
 * Histories are those of the seeds 1, 2, ... for a minute, or N seconds, and HISTORIES_MIN of them
 * however long they take. With =MINUTES they begin at a seed of the clock's. --seed N plays one,
 * and tells what it does. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/history/deeds.h"

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
    if (one_in(w, 4) && w->n_parts < CUTS_MAX)
        world_cut_some(w);
    else if (w->n_cuts < CUTS_MAX)
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
    if (which < 47)
        deed_push(w);
    else if (which < 50)
        deed_set(w);
    else if (which < 56)
        deed_erase(w);
    else if (which < 58)
        deed_put(w);
    else if (which < 66)
        deed_pull(w);
    else if (which < 70)
        deed_create(w);
    else if (which < 72)
        deed_drop(w);
    else if (which < 86)
        cut(w);
    else if (which < 89)
        deed_replace(w);
    else if (which < 92)
        world_restart(w, one_in(w, 2));
    else if (which < 94)
        deed_push_and_kill(w);
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
           " of them refused, %" PRIu32 " into other definitions, %" PRIu32
           " requests without room, %" PRIu32 " loads in place, %" PRIu32
           " streams rolled back, %" PRIu32 " forgotten\n",
           seed, w.n_deeds, w.n_checks, w.n_loads, w.n_refused, w.n_redefined, w.n_full,
           w.n_replaced, w.n_rolled, w.n_forgotten);
    world_end(&w);
}

struct options {
    struct program programs[PROGRAMS_MAX];
    uint32_t n_programs;
    double seconds;
    uint64_t first;
    bool is_one;
};

static struct options read_options(int argc, char **argv)
{
    struct options o = {.seconds = SECONDS, .first = 1};
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i], *value = i + 1 < argc ? argv[i + 1] : "";
        if (word[0] == '=') {
            o.seconds = 60 * strtod(word + 1, NULL);
            o.first = (uint64_t)time(NULL) * 1000000;
            continue;
        }
        i++;
        if (strcmp(word, "--seconds") == 0) {
            o.seconds = strtod(value, NULL);
        } else if (strcmp(word, "--seed") == 0) {
            o.first = strtoull(value, NULL, 10);
            o.is_one = true;
        } else if (o.n_programs < PROGRAMS_MAX) {
            o.programs[o.n_programs++] = (struct program){word, value};
        }
    }
    return o;
}

int main(int argc, char **argv)
{
    struct options o = read_options(argc, argv);
    double begin = now_s();
    uint32_t n = 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (o.n_programs == 0)
        return 2;
    do
        play(o.first + n++, o.programs, o.n_programs, o.is_one);
    while (!o.is_one && (n < HISTORIES_MIN || now_s() - begin < o.seconds));
    printf("%" PRIu32 " histories in %.0f s\n", n, now_s() - begin);
    return 0;
}
