/* spool.c - see spool.h. */
#include "client/hugectr/spool.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/stored/plainfile.h"

#define CHUNK_BYTES    (1u << 20)
#define PREFETCH_BYTES 512u

int embd__spool_open(struct spool *spool, const char *folder, size_t record_bytes,
                     struct embd__error *e)
{
    char *path = embd__plain_path(folder, "spool", e);
    if (!path)
        return e->status;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        embd__error_set(e, EMBD_IO, "%s: cannot create: %s", path, strerror(errno));
    else
        unlink(path);
    free(path);
    if (fd < 0)
        return e->status;
    uint8_t *chunk = malloc(CHUNK_BYTES);
    if (!chunk) {
        close(fd);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for states on their way");
    }
    *spool =
        (struct spool){.record_bytes = record_bytes, .folder = folder, .fd = fd, .chunk = chunk};
    return EMBD_OK;
}

static int flush(struct spool *spool, struct embd__error *e)
{
    for (size_t done = 0; done < spool->fill;) {
        ssize_t n = write(spool->fd, spool->chunk + done, spool->fill - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return embd__error_set(e, EMBD_IO, "%s: cannot write the spooled states: %s",
                                   spool->folder, strerror(errno));
        done += (size_t)n;
    }
    spool->fill = 0;
    return EMBD_OK;
}

int embd__spool_add(struct spool *spool, const void *record, struct embd__error *e)
{
    if (spool->fill + spool->record_bytes > CHUNK_BYTES && flush(spool, e))
        return e->status;
    memcpy(spool->chunk + spool->fill, record, spool->record_bytes);
    spool->fill += spool->record_bytes;
    spool->n++;
    return EMBD_OK;
}

int embd__spool_map(struct spool *spool, struct embd__error *e)
{
    if (flush(spool, e) || spool->n == 0)
        return e->status;
    void *map = mmap(NULL, spool->n * spool->record_bytes, PROT_READ, MAP_SHARED | MAP_POPULATE,
                     spool->fd, 0);
    if (map == MAP_FAILED)
        return embd__error_set(e, EMBD_NO_MEMORY, "%s: cannot map the spooled states: %s",
                               spool->folder, strerror(errno));
    spool->map = map;
    return EMBD_OK;
}

void embd__spool_fini(struct spool *spool)
{
    if (spool->map)
        munmap((void *)(uintptr_t)spool->map, spool->n * spool->record_bytes);
    if (spool->chunk)
        close(spool->fd);
    free(spool->chunk);
}

void embd__spool_prefetch(const struct spool *spool, uint64_t i)
{
    if (i >= spool->n)
        return;
    const char *record = embd__spool_record(spool, i);
    for (size_t at = 0; at < spool->record_bytes && at < PREFETCH_BYTES; at += 64)
        __builtin_prefetch(record + at);
}
