/* admin.h - operating a cluster: figures, dumps, snapshots, directories on disk. */
#ifndef EMBD_ADMIN_H
#define EMBD_ADMIN_H

#include "embd/embd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- figures ---- */

/* Reports a shard's figures: `table` is NULL for figures of the shard itself. Names and units are
 * listed in proto/PROTOCOL.md. A visit that returns nonzero ends the listing; that value is
 * returned. Blocks. Statuses as embd_ping. */
EMBD_API int embd_stats(embd_client *client, uint32_t shard,
                        int (*visit)(void *arg, const char *table, const char *name,
                                     uint64_t value),
                        void *arg);

/* Reports what the tables under a token's prefixes take on a shard (`tables`, `row_bytes`), and
 * what the snapshots of its jobs take in the data directory (`snapshots`, `snapshot_bytes`; of the
 * first shard of each process); and what they may take (the same names with `_limit`, absent where
 * there is no limit). An admin hears of every token that has limits, others of their own. Visits,
 * blocking and statuses as embd_stats. */
EMBD_API int embd_token_stats(embd_client *client, uint32_t shard,
                              int (*visit)(void *arg, const char *token, const char *name,
                                           uint64_t value),
                              void *arg);

#define EMBD_LATENCY_BUCKETS 28

/* How long requests to a shard took, from their start until their answers were there: waiting for a
 * connection, sending again, and the server's time are in it. */
typedef struct embd_latency {
    uint64_t count, sum_ns;
    uint64_t buckets[EMBD_LATENCY_BUCKETS]; /* [i]: of 2^i us at most, and more than [i - 1]; the
                                               last: longer */
} embd_latency;

/* A client's view of a shard since embd_connect. A call is one request to each shard, or
 * several where it is large. */
typedef struct embd_shard_figures {
    uint32_t struct_bytes; /* sizeof(embd_shard_figures) */
    bool is_connected;
    uint64_t connections;                /* that were made: one, and each reconnect */
    uint64_t bytes_sent, bytes_received; /* before TLS encrypts them, and after it decrypts */
    uint64_t repeats;    /* requests that were to be sent again after a lost connection */
    uint64_t failures;   /* requests that ended with an error */
    uint64_t unnumbered; /* pushes without a number: of rounds, as embd_options asks, or because the
                            shard has no room for a stream */
    embd_latency pulls, pushes; /* that were answered, also with an error */
    uint64_t restarts;          /* of the server, seen at reconnects */
    uint64_t rollbacks; /* restarts with less in journaled tables than the shard had acknowledged:
                           another or an older data directory, or accepted damage */
    bool is_local;      /* connected by the server's data socket on this host, not by TCP */
} embd_shard_figures;

/* Reads the figures of one shard. The caller sets out->struct_bytes. Any thread may ask, also while
 * another one is in a call, until embd_close. Does not block.
 *   EMBD_INVALID   no such shard */
EMBD_API int embd_figures(const embd_client *client, uint32_t shard, embd_shard_figures *out);

typedef struct embd_hot_report {
    uint32_t n_keys;  /* set in the arrays */
    uint32_t stride;  /* one key in about this many is sampled */
    uint64_t samples; /* the counts are out of these */
    uint64_t taken;   /* since the table was made */
} embd_hot_report;

/* Reports the keys that one shard is asked for most, from a sample of the keys last pulled and
 * pushed: keys_out [max_keys], most frequent first, and counts_out [max_keys], how often each is in
 * the sample. max_keys is 1 to 1000. Keys carry their slot offsets. Blocks. Needs the shard's admin
 * listener.
 *   EMBD_UNKNOWN_TABLE
 *   EMBD_INVALID         max_keys is out of range; others as embd_ping */
EMBD_API int embd_hot(embd_client *client, uint32_t shard, const char *table, uint32_t max_keys,
                      uint64_t *keys_out, uint32_t *counts_out, embd_hot_report *report_out);

#define EMBD_STAGES 5 /* queue, decode, store, encode, send */
typedef struct embd_trace_report {
    const char *method;             /* "pull", "push" */
    uint64_t age_us;                /* since the answer's last byte was sent */
    uint64_t bytes;                 /* of the request */
    uint64_t stage_ns[EMBD_STAGES]; /* in the order above; together from the request's last byte
                                       received to the answer's last byte sent */
} embd_trace_report;

/* Reports where the time of a shard's last pulls and pushes went, the newest first, at most 64. Of
 * small requests (below 16 KiB) the server looks at one in 31. Pointers are valid during the visit;
 * a visit that returns nonzero ends the listing, and that value is returned. Blocks. Needs the
 * shard's admin listener. Statuses as embd_ping. */
EMBD_API int embd_trace(embd_client *client, uint32_t shard,
                        int (*visit)(void *arg, const embd_trace_report *trace), void *arg);

/* ---- stopping servers ---- */

/* Asks every server process to finish what it has begun and exit. Blocks. Statuses as embd_ping;
 * EMBD_UNREACHABLE where a server answers neither here nor trainers: the others were asked. Where
 * an admin listener alone is not reached, nobody is. EMBD_INVALID: the client connected by the
 * address of a server that has left the cluster, and nobody was asked. */
EMBD_API int embd_drain(embd_client *client);

/* The same for the one process that `shard` belongs to; its other shards end with it. */
EMBD_API int embd_drain_shard(embd_client *client, uint32_t shard);

/* ---- followers ---- */

typedef struct embd_promote_report {
    uint64_t epoch; /* the new one */
    uint64_t us;    /* until all shards of the follower served */
} embd_promote_report;

#define EMBD_PROMOTE_FORCE UINT64_MAX

/* Promotes the follower that `client` is connected to, while it runs: all its shards, or none.
 * `max_behind`: records of a shard that it may lack of those that the server had when it answered
 * last; EMBD_PROMOTE_FORCE: any number. Blocks until it serves, at most 30 s. `report_out` may be
 * NULL. Needs the admin listener of shard 0.
 *   EMBD_INVALID   not a follower, or not ready to be promoted; nothing was changed
 *   EMBD_BUSY      a promotion is under way
 *   EMBD_EXISTS    it was promoted
 *   others as embd_ping */
EMBD_API int embd_promote(embd_client *client, uint64_t max_behind,
                          embd_promote_report *report_out);

/* ---- dumps ---- */

/* How far a dump, load or verification has come; called a few times a second. Nonzero stops it:
 * EMBD_IO. */
typedef int embd_progress(void *arg, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done);

typedef struct embd_dump_report {
    uint64_t rows;     /* rows of all shards */
    uint64_t bytes;    /* of all part files and blobs */
    uint64_t pause_us; /* how long pushes waited: the longest of the shards */
} embd_dump_report;

/* Writes one table, or all when `table` is NULL, as one consistent cut into the new directory
 * `dir`: keys, slots, rows, optimizer state, step counters, schema. Pushes wait only for the
 * moment of the cut; rows are copied while they go on. Written under a temporary name, synced and
 * renamed; manifest.json last. Needs the shards' admin listeners. `report_out` and `progress` may
 * be NULL. Blocks.
 *   EMBD_EXISTS          `dir` exists
 *   EMBD_BUSY            a snapshot or another dump is under way
 *   EMBD_IO              names the file and the cause
 *   EMBD_UNKNOWN_TABLE; others as embd_ping */
EMBD_API int embd_dump(embd_client *client, const char *table, const char *dir,
                       embd_progress *progress, void *arg, embd_dump_report *report_out);

/* Creates the tables of a dump or snapshot directory and fills them, on any number of shards, bit
 * for bit. `table` NULL: all of them. A snapshot that several server processes wrote is loaded from
 * one directory that holds theirs as sub-directories. Checksums are verified before anything is
 * changed; the progress of that comes first, and rows_done then begins again from 0. If no table is
 * named, a snapshot of all tables also brings the streams of its pushers. After a later failure the
 * tables that this call created are dropped again. On another number of shards than the
 * directory's, the capacity of a table with a bound becomes its share of the bound of all shards,
 * or the rows of the fullest shard if these are more. `report_out` and `progress` may be NULL.
 * Blocks.
 *   EMBD_EXISTS    a table exists with rows, or with another definition
 *   EMBD_CORRUPT   names the file and what differs
 *   EMBD_INVALID   no sub-directory has the rows of a shard; names it
 *   EMBD_IO, EMBD_FULL, EMBD_NO_MEMORY; others as embd_ping */
EMBD_API int embd_load(embd_client *client, const char *table, const char *dir,
                       embd_progress *progress, void *arg, embd_dump_report *report_out);

/* Returns the capacity that each of n_shards takes so that the table has room for `rows` in all:
 * one share for all, enough for the shard with the largest part of the keys where these are spread
 * evenly. At most 4294967294. 0: struct_bytes is wrong, or n_shards is 0. */
EMBD_API uint64_t embd_capacity_share(const embd_schema *schema, uint32_t n_shards, uint64_t rows);

/* Returns the rows that the table has room for in all, on n_shards with the schema's capacity each,
 * where keys are spread evenly. embd_capacity_share makes that capacity of it again; of the rows
 * that it was given first, rounding may have added a few. 0: the capacity is 0, struct_bytes is
 * wrong, or n_shards is 0. */
EMBD_API uint64_t embd_table_capacity(const embd_schema *schema, uint32_t n_shards);

typedef struct embd_load_options {
    uint32_t struct_bytes;     /* sizeof(embd_load_options) */
    uint32_t n_tables;         /* 0: all of the directory */
    const char *const *tables; /* [n_tables] names */
    bool replace;              /* tables that exist become those of the directory */
    embd_progress *progress;   /* NULL: none */
    void *arg;                 /* of progress */
    uint32_t n_set;            /* 0: tables are as the directory has them */
    const embd_field *set;     /* [n_set] fields that get another value in each of the tables */
} embd_load_options;

#define EMBD_LOAD_OPTIONS(...)                                                                     \
    {                                                                                              \
        .struct_bytes = sizeof(embd_load_options), __VA_ARGS__                                     \
    }

/* As embd_load, of any number of tables. With `replace` the tables of a living cluster go back to
 * the directory's: rows, states, candidates, steps and definition; a table's durability stays.
 * They are loaded beside the ones in use, then take their places on all shards, while pushes wait
 * for a moment. Other tables are not touched. A pull sees a shard's old table or its new one. The
 * servers need memory for both.
 *
 * A failure, or the death of the caller, before they take their places changes nothing. If a server
 * dies at that moment, some shards may have the new tables, and others the old ones: each shard's
 * tables are whole, and the same call replaces them on all.
 *
 * Streams of numbered pushes go with the tables. A stream that has pushed to replaced tables alone
 * is where it was in the snapshot: the next push of a trainer that goes on from there is applied,
 * and one with a later number gets EMBD_GAP. A stream that pushed to other tables too, or that the
 * directory does not have, is forgotten: its pushes get EMBD_FORGOTTEN, and none is applied twice.
 * Jobs whose rounds push to replaced tables are over: their workers get EMBD_INVALID (sync.h).
 *
 * With `set` the tables get another definition: fields are set in their order, as embd_schema_set
 * does, in each of the tables. Rows keep their values, rounded to nearest if dtype is another one;
 * new columns (a larger dim) begin as in a new row. State stays if the optimizer is the same one,
 * and begins anew if it is another; so does the use of a row with another eviction policy. The
 * result equals creating the tables with this definition and putting their rows.
 *
 * `options` and `report_out` may be NULL. Blocks. Needs the shards' admin listeners.
 *   EMBD_UNSUPPORTED   a field that a load cannot set: name, slot_sizes, a smaller dim or slots,
 *                      partition to or from slot, update to or from lazy_global, decay away from
 *                      decoupled_global, durability with `replace`: nothing has changed
 *   EMBD_BUSY      another load, a snapshot or a dump is under way
 *   EMBD_FULL      there is no memory for both (row_memory)
 *   EMBD_INVALID   as of embd_load; a table with durability that would create rows on pulls; a
 *                  field or value that a table cannot have; a value beyond the new dtype;
 *                  struct_bytes; `tables` or `set` is NULL and its number is not 0
 *   EMBD_NOT_FINITE   a value or state, where admit_nonfinite is set to false
 *   EMBD_NO_MEMORY  others as embd_load and embd_snapshot */
EMBD_API int embd_load_tables(embd_client *client, const char *dir,
                              const embd_load_options *options, embd_dump_report *report_out);

/* Checks a directory without a server: manifest, sizes, checksums, structure. Blocks.
 *   EMBD_CORRUPT   names the file and what differs
 *   EMBD_IO, EMBD_NO_MEMORY */
EMBD_API int embd_verify(const char *dir, embd_progress *progress, void *arg,
                         embd_dump_report *report_out);

/* ---- snapshots ---- */

#define EMBD_BLOBS_MAX      16           /* of a snapshot */
#define EMBD_BLOB_BYTES_MAX (1ull << 30) /* a reader takes a blob into memory whole */

/* A file of the trainer's own that goes with a snapshot: dense weights, a step, a place in the
 * data. */
typedef struct embd_blob {
    const char *name; /* [a-z0-9][a-z0-9_-]{0,62} */
    const void *data; /* [bytes]; the caller's */
    uint64_t bytes;   /* at most EMBD_BLOB_BYTES_MAX */
} embd_blob;

typedef struct embd_snapshot_options {
    uint32_t struct_bytes; /* sizeof(embd_snapshot_options) */
    uint32_t n_blobs;
    const embd_blob *blobs; /* [n_blobs], at most EMBD_BLOBS_MAX */
    uint32_t keep; /* complete snapshots of the job (or of none) that stay in each data directory:
                      this one and the newest others whose tables it covers; 0: all */
    const char
        *base;       /* only rows that changed since this snapshot of the same tables and job, which
                         the servers made since they started; NULL: all rows */
    const char *job; /* whose snapshot it is, named like a table; NULL: nobody's */
    uint32_t n_tables;
    const char *const *tables; /* [n_tables] of these tables alone: names, or "PREFIX*"; at most
                                  EMBD_SNAPSHOT_TABLES_MAX; none: all tables */
} embd_snapshot_options;

#define EMBD_SNAPSHOT_TABLES_MAX 32

#define EMBD_SNAPSHOT_OPTIONS(...)                                                                 \
    {                                                                                              \
        .struct_bytes = sizeof(embd_snapshot_options), __VA_ARGS__                                 \
    }

/* Has every server process write the state of its shards, one cut over all, under its data
 * directory as `name` ([a-z0-9][a-z0-9_-]{0,63}), and waits for the end. Shard 0's server
 * coordinates: when the caller dies meanwhile, the snapshot is completed without it (one with blobs
 * needs its caller until all were sent). The blobs go into the directory of shard 0's process, so
 * that one snapshot resumes a job; they fit the cut where the caller has no push under way. Pushes
 * wait only for the moment of the cut. `options` and `report_out` may be NULL. Blocks.
 *   EMBD_EXISTS        the name is taken, or a blob's given twice
 *   EMBD_INVALID       a name, struct_bytes, or a table of `tables` that only some shards have;
 *                      names both
 *   EMBD_UNKNOWN_TABLE there is no table of a name or prefix in `tables`
 *   EMBD_TOO_LARGE     too many blobs or tables, or a blob too large
 *   EMBD_UNSUPPORTED   a server has no data directory or is of an earlier version, a store does not
 *                      know what changed, or `base` is of other tables or of another job
 *   EMBD_BUSY          another snapshot or a dump is under way, or a push did not reach all of its
 *                      shards within 2 seconds
 *   EMBD_UNREACHABLE, EMBD_DENIED
 *                      the coordinating server cannot ask another one; says what that needs
 *   EMBD_CLOSED        it was cancelled, or the coordinating server ended
 *   EMBD_IO            names the file and the cause, also of older ones that could not be removed;
 *                      others as embd_ping */
EMBD_API int embd_snapshot(embd_client *client, const char *name,
                           const embd_snapshot_options *options, embd_dump_report *report_out);

#define EMBD_VSHARDS 1024

typedef struct embd_rebalance_options {
    uint32_t struct_bytes;   /* sizeof(embd_rebalance_options) */
    const uint32_t *weights; /* [embd_shard_count] of the shards, at most 1,000,000 each, at least
                                one above 0; the caller's, for the call */
    bool is_plan;            /* nothing moves: the report says what would */
    uint64_t
        rate; /* rows are copied at so many bytes a second at most, 1 MiB or more; 0: no limit */
    /* With n_vshards above 0, in the place of weights: that many vshards go to a shard, and all
     * others stay. The vshard of a key in a table that is partitioned by hash is the upper 10 bits
     * of its hash (proto/PROTOCOL.md, "Placement"). */
    uint32_t first_vshard, n_vshards, to_shard;
} embd_rebalance_options;
#define EMBD_REBALANCE_OPTIONS()                                                                   \
    {                                                                                              \
        .struct_bytes = sizeof(embd_rebalance_options)                                             \
    }

typedef struct embd_rebalance_report {
    uint32_t struct_bytes; /* sizeof(embd_rebalance_report) */
    uint32_t vshards;      /* of 1024, that are on other shards now */
    uint64_t version;      /* of the map of keys to shards */
    uint64_t rows, bytes;  /* that were copied, also those that were copied again */
    uint64_t pause_us;     /* how long pushes waited: the longest of the shards */
    uint64_t elapsed_us;
} embd_rebalance_report;

/* Moves keys between the shards of the cluster while trainers pull and push, so that each shard has
 * its weight's share of them; as few keys move as possible. A shard of weight 0 has none then.
 * Their rows are copied, with optimizer state, then what changed meanwhile; then all shards hold
 * changes for a moment and take the new map, or none does. Clients follow it by themselves: a push
 * of theirs is applied once, and none fails. Shard 0's server coordinates, also when the caller
 * dies. No pull or push waits for a rate: what trainers change faster than that is copied without
 * it at the end. The caller sets report_out->struct_bytes; report_out may be NULL. Blocks.
 *   EMBD_INVALID       struct_bytes, weights, vshards or rate
 *   EMBD_UNSUPPORTED   a table has the durability snapshot, and servers have data directories; a
 *                      server, or one that follows it, is of an earlier version
 *   EMBD_BUSY          a snapshot or another move is under way, tables were created, dropped or
 *                      replaced meanwhile, or a client has left a push half sent: try again
 *   EMBD_FULL, EMBD_NO_MEMORY
 *                      rows do not fit the shards they would come to
 *   EMBD_CLOSED        it was cancelled (embd_snapshot_cancel with its name, "move-VERSION")
 *   others as embd_snapshot
 * After an error keys are where they were, or the text says otherwise. */
EMBD_API int embd_rebalance(embd_client *client, const embd_rebalance_options *options,
                            embd_rebalance_report *report_out);

/* Rows of the move that shard 0's server coordinates now are copied at so many bytes a second at
 * most from now on, as embd_rebalance_options.rate. Blocks.
 *   EMBD_INVALID       no keys are being moved, or rate is neither 0 nor 1 MiB or more
 *   EMBD_UNSUPPORTED   the server is of an earlier version
 *   others as embd_ping */
EMBD_API int embd_rebalance_rate(embd_client *client, uint64_t rate);

/* The server at `address` ("host:port" of a data listener), which was started with --join, becomes
 * a member of the cluster while trainers pull and push, and so do servers listed before it that
 * are no members yet. Their shards have all tables, and no keys: embd_rebalance moves keys there.
 * All servers count with the new shards, or none does. Clients find them by themselves:
 * embd_shard_count of a handle rises with a call that meets the new map. The report has version,
 * pause_us and elapsed_us, and may be NULL. Blocks. Errors as embd_rebalance, and
 *   EMBD_INVALID       the server is a member, or is not listed behind all of the cluster's servers
 *   EMBD_UNSUPPORTED   also: a server has no data directory, or etcd says where servers are */
EMBD_API int embd_shard_add(embd_client *client, const char *address,
                            embd_rebalance_report *report_out);

/* A server leaves the cluster for good, with all of its shards, while trainers pull and push:
 * `shard` is its first one, those are the cluster's last ones, and none has a vshard:
 * embd_rebalance with the weight 0 moves keys away before. All servers count without them, or none
 * does. Afterwards clients know the others alone, and the server may be ended: it does not start on
 * its data directory any more. embd_shard_count of a handle falls with a call that meets the new
 * map. The report has version, pause_us and elapsed_us, and may be NULL. Blocks. Errors as
 * embd_rebalance, and
 *   EMBD_INVALID       a shard has vshards, is not of the last server, or is shard 0
 *   EMBD_UNSUPPORTED   also: a server has no data directory, is followed by another one, or etcd
 *                      says where servers are */
EMBD_API int embd_shard_retire(embd_client *client, uint32_t shard,
                               embd_rebalance_report *report_out);

/* Of 1024, the vshards whose keys each shard has: out [embd_shard_count]. Asks shard 0's server,
 * and updates the client's map. Blocks. Errors as embd_ping. */
EMBD_API int embd_vshards(embd_client *client, uint32_t *out);

/* The shard of each vshard: out [EMBD_VSHARDS]. As embd_vshards. */
EMBD_API int embd_vshard_shards(embd_client *client, uint32_t *out);

/* A snapshot or dump that shard 0's server makes, or has made. */
typedef struct embd_snapshot_report {
    uint32_t struct_bytes; /* sizeof(embd_snapshot_report) */
    int status;            /* of one that has ended */
    bool is_running;
    uint32_t shards_done; /* that have written, in the phase "write" */
    uint64_t rows, bytes; /* that these have written */
    uint64_t pause_us;    /* how long pushes waited: the longest of the shards */
    uint64_t elapsed_us;
    char name[65];
    char phase[16];  /* the one it is in, or was in last: "begin", "files", "hold", "write",
                        "commit", "keep", "read" or "abort" */
    char error[400]; /* what went wrong; "": nothing did */
    /* Of keys that move (embd_rebalance); else 0. */
    uint64_t rate;                          /* bytes a second at most; 0: no limit */
    uint64_t expected_rows, expected_bytes; /* that will be copied, about; 0: not known */
} embd_snapshot_report;

/* Reports the progress of the snapshot `name` (NULL: the newest one), among the last eight started
 * on shard 0's server. The caller sets out->struct_bytes. Blocks.
 *   EMBD_INVALID   there is none
 *   others as embd_ping */
EMBD_API int embd_snapshot_status(embd_client *client, const char *name, embd_snapshot_report *out);

/* Cancels the snapshot `name`, whoever started it, and removes its files on all servers, also those
 * that a killed server left. A complete snapshot stays. Blocks.
 *   EMBD_BUSY   it is being committed, and complete in a moment; or another one runs
 *   others as embd_ping */
EMBD_API int embd_snapshot_cancel(embd_client *client, const char *name);

/* Calls `visit` for each blob of a snapshot directory, without a server. The name is valid during
 * the call. A visit that returns nonzero ends the listing; that value is returned. Other statuses
 * as embd_blob_read. */
EMBD_API int embd_blob_list(const char *dir,
                            int (*visit)(void *arg, const char *name, uint64_t bytes), void *arg);

/* Reads a blob of a snapshot directory into memory that the caller frees with free(). A zero byte
 * follows it that *bytes_out does not count.
 *   EMBD_INVALID   no blob of that name
 *   EMBD_CORRUPT   its size or its checksum is not that of the manifest
 *   EMBD_IO, EMBD_NO_MEMORY */
EMBD_API int embd_blob_read(const char *dir, const char *name, void **data_out,
                            uint64_t *bytes_out);

/* ---- comparing tables ---- */

#define EMBD_DIGEST_PARTS    1024
#define EMBD_DIGEST_NO_SHARD UINT32_MAX

/* Digests of a table's content: keys, slots, rows as they are stored, optimizer state, and keys
 * that wait for admission. They depend neither on the order of the rows, nor on the number of
 * shards, nor on the store. */
typedef struct embd_table_digest {
    const char *name;
    uint64_t rows, candidates; /* candidates: keys that wait for admission */
    uint64_t step;             /* the highest of the shards; not part of the digest */
    uint64_t digest;           /* of all parts */
    const uint64_t *parts; /* [EMBD_DIGEST_PARTS]: the sum of XXH3 of the rows whose keys have that
                              number as the upper ten bits of their hash: for tables with partition
                              `hash` the vshard */
    const uint64_t *part_rows;   /* [EMBD_DIGEST_PARTS]: rows and candidates of each part */
    const uint32_t *part_shards; /* [EMBD_DIGEST_PARTS]: the shard that has all of these rows;
                                    EMBD_DIGEST_NO_SHARD: several, or none */
    const uint64_t *positions;   /* [n_positions] records that the journal of each shard had at the
                                  cut: a follower is compared with its server at the same one. Of
                                  directories and earlier servers 0 of them */
    uint32_t n_positions;
} embd_table_digest;

/* Calls `visit` with the digest of one table, or of each when `table` is NULL, all of one
 * consistent cut. All pointers are valid during the call. A visit that returns nonzero ends it;
 * that value is returned. The shards make it, and the rows stay there; those of earlier servers
 * travel to this machine. Needs the admin listeners of the shards. `progress` may be NULL. Blocks.
 * Statuses as embd_dump. */
EMBD_API int embd_digest(embd_client *client, const char *table,
                         int (*visit)(void *arg, const embd_table_digest *table), void *arg,
                         embd_progress *progress, void *progress_arg);

/* Has each shard of a follower, and that of the server that it follows, digest its tables at one
 * position of their journals, while pushes go on, and waits for that. `follower` is a client of the
 * follower; `mark` a number from 1 to 2^64 - 2 that no other mark has. *same_out: the digests of
 * all shards are the same. Both sides keep them for a minute.
 *   EMBD_UNSUPPORTED     the client's server follows none, or is of an earlier version
 *   EMBD_BUSY            another comparison is under way, or a side needed its tables for a
 *                        snapshot, a dump or a table that was dropped: try again
 *   statuses of any request */
EMBD_API int embd_mark(embd_client *follower, uint64_t mark, bool *same_out);

/* As embd_digest, of a mark that the client's server has: of the follower, or of the server that it
 * follows.
 *   EMBD_INVALID         it has no such mark (any more) */
EMBD_API int embd_digest_mark(embd_client *client, uint64_t mark, const char *table,
                              int (*visit)(void *arg, const embd_table_digest *table), void *arg);

/* The same of a dump or snapshot directory, without a server.
 *   EMBD_INVALID         it has only what changed since its base, or parts are missing
 *   EMBD_UNKNOWN_TABLE
 *   EMBD_CORRUPT, EMBD_IO, EMBD_NO_MEMORY */
EMBD_API int embd_digest_directory(const char *dir, const char *table,
                                   int (*visit)(void *arg, const embd_table_digest *table),
                                   void *arg, embd_progress *progress, void *progress_arg);

/* ---- looking into directories ---- */

/* A table of a dump or snapshot, or that of a model folder (embd_hugectr_inspect). */
typedef struct embd_stored_table {
    const char *kind; /* "dump", "snapshot", "hugectr", or "changes": only the rows that changed
                         since the base */
    const char *name; /* NULL in a HugeCTR folder, which has none */
    const embd_schema *schema; /* NULL in a HugeCTR folder */
    uint32_t dim;              /* of a HugeCTR folder: what the sizes give, 0 when it has no rows */
    uint32_t n_files;
    bool has_slots; /* rows belong to (slot, key) */
    uint64_t rows, bytes, step;
    const char *job; /* whose snapshot it is; "": nobody's */
} embd_stored_table;

/* Shows what a dump or snapshot directory holds, without a server: calls `visit_table` for each
 * table and then `visit_row` for its first `n_first` rows, as f32 [dim], in the order of the files.
 * All pointers are valid during the call. visit_row may be NULL if n_first is 0. A visit that
 * returns nonzero ends it; that value is returned. What is looked at is checked as embd_load does.
 * Blocks.
 *   EMBD_CORRUPT, EMBD_IO, EMBD_NO_MEMORY */
EMBD_API int embd_inspect(const char *dir, uint64_t n_first,
                          int (*visit_table)(void *arg, const embd_stored_table *table),
                          int (*visit_row)(void *arg, const embd_stored_table *table, uint32_t slot,
                                           uint64_t key, const float *values),
                          void *arg);

#ifdef __cplusplus
}
#endif
#endif
