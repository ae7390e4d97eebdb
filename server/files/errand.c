/* errand.c - see errand.h. */
#include "server/files/errand.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "server/files/thread.h"

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
    thread_name("embd-errand");
    config.run(config.arg);
    atomic_store(&errand->is_over, true);
    config.wake(config.wake_arg);
    return NULL;
}

struct errand *errand_start(const struct errand_config *config)
{
    struct errand *errand = calloc(1, sizeof *errand);
    if (errand == NULL)
        return NULL;
    errand->config = *config;
    if (thread_start(&errand->thread, run, errand) == 0)
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
