/* thread.h - a thread that works for a shard's: its journal, a file, another server. */
#ifndef EMBD_FILES_THREAD_H
#define EMBD_FILES_THREAD_H

#include <pthread.h>
#include <stdint.h>

/* The calling thread leaves these processors to the threads that are pinned to them, if it has
 * others. Called by the process's first thread, it counts for all that thread_start starts. */
void thread_keep_off(const int *cpus, uint32_t n);

/* Starts `run` on a thread that takes no signals: those are for the threads of the program. It may
 * use the processors of the process's first thread, also where the caller's is pinned to one: it
 * would take that one from the caller. 0 or errno's. */
int thread_start(pthread_t *out, void *(*run)(void *), void *arg);

/* Names the calling thread, in 15 characters, for who looks at the process from outside. */
void thread_name(const char *name);

#endif
