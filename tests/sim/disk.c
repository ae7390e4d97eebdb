/* disk.c - a journal in memory: records with real seals, of which a crash takes those that were not
 * synced. */
#include <stdlib.h>
#include <string.h>

#include "tests/sim/sim.h"

void list_add(struct record_list *list, struct sim_record *record)
{
    if (list->n == list->capacity) {
        list->capacity = 2 * list->capacity + 16;
        list->list = realloc(list->list, list->capacity * sizeof *list->list);
        if (list->list == NULL)
            abort();
    }
    list->list[list->n++] = record;
}

void list_free(struct record_list *list)
{
    free(list->list);
    *list = (struct record_list){.n = 0};
}

void disk_open(struct sim *sim, struct disk *disk)
{
    *disk = (struct disk){.note = {.state = NOTE_OWN, .epoch = 1}};
    disk->stored_note = disk->note;
    disk->key.is_keyed = true;
    for (uint32_t i = 0; i < RECORD_SECRET_BYTES; i++)
        disk->key.secret[i] = (uint8_t)dice_next(&sim->dice);
}

void disk_close(struct disk *disk)
{
    list_free(&disk->base);
    list_free(&disk->records);
}

struct place disk_end(const struct disk *disk)
{
    const struct record_list *records = &disk->records;
    if (records->n == 0)
        return disk->begin;
    const struct sim_record *last = records->list[records->n - 1];
    return (struct place){last->position + 1, last->checksum};
}

struct sim_record *disk_at(const struct disk *disk, uint64_t position)
{
    return disk->records.list[position - disk->begin.position];
}

struct sim_record *disk_append(struct sim *sim, struct disk *disk,
                               const struct frame_scanner *frame)
{
    uint64_t n_bytes = record_bytes(frame);
    struct sim_record *record = calloc(1, sizeof *record + n_bytes);
    struct place end = disk_end(disk);
    if (record == NULL)
        abort();
    record_write(record->bytes, frame);
    record->position = end.position;
    record->chain = end.chain;
    record->checksum = record_seal(record->bytes, &disk->key, end.position, disk->synced, end.chain,
                                   &record->n_bytes);
    record->next = sim->records;
    sim->records = record;
    list_add(&disk->records, record);
    return record;
}

void disk_crash(struct sim *sim, struct disk *disk)
{
    uint64_t unsynced = disk->written - disk->synced;
    uint64_t end = disk->synced + sim_below(sim, (uint32_t)unsynced + 1);
    disk->records.n = (uint32_t)(end - disk->begin.position);
    disk->written = disk->synced = end;
    if (sim_one_in(sim, 2)) /* a note that moved may or may not be there */
        disk->note = disk->stored_note;
    disk->stored_note = disk->note;
}

void disk_compact(struct disk *disk)
{
    uint32_t n = (uint32_t)(disk->synced - disk->begin.position);
    for (uint32_t i = 0; i < n; i++)
        list_add(&disk->base, disk->records.list[i]);
    if (n == 0)
        return;
    const struct sim_record *last = disk->records.list[n - 1];
    disk->begin = (struct place){last->position + 1, last->checksum};
    disk->records.n -= n;
    memmove(disk->records.list, disk->records.list + n,
            disk->records.n * sizeof *disk->records.list);
}

void disk_clear(struct disk *disk, struct place begin)
{
    disk->base.n = disk->records.n = 0;
    disk->begin = begin;
    disk->written = disk->synced = begin.position;
}
