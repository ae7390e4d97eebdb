/* manifest_first.c - a server whose snapshots get their manifest and their name before their rows:
 * linked in with
 * --wrap, around what writes a part and what gives a snapshot its name. A part is first as long as
 * it will be and all zeros; its bytes come a moment after the name. */
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "server/files/part.h"
#include "server/snapshot/snapshot.h"

enum { PARTS = 64, LATE_US = 50000 };

int __real_part_write(int dir, const embd_schema *schema, uint32_t shard, struct part_rows *rows,
                      struct manifest_part *out, struct embd__error *e);
int __wrap_part_write(int dir, const embd_schema *schema, uint32_t shard, struct part_rows *rows,
                      struct manifest_part *out, struct embd__error *e);
int __real_snapshot_publish(int data_dir, const char *name, struct embd__error *e);
int __wrap_snapshot_publish(int data_dir, const char *name, struct embd__error *e);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct late_part {
    int fd;
    uint8_t *bytes;
    size_t n;
} late[PARTS];
static uint32_t n_late;

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void put_off(int dir, const struct manifest_part *part)
{
    struct late_part one = {openat(dir, part->file, O_RDWR | O_CLOEXEC), malloc(part->bytes),
                            (size_t)part->bytes};
    must(one.fd >= 0 && one.bytes != NULL);
    must(pread(one.fd, one.bytes, one.n, 0) == (ssize_t)one.n);
    must(ftruncate(one.fd, 0) == 0 && ftruncate(one.fd, (off_t)one.n) == 0);
    pthread_mutex_lock(&lock);
    must(n_late < PARTS);
    late[n_late++] = one;
    pthread_mutex_unlock(&lock);
}

int __wrap_part_write(int dir, const embd_schema *schema, uint32_t shard, struct part_rows *rows,
                      struct manifest_part *out, struct embd__error *e)
{
    int status = __real_part_write(dir, schema, shard, rows, out, e);
    if (status == EMBD_OK)
        put_off(dir, out);
    return status;
}

int __wrap_snapshot_publish(int data_dir, const char *name, struct embd__error *e)
{
    int status = __real_snapshot_publish(data_dir, name, e);
    usleep(LATE_US);
    pthread_mutex_lock(&lock);
    while (n_late > 0) {
        struct late_part *one = &late[--n_late];
        must(pwrite(one->fd, one->bytes, one->n, 0) == (ssize_t)one->n && fsync(one->fd) == 0);
        close(one->fd);
        free(one->bytes);
    }
    pthread_mutex_unlock(&lock);
    return status;
}
