/* imports.c - see imports.h. The lock is held while the driver opens or closes a handle, so that
 * the list says what is open. */
#include "server/store/cuda/imports.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "proto/assert.h"

struct import {
    struct import *next;
    uint8_t handle[DEVICE_HANDLE];
    int device;
    void *memory;
    uint64_t bytes; /* of the whole allocation */
    uint32_t n;     /* openings */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct import *first;

static struct import *find(int device, const uint8_t *handle)
{
    struct import *import = first;
    while (import != NULL &&
           (import->device != device || memcmp(import->handle, handle, DEVICE_HANDLE) != 0))
        import = import->next;
    return import;
}

/* Opened by nobody yet. */
static int add(int device, const uint8_t *handle, struct import **out)
{
    struct import *import = calloc(1, sizeof *import);
    if (import == NULL)
        return DEVICE_NO_MEMORY;
    int status = device_import(handle, &import->memory, &import->bytes);
    if (status != 0) {
        free(import);
        return status;
    }
    memcpy(import->handle, handle, DEVICE_HANDLE);
    import->device = device;
    import->next = first;
    *out = first = import;
    return 0;
}

static void remove_unused(struct import *import)
{
    struct import **at = &first;
    if (import->n > 0)
        return;
    while (*at != import)
        at = &(*at)->next;
    *at = import->next;
    device_unimport(import->memory);
    free(import);
}

int imports_open(int device, const uint8_t handle[DEVICE_HANDLE], uint64_t bytes, void **memory_out)
{
    int status = 0;
    pthread_mutex_lock(&lock);
    struct import *import = find(device, handle);
    if (import == NULL)
        status = add(device, handle, &import);
    if (status == 0 && import->bytes < bytes) {
        remove_unused(import);
        status = DEVICE_TOO_SMALL;
    } else if (status == 0) {
        import->n++;
        *memory_out = import->memory;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

void imports_close(int device, void *memory)
{
    pthread_mutex_lock(&lock);
    struct import *import = first;
    while (import != NULL && (import->device != device || import->memory != memory))
        import = import->next;
    EMBD_ASSERT(import != NULL && import->n > 0);
    import->n--;
    remove_unused(import);
    pthread_mutex_unlock(&lock);
}
