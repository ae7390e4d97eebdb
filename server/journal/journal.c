/* journal.c - appending: groups, the thread that writes them, segments.
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
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/files/below.h"
#include "server/journal/group.h"
#include "server/journal/pace.h"
#include "server/journal/reached.h"
#include "server/journal/recordfile.h"
#include "server/journal/room.h"
#include "server/journal/syncs.h"
#include "server/log/ending.h"

#define MARK_AFTER_NS 1000000000u /* nothing was written for so long */

enum out { OUT_NONE, OUT_WRITING, OUT_WRITTEN };

struct journal {
    struct journal_config config;
    struct journal_group groups[3];
    struct journal_group *gathering, *out;  /* out: empty while OUT_NONE */
    struct journal_group *applying, *spare; /* one of them is NULL; the shard's */
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock;
    pthread_cond_t news;
    /* Under the lock. */
    enum out state;
    bool is_ending, is_syncing, is_reserving, has_next_base;
    /* The file: the thread's while OUT_WRITING or is_syncing, else under the lock. */
    struct recordfile file;
    int reached_fd; /* -1: not written yet */
    uint64_t segment, offset, position, chain, synced;
    struct record_key key; /* of the file */
    struct pace pace;
    struct room room;
    struct syncs syncs;  /* any thread reads */
    bool is_marked;      /* the file ends with a mark, or has nothing behind its header */
    uint64_t mark_at_ns; /* otherwise: when it will be */
    bool begins_segment; /* with the next record */
    _Atomic uint64_t written_bytes; /* ever, and those behind the base at the start */
    /* The shard's. */
    struct {
        int fd; /* of its file, locked; -1: none */
        uint64_t number, bytes, made_s;
        uint64_t written_before; /* of written_bytes: what it has taken the place of */
    } base;
    struct basefile *next_base; /* being written; NULL: none */
    uint64_t next_number, next_written_before;
};

/* ---- the file ---- */

_Noreturn static void end_process(const struct journal *journal, const char *what)
{
    char name[64];
    journal_file_name(name, journal->config.shard, journal->segment);
    log_exit(
        EXIT_DISK, "journal_sync_failed",
        "file=%s call=%s error=\"%s\" why=\"pushes must not be acknowledged that may not be on "
        "disk: the process ends; check the disk, then start it again\"",
        name, what, strerror(errno));
}

static void sync_file(struct journal *journal)
{
    uint64_t begin = pace_now();
    if (fdatasync(journal->file.fd) != 0)
        end_process(journal, "fdatasync");
    uint64_t end = pace_now();
    journal->synced = journal->position;
    reached_note(&journal->reached_fd, journal->config.data_dir, journal->config.shard,
                 journal->synced);
    pace_synced(&journal->pace, begin, end);
    syncs_note(&journal->syncs, begin, end);
}

/* 0 or errno: then the file does not exist, or is used the next time: nobody else creates files of
 * these names. */
static int make_segment(const struct journal *journal, const char *name, const uint8_t *header,
                        int *fd_out)
{
    int fd = below_open(journal->config.data_dir, name, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return errno;
    const struct recordfile file = {fd, -1};
    bool is_ours = flock(fd, LOCK_EX | LOCK_NB) == 0;
    int error = !is_ours || ftruncate(fd, 0) != 0
                    ? errno
                    : recordfile_write(&file, header, SEGMENT_HEADER_BYTES, 0);
    *fd_out = fd;
    if (error == 0)
        return 0;
    if (is_ours)
        unlinkat(journal->config.data_dir, name, 0);
    close(fd);
    return error;
}

/* 0 or errno: then the segment before goes on. That one is on disk before there is another one:
 * only the tail of the last may be torn. */
static int begin_segment(struct journal *journal)
{
    int fd = -1;
    char name[64];
    uint8_t bytes[SEGMENT_HEADER_BYTES];
    uint64_t number = journal->segment + 1;
    struct segment_header header = {.shard = journal->config.shard,
                                    .n_shards = journal->config.n_shards,
                                    .number = number,
                                    .first_position = journal->position,
                                    .chain = journal->chain};
    int error = record_key_new(&header.key);
    if (error != 0)
        return error;
    journal_file_name(name, journal->config.shard, number);
    segment_header_write(bytes, &header);
    if (journal->file.fd >= 0)
        sync_file(journal);
    error = make_segment(journal, name, bytes, &fd);
    if (error != 0)
        return error;
    if (fsync(fd) != 0 || fsync(journal->config.data_dir) != 0)
        end_process(journal, "fsync of the next segment");
    recordfile_close(&journal->file);
    journal->file.fd = fd;
    journal->segment = number;
    journal->key = header.key;
    journal->offset = SEGMENT_HEADER_BYTES;
    journal->begins_segment = false;
    journal->is_marked = true;
    recordfile_open_direct(&journal->file, journal->config.data_dir, name);
    return 0;
}

/* The segment before, which a base may have removed, is closed before the disk is looked at. 0 or
 * errno. */
static int make_ready(struct journal *journal, struct journal_group *group)
{
    int error = 0;
    group->unreserved = 0;
    if (journal->file.fd < 0 || journal->begins_segment || journal->offset >= JOURNAL_SEGMENT_BYTES)
        error = begin_segment(journal);
    if (error != 0)
        return error;
    error = room_hold(&journal->room, group->n_bytes);
    if (error != 0)
        group->unreserved = atomic_load(&journal->room.need);
    return error;
}

static void try_group(struct journal *journal, struct journal_group *group)
{
    EMBD_ASSERT(group->n_entries > 0 && journal->synced <= journal->position);
    group->error = make_ready(journal, group);
    if (group->error != 0)
        return;
    uint64_t begin_ns = pace_now();
    uint64_t end, chain = group_seal(group, &journal->key, journal->position, journal->synced,
                                     journal->chain);
    group->error =
        recordfile_append(&journal->file, group->bytes, group->n_bytes, journal->offset, &end);
    if (group->error != 0) {
        if (ftruncate(journal->file.fd, (off_t)journal->offset) != 0)
            end_process(journal, "ftruncate after a failed write");
        return;
    }
    journal->chain = chain;
    uint64_t begin = journal->offset;
    EMBD_ASSERT(end - begin >= group->n_bytes);
    journal->offset = end;
    journal->position += group->n_entries;
    atomic_fetch_add_explicit(&journal->written_bytes, end - begin, memory_order_relaxed);
    bool is_held = group->is_durable || pace_holds(&journal->pace);
    /* So that the sync finds less to do, and holds up the next writes for less long. */
    if (!is_held)
        sync_file_range(journal->file.fd, (off_t)begin, (off_t)(end - begin),
                        SYNC_FILE_RANGE_WRITE);
    uint64_t end_ns = pace_now();
    pace_wrote(&journal->pace, begin_ns, end_ns);
    journal->is_marked = false;
    journal->mark_at_ns = end_ns + MARK_AFTER_NS;
    if (is_held)
        sync_file(journal);
}

static void write_group(struct journal *journal, struct journal_group *group)
{
    try_group(journal, group);
    room_wrote(&journal->room, group->n_bytes, group->error);
}

/* All that is written is synced. What says so is not, and where it cannot be written, nothing is
 * lost: pieces of it are written over. */
static void write_mark(struct journal *journal)
{
    uint8_t bytes[MARK_BYTES];
    journal->is_marked = true;
    mark_write(bytes, &journal->key, journal->position, journal->chain);
    if (recordfile_write(&journal->file, bytes, sizeof bytes, journal->offset) == 0)
        journal->offset += sizeof bytes;
}

/* ---- the thread ---- */

static bool is_due(const struct journal *journal)
{
    return journal->pace.is_dirty && pace_now() >= pace_sync_by(&journal->pace);
}

static bool is_mark_due(const struct journal *journal)
{
    return !journal->pace.is_dirty && !journal->is_marked && pace_now() >= journal->mark_at_ns;
}

/* For a group, or until the sync or the mark is due. */
static void wait_for_news(struct journal *journal)
{
    if (!journal->pace.is_dirty && journal->is_marked) {
        pthread_cond_wait(&journal->news, &journal->lock);
        return;
    }
    uint64_t by = journal->pace.is_dirty ? pace_sync_by(&journal->pace) : journal->mark_at_ns;
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
        write_group(journal, journal->out);
        pthread_mutex_lock(&journal->lock);
    } while (waits_for_base(journal));
    journal->state = OUT_WRITTEN;
    pthread_cond_broadcast(&journal->news);
    journal->config.wake(journal->config.wake_arg);
}

/* sync_file or write_mark. */
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
        do_late(journal, write_mark);
}

static void *run(void *arg)
{
    struct journal *journal = arg;
    pthread_mutex_lock(&journal->lock);
    while (!journal->is_ending) {
        if (is_due(journal))
            do_late(journal, sync_file);
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
    int fd = below_open(journal->config.data_dir, name, O_RDWR, 0);
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
    int error = pthread_create(&journal->thread, NULL, run, journal);
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
    pace_init(&journal->pace);
    room_init(&journal->room, config->data_dir, config->shard);
    journal->file.fd = journal->file.direct_fd = journal->base.fd = journal->reached_fd = -1;
    journal->base.number = end->base;
    journal->base.bytes = end->base_bytes;
    atomic_init(&journal->written_bytes, end->bytes_since);
    journal->segment = end->segment;
    journal->offset = end->offset;
    journal->position = journal->synced = end->position;
    journal->chain = end->chain;
    journal->is_marked = true; /* until it is open */
    journal->mark_at_ns = pace_now() + MARK_AFTER_NS;
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
    if (journal->pace.is_dirty)
        sync_file(journal);
    if (!journal->is_marked)
        write_mark(journal);
    recordfile_close(&journal->file);
    if (journal->reached_fd >= 0)
        close(journal->reached_fd);
    close_base(journal);
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
    write_group(journal, journal->gathering);
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
        .sync_longest_ns = syncs_longest_ns(&journal->syncs, pace_now()),
    };
}
