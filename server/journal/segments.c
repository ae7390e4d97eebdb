/* segments.c - see segments.h.
 *
 * A segment that is long enough, or that a base begins behind, is followed by the next one, which
 * is on disk with its name before it has a record. A write that fails leaves the file as it was. */
#include "server/journal/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/files/below.h"
#include "server/journal/reached.h"
#include "server/log/ending.h"

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

void segments_sync(struct journal *journal)
{
    uint64_t begin = monotonic_ns();
    if (fdatasync(journal->file.fd) != 0)
        end_process(journal, "fdatasync");
    uint64_t end = monotonic_ns();
    journal->synced = journal->position;
    atomic_store_explicit(&journal->told_synced, journal->synced, memory_order_release);
    reached_note(&journal->reached_fd, journal->config.data_dir, journal->config.shard,
                 journal->synced);
    sync_deadline_synced(&journal->deadline, begin, end);
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
        segments_sync(journal);
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
    uint64_t begin_ns = monotonic_ns();
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
    bool is_held = group->is_durable || sync_deadline_holds(&journal->deadline);
    /* So that the sync finds less to do, and holds up the next writes for less long. */
    if (!is_held)
        sync_file_range(journal->file.fd, (off_t)begin, (off_t)(end - begin),
                        SYNC_FILE_RANGE_WRITE);
    uint64_t end_ns = monotonic_ns();
    sync_deadline_wrote(&journal->deadline, begin_ns, end_ns);
    journal->is_marked = false;
    journal->mark_at_ns = end_ns + MARK_AFTER_NS;
    if (is_held)
        segments_sync(journal);
}

void segments_write(struct journal *journal, struct journal_group *group)
{
    try_group(journal, group);
    room_wrote(&journal->room, group->n_bytes, group->error);
}

void segments_mark(struct journal *journal)
{
    uint8_t bytes[MARK_BYTES];
    journal->is_marked = true;
    mark_write(bytes, &journal->key, journal->position, journal->chain);
    if (recordfile_write(&journal->file, bytes, sizeof bytes, journal->offset) == 0)
        journal->offset += sizeof bytes;
}
