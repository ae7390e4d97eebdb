/* journal.c - appending: groups, and the thread that writes them (segments.h).
 *
 * The happy path is: journal_append copies records into the gathering group; journal_submit hands
 * it to the thread; the thread numbers and seals the records, writes them with one pwrite, syncs,
 * and wakes the shard, which hands over the next group, applies this one and gives it back.
 *
 * The records of each group say how far earlier ones were synced. No record says it of the last
 * group, so a journal that has been at rest for a second, or ends in order, gets a mark: everything
 * before it was synced, and cannot be torn.
 *
 * Only the thread touches the file while a group is out; journal_write_now uses it from the shard's
 * thread when no group is out, and no late sync of buffered records or mark either. The lock is not
 * held during I/O of the thread, so the shard never waits for the disk. */
#include "server/journal/journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/files/safe_open.h"
#include "server/files/thread.h"
#include "server/journal/recent.h"
#include "server/journal/segments.h"
#include "server/log/ending.h"

/* ---- the thread ---- */

static bool is_due(const struct journal *journal)
{
    return journal->deadline.is_dirty && monotonic_ns() >= sync_deadline_of(&journal->deadline);
}

static bool is_mark_due(const struct journal *journal)
{
    return !journal->deadline.is_dirty && !journal->is_marked &&
           monotonic_ns() >= journal->mark_at_ns;
}

/* For a group, or until the sync or the mark is due. */
static void wait_for_news(struct journal *journal)
{
    if (!journal->deadline.is_dirty && journal->is_marked) {
        pthread_cond_wait(&journal->news, &journal->lock);
        return;
    }
    uint64_t by =
        journal->deadline.is_dirty ? sync_deadline_of(&journal->deadline) : journal->mark_at_ns;
    const struct timespec until = {(time_t)(by / 1000000000u), (long)(by % 1000000000u)};
    pthread_cond_timedwait(&journal->news, &journal->lock, &until);
}

/* A full disk has room again when the base is there that is being written. */
static bool waits_for_base(struct journal *journal)
{
    bool waits = journal->out->error == ENOSPC && journal->has_next_base;
    while (journal->has_next_base && waits)
        pthread_cond_wait(&journal->news, &journal->lock);
    return waits;
}

static void write_out(struct journal *journal)
{
    do {
        pthread_mutex_unlock(&journal->lock);
        if (log_has_ended())
            log_stand_still(); /* what is written now might not be what was applied */
        segments_write(journal, journal->out);
        pthread_mutex_lock(&journal->lock);
    } while (waits_for_base(journal));
    journal->state = OUT_WRITTEN;
    pthread_cond_broadcast(&journal->news);
    journal->config.wake(journal->config.wake_arg);
}

/* segments_sync or segments_mark. */
static void do_late(struct journal *journal, void (*what)(struct journal *))
{
    journal->is_syncing = true;
    pthread_mutex_unlock(&journal->lock);
    what(journal);
    pthread_mutex_lock(&journal->lock);
    journal->is_syncing = false;
    pthread_cond_broadcast(&journal->news);
}

/* The journal has come to rest: the next base gets its room now, not with the next record. */
static void reserve_late(struct journal *journal)
{
    journal->is_reserving = true;
    pthread_mutex_unlock(&journal->lock);
    room_hold(&journal->room, 0);
    pthread_mutex_lock(&journal->lock);
    journal->is_reserving = false;
    pthread_cond_broadcast(&journal->news);
}

static void rest(struct journal *journal)
{
    reserve_late(journal);
    if (journal->state != OUT_WRITING)
        do_late(journal, segments_mark);
}

static void *run(void *arg)
{
    struct journal *journal = arg;
    thread_name("embd-journal");
    pthread_mutex_lock(&journal->lock);
    while (!journal->is_ending) {
        if (is_due(journal))
            do_late(journal, segments_sync);
        else if (journal->state == OUT_WRITING)
            write_out(journal);
        else if (is_mark_due(journal))
            rest(journal);
        else
            wait_for_news(journal);
    }
    pthread_mutex_unlock(&journal->lock);
    return NULL;
}

/* ---- opening ---- */

/* -1: e says why. */
static int open_locked(const struct journal *journal, const char *name, struct embd__error *e)
{
    int fd = safe_open(journal->config.data_dir, name, O_RDWR, 0);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    embd__error_set(e, EMBD_IO, "journal '%s': %s", name,
                    fd < 0 ? strerror(errno) : "another process uses it");
    if (fd >= 0)
        close(fd);
    return -1;
}

static int open_segment(struct journal *journal, const struct journal_end *end,
                        struct embd__error *e)
{
    char name[64];
    journal_file_name(name, journal->config.shard, end->segment);
    journal->file.fd = open_locked(journal, name, e);
    if (journal->file.fd < 0)
        return e->status;
    int error = recordfile_clear_behind_end(&journal->file);
    if (error == 0 && fdatasync(journal->file.fd) != 0) /* what is read may not be on disk yet */
        error = errno;
    if (error != 0)
        return embd__error_set(e, EMBD_IO, "journal '%s': %s", name, strerror(error));
    journal->is_marked = end->is_marked;
    journal->key = end->key;
    journal->begins_segment = !end->key.is_keyed; /* an earlier version's gets no more records */
    recordfile_open_direct(&journal->file, journal->config.data_dir, name);
    return EMBD_OK;
}

/* It is kept open for its lock: there may be no segment. */
static int open_base(struct journal *journal, struct embd__error *e)
{
    char name[64];
    struct stat st;
    basefile_name(name, journal->config.shard, journal->base.number);
    journal->base.fd = open_locked(journal, name, e);
    if (journal->base.fd >= 0 && fstat(journal->base.fd, &st) == 0)
        journal->base.made_s = (uint64_t)st.st_mtim.tv_sec;
    return e->status;
}

static int start_thread(struct journal *journal, struct embd__error *e)
{
    if (journal->config.wake == NULL)
        return EMBD_OK;
    int error = thread_start(&journal->thread, run, journal);
    if (error != 0)
        return embd__error_set(e, EMBD_NO_MEMORY, "journal's thread: %s", strerror(error));
    journal->has_thread = true;
    return EMBD_OK;
}

int journal_open(const struct journal_config *config, const struct journal_end *end,
                 struct journal **out, struct embd__error *e)
{
    struct journal *journal = calloc(1, sizeof *journal);
    if (journal == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a journal");
    pthread_condattr_t clock;
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&journal->news, &clock);
    pthread_condattr_destroy(&clock);
    pthread_mutex_init(&journal->lock, NULL);
    journal->config = *config;
    sync_deadline_init(&journal->deadline);
    recent_forget(config->recent);
    room_init(&journal->room, config->data_dir, config->shard);
    journal->file.fd = journal->file.direct_fd = journal->base.fd = journal->reached_fd = -1;
    journal->base.number = end->base;
    journal->base.bytes = end->base_bytes;
    atomic_init(&journal->written_bytes, end->bytes_since);
    journal->segment = end->segment;
    journal->offset = end->offset;
    journal->position = journal->synced = end->position;
    atomic_init(&journal->told_synced, end->position);
    journal->chain = end->chain;
    journal->is_marked = true; /* until it is open */
    journal->mark_at_ns = monotonic_ns() + MARK_AFTER_NS;
    journal->gathering = &journal->groups[0];
    journal->out = &journal->groups[1];
    journal->spare = &journal->groups[2];
    if (reached_lower(config->data_dir, config->shard, end->position, e) != EMBD_OK ||
        (end->is_there && open_segment(journal, end, e) != EMBD_OK) ||
        (end->base != 0 && open_base(journal, e) != EMBD_OK) ||
        start_thread(journal, e) != EMBD_OK) {
        journal_close(journal);
        return e->status;
    }
    *out = journal;
    return EMBD_OK;
}

static void close_base(struct journal *journal)
{
    struct embd__error given_up = {.status = EMBD_OK};
    if (journal->next_base != NULL) {
        basefile_stop(journal->next_base);
        journal_base_take(journal, &given_up);
    }
    if (journal->base.fd >= 0)
        close(journal->base.fd);
}

void journal_close(struct journal *journal)
{
    if (journal == NULL)
        return;
    if (journal->has_thread) {
        pthread_mutex_lock(&journal->lock);
        journal->is_ending = true;
        pthread_cond_broadcast(&journal->news);
        pthread_mutex_unlock(&journal->lock);
        pthread_join(journal->thread, NULL);
    }
    if (journal->deadline.is_dirty)
        segments_sync(journal);
    if (!journal->is_marked)
        segments_mark(journal);
    recordfile_close(&journal->file);
    if (journal->reached_fd >= 0)
        close(journal->reached_fd);
    close_base(journal);
    room_close(&journal->room);
    for (int i = 0; i < 3; i++)
        group_fini(&journal->groups[i]);
    pthread_cond_destroy(&journal->news);
    pthread_mutex_destroy(&journal->lock);
    free(journal);
}

/* ---- groups ---- */

int journal_append(struct journal *journal, struct op *op, const struct frame_scanner *frame,
                   bool is_durable, struct embd__error *e)
{
    return group_append(journal->gathering, op, frame, is_durable, e);
}

void journal_submit(struct journal *journal)
{
    if (journal->gathering->n_entries == 0)
        return;
    pthread_mutex_lock(&journal->lock);
    if (journal->state == OUT_NONE) {
        struct journal_group *group = journal->gathering;
        journal->gathering = journal->out;
        journal->out = group;
        journal->state = OUT_WRITING;
        pthread_cond_broadcast(&journal->news);
    }
    pthread_mutex_unlock(&journal->lock);
}

struct journal_group *journal_written(struct journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    if (journal->applying == NULL && journal->state == OUT_WRITTEN) {
        journal->applying = journal->out;
        journal->out = journal->spare;
        journal->spare = NULL;
        journal->state = OUT_NONE;
    }
    pthread_mutex_unlock(&journal->lock);
    return journal->applying;
}

void journal_give_back(struct journal *journal)
{
    EMBD_ASSERT(journal->applying != NULL && journal->spare == NULL);
    group_clear(journal->applying);
    journal->spare = journal->applying;
    journal->applying = NULL;
}

void journal_wait(struct journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    while (journal->state == OUT_WRITING)
        pthread_cond_wait(&journal->news, &journal->lock);
    pthread_mutex_unlock(&journal->lock);
}

uint64_t journal_position(const struct journal *journal)
{
    return journal->position;
}

uint64_t journal_chain(const struct journal *journal)
{
    return journal->chain;
}

uint64_t journal_gathered(const struct journal *journal)
{
    return journal->gathering->n_bytes;
}

uint64_t journal_synced(struct journal *journal)
{
    return atomic_load_explicit(&journal->told_synced, memory_order_acquire);
}

struct record_id journal_last(const struct journal *journal)
{
    EMBD_ASSERT(journal->position > 0);
    return (struct record_id){journal->position - 1, journal->chain};
}

void journal_forget(struct journal *journal, const struct op *op)
{
    for (int i = 0; i < 3; i++)
        group_forget(&journal->groups[i], op);
}

int journal_write_now(struct journal *journal, const struct frame_scanner *frame, bool is_durable,
                      struct embd__error *e)
{
    EMBD_ASSERT(journal->gathering->n_entries == 0);
    if (journal_append(journal, NULL, frame, is_durable, e) != EMBD_OK)
        return e->status;
    pthread_mutex_lock(&journal->lock);
    EMBD_ASSERT(journal->state == OUT_NONE);
    while (journal->is_syncing || journal->is_reserving)
        pthread_cond_wait(&journal->news, &journal->lock);
    segments_write(journal, journal->gathering);
    pthread_cond_broadcast(&journal->news);
    pthread_mutex_unlock(&journal->lock);
    int error = journal->gathering->error;
    group_clear(journal->gathering);
    if (error != 0)
        return embd__error_set(e, EMBD_IO, "journal: %s; nothing was changed", strerror(error));
    return EMBD_OK;
}

/* ---- a new beginning ---- */

static uint64_t bytes_behind_base(const struct journal *journal)
{
    uint64_t written = atomic_load_explicit(&journal->written_bytes, memory_order_relaxed);
    return written - journal->base.written_before;
}

/* Whether a base gives back enough for what it takes to write it. */
static bool is_worth_base(const struct journal *journal)
{
    return room_is_worth(&journal->room, bytes_behind_base(journal));
}

bool journal_has_behind(const struct journal *journal, uint64_t bytes)
{
    return journal->next_base == NULL && bytes_behind_base(journal) >= bytes;
}

bool journal_wants_base(const struct journal *journal, uint64_t least_bytes)
{
    uint64_t behind = bytes_behind_base(journal);
    return journal->next_base == NULL && behind >= least_bytes && behind > journal->base.bytes;
}

bool journal_lacks_room(const struct journal *journal)
{
    return atomic_load_explicit(&journal->room.is_short, memory_order_relaxed) &&
           journal->next_base == NULL && is_worth_base(journal);
}

bool journal_has_ample_room(const struct journal *journal)
{
    return room_is_ample(&journal->room);
}

void journal_set_need(struct journal *journal, uint64_t bytes)
{
    atomic_store_explicit(&journal->room.need, bytes, memory_order_relaxed);
}

static void end_base(struct journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    journal->has_next_base = false;
    room_take_back(&journal->room);
    pthread_cond_broadcast(&journal->news);
    pthread_mutex_unlock(&journal->lock);
}

int journal_base_begin(struct journal *journal, struct embd__error *e)
{
    EMBD_ASSERT(journal->next_base == NULL && journal->gathering->n_entries == 0);
    pthread_mutex_lock(&journal->lock);
    while (journal->is_reserving) /* which no sync is part of */
        pthread_cond_wait(&journal->news, &journal->lock);
    EMBD_ASSERT(journal->state == OUT_NONE);
    struct basefile_config config = {
        .data_dir = journal->config.data_dir,
        .shard = journal->config.shard,
        .n_shards = journal->config.n_shards,
        .number = journal->segment + 1,
        .position = journal->position,
        .chain = journal->chain,
        .before = journal->base.number,
        .before_fd = journal->base.fd,
        .reserve_fd = room_lend(&journal->room, journal->base.bytes + bytes_behind_base(journal)),
        .wake = journal->config.wake,
        .wake_arg = journal->config.wake_arg,
    };
    journal->begins_segment = true;
    journal->has_next_base = true;
    pthread_mutex_unlock(&journal->lock);
    journal->next_written_before =
        atomic_load_explicit(&journal->written_bytes, memory_order_relaxed);
    journal->next_number = config.number;
    if (basefile_open(&config, &journal->next_base, e) != EMBD_OK)
        end_base(journal);
    return e->status;
}

struct basefile *journal_base(struct journal *journal)
{
    return journal->next_base;
}

int journal_base_take(struct journal *journal, struct embd__error *e)
{
    int fd;
    uint64_t bytes;
    EMBD_ASSERT(journal->next_base != NULL);
    int status = basefile_close(journal->next_base, &fd, &bytes, e);
    journal->next_base = NULL;
    end_base(journal);
    if (status != EMBD_OK)
        return status;
    journal->base.fd = fd; /* the one before was closed */
    journal->base.bytes = bytes;
    journal->base.made_s = (uint64_t)time(NULL);
    journal->base.number = journal->next_number;
    journal->base.written_before = journal->next_written_before;
    return EMBD_OK;
}

void journal_figures(const struct journal *journal, struct journal_figures *out)
{
    *out = (struct journal_figures){
        .bytes = journal->base.bytes + bytes_behind_base(journal),
        .base_bytes = journal->base.bytes,
        .reserved_bytes = atomic_load_explicit(&journal->room.told, memory_order_relaxed),
        .base_made_s = journal->base.made_s,
        .syncs = atomic_load_explicit(&journal->syncs.n, memory_order_relaxed),
        .sync_ns = atomic_load_explicit(&journal->syncs.total_ns, memory_order_relaxed),
        .sync_longest_ns = syncs_longest_ns(&journal->syncs, monotonic_ns()),
    };
}
