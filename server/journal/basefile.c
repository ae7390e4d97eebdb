/* basefile.c - see basefile.h.
 *
 * The happy path: the shard's thread copies a record into an empty buffer and hands it over. The
 * thread seals and writes it. After the last one it writes the header, syncs the file, renames it,
 * syncs the directory and removes the earlier files. Bytes go to the disk as they come: otherwise a
 * sync of the journal would wait for all that the kernel has buffered.
 *
 * What can fail is the disk: then the file is removed, and the journal has lost nothing. The
 * process ends only if it is unknown whether the new name is on disk: the records may then follow
 * either base. */
#include "server/journal/basefile.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/files/thread.h"
#include "server/journal/journal.h"
#include "server/journal/recordfile.h"
#include "server/journal/room.h"
#include "server/log/ending.h"

enum { BUFFERS = 2 };

struct buffer {
    uint8_t *bytes;
    uint64_t n, capacity;
};

/* Owner: the thread that opened it, but for what is marked. */
struct basefile {
    struct basefile_config config;
    pthread_t thread;
    /* The writing thread's. */
    struct recordfile file;
    uint64_t offset, position, chain;
    struct record_key key;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* Under the lock; a full buffer's bytes are the writing thread's. */
    struct buffer buffers[BUFFERS];
    uint32_t first_full, n_full;
    bool is_complete, stops, is_over;
    int error; /* errno; 0: it exists */
};

void basefile_name(char out[64], uint32_t shard, uint64_t number)
{
    snprintf(out, 64, "journal.%u.%08llu.base", shard, (unsigned long long)number);
}

static void staged_name(const struct basefile *base, char out[72])
{
    basefile_name(out, base->config.shard, base->config.number);
    strcat(out, ".tmp");
}

static int failed(const struct basefile *base, int error, struct embd__error *e)
{
    char name[72];
    staged_name(base, name);
    return embd__error_set(e, EMBD_IO, "journal '%s': %s; the journal is as it was", name,
                           strerror(error));
}

/* ---- the thread ---- */

/* 0 or errno. What was written before is on its way to the disk already: little waits for it. */
static int write_record(struct basefile *base, struct buffer *buffer)
{
    base->chain = record_seal(buffer->bytes, &base->key, base->position, base->position,
                              base->chain, &buffer->n);
    uint64_t begin = base->offset;
    int error = recordfile_append(&base->file, buffer->bytes, buffer->n, begin, &base->offset);
    if (error != 0)
        return error;
    if (sync_file_range(base->file.fd, 0, (off_t)begin, SYNC_FILE_RANGE_WAIT_BEFORE) != 0 ||
        sync_file_range(base->file.fd, (off_t)begin, (off_t)(base->offset - begin),
                        SYNC_FILE_RANGE_WRITE) != 0)
        return errno; /* which the sync would not report again */
    base->position++;
    return 0;
}

/* Its length is known in the end. */
static int write_header(const struct basefile *base)
{
    uint8_t bytes[SEGMENT_HEADER_BYTES];
    struct segment_header header = {
        .shard = base->config.shard,
        .n_shards = base->config.n_shards,
        .number = base->config.number,
        .first_position = base->config.position,
        .chain = base->config.chain,
        .base_bytes = base->offset,
        .key = base->key,
    };
    segment_header_write(bytes, &header);
    return recordfile_write(&base->file, bytes, sizeof bytes, 0);
}

/* No reader is left. A file that cannot be removed goes with the next start. A large file is freed
 * with its last descriptor, which takes time. */
static void drop_before(const struct basefile_config *config)
{
    char name[64];
    bool is_there = true;
    for (uint64_t n = config->number - 1; n > 0 && is_there; n--) {
        journal_file_name(name, config->shard, n);
        is_there = unlinkat(config->data_dir, name, 0) == 0;
    }
    basefile_name(name, config->shard, config->before);
    if (config->before != 0 && config->before != config->number)
        unlinkat(config->data_dir, name, 0);
    if (config->before_fd >= 0)
        close(config->before_fd);
    withdrawn_drop_before(config->data_dir, config->shard, config->position);
}

/* 0 or errno: then nothing was changed. */
static int publish(struct basefile *base)
{
    char name[64], staged[72];
    int dir = base->config.data_dir, error = write_header(base);
    staged_name(base, staged);
    basefile_name(name, base->config.shard, base->config.number);
    if (error != 0)
        return error;
    if (base->config.reserve_fd >= 0 && ftruncate(base->file.fd, (off_t)base->offset) != 0)
        return errno;
    if (fsync(base->file.fd) != 0 || renameat(dir, staged, dir, name) != 0)
        return errno;
    if (fsync(dir) != 0)
        log_exit(EXIT_DISK, "journal_sync_failed",
                 "file=%s call=fsync error=\"%s\" why=\"it is not known whether the new base is on "
                 "disk: the process ends; check the disk, then start it again\"",
                 name, strerror(errno));
    drop_before(&base->config);
    return 0;
}

/* The next full buffer; NULL: there will be none. */
static struct buffer *take(struct basefile *base)
{
    while (base->n_full == 0 && !base->is_complete && !base->stops)
        pthread_cond_wait(&base->changed, &base->lock);
    return base->n_full > 0 && !base->stops ? &base->buffers[base->first_full] : NULL;
}

static void tell(struct basefile *base)
{
    pthread_cond_broadcast(&base->changed);
    if (base->config.wake != NULL)
        base->config.wake(base->config.wake_arg);
}

/* The reserve gets the name of the staged file. 0 or errno: then it is of no use. */
static int begin(struct basefile *base)
{
    char staged[72], reserve[64];
    int dir = base->config.data_dir;
    staged_name(base, staged);
    room_name(reserve, base->config.shard);
    if (base->config.reserve_fd >= 0 && renameat(dir, reserve, dir, staged) != 0) {
        int error = errno;
        unlinkat(dir, reserve, 0);
        return error;
    }
    recordfile_open_direct(&base->file, dir, staged);
    return 0;
}

static void *run(void *arg)
{
    struct basefile *base = arg;
    char staged[72];
    thread_name("embd-base");
    int error = begin(base);
    staged_name(base, staged);
    pthread_mutex_lock(&base->lock);
    for (struct buffer *buffer; error == 0 && (buffer = take(base)) != NULL;) {
        pthread_mutex_unlock(&base->lock);
        error = write_record(base, buffer);
        pthread_mutex_lock(&base->lock);
        base->first_full = (base->first_full + 1) % BUFFERS;
        base->n_full--;
        tell(base);
    }
    error = error == 0 && base->stops ? ECANCELED : error;
    pthread_mutex_unlock(&base->lock);
    error = error == 0 ? publish(base) : error;
    if (error != 0) {
        unlinkat(base->config.data_dir, staged, 0);
        recordfile_close(&base->file);
    }
    pthread_mutex_lock(&base->lock);
    base->error = error;
    base->is_over = true;
    tell(base);
    pthread_mutex_unlock(&base->lock);
    return NULL;
}

/* ---- its owner ---- */

static void free_base(struct basefile *base)
{
    for (int i = 0; i < BUFFERS; i++)
        free(base->buffers[i].bytes);
    pthread_cond_destroy(&base->changed);
    pthread_mutex_destroy(&base->lock);
    free(base);
}

int basefile_open(const struct basefile_config *config, struct basefile **out,
                  struct embd__error *e)
{
    char name[72];
    struct basefile *base = calloc(1, sizeof *base);
    if (base == NULL) {
        if (config->reserve_fd >= 0)
            close(config->reserve_fd); /* the next one takes its place */
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a journal's base");
    }
    base->config = *config;
    base->offset = SEGMENT_HEADER_BYTES;
    base->position = config->position;
    base->chain = config->chain;
    pthread_mutex_init(&base->lock, NULL);
    pthread_cond_init(&base->changed, NULL);
    staged_name(base, name);
    base->file.fd = config->reserve_fd >= 0
                        ? config->reserve_fd
                        : safe_open(config->data_dir, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    base->file.direct_fd = -1;
    int error = base->file.fd < 0 || flock(base->file.fd, LOCK_EX | LOCK_NB) != 0
                    ? errno
                    : record_key_new(&base->key);
    if (error == 0)
        error = thread_start(&base->thread, run, base);
    if (error == 0) {
        *out = base;
        return EMBD_OK;
    }
    failed(base, error, e);
    if (config->reserve_fd >= 0)
        room_name(name, config->shard);
    if (base->file.fd >= 0)
        unlinkat(config->data_dir, name, 0);
    recordfile_close(&base->file);
    free_base(base);
    return e->status;
}

bool basefile_has_room(struct basefile *base)
{
    pthread_mutex_lock(&base->lock);
    bool has_room = base->n_full < BUFFERS && !base->is_over;
    pthread_mutex_unlock(&base->lock);
    return has_room;
}

int basefile_add(struct basefile *base, const struct frame_scanner *frame, struct embd__error *e)
{
    uint64_t bytes = record_bytes(frame);
    pthread_mutex_lock(&base->lock);
    struct buffer *buffer = &base->buffers[(base->first_full + base->n_full) % BUFFERS];
    pthread_mutex_unlock(&base->lock);
    if (bytes > buffer->capacity) {
        uint8_t *grown = aligned_alloc(RECORD_BLOCK_BYTES, record_block_end(bytes));
        if (grown == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY,
                                   "no memory for a journal record of %llu bytes",
                                   (unsigned long long)bytes);
        free(buffer->bytes);
        buffer->bytes = grown;
        buffer->capacity = bytes;
    }
    record_write(buffer->bytes, frame);
    pthread_mutex_lock(&base->lock);
    base->n_full++;
    pthread_cond_broadcast(&base->changed);
    pthread_mutex_unlock(&base->lock);
    return EMBD_OK;
}

static void ask(struct basefile *base, bool *what)
{
    pthread_mutex_lock(&base->lock);
    *what = true;
    pthread_cond_broadcast(&base->changed);
    pthread_mutex_unlock(&base->lock);
}

void basefile_end(struct basefile *base)
{
    ask(base, &base->is_complete);
}

void basefile_stop(struct basefile *base)
{
    ask(base, &base->stops);
}

bool basefile_is_over(struct basefile *base)
{
    pthread_mutex_lock(&base->lock);
    bool is_over = base->is_over;
    pthread_mutex_unlock(&base->lock);
    return is_over;
}

void basefile_wait(struct basefile *base)
{
    pthread_mutex_lock(&base->lock);
    while (!base->is_over && (base->n_full == BUFFERS || base->is_complete || base->stops))
        pthread_cond_wait(&base->changed, &base->lock);
    pthread_mutex_unlock(&base->lock);
}

int basefile_close(struct basefile *base, int *fd_out, uint64_t *bytes_out, struct embd__error *e)
{
    pthread_join(base->thread, NULL);
    *bytes_out = base->offset;
    *fd_out = -1;
    if (base->error == ECANCELED)
        embd__error_set(e, EMBD_CLOSED, "the journal's compaction was cancelled");
    else if (base->error != 0)
        failed(base, base->error, e);
    int status = base->error != 0 ? e->status : EMBD_OK;
    if (status == EMBD_OK) {
        *fd_out = base->file.fd;
        base->file.fd = -1;
    }
    recordfile_close(&base->file);
    free_base(base);
    return status;
}
