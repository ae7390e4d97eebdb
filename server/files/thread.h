/* thread.h - a thread that works for a shard's: its journal, a file, another server. */
#ifndef EMBD_FILES_THREAD_H
#define EMBD_FILES_THREAD_H

#include <pthread.h>

/* Starts `run` on a thread that takes no signals: those are for the threads of the program. It may
 * use the processors of the process's first thread, also where the caller's is pinned to one: it
 * would take that one from the caller. 0 or errno's. */
int thread_start(pthread_t *out, void *(*run)(void *), void *arg);

/* Names the calling thread, in 15 characters, for who looks at the process from outside. */
void thread_name(const char *name);

#endif
