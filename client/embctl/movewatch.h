/* movewatch.h - how far a move of keys is, on a terminal, while this command waits for it. */
#ifndef EMBCTL_MOVEWATCH_H
#define EMBCTL_MOVEWATCH_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Owner: the command's thread; `ends` is the watcher's too. */
struct move_watch {
    pthread_t thread;
    atomic_bool ends;
    bool runs;
};

/* Begins to ask shard 0's server about it, by a connection of its own, where stderr is a terminal.
 * What fails is not shown: the command says how the move ends. */
void move_watch_begin(struct move_watch *watch);
/* Takes the line away. */
void move_watch_end(struct move_watch *watch);

#endif
