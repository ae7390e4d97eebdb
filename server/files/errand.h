/* errand.h - one piece of work that waits for the disk, on a thread of its own, so that a shard's
 * thread does not. */
#ifndef EMBD_FILES_ERRAND_H
#define EMBD_FILES_ERRAND_H

#include <stdbool.h>

struct errand;

struct errand_config {
    void (*run)(void *arg); /* on the thread */
    void *arg;
    void (*wake)(void *arg); /* it is over; from the thread */
    void *wake_arg;
};

/* NULL: no memory for it, or no thread; nothing has begun. */
struct errand *errand_start(const struct errand_config *config);
bool errand_is_over(const struct errand *errand);
/* Waits until it is over, and frees. */
void errand_end(struct errand *errand);

#endif
