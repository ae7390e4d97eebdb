/* buffers.c - arrays that the caller is lent, in memory that servers on this host share, or where
 * they share none, in memory like any other. They may outlive the client, and are freed on any
 * thread: a list of the process knows where each one lies. */
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "client/core/client.h"

struct buffer {
    struct buffer *next;
    void *data;
    uint64_t bytes;
    struct shared *shared; /* NULL: a mapping of its own */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static struct buffer *buffers; /* guarded */
static struct buffer *inherited;

/* ---- forks ---- */

/* Threads of the parent may hold locks, which nobody opens in the child. So what the parent was
 * lent is not given back there: embd_buffer_free does not know it. */
static void forget_inherited(void)
{
    pthread_mutex_init(&mutex, NULL);
    inherited = buffers;
    buffers = NULL;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, forget_inherited);
}

/* ---- making ---- */

static void *map(uint64_t bytes)
{
    void *own = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return own == MAP_FAILED ? NULL : own;
}

/* Zeros, as new memory is. */
static void *take(struct shared *shared, uint64_t bytes)
{
    void *block = embd__shared_take(shared, bytes, true);
    if (block != NULL)
        madvise(block, bytes, MADV_REMOVE);
    return block;
}

static bool fill(struct buffer *buffer, embd_client *client)
{
    buffer->data = take(client->shared, buffer->bytes);
    buffer->shared = buffer->data != NULL ? client->shared : NULL;
    if (buffer->data == NULL)
        buffer->data = map(buffer->bytes);
    return buffer->data != NULL;
}

int embd_buffer_new(embd_client *client, uint64_t bytes, void **buffer_out)
{
    *buffer_out = NULL;
    client->error = (struct embd__error){0};
    if (bytes == 0 || bytes > SIZE_MAX / 2) {
        embd__error_set(&client->error, EMBD_INVALID, "a buffer of %llu bytes; expected 1 to %llu",
                        (unsigned long long)bytes, (unsigned long long)SIZE_MAX / 2);
        return embd__error_keep(&client->error, EMBD_INVALID);
    }
    struct buffer *buffer = calloc(1, sizeof *buffer);
    if (buffer != NULL)
        buffer->bytes = bytes;
    if (buffer == NULL || !fill(buffer, client)) {
        free(buffer);
        embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a buffer of %llu bytes",
                        (unsigned long long)bytes);
        return embd__error_keep(&client->error, EMBD_NO_MEMORY);
    }
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    *buffer_out = buffer->data;
    pthread_mutex_lock(&mutex);
    buffer->next = buffers;
    buffers = buffer;
    pthread_mutex_unlock(&mutex);
    return EMBD_OK;
}

/* ---- finding ---- */

/* With the mutex. */
static struct buffer **find(const void *data)
{
    struct buffer **at = &buffers;
    while (*at != NULL && (*at)->data != data)
        at = &(*at)->next;
    return at;
}

void embd_buffer_free(void *data)
{
    if (data == NULL)
        return;
    pthread_mutex_lock(&mutex);
    struct buffer **at = find(data), *buffer = *at;
    if (buffer != NULL)
        *at = buffer->next;
    pthread_mutex_unlock(&mutex);
    if (buffer == NULL)
        return;
    if (buffer->shared != NULL)
        embd__shared_give(buffer->shared, data);
    else
        munmap(data, buffer->bytes);
    free(buffer);
}

bool embd_buffer_is_shared(const embd_client *client, const void *data)
{
    pthread_mutex_lock(&mutex);
    const struct buffer *buffer = *find(data);
    bool is_shared = buffer != NULL && buffer->shared == client->shared && !client->shared->is_off;
    pthread_mutex_unlock(&mutex);
    return is_shared;
}
