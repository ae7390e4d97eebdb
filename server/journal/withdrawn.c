/* withdrawn.c - see withdrawn.h.
 *
 * `journal.SHARD.withdrawn`: "embdwdn2", then each record twice: its position u64, its checksum
 * u64, and XXH3 of both u64, little-endian. (Earlier versions wrote each record once, without a
 * header.) One copy is enough, so that no flipped bit loses an entry. The list is synced before
 * anyone gets the answer. An entry at the end that is torn, or without a copy that verifies, was
 * answered to nobody, and the next one takes its place. The list is no longer than the journal:
 * entries are removed with the records before a base. */
#include "server/journal/withdrawn.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "server/files/safe_open.h"
#include "proto/little.h"

#define COPY_BYTES  24u
#define ENTRY_BYTES WITHDRAWN_BYTES
#define MAGIC       "embdwdn2"
#define MAGIC_BYTES 8u

void withdrawn_name(char out[64], uint32_t shard)
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
    memcpy(out + COPY_BYTES, out, COPY_BYTES);
}

static bool read_copy(const uint8_t *bytes, struct record_id *out)
{
    *out = (struct record_id){embd__get_u64(bytes), embd__get_u64(bytes + 8)};
    return embd__get_u64(bytes + 16) == XXH3_64bits(bytes, 16);
}

/* ---- reading ---- */

/* A file in memory; bytes NULL: none. */
struct image {
    uint8_t *bytes;
    uint64_t n;
    bool is_old;
};

/* Their entries stand where the others' do not; so a flipped bit of the first bytes changes
 * nothing. */
static bool is_old(const struct image *image)
{
    struct record_id id;
    for (uint64_t at = 0; at + COPY_BYTES <= image->n; at += COPY_BYTES)
        if (read_copy(image->bytes + at, &id))
            return true;
    return false;
}

static int read_image(int data_dir, const char *name, struct image *out, struct embd__error *e)
{
    struct stat st;
    *out = (struct image){.bytes = NULL};
    int fd = safe_open(data_dir, name, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(name, e);
    if (fstat(fd, &st) != 0) {
        failed(name, e);
    } else if ((out->bytes = malloc((size_t)st.st_size + 1)) == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for %lld bytes of '%s'",
                        (long long)st.st_size, name);
    } else {
        errno = EIO; /* what a short read leaves unsaid */
        if (pread(fd, out->bytes, (size_t)st.st_size, 0) != st.st_size)
            failed(name, e);
    }
    close(fd);
    out->n = out->bytes != NULL ? (uint64_t)st.st_size : 0;
    out->is_old = is_old(out);
    return e->status;
}

static uint64_t entry_bytes(const struct image *image)
{
    return image->is_old ? COPY_BYTES : ENTRY_BYTES;
}

static uint64_t count(const struct image *image)
{
    uint64_t begin = image->is_old ? 0 : MAGIC_BYTES;
    return image->n < begin ? 0 : (image->n - begin) / entry_bytes(image);
}

static uint64_t place(const struct image *image, uint64_t i)
{
    return (image->is_old ? 0 : MAGIC_BYTES) + i * entry_bytes(image);
}

static bool read_entry(const struct image *image, uint64_t i, struct record_id *out)
{
    const uint8_t *bytes = image->bytes + place(image, i);
    return read_copy(bytes, out) || (!image->is_old && read_copy(bytes + COPY_BYTES, out));
}

static int compare(const void *a, const void *b)
{
    const struct record_id *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return (x->checksum > y->checksum) - (x->checksum < y->checksum);
}

static int read_entries(const struct image *image, const char *name, struct withdrawn *out,
                        struct embd__error *e)
{
    uint64_t n = count(image);
    out->is_old = image->is_old;
    if (n == 0)
        return EMBD_OK;
    out->ids = malloc(n * sizeof *out->ids);
    if (out->ids == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for the %llu records of '%s'",
                               (unsigned long long)n, name);
    for (uint64_t i = 0; i < n; i++) {
        if (read_entry(image, i, &out->ids[out->n])) {
            out->n++;
        } else if (i + 1 < n) {
            out->damaged_at = out->n_damaged++ == 0 ? place(image, i) : out->damaged_at;
        }
    }
    qsort(out->ids, out->n, sizeof *out->ids, compare);
    return EMBD_OK;
}

int withdrawn_read(int data_dir, uint32_t shard, struct withdrawn *out, struct embd__error *e)
{
    char name[64];
    struct image image;
    *out = (struct withdrawn){.ids = NULL};
    withdrawn_name(name, shard);
    if (read_image(data_dir, name, &image, e) == EMBD_OK && image.bytes != NULL)
        read_entries(&image, name, out, e);
    free(image.bytes);
    return e->status;
}

bool withdrawn_meets(const struct withdrawn *list, const struct record_id *id)
{
    return list->n > 0 && bsearch(id, list->ids, list->n, sizeof *id, compare) != NULL;
}

void withdrawn_fini(struct withdrawn *list)
{
    free(list->ids);
    *list = (struct withdrawn){.ids = NULL};
}

/* ---- writing ---- */

/* A shard adds while the thread of its base drops; both are rare. */
static pthread_mutex_t writing = PTHREAD_MUTEX_INITIALIZER;

/* 0 or errno. */
static int write_synced(int fd, const uint8_t *bytes, uint64_t n, uint64_t at)
{
    errno = EIO; /* what a short write leaves unsaid */
    return pwrite(fd, bytes, n, (off_t)at) == (ssize_t)n && fsync(fd) == 0 ? 0 : errno;
}

/* The new list, in place of the existing one. */
static int rewrite(int data_dir, const char *name, const struct withdrawn *list,
                   struct embd__error *e)
{
    char staged[72];
    uint64_t n = MAGIC_BYTES + list->n * ENTRY_BYTES;
    uint8_t *bytes = malloc(n);
    if (bytes == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to rewrite '%s'", name);
    memcpy(bytes, MAGIC, MAGIC_BYTES);
    for (uint64_t i = 0; i < list->n; i++)
        write_entry(bytes + MAGIC_BYTES + i * ENTRY_BYTES, &list->ids[i]);
    snprintf(staged, sizeof staged, "%s.tmp", name);
    int fd = safe_open(data_dir, staged, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    errno = fd < 0 ? errno : write_synced(fd, bytes, n, 0);
    if (errno != 0 || renameat(data_dir, staged, data_dir, name) != 0 || fsync(data_dir) != 0)
        failed(name, e);
    if (fd >= 0)
        close(fd);
    free(bytes);
    return e->status;
}

/* The offset behind the last whole entry with a copy that verifies. */
static uint64_t find_end(const struct image *image)
{
    struct record_id id;
    uint64_t n = count(image);
    return place(image, n > 0 && !read_entry(image, n - 1, &id) ? n - 1 : n);
}

static int append(int data_dir, const char *name, uint64_t at, const struct record_id *id,
                  struct embd__error *e)
{
    uint8_t bytes[MAGIC_BYTES + ENTRY_BYTES];
    uint32_t from = at == MAGIC_BYTES ? 0 : MAGIC_BYTES;
    memcpy(bytes, MAGIC, MAGIC_BYTES);
    write_entry(bytes + MAGIC_BYTES, id);
    int fd = safe_open(data_dir, name, O_WRONLY | O_CREAT, 0600);
    errno = fd < 0 ? errno
                   : write_synced(fd, bytes + from, sizeof bytes - from, at - MAGIC_BYTES + from);
    if (errno != 0 || fsync(data_dir) != 0)
        failed(name, e);
    if (fd >= 0)
        close(fd);
    return e->status;
}

static int add(int data_dir, uint32_t shard, const struct record_id *id, struct embd__error *e)
{
    char name[64];
    struct image image;
    struct withdrawn list = {.ids = NULL};
    withdrawn_name(name, shard);
    if (read_image(data_dir, name, &image, e) == EMBD_OK && image.is_old &&
        read_entries(&image, name, &list, e) == EMBD_OK &&
        rewrite(data_dir, name, &list, e) == EMBD_OK) {
        free(image.bytes);
        read_image(data_dir, name, &image, e);
    }
    if (e->status == EMBD_OK)
        append(data_dir, name, find_end(&image), id, e);
    withdrawn_fini(&list);
    free(image.bytes);
    return e->status;
}

int withdrawn_add(int data_dir, uint32_t shard, const struct record_id *id, struct embd__error *e)
{
    pthread_mutex_lock(&writing);
    add(data_dir, shard, id, e);
    pthread_mutex_unlock(&writing);
    return e->status;
}

static void drop_before(int data_dir, uint32_t shard, uint64_t position)
{
    char name[64];
    struct withdrawn list;
    struct embd__error ignored = {.status = EMBD_OK};
    struct stat st;
    uint64_t n = 0;
    withdrawn_name(name, shard);
    if (fstatat(data_dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0 ||
        withdrawn_read(data_dir, shard, &list, &ignored) != EMBD_OK)
        return;
    for (uint64_t i = 0; i < list.n; i++)
        if (list.ids[i].position >= position)
            list.ids[n++] = list.ids[i];
    bool is_shorter = n < list.n || list.n_damaged > 0;
    list.n = n;
    if (is_shorter && n == 0)
        unlinkat(data_dir, name, 0);
    else if (is_shorter || (list.is_old && n > 0))
        rewrite(data_dir, name, &list, &ignored);
    withdrawn_fini(&list);
}

void withdrawn_drop_before(int data_dir, uint32_t shard, uint64_t position)
{
    pthread_mutex_lock(&writing);
    drop_before(data_dir, shard, position);
    pthread_mutex_unlock(&writing);
}
