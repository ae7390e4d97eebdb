/* thread.c - see thread.h. */
#include "server/files/thread.h"

#include <sched.h>
#include <signal.h>
#include <unistd.h>

/* With the processors of the process's first thread; where those cannot be had, with the caller's.
 */
static int create(pthread_t *out, void *(*run)(void *), void *arg)
{
    cpu_set_t set;
    pthread_attr_t attr;
    if (sched_getaffinity(getpid(), sizeof set, &set) != 0 || pthread_attr_init(&attr) != 0)
        return pthread_create(out, NULL, run, arg);
    int error = pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    if (error == 0)
        error = pthread_create(out, &attr, run, arg);
    pthread_attr_destroy(&attr);
    return error;
}

void thread_keep_off(const int *cpus, uint32_t n)
{
    cpu_set_t set;
    if (n == 0 || sched_getaffinity(0, sizeof set, &set) != 0)
        return;
    for (uint32_t i = 0; i < n; i++)
        CPU_CLR((unsigned)cpus[i], &set);
    if (CPU_COUNT(&set) > 0)
        pthread_setaffinity_np(pthread_self(), sizeof set, &set);
}

int thread_start(pthread_t *out, void *(*run)(void *), void *arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int error = create(out, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void thread_name(const char *name)
{
    pthread_setname_np(pthread_self(), name);
}
