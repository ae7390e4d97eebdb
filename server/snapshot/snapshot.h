/* snapshot.h - a snapshot directory: first under the name NAME.tmp, then, complete and on disk,
 * NAME. */
#ifndef EMBD_SNAPSHOT_H
#define EMBD_SNAPSHOT_H

#include <time.h>

#include <xxhash.h>

#include "embd/admin.h"
#include "proto/partfile.h"
#include "server/engine/tables.h"
#include "proto/streamsfile.h"
#include "server/snapshot/cuts_known.h"
#include "server/snapshot/snapshot_quota.h"

/* The cut to make: as struct store_cut, with the name of the earlier one. */
struct snapshot_cut {
    uint64_t id, since;
    char base[SNAPSHOT_NAME_MAX + 1]; /* "" where since is 0 */
    struct table_scope scope;         /* of those written: these tables */
    bool is_read;                     /* its rows are fetched, and not written here */
    char table[EMBD_NAME_MAX + 1];    /* of those: this one alone; "": all */
};

/* The streams of a shard's pushers at the cut, as the bytes of a file. */
struct snapshot_streams {
    char file[STREAMSFILE_NAME];
    struct manifest_streams part;
    void *bytes; /* malloc'd, [part.bytes] */
};

/* The names of a base's tables, in their order. */
struct base_tables {
    char (*names)[EMBD_NAME_MAX + 1]; /* [n], malloc'd, or NULL */
    uint32_t n;
};
bool base_tables_has(const struct base_tables *tables, const char *name);

/* The snapshot that was begun here, the parts that commit has received so far, and its blobs. */
struct snapshot_parts {
    char name[SNAPSHOT_NAME_MAX + 1]; /* "": none */
    /* the connection that began it; NULL: closed, and NAME.tmp goes too */
    const struct shard_session *owner;
    uint64_t id;       /* 0: not given */
    uint64_t sequence; /* 0: this process's next one */
    struct manifest_base base;
    struct base_tables base_tables; /* of it: no others can have changes */
    struct table_scope scope;
    struct snapshot_quota quota;   /* of the trainer that it is for */
    struct manifest_table *tables; /* [LIMIT_TABLES] or NULL; schemas are filled in at the end */
    char names[LIMIT_TABLES][EMBD_NAME_MAX + 1];
    uint32_t n_tables;
    struct written_part *left_out; /* [n_left_out] of tables that other shards do not have */
    uint32_t n_left_out;
    struct manifest_streams *streams; /* [n_streams] */
    uint32_t n_streams;
    struct manifest_blob blobs[EMBD_BLOBS_MAX];
    uint32_t n_blobs;
    XXH3_state_t *blob_hash; /* of the last one, while more of it is to come; else NULL */
};
void snapshot_forget(struct snapshot_parts *parts);

struct shard;
struct shard_session;
/* The connection is closed. If it began a snapshot that is not complete, the snapshot is removed
 * too, as soon as its files are no longer written. But if commit has received everything, another
 * process may have committed its share: then NAME.tmp stays, and says at a start that this process
 * did not commit. */
void snapshot_leave(struct shard *shard, const struct shard_session *session);
/* Goes on with that. Nothing where nothing is left so. */
void snapshot_remove_orphan(struct shard *shard);

/* [a-z0-9][a-z0-9_-]{0,63}: so no name leaves the data directory. */
int snapshot_check_name(const char *name, struct embd__error *e);

/* All return EMBD_OK or e->status, EMBD_IO naming the file and the cause. `data_dir` is a
 * descriptor. */

/* Makes NAME.tmp. EMBD_EXISTS: the name is taken, or being taken. */
int snapshot_begin(int data_dir, const char *name, struct embd__error *e);
/* A descriptor of NAME.tmp, which the caller closes; negative on failure. */
int snapshot_open(int data_dir, const char *name, struct embd__error *e);
/* The next bytes of a blob; offset 0 begins it, the last ones end it. */
struct snapshot_piece {
    const char *blob;
    const void *data;
    uint64_t offset, bytes, xxh3;
    bool is_last;
};
/* Whether the piece comes in turn; `file_out`, [MANIFEST_BLOB_FILE], is its file. EMBD_INVALID: out
 * of turn, or an invalid name; EMBD_EXISTS, EMBD_TOO_LARGE. */
int snapshot_blob_begin(struct snapshot_parts *parts, const struct snapshot_piece *piece,
                        char *file_out, struct embd__error *e);
/* Writes it into `dir`; a last one is synced. Any thread. EMBD_IO. */
int snapshot_blob_write(int dir, const char *file, const struct snapshot_piece *piece,
                        struct embd__error *e);
/* It is written; a last one's checksum is compared with `xxh3`. EMBD_CORRUPT. */
int snapshot_blob_end(struct snapshot_parts *parts, const struct snapshot_piece *piece,
                      struct embd__error *e);
/* Whether every blob is complete and in `dir`. EMBD_INVALID, EMBD_IO. */
int snapshot_check_blobs(const struct snapshot_parts *parts, int dir, struct embd__error *e);

/* Syncs NAME.tmp and renames it to NAME. */
int snapshot_publish(int data_dir, const char *name, struct embd__error *e);
/* Removes NAME.tmp and its files; no error if it does not exist. */
int snapshot_remove(int data_dir, const char *name, struct embd__error *e);
/* The same of a directory of any name. */
int snapshot_remove_directory(int data_dir, const char *name, struct embd__error *e);

/* Reads the complete snapshot `name` as a base, and the names of its tables if `tables_out` is not
 * NULL: e->status, EMBD_UNSUPPORTED if it has no id, is not
 * sealed, does not exist, or is not of the same tables and job (not EMBD_INVALID, which means in
 * `begin` that a shard is not the first). */
int snapshot_base(int data_dir, const char *name, const struct table_scope *scope,
                  struct manifest_base *out, struct base_tables *tables_out, struct embd__error *e);

/* A complete snapshot. */
struct snapshot_kept {
    char name[SNAPSHOT_NAME_MAX + 1];
    uint64_t sequence; /* of its cut; 0: of an earlier version, which numbered none */
    struct timespec
        when;    /* its manifest, its last file, was written: the age of those without a sequence */
    uint64_t id; /* of its cut; 0: it has none */
    struct manifest_base base; /* its base */
    struct table_scope scope;
    uint64_t bytes; /* of its files, without the manifest */
    bool stays;
};
struct snapshot_list {
    struct snapshot_kept *list; /* [n], malloc'd */
    uint32_t n;
    /* the caller's: snapshots that the disk cannot read are logged and skipped; so are always
     * those that this user may not read */
    bool passes_over;
};
/* All there are, the newest first; `list` also after an error. Given zeroed but for `passes_over`.
 */
int snapshot_list(int data_dir, struct snapshot_list *out, struct embd__error *e);

/* The least sequence that is greater than those of all snapshots there are. */
int snapshot_least_sequence(int data_dir, uint64_t *out, struct embd__error *e);
struct snapshot_use;
/* The sequence of the next cut: greater than those of all snapshots there are, and no less than the
 * milliseconds since 1970, so that those that were taken elsewhere meanwhile are older too,
 * whatever the clock said at one time. `use`: of what was found; NULL: it is not wanted. */
int snapshot_next_sequence(int data_dir, struct snapshot_use *use, uint64_t *out,
                           struct embd__error *e);

/* Keeps `name`, which is complete, and the n - 1 newest others of its job (or, where it is of none,
 * of those of none) whose tables it covers; removes all other such snapshots. EMBD_DENIED: it is
 * not of `job` ("": of whichever). */
int snapshot_keep(int data_dir, const char *name, const char *job, uint32_t n,
                  struct snapshot_use *use, uint32_t *removed_out, struct embd__error *e);

/* The content of one commit request. */
struct snapshot_told {
    const msgpack_object *parts, *streams; /* [n_parts], [n_streams], of the request */
    uint32_t n_parts, n_streams;
    uint64_t id, sequence;
    bool more;
};
void snapshot_read_commit(struct fields *f, struct snapshot_told *out);
/* Adds the request to the earlier ones. After the last one, writes the manifest and gives NAME.tmp
 * its name: then CALL_LATER, and the answer comes when that is on disk. EMBD_BUSY (as
 * disk_phase_new), EMBD_INVALID, EMBD_UNKNOWN_TABLE, EMBD_NO_MEMORY, EMBD_IO, EMBD_UNSUPPORTED: the
 * earlier requests are forgotten too, unless NAME was not begun. */
struct call;
int snapshot_commit(struct call *call, const char *name, const struct snapshot_told *told);

/* The writers that the shard knows now. EMBD_NO_MEMORY. */
int snapshot_streams_cut(const struct shard *shard, struct snapshot_streams *out,
                         struct embd__error *e);

#endif
