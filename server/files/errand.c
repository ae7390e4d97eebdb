/* errand.c - see errand.h. */
#include "server/files/errand.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

/* Owner: the thread that started it. */
struct errand {
    struct errand_config config;
    pthread_t thread;
    atomic_bool is_over; /* the thread's */
};

static void *run(void *arg)
{
    struct errand *errand = arg;
    const struct errand_config config = errand->config;
    config.run(config.arg);
    atomic_store(&errand->is_over, true);
    config.wake(config.wake_arg);
    return NULL;
}

/* Signals are for the threads of the program, not for this one. */
static int start_thread(struct errand *errand)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = pthread_create(&errand->thread, NULL, run, errand);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

struct errand *errand_start(const struct errand_config *config)
{
    struct errand *errand = calloc(1, sizeof *errand);
    if (errand == NULL)
        return NULL;
    errand->config = *config;
    if (start_thread(errand) == 0)
        return errand;
    free(errand);
    return NULL;
}

bool errand_is_over(const struct errand *errand)
{
    return atomic_load(&errand->is_over);
}

void errand_end(struct errand *errand)
{
    pthread_join(errand->thread, NULL);
    free(errand);
}
