/* ring_memory.c - see ring_memory.h. */
#include "client/io/ring_memory.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "client/io/shared.h"

/* Neither what is written nor what is taken can be so much. */
#define IMPOSSIBLE 0x80

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static LIST_HEAD(, channel_ring) mapped = LIST_HEAD_INITIALIZER(mapped); /* guarded */

/* ---- forks ---- */

static void lock(void)
{
    pthread_mutex_lock(&mutex);
}

static void unlock(void)
{
    pthread_mutex_unlock(&mutex);
}

static void lose_all(void)
{
    struct channel_ring *ring;
    LIST_FOREACH(ring, &mapped, in_mapped)
    {
        void *own = mmap(ring->memory, ring->bytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
        if (own != MAP_FAILED)
            memset(own, IMPOSSIBLE, RING_WORDS_BYTES);
    }
    pthread_mutex_init(&mutex, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(lock, unlock, lose_all);
}

/* ---- memory ---- */

bool embd__ring_memory_open(struct channel_ring *ring, int *fd_out)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    lock();
    ring->memory = embd__shared_map("embd-ring", ring->bytes, fd_out);
    if (ring->memory != NULL)
        LIST_INSERT_HEAD(&mapped, ring, in_mapped);
    unlock();
    return ring->memory != NULL;
}

void embd__ring_memory_close(struct channel_ring *ring)
{
    if (ring->memory == NULL)
        return;
    lock();
    LIST_REMOVE(ring, in_mapped);
    munmap(ring->memory, ring->bytes);
    unlock();
    ring->memory = NULL;
}
