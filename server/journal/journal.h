/* journal.h - the append-only files of one shard, and the thread that writes them.
 *
 * Records gather in a group while the group before is written: the longer a write takes, the
 * more records the next one has. A failed write refuses its group and leaves the file unchanged.
 * A failed fdatasync ends the process (EXIT_DISK), because then the content of the disk is
 * unknown. */
#ifndef EMBD_JOURNAL_H
#define EMBD_JOURNAL_H

#include "server/journal/basefile.h"
#include "server/journal/withdrawn.h"

#define JOURNAL_BUFFERED_MS 50 /* a buffered record is on disk after so long: syncs.h */
#ifndef JOURNAL_SEGMENT_BYTES  /* tests have short ones */
#define JOURNAL_SEGMENT_BYTES (256u << 20)
#endif

struct journal;
struct op;

/* Owner: the shard's thread, but for the time it is being written. */
struct journal_entry {
    struct op *op;      /* NULL: its owner has left; the record has it */
    uint64_t at, bytes; /* of the record in the group's bytes */
};
struct journal_group {
    uint8_t *bytes;
    uint64_t n_bytes, capacity;
    struct journal_entry *entries;
    uint32_t n_entries, entries_capacity;
    uint32_t n_applied;  /* the shard's */
    bool is_durable;     /* must be synced before anything is applied */
    int error;           /* errno of the write: none of it is in the journal */
    uint64_t unreserved; /* with an error: bytes of the next base that find no room; 0: the group's
                            own write failed */
};

struct journal_config {
    int data_dir;
    uint32_t shard, n_shards;
    bool has_grown;       /* its files may be of fewer shards: keys go by a later map; */
    uint32_t most_shards; /* or of more, and of so many at most, since shards left; 0: none did */
    bool is_by_records;   /* or of any number: its records say how many there are */
    bool accepts_damage;  /* what follows it is dropped */
    void (*wake)(
        void *arg); /* a group is written; from the journal's thread. NULL: write_now only */
    void *wake_arg;
    struct recent *recent; /* has its last bytes; NULL: there is none */
};

/* Where what was acknowledged is lost, and how much of the journal with it. */
struct journal_damage {
    char name[64]; /* of the segment */
    uint64_t offset, dropped_bytes;
    char what[64];
};

/* Damage of the list of withdrawn records, of the header of a base, and of records. */
#define JOURNAL_DAMAGES_MAX 3

/* Where a journal goes on. */
struct journal_end {
    bool is_damaged; /* and that was accepted: it goes on with a base alone */
    struct journal_damage damages[JOURNAL_DAMAGES_MAX];
    uint32_t n_damages;
    bool is_there;     /* false: no segment yet */
    bool is_marked;    /* a mark is the last of it */
    bool is_resized;   /* a file of it is of another number of shards */
    uint32_t n_shards; /* as the last file says that was read */
    uint64_t segment, offset, position, chain;
    struct record_key key;            /* of the segment */
    uint64_t base_bytes, bytes_since; /* of the base; of what is behind it */
    uint64_t base; /* number of its file; 0: it is in a segment, or there is none */
};

/* ---- reading at start ---- */

struct journal_reading;

/* EMBD_CORRUPT naming file and offset, EMBD_IO, EMBD_NO_MEMORY. */
int journal_reading_open(const struct journal_config *config, struct journal_reading **out,
                         struct embd__error *e);
/* The next record, whose bytes stay, and may be changed, until the next call. *bytes_out NULL: no
 * more; a torn tail was cut. Errors as above; afterwards only close may be called. */
int journal_reading_next(struct journal_reading *reading, uint8_t **bytes_out,
                         struct record *record_out, struct embd__error *e);
/* Whether the last one is of a base, which stands for others. */
bool journal_reading_is_in_base(const struct journal_reading *reading);
/* Of the cluster, as the file of the last record says. */
uint32_t journal_reading_shards(const struct journal_reading *reading);
/* Whether to leave it out: it was refused when its turn came. */
bool journal_reading_is_withdrawn(struct journal_reading *reading, const struct record *record);
void journal_reading_progress(const struct journal_reading *reading, uint64_t *done_bytes_out,
                              uint64_t *total_bytes_out);
/* *end_out, where it is not NULL: where the journal goes on after the last record. */
void journal_reading_close(struct journal_reading *reading, struct journal_end *end_out);

/* Damage that was accepted is written down, in a line of `journal.SHARD.damage`, before anything is
 * dropped; once, also where dropping it failed the last time. EMBD_IO. */
int journal_damage_note(const struct journal_config *config, const struct journal_damage *damage,
                        struct embd__error *e);
/* How often it was. */
int journal_damage_count(const struct journal_config *config, uint64_t *count_out,
                         struct embd__error *e);

/* ---- writing ---- */

int journal_open(const struct journal_config *config, const struct journal_end *end,
                 struct journal **out, struct embd__error *e);
/* No group may be out. What is buffered is synced. */
void journal_close(struct journal *journal);

/* Into the group that gathers. EMBD_NO_MEMORY: as if not asked. */
int journal_append(struct journal *journal, struct op *op, const struct frame_scanner *frame,
                   bool is_durable, struct embd__error *e);
/* Hands the gathered group to the thread, unless one is out. */
void journal_submit(struct journal *journal);
/* The written group, to be applied and given back, the same until then; NULL: none. The next one
 * may be handed over meanwhile. */
struct journal_group *journal_written(struct journal *journal);
void journal_give_back(struct journal *journal);
/* Waits until the group handed over is written. */
void journal_wait(struct journal *journal);
/* How many records it has, and the checksum of the last one, which is chained to all before it;
 * none may be on its way. */
uint64_t journal_position(const struct journal *journal);
uint64_t journal_chain(const struct journal *journal);
/* Bytes of the records that no group has been handed over with yet; whatever is on its way. */
uint64_t journal_gathered(const struct journal *journal);
/* How many of them are on disk; whatever is on its way. */
uint64_t journal_synced(struct journal *journal);
/* The last record, likewise. */
struct record_id journal_last(const struct journal *journal);
/* The operation's owner is going; its record stays. */
void journal_forget(struct journal *journal, const struct op *op);

/* One record, written (and synced, when durable) before this returns. No group may be out or
 * gathering. EMBD_IO: it is not in the journal. */
int journal_write_now(struct journal *journal, const struct frame_scanner *frame, bool is_durable,
                      struct embd__error *e);

/* ---- compaction ----
 *
 * A base is a file of records that restore the state (basefile.h); with it all segments before it
 * are removed. It is of the moment of journal_base_begin, when no group may be out or gathering;
 * while it is written the journal goes on, in the next segment. After an error everything is
 * unchanged. */

/* Whether so much is behind the last base, and none is being written. */
bool journal_has_behind(const struct journal *journal, uint64_t bytes);
/* The same, and more than the base has itself. */
bool journal_wants_base(const struct journal *journal, uint64_t least_bytes);
/* Whether the disk has little room, and a base would give enough of it back. */
bool journal_lacks_room(const struct journal *journal);
/* Whether earlier files can stay for a while though a base is there. Looks at the disk. */
bool journal_has_ample_room(const struct journal *journal);
/* Estimated bytes of the next base; room for them is reserved with the next record. */
void journal_set_need(struct journal *journal, uint64_t bytes);
int journal_base_begin(struct journal *journal, struct embd__error *e);
/* NULL: none is being written. */
struct basefile *journal_base(struct journal *journal);
/* Once that is over, or to wait until it is: it is the journal's base now, or e->status says why
 * not. */
int journal_base_take(struct journal *journal, struct embd__error *e);

struct journal_figures {
    uint64_t bytes;           /* of the base, and behind it */
    uint64_t base_bytes;      /* 0: none */
    uint64_t reserved_bytes;  /* on the disk, for the next base */
    uint64_t base_made_s;     /* when it was, since 1970; 0: not known */
    uint64_t syncs, sync_ns;  /* of its files since it was opened, and what they took */
    uint64_t sync_longest_ns; /* of the last minute or two */
};
void journal_figures(const struct journal *journal, struct journal_figures *out);

#endif
