/* memory.c - arenas, and pinned memory for frames and answers. Idle pinned memory is kept in size
 * classes, because the driver takes long to allocate it. */
#include "server/store/cuda/memory.h"
#include "server/store/cuda/device.h"

#include <pthread.h>

#define ALIGNMENT 256u

void *arena_take(struct arena *arena, uint64_t bytes)
{
    uint64_t at = arena->bytes;
    arena->bytes += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return arena->base ? arena->base + at : NULL;
}

/* ---- pinned buffers ---- */

#define SMALLEST   12u /* log2 */
#define CLASSES    24u
#define IDLE_BYTES ((uint64_t)1 << 30)

/* An idle buffer holds its own link. */
struct idle {
    struct idle *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct idle *idle[CLASSES];
static uint64_t idle_bytes;

static unsigned class_of(size_t bytes)
{
    unsigned class = 0;
    while (class < CLASSES && (size_t)1 << (SMALLEST + class) < bytes)
        class ++;
    return class;
}

void *buffer_new(size_t bytes)
{
    unsigned class = class_of(bytes);
    if (class == CLASSES)
        return NULL;
    size_t size = (size_t)1 << (SMALLEST + class);
    pthread_mutex_lock(&lock);
    struct idle *buffer = idle[class];
    if (buffer != NULL) {
        idle[class] = buffer->next;
        idle_bytes -= size;
    }
    pthread_mutex_unlock(&lock);
    return buffer != NULL ? buffer : pinned_new(size);
}

void buffer_free(void *buffer, size_t bytes)
{
    if (buffer == NULL)
        return;
    unsigned class = class_of(bytes);
    size_t size = (size_t)1 << (SMALLEST + class);
    pthread_mutex_lock(&lock);
    bool is_kept = idle_bytes + size <= IDLE_BYTES;
    if (is_kept) {
        ((struct idle *)buffer)->next = idle[class];
        idle[class] = buffer;
        idle_bytes += size;
    }
    pthread_mutex_unlock(&lock);
    if (!is_kept)
        pinned_free(buffer);
}
