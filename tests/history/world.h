/* world.h - a cluster under test, the image that it must be, and the snapshots it has made.
 *
 * A history goes on where its tables are loaded: world_move begins a new cluster, of another number
 * of shards, on another store and in another directory, and loads it. Whatever is not as it should
 * be ends the process, with the history's seed and what was done so far. */
#ifndef EMBD_TESTS_WORLD_H
#define EMBD_TESTS_WORLD_H

#include "tests/client/cluster.h"
#include "tests/history/image.h"

#define CUTS_MAX 24u /* of one data directory */
#define PATH     256u

/* A server, and the store that it is told to use. */
struct program {
    const char *path, *store;
};

/* A snapshot, and what the tables were at it. */
struct cut {
    char name[16];
    int base; /* of `cuts`; -1: it has all rows */
    struct image image;
};

/* A snapshot of some tables. */
struct part_cut {
    bool covers[TABLES_MAX];
    struct image image;
};

struct world {
    uint64_t seed, dice;
    const struct program *programs;
    uint32_t n_programs, program; /* what runs now */
    char folder[32], data[64];    /* of all, and the cluster's */
    struct cluster cluster;
    embd_client *client;
    embd_table *handles[TABLES_MAX];
    struct image now;
    struct cut cuts[CUTS_MAX];
    struct part_cut parts[CUTS_MAX]; /* [n_parts] since the last of `cuts`, the newest last */
    uint32_t n_parts, n_parts_made;
    uint32_t n_cuts, n_clusters, n_dumps;
    uint32_t n_deeds, n_checks, n_loads, n_refused; /* done so far */
    uint32_t n_redefined;                           /* loads into other definitions */
    uint32_t n_replaced, n_rolled, n_forgotten;     /* loads in place, and what became of streams */
    uint32_t n_full;              /* pushes and pulls that shards refused for want of room */
    uint32_t n_streams, n_births; /* streams that were begun, tables that were created */
    char *told;                   /* what was done, as text */
    size_t n_told;
};

/* A draw below n. */
uint32_t draw(struct world *w, uint32_t n);
/* One in n. */
bool one_in(struct world *w, uint32_t n);

/* Tells what is done next. */
void tell(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Ends the process. */
void fail(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3), noreturn));
/* Ends it unless the call answered as it should. */
void expect(struct world *w, const char *call, int status, int wanted);

/* Begins on an empty cluster. */
void world_begin(struct world *w, uint64_t seed, const struct program *programs,
                 uint32_t n_programs);
void world_end(struct world *w);

void world_open_table(struct world *w, uint32_t table);
/* A snapshot, upon an earlier one where `base` is not negative. */
void world_cut(struct world *w, int base);
/* A snapshot of some tables alone, drawn; nothing where there is none. */
void world_cut_some(struct world *w);
/* These tables (bits) become those of the cut, in place. */
void world_replace(struct world *w, uint32_t cut, uint32_t tables);
/* The earlier one that a snapshot may be upon; -1: there is none. */
int world_draw_base(struct world *w);
/* The server ends, by SIGTERM or SIGKILL, and starts again on its data. */
void world_restart(struct world *w, bool is_killed);
/* The same, and nothing is compared. */
void world_end_and_start(struct world *w, bool is_killed);
/* The tables are loaded into another cluster: from a dump of now, or from the snapshot `cut`. */
void world_move_dump(struct world *w, uint32_t n_shards);
void world_move_cut(struct world *w, uint32_t cut, uint32_t n_shards);
/* Compares all there is. */
void world_check(struct world *w);

#endif
