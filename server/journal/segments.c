/* segments.c - see segments.h.
 *
 * A segment that is long enough, or that a base begins behind, is followed by the next one, which
 * is on disk with its name before it has a record. A write that fails leaves the file as it was. */
#include "server/journal/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/assert.h"
#include "server/files/safe_open.h"
#include "server/journal/recent.h"
#include "server/log/ending.h"

/* ---- groups: records that gather in memory, to be written together ---- */

/* Memory that a group keeps for the next one: more than a second of ordinary pushes. Longer ones
 * had a large push. */
#define KEPT_BYTES ((uint64_t)4 * LIMIT_FRAME_BYTES)

static bool reserve(struct journal_group *group, uint64_t bytes)
{
    if (group->n_entries == group->entries_capacity) {
        uint32_t n = group->entries_capacity ? 2 * group->entries_capacity : 16;
        struct journal_entry *entries = realloc(group->entries, n * sizeof *entries);
        if (entries == NULL)
            return false;
        group->entries = entries;
        group->entries_capacity = n;
    }
    uint64_t least = record_block_end(group->n_bytes + bytes);
    if (least <= group->capacity)
        return true;
    uint64_t n = group->capacity * 2 > least ? group->capacity * 2 : least;
    uint8_t *grown = aligned_alloc(RECORD_BLOCK_BYTES, n);
    if (grown == NULL)
        return false;
    if (group->n_bytes > 0)
        memcpy(grown, group->bytes, group->n_bytes);
    free(group->bytes);
    group->bytes = grown;
    group->capacity = n;
    return true;
}

void group_clear(struct journal_group *group)
{
    if (group->capacity > KEPT_BYTES) {
        free(group->bytes);
        group->bytes = NULL;
        group->capacity = 0;
    }
    group->n_bytes = 0;
    group->n_entries = group->n_applied = 0;
    group->is_durable = false;
    group->error = 0;
}

int group_append(struct journal_group *group, struct op *op, const struct frame_scanner *frame,
                 bool is_durable, struct embd__error *e)
{
    uint64_t bytes = record_bytes(frame);
    if (!reserve(group, bytes))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a journal record of %llu bytes",
                               (unsigned long long)bytes);
    record_write(group->bytes + group->n_bytes, frame);
    group->entries[group->n_entries++] = (struct journal_entry){op, group->n_bytes, bytes};
    group->n_bytes += bytes;
    group->is_durable = group->is_durable || is_durable;
    return EMBD_OK;
}

uint64_t group_seal(struct journal_group *group, const struct record_key *key, uint64_t position,
                    uint64_t synced, uint64_t chain)
{
    uint64_t at = 0;
    for (uint32_t i = 0; i < group->n_entries; i++) {
        uint64_t bytes;
        EMBD_ASSERT(group->entries[i].at == at);
        at += group->entries[i].bytes;
        chain = record_seal(group->bytes + group->entries[i].at, key, position + i, synced, chain,
                            &bytes);
    }
    EMBD_ASSERT(at == group->n_bytes);
    return chain;
}

void group_forget(struct journal_group *group, const struct op *op)
{
    for (uint32_t i = 0; i < group->n_entries; i++)
        if (group->entries[i].op == op)
            group->entries[i].op = NULL;
}

void group_fini(struct journal_group *group)
{
    free(group->bytes);
    free(group->entries);
}

/* ---- the files ---- */

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
    int fd = safe_open(journal->config.data_dir, name, O_RDWR | O_CREAT, 0600);
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

/* Where it has been padded to whole blocks, they end at `end`. */
static void note_recent(struct journal *journal, const struct journal_group *group, uint64_t begin,
                        uint64_t end)
{
    bool is_padded = end != begin + group->n_bytes;
    uint64_t n = is_padded ? record_block_end(group->n_bytes) : group->n_bytes;
    recent_note(journal->config.recent, journal->segment, end - n, group->bytes, n);
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
    note_recent(journal, group, begin, end);
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
    if (recordfile_write(&journal->file, bytes, sizeof bytes, journal->offset) != 0)
        return;
    recent_note(journal->config.recent, journal->segment, journal->offset, bytes, sizeof bytes);
    journal->offset += sizeof bytes;
}
