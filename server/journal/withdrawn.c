/* withdrawn.c - see withdrawn.h.
 *
 * `journal.SHARD.withdrawn`: for each record its position u64, its checksum u64, and XXH3 of both u64,
 * little-endian. It is synced before anybody is told. An entry at the end that is torn, or does not
 * verify, was told to nobody, and the next one takes its place. */
#include "withdrawn.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "below.h"
#include "little.h"

#define ENTRY_BYTES 24u

static void file_name(char out[64], uint32_t shard)
{
    snprintf(out, 64, "journal.%u.withdrawn", shard);
}

static int failed(const char *name, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "'%s': %s", name, strerror(errno));
}

static void write_entry(uint8_t out[ENTRY_BYTES], const struct record_id *id)
{
    embd__put_u64(out, id->position);
    embd__put_u64(out + 8, id->checksum);
    embd__put_u64(out + 16, XXH3_64bits(out, 16));
}

static bool read_entry(const uint8_t *bytes, struct record_id *out)
{
    *out = (struct record_id){embd__get_u64(bytes), embd__get_u64(bytes + 8)};
    return embd__get_u64(bytes + 16) == XXH3_64bits(bytes, 16);
}

/* ---- adding ---- */

/* Behind the last whole entry that verifies. */
static bool find_end(int fd, off_t *out)
{
    uint8_t bytes[ENTRY_BYTES];
    struct record_id id;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return false;
    *out = st.st_size / ENTRY_BYTES * ENTRY_BYTES;
    if (*out == 0)
        return true;
    if (pread(fd, bytes, sizeof bytes, *out - ENTRY_BYTES) != ENTRY_BYTES)
        return false;
    if (!read_entry(bytes, &id))
        *out -= ENTRY_BYTES;
    return true;
}

int withdrawn_add(int data_dir, uint32_t shard, const struct record_id *id, struct embd__error *e)
{
    char name[64];
    uint8_t bytes[ENTRY_BYTES];
    off_t at;
    file_name(name, shard);
    write_entry(bytes, id);
    int fd = below_open(data_dir, name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return failed(name, e);
    errno = EIO; /* what a short read or write leaves unsaid */
    if (!find_end(fd, &at) || pwrite(fd, bytes, sizeof bytes, at) != ENTRY_BYTES || fsync(fd) != 0 ||
        fsync(data_dir) != 0)
        failed(name, e);
    close(fd);
    return e->status;
}

/* ---- reading ---- */

static int compare(const void *a, const void *b)
{
    const struct record_id *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (x->checksum > y->checksum) - (x->checksum < y->checksum);
}

static int read_all(int fd, const char *name, struct withdrawn *out, struct embd__error *e)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return failed(name, e);
    uint64_t n = (uint64_t)st.st_size / ENTRY_BYTES;
    if (n == 0)
        return EMBD_OK;
    out->ids = malloc(n * sizeof *out->ids);
    if (out->ids == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the %llu records of '%s'",
                               (unsigned long long)n, name);
    for (uint64_t i = 0; i < n; i++) {
        uint8_t bytes[ENTRY_BYTES];
        errno = EIO;
        if (pread(fd, bytes, sizeof bytes, (off_t)(i * ENTRY_BYTES)) != ENTRY_BYTES)
            return failed(name, e);
        if (read_entry(bytes, &out->ids[out->n]))
            out->n++;
        else if (i + 1 < n)
            return embd__error_set(e, EMBD_CORRUPT,
                                   "'%s' is damaged at offset %llu: pushes that were refused would be "
                                   "applied; nothing was changed",
                                   name, (unsigned long long)(i * ENTRY_BYTES));
    }
    qsort(out->ids, out->n, sizeof *out->ids, compare);
    return EMBD_OK;
}

int withdrawn_read(int data_dir, uint32_t shard, struct withdrawn *out, struct embd__error *e)
{
    char name[64];
    *out = (struct withdrawn){.ids = NULL};
    file_name(name, shard);
    int fd = below_open(data_dir, name, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(name, e);
    if (read_all(fd, name, out, e) != EMBD_OK)
        withdrawn_fini(out);
    close(fd);
    return e->status;
}

bool withdrawn_meets(struct withdrawn *list, const struct record_id *id)
{
    bool meets = list->n > 0 && bsearch(id, list->ids, list->n, sizeof *id, compare) != NULL;
    list->n_met += meets;
    return meets;
}

void withdrawn_drop_old(int data_dir, uint32_t shard, const struct withdrawn *list)
{
    char name[64];
    file_name(name, shard);
    if (list->n > 0 && list->n_met == 0)
        unlinkat(data_dir, name, 0);
}

void withdrawn_fini(struct withdrawn *list)
{
    free(list->ids);
    *list = (struct withdrawn){.ids = NULL};
}
