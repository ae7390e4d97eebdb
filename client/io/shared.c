/* shared.c - see shared.h. Blocks are pages, the first that fits is taken: so the pages of the last
 * call are used again, which are in memory. Place 0 is never used: it means none. */
#include "client/io/shared.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/assert.h"

enum { PAGE_BYTES = 4096, DEFAULT_MIB = 64, MOST_MIB = 256 };

/* ---- life ---- */

static int read_size(uint64_t *bytes_out, struct embd__error *e)
{
    const char *text = getenv("EMBD_SHARED_MIB");
    char *end;
    *bytes_out = (uint64_t)DEFAULT_MIB << 20;
    if (text == NULL || text[0] == '\0')
        return EMBD_OK;
    unsigned long mib = strtoul(text, &end, 10);
    *bytes_out = (uint64_t)mib << 20;
    if (*end == '\0' && text[0] != '-' && mib <= MOST_MIB)
        return EMBD_OK;
    return embd__error_set(e, EMBD_INVALID, "EMBD_SHARED_MIB: '%.60s'; expected 0 to %d", text,
                           MOST_MIB);
}

int embd__shared_new(struct shared **out, struct embd__error *e)
{
    uint64_t wanted;
    if (read_size(&wanted, e) != EMBD_OK)
        return e->status;
    struct shared *shared = calloc(1, sizeof *shared);
    if (shared == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a client");
    shared->n_users = 1;
    shared->wanted = wanted;
    shared->fd = -1;
    pthread_mutex_init(&shared->mutex, NULL);
    *out = shared;
    return EMBD_OK;
}

static void destroy(struct shared *shared)
{
    if (shared->view != shared->base)
        munmap((void *)(uintptr_t)shared->view, shared->bytes);
    if (shared->base != NULL)
        munmap(shared->base, shared->bytes);
    if (shared->fd >= 0)
        close(shared->fd);
    free(shared->blocks);
    pthread_mutex_destroy(&shared->mutex);
    free(shared);
}

/* With the mutex, which it gives up. */
static void unlock(struct shared *shared, bool leaves)
{
    shared->n_users -= leaves;
    bool is_last = shared->n_users == 0;
    pthread_mutex_unlock(&shared->mutex);
    if (is_last)
        destroy(shared);
}

void embd__shared_leave(struct shared *shared)
{
    if (shared == NULL)
        return;
    pthread_mutex_lock(&shared->mutex);
    unlock(shared, true);
}

uint8_t *embd__shared_map(const char *name, uint64_t bytes, int *fd_out)
{
    int fd = *fd_out = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
        return NULL;
    void *base = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (base == MAP_FAILED)
        return NULL;
    madvise(base, bytes, MADV_DONTDUMP);
    return base;
}

static void open_memory(struct shared *shared, uint64_t bytes)
{
    shared->base = embd__shared_map("embd-shared", bytes, &shared->fd);
    shared->view = shared->base;
    shared->bytes = shared->base != NULL ? bytes : 0;
}

bool embd__shared_open(struct shared *shared, uint64_t most)
{
    uint64_t bytes = (shared->wanted < most ? shared->wanted : most) / PAGE_BYTES * PAGE_BYTES;
    if (!shared->is_tried && bytes > PAGE_BYTES) {
        shared->is_tried = true;
        open_memory(shared, bytes);
    }
    return shared->base != NULL && shared->bytes <= most;
}

/* ---- blocks ---- */

static bool has_room(struct shared *shared)
{
    if (shared->n_blocks < shared->capacity)
        return true;
    uint32_t capacity = shared->capacity == 0 ? 16 : shared->capacity * 2;
    struct shared_block *blocks = realloc(shared->blocks, capacity * sizeof *blocks);
    if (blocks == NULL)
        return false;
    shared->blocks = blocks;
    shared->capacity = capacity;
    return true;
}

/* The first gap of so many bytes: the block that it is before, and its place in *at_out. */
static uint32_t find_gap(const struct shared *shared, uint64_t bytes, uint64_t *at_out)
{
    uint32_t i = 0;
    *at_out = PAGE_BYTES;
    for (; i < shared->n_blocks && shared->blocks[i].at - *at_out < bytes; i++)
        *at_out = shared->blocks[i].at + shared->blocks[i].bytes;
    return i;
}

static uint8_t *take(struct shared *shared, uint64_t bytes, bool is_lent)
{
    uint64_t at;
    if (!has_room(shared))
        return NULL;
    uint32_t i = find_gap(shared, bytes, &at);
    if (at + bytes > shared->bytes)
        return NULL;
    memmove(shared->blocks + i + 1, shared->blocks + i,
            (shared->n_blocks - i) * sizeof *shared->blocks);
    shared->blocks[i] = (struct shared_block){.at = at, .bytes = bytes, .is_lent = is_lent};
    shared->n_blocks++;
    shared->n_users += is_lent;
    return shared->base + at;
}

void *embd__shared_take(struct shared *shared, uint64_t bytes, bool is_lent)
{
    if (shared->is_off || bytes == 0 || bytes > shared->bytes)
        return NULL;
    pthread_mutex_lock(&shared->mutex);
    void *block = take(shared, (bytes + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES, is_lent);
    pthread_mutex_unlock(&shared->mutex);
    return block;
}

void embd__shared_give(struct shared *shared, const void *block)
{
    uint32_t i = 0;
    pthread_mutex_lock(&shared->mutex);
    while (i < shared->n_blocks && shared->base + shared->blocks[i].at != block)
        i++;
    EMBD_ASSERT(i < shared->n_blocks);
    bool is_lent = shared->blocks[i].is_lent;
    shared->blocks[i].is_lent = false;
    if (!shared->blocks[i].is_kept)
        memmove(shared->blocks + i, shared->blocks + i + 1,
                (--shared->n_blocks - i) * sizeof *shared->blocks);
    unlock(shared, is_lent);
}

/* With the mutex; NULL: `data` lies in none. */
static struct shared_block *block_of(struct shared *shared, const void *data)
{
    uint64_t at = embd__shared_at(shared, data);
    for (uint32_t i = 0; i < shared->n_blocks; i++)
        if (at - shared->blocks[i].at < shared->blocks[i].bytes)
            return &shared->blocks[i];
    return NULL;
}

void embd__shared_hold(struct shared *shared, const void *data)
{
    pthread_mutex_lock(&shared->mutex);
    struct shared_block *block = block_of(shared, data);
    if (block != NULL)
        block->is_gate = true;
    pthread_mutex_unlock(&shared->mutex);
}

void embd__shared_keep(struct shared *shared, const void *data)
{
    pthread_mutex_lock(&shared->mutex);
    struct shared_block *block = block_of(shared, data);
    if (block != NULL)
        block->is_kept = true;
    pthread_mutex_unlock(&shared->mutex);
}

/* ---- what servers wrote ---- */

/* Pages of the caller's own, at the same place. Without memory for them the block stays shared:
 * what comes late may be seen in it. */
static void make_private(struct shared *shared, const struct shared_block *block)
{
    uint8_t *at = shared->base + block->at;
    void *own =
        mmap(NULL, block->bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return;
    memcpy(own, at, block->bytes);
    mremap(own, block->bytes, block->bytes, MREMAP_MAYMOVE | MREMAP_FIXED, at);
}

static bool any_is_lent(const struct shared *shared)
{
    for (uint32_t i = 0; i < shared->n_blocks; i++)
        if (shared->blocks[i].is_lent && !shared->blocks[i].is_gate)
            return true;
    return false;
}

/* Answers of other calls may be on their way: they are read by a mapping of their own. */
static void detach(struct shared *shared)
{
    void *view = mmap(NULL, shared->bytes, PROT_READ, MAP_SHARED, shared->fd, 0);
    if (view == MAP_FAILED)
        return;
    shared->view = view;
    for (uint32_t i = 0; i < shared->n_blocks; i++)
        if (shared->blocks[i].is_lent && !shared->blocks[i].is_gate)
            make_private(shared, &shared->blocks[i]);
}

void embd__shared_detach(struct shared *shared)
{
    pthread_mutex_lock(&shared->mutex);
    if (!shared->is_off && any_is_lent(shared)) {
        shared->is_off = true;
        detach(shared);
    }
    pthread_mutex_unlock(&shared->mutex);
}

const uint8_t *embd__shared_view(struct shared *shared, uint64_t at)
{
    pthread_mutex_lock(&shared->mutex);
    return shared->view + at;
}

void embd__shared_viewed(struct shared *shared)
{
    pthread_mutex_unlock(&shared->mutex);
}
