/* archived.c - see archived.h.
 *
 * The happy path: the file is mapped, its checksum compared, and one record after the other is
 * given out, but for those that are left out. What can fail: the file is not whole, or is not of
 * this snapshot and shard. Then the shard does not start. */
#include "server/snapshot/archived.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/archived.h"
#include "proto/little.h"
#include "server/files/safe_open.h"

/* Owner: the shard's thread. */
struct archived {
    char name[ARCHIVED_NAME];
    struct archived_file file;
    uint8_t *bytes; /* [n] of the file, mapped; changes do not go to it */
    uint64_t n;
    uint64_t at; /* of the records */
    uint64_t position, chain;
    uint64_t n_passed; /* of those that are left out */
};

bool archived_is_there(const char *data_dir, uint32_t shard)
{
    char name[ARCHIVED_NAME];
    struct stat st;
    int dir = open(data_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    embd__archived_name(name, shard);
    bool is_there = dir >= 0 && fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    if (dir >= 0)
        close(dir);
    return is_there;
}

static int fail(const struct archived *a, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "%s: %s", a->name, strerror(errno));
}

static int map(struct archived *a, int fd, struct embd__error *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return fail(a, e);
    a->n = (uint64_t)st.st_size;
    if (a->n < ARCHIVED_HEADER_BYTES)
        return embd__error_set(e, EMBD_CORRUPT, "%s: is cut off", a->name);
    void *bytes = mmap(NULL, a->n, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (bytes == MAP_FAILED)
        return fail(a, e);
    a->bytes = bytes;
    return EMBD_OK;
}

/* Header and checksum. */
static int verify(struct archived *a, struct embd__error *e)
{
    struct embd__error inner = {.status = EMBD_OK};
    if (embd__archived_read(a->bytes, a->n, &a->file, &inner) != EMBD_OK)
        return embd__error_set(e, inner.status, "%s: %s", a->name, inner.text);
    if (embd__archived_sum(a->bytes, a->n) != a->file.xxh3)
        return embd__error_set(e, EMBD_CORRUPT, "%s: its checksum is not right", a->name);
    a->position = a->file.position;
    a->chain = a->file.chain;
    return EMBD_OK;
}

static int check(const struct archived *a, uint32_t shard, uint32_t n_shards, uint64_t cut,
                 struct embd__error *e)
{
    const struct archived_file *f = &a->file;
    if (f->shard == shard && f->n_shards == n_shards && f->cut == cut)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_INVALID,
        "%s: is of shard %u of %u and cut %016llx, and not of shard %u of %u and "
        "cut %016llx: remove it, or take the snapshot that it belongs to",
        a->name, f->shard, f->n_shards, (unsigned long long)f->cut, shard, n_shards,
        (unsigned long long)cut);
}

int archived_open(int data_dir, uint32_t shard, uint32_t n_shards, uint64_t cut,
                  struct archived **out, struct embd__error *e)
{
    struct archived *a = calloc(1, sizeof *a);
    if (a == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to read archived records");
    embd__archived_name(a->name, shard);
    int fd = safe_open(data_dir, a->name, O_RDONLY, 0);
    if (fd < 0 && errno != ENOENT)
        fail(a, e);
    if (fd >= 0 && map(a, fd, e) == EMBD_OK && verify(a, e) == EMBD_OK)
        check(a, shard, n_shards, cut, e);
    if (fd >= 0)
        close(fd);
    *out = fd >= 0 && e->status == EMBD_OK ? a : NULL;
    if (*out == NULL)
        archived_close(a);
    return e->status;
}

/* The list rises. */
static bool is_left_out(struct archived *a, uint64_t position)
{
    const uint8_t *list = a->bytes + ARCHIVED_HEADER_BYTES + a->file.bytes;
    while (a->n_passed < a->file.n_left_out && embd__get_u64(list + 8 * a->n_passed) < position)
        a->n_passed++;
    return a->n_passed < a->file.n_left_out && embd__get_u64(list + 8 * a->n_passed) == position;
}

int archived_next(struct archived *a, uint8_t **bytes_out, struct record *record_out,
                  struct embd__error *e)
{
    *bytes_out = NULL;
    while (a->at < a->file.bytes) {
        uint8_t *bytes = a->bytes + ARCHIVED_HEADER_BYTES + a->at;
        if (!record_check(bytes, a->file.bytes - a->at, record_out) ||
            record_out->position != a->position || record_out->chain != a->chain)
            return embd__error_set(e, EMBD_CORRUPT, "%s: record %llu does not follow", a->name,
                                   (unsigned long long)a->position);
        a->at += RECORD_HEADER_BYTES + record_out->body_bytes;
        a->position++;
        a->chain = record_out->checksum;
        if (is_left_out(a, record_out->position))
            continue;
        *bytes_out = bytes;
        return EMBD_OK;
    }
    return EMBD_OK;
}

void archived_progress(const struct archived *a, uint64_t *done_bytes_out,
                       uint64_t *total_bytes_out)
{
    *done_bytes_out = a->at;
    *total_bytes_out = a->file.bytes;
}

void archived_close(struct archived *a)
{
    if (a != NULL && a->bytes != NULL)
        munmap(a->bytes, a->n);
    free(a);
}
