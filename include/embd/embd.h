/* embd.h - the C client library of embd, an embedding parameter server: what a trainer needs.
 *
 * A trainer connects to a cluster of shards, opens tables, pulls embedding rows and pushes
 * gradients:
 *
 *     embd_client *client;
 *     embd_part part = EMBD_PART(.n_keys = 3, .keys = keys, .values = rows);
 *     if (embd_connect("127.0.0.1:7700", NULL, &client) != EMBD_OK)
 *         return puts(embd_error_text());
 *     if (embd_table_open(client, "items", &part.table) || embd_pull(client, &part, 1, NULL))
 *         puts(embd_error_text());
 *     embd_close(client);
 *
 * The other headers: data.h (batches, data sets), rows.h (rows by key, changes), job.h (checkpoints
 * of a job), sync.h (its workers in step), device.h (memory of a GPU), admin.h (dumps, snapshots,
 * figures), hugectr.h (HugeCTR's model folders), arrays.h (tables as plain arrays).
 *
 * Return values: EMBD_OK (0) or a negative status. After a failure embd_error_text() returns a
 * sentence that names the server and the cause. Outputs are set only on success, except that the
 * arrays of a pull have unspecified contents after a pull that failed.
 *
 * Structs that callers fill begin with their size, so that later versions can add members. A macro
 * of the struct's name sets it: embd_part part = EMBD_PART(.n_keys = 3); what is not named is zero.
 * Structs with other defaults have a function instead: embd_options_init(&options). Members beyond
 * a smaller struct_bytes take their defaults. A larger one is accepted while the members that the
 * library does not know are zero; else, and where it is 0, the call is EMBD_INVALID.
 *
 * Threads: a client handle, its tables and its calls belong to one thread at a time. Different
 * handles are independent. With embd_options.own_thread the library moves bytes on a thread of its
 * own, so that a started call makes progress while the caller computes; otherwise only inside
 * blocking functions.
 *
 * Answers of servers are checked: none can write outside the arrays given here. The library asserts
 * its own promises, in releases too: a broken one is a bug of the library, which then prints one
 * line on standard error and calls abort(). */
#ifndef EMBD_EMBD_H
#define EMBD_EMBD_H

#include "embd/schema.h"
#include "embd/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- connecting ---- */

typedef struct embd_client embd_client;
typedef struct embd_table embd_table;
typedef struct embd_call embd_call;

/* Set by embd_options_init first. */
typedef struct embd_options {
    uint32_t struct_bytes;     /* sizeof(embd_options) */
    uint32_t deadline_ms;      /* of every call that names none; default 30000 */
    uint32_t reconnect_min_ms; /* first pause before connecting again, then doubled; default 10 */
    uint32_t reconnect_max_ms; /* default 1000 */
    bool own_thread;           /* move bytes on a thread of the library's; default false */
    /* Credentials. NULL: the environment variable of the same name (EMBD_TOKEN_FILE, ...), if it
     * is set. embd_connect copies the strings; files are read again when they change and a link
     * connects. */
    const char *token_file; /* a file with a token, of mode 0600 or 0640 */
    const char *token;      /* ignored where there is a token_file */
    bool plain_token;       /* send the token to other hosts without TLS too; default false, or
                               EMBD_PLAIN_TOKEN=yes */
    const char *tls_ca;     /* use TLS 1.3 and trust the authorities in this PEM file or "system" */
    const char *tls_cert;   /* own certificate with its chain (PEM), where servers ask for one */
    const char *tls_key;    /* its key (PEM), of mode 0600 or 0640 */
    bool partly;     /* for operators: embd_connect and embd_table_open pass over shards that do not
                    answer by the deadline; calls that need one fail. Default false */
    bool unnumbered; /* pushes without a pusher have no numbers, see embd_push; default
                               false */
    /* Replicas: servers with `serve: yes` that follow the cluster. "HOST:PORT[,HOST:PORT]...", the
     * port of shard 0 of each, whose other shards have the ports behind it; 16 at most. Pulls go
     * round over the cluster and its replicas; one that a replica does not answer, or not within 2
     * seconds, goes to the cluster. All else goes to the cluster. NULL: none */
    const char *readers;
    uint32_t max_behind_ms; /* a replica further behind answers no pull of this client; 0: any
                               may; at most a day. Default 0 */
} embd_options;

/* Sets the options to their defaults. */
#define embd_options_init(options)                                                                 \
    embd_options_init_sized((options), (uint32_t)sizeof(embd_options))
EMBD_API void embd_options_init_sized(embd_options *options, uint32_t struct_bytes);

/* Connects to a cluster: asks the first address of `servers` ("host:port[,host:port]...") that
 * answers for the map of all shards, then connects to each. Items may also be names, which are
 * looked up until the deadline while no server answers: "dns://NAME:PORT" is every address of NAME,
 * "dns://_SERVICE._PROTO.NAME" every server of its SRV records. The path of an admin socket on this
 * host, "/run/embd/7700.sock", is for operators: without a token, and when all data connections are
 * in use, shards of this host answer all but pulls and changes of rows. A lost connection looks the
 * host of its shard's address up again; if a shard has moved (the map is in etcd then), the client
 * asks another server. "inproc:DIR?SETTING=VALUE&..." is not an address: it starts a server with
 * the data directory DIR in this process, or shares the one of the same text, and returns when its
 * tables are loaded (client/GUIDE.md). `options` may be NULL. Blocks up to the deadline. On failure
 * `*client_out` is NULL.
 *   EMBD_INVALID       an option; an address, token or certificate cannot be read
 *   EMBD_UNREACHABLE   no server answered
 *   EMBD_PROTOCOL      the peer is not embd, has another version, or is not trusted; later calls
 *                      try again until their deadline, as certificates and tokens are replaced
 *   EMBD_DENIED        the server asks for a token, or does not know this one
 *   EMBD_UNSUPPORTED   inproc: libembd-inproc is not there, or of another release; a cluster's file
 *   EMBD_IO, EMBD_CORRUPT   inproc: the data directory; another server uses it
 *   EMBD_NO_MEMORY */
EMBD_API int embd_connect(const char *servers, const embd_options *options,
                          embd_client **client_out);

/* Abandons calls in flight, closes the connections and frees the handle and its tables. NULL is
 * allowed. */
EMBD_API void embd_close(embd_client *client);

/* As far as the client knows: it rises with a call that meets shards that were added to the cluster
 * (embd_shard_add), and falls with one that meets a map without those that left
 * (embd_shard_retire). */
EMBD_API uint32_t embd_shard_count(const embd_client *client);

/* Returns "127.0.0.1:7700", where the shard is as far as the client knows; valid as long as the
 * handle. NULL for shard >= embd_shard_count(). */
EMBD_API const char *embd_shard_address(const embd_client *client, uint32_t shard);

/* Times a round trip to one shard; *microseconds_out may be NULL. Blocks.
 *   EMBD_INVALID   no such shard; EMBD_UNREACHABLE, EMBD_DEADLINE, EMBD_CLOSED */
EMBD_API int embd_ping(embd_client *client, uint32_t shard, uint64_t *microseconds_out);

/* ---- tables ---- */

/* Creates the table on every shard. A table of the same name and definition is not an error; fields
 * that embd_table_set has set since it was created are not compared, and keep their values. It is
 * sent again where a connection breaks. Blocks.
 *   EMBD_EXISTS   it exists with another definition; names the field and both values
 *   others        as embd_schema_check and embd_ping */
EMBD_API int embd_table_create(embd_client *client, const embd_schema *schema);

/* Drops the table on every shard, its rows with it. A server that ends in order passes it on to the
 * next one; where its connection breaks it may have been done: EMBD_CLOSED. Blocks.
 *   EMBD_UNKNOWN_TABLE   no shard has it; others as embd_ping */
EMBD_API int embd_table_drop(embd_client *client, const char *name);

/* A field of a definition and its value, as embd_schema_set takes them: "optimizer.lr", "0.05". */
typedef struct embd_field {
    const char *field, *value;
} embd_field;

/* Sets fields of a table while it lives: parameters of its optimizer, initializer.a and b,
 * capacity, on_full with its parameters, admit_after, create_on, admit_nonfinite and durability.
 * Every shard first checks all fields; then each of them sets all fields between two pushes,
 * durably where the table is. So pushes that this client made before go by the old values on every
 * shard, and later ones by the new; pushes of other clients may come before on one shard and
 * behind on another. Rows keep their values and state; a parameter for new rows affects those made
 * later. Rows beyond a lower capacity go, in the order of on_full. on_full may become a policy
 * that records the same use of rows: GROW or ERROR; EVICT_LRU or EVICT_TTL with ttl. Keys that
 * wait for a row keep their count when admit_after is set; 0 and 1 forget them. A table that
 * becomes BUFFERED or DURABLE is written to the journals, and used, before this returns. One that
 * becomes SNAPSHOT comes back from the newest snapshot at the next start.
 * steps_out[embd_shard_count()] or NULL: the pushes that each shard had applied before. Blocks.
 *   EMBD_INVALID         an unknown field or value, a field named twice, none, or one that the
 *                        table's optimizer or policy lacks: nothing has changed
 *   EMBD_UNSUPPORTED     a field that is fixed when a table is created, a policy that records
 *                        another use of rows, or a durability that needs a data directory:
 *                        nothing has changed
 *   EMBD_IO              a journal could not take the table's rows, or its server was started again
 *                        before it had: the table keeps its durability there
 *   EMBD_FULL            a shard has more rows than the capacity, and the policy lets too few go:
 *                        nothing has changed
 *   EMBD_UNKNOWN_TABLE   a shard does not have it: nothing has changed
 *   EMBD_NO_MEMORY       others as embd_ping. If some shards have the change and others may not,
 *                        the text says so: repeat the call, which sets them all */
EMBD_API int embd_table_set(embd_client *client, const char *name, const embd_field *fields,
                            uint32_t n_fields, uint64_t *steps_out);

/* Opens a table. The handle belongs to the client and lives as long; opening a name again gives the
 * same handle, with the definition as it is then. Blocks.
 *   EMBD_UNKNOWN_TABLE
 *   EMBD_PROTOCOL        shards do not agree on its definition: names the field, both values, and
 *                        the embctl table set that mends it; others as embd_ping */
EMBD_API int embd_table_open(embd_client *client, const char *name, embd_table **table_out);

/* Valid as long as the client. Fields that embd_table_set sets are as of this client's last
 * embd_table_open or embd_table_set. */
EMBD_API const embd_schema *embd_table_schema(const embd_table *table);

/* How often shards came back with less of the table than they had acknowledged, or may have, since
 * the table was opened. Pulls go on and return what is there; this tells a client that only pulls.
 * Pushes need it not: they fail with EMBD_GAP or EMBD_FORGOTTEN.
 *
 * A restart of a server counts for tables of durability "snapshot": they are as in the newest
 * snapshot, and may have lost nothing if it was made after the last push. For journaled tables a
 * restart counts only if the server began with another or an older data directory, or if an
 * operator accepted damage of a journal. Where a follower takes over by its lease in etcd, that
 * counts if the table lost something by it, or may have. A client notices when it reconnects,
 * before the first answer of the new start. Not counted: what a power cut takes of `buffered`
 * tables; what an operator loads or drops. Any thread may ask, also while another one is in a call,
 * until embd_close. Does not block. */
EMBD_API uint64_t embd_table_rollbacks(const embd_table *table);

/* Calls `visit` with the name of each table of the cluster, in ascending order. The name is valid
 * during the call. A visit that returns nonzero ends the listing; that value is returned. Blocks.
 * Statuses as embd_ping. */
EMBD_API int embd_table_list(embd_client *client, int (*visit)(void *arg, const char *name),
                             void *arg);

/* ---- batches ---- */

/* The result for a key. */
typedef enum embd_key_status {
    EMBD_KEY_HIT,        /* had a row */
    EMBD_KEY_INSERTED,   /* had none and has one now */
    EMBD_KEY_MISSING,    /* has none; a pull answered its first value, or zeros where asked to */
    EMBD_KEY_FILTERED,   /* not seen often enough (admit_after): no row, the gradient was dropped */
    EMBD_KEY_EVICTED,    /* lost its row in this request: erased */
    EMBD_KEY_FULL,       /* no room: no row, the gradient was dropped */
    EMBD_KEY_UNREPORTED, /* the push had been applied before, when it was sent again */
} embd_key_status;

/* How rows and gradients travel. */
typedef enum embd_plan {
    EMBD_PLAN_AUTO,   /* whichever moves fewer bytes */
    EMBD_PLAN_POOLED, /* shards return partial sums (for concat: one row per key); gradients travel
                         pooled */
    EMBD_PLAN_ROWS,   /* each distinct key once; pooled here, gradients merged here */
} embd_plan;

/* One table's share of a call: a CSR batch and the matrix that belongs to it. The arrays are the
 * caller's and must stay until the call has ended. A pull reads `offsets`, `keys`, `weights` and
 * writes `values` and `statuses`; a push reads all but `statuses`, which it writes.
 *
 * Row r of the batch (sample r / slots, slot r % slots) holds keys[offsets[r] .. offsets[r+1]). */
typedef struct embd_part {
    uint32_t struct_bytes; /* sizeof(embd_part); the same in all parts of a call */
    bool raw;              /* rows of single keys although the table has a combiner */
    embd_table *table;
    uint64_t n_rows; /* samples * slots; a multiple of the table's slots. Unused without offsets */
    const uint64_t *offsets; /* [n_rows + 1], 0 to n_keys, never falling; NULL: a key per row */
    uint64_t n_keys;
    const uint64_t *keys; /* [n_keys], any 64-bit values */
    const float *weights; /* [n_keys], finite, or NULL: all 1 */
    float *values;        /* pull: output. push: gradient of what such a pull returned.
                             Tables with a combiner, and not `raw`: [n_rows][dim]. Otherwise
                             [n_keys][dim], row k for key k, unweighted */
    uint8_t *statuses;    /* [n_keys] of embd_key_status, or NULL */
    float lr;             /* push: the learning rate of this step; 0: the table's. All workers of a
                             round give the same */
    /* Push to a table with EMBD_ON_FULL_EVICT_SCORE: [n_keys], finite, or -INFINITY: no score for
     * the key. NULL: for no key. The largest of a key's scores in a push (of all workers, in a
     * round) becomes its row's score, also where it is lower than before. A row without a new score
     * keeps its own. */
    const float *scores;
} embd_part;

/* An initializer, also within one of an array: embd_part part = EMBD_PART(.table = items). */
#define EMBD_PART(...)                                                                             \
    {                                                                                              \
        .struct_bytes = sizeof(embd_part), __VA_ARGS__                                             \
    }

/* ---- pull and push ---- */

struct embd_clock; /* sync.h */

/* A source of pushes that are applied once each, also when a trainer that was restarted pushes them
 * again. The client numbers all other pushes itself, see embd_push.
 *
 * A pusher numbers its pushes 1, 2, ... (embd_call_options.sequence) in one or more streams. Each
 * shard remembers the last number it applied of each stream: in its journal for durable and
 * buffered tables, otherwise until it ends. The tables of one stream are all journaled, or none is.
 *
 * libembd sends such a push again after a lost connection, also to a server that was restarted,
 * until the deadline. A number that was applied before changes nothing and is EMBD_OK: also for a
 * trainer that was restarted and pushes it again. It must have the same gradients and learning
 * rates, because some shards may not have applied it. A refused push uses no number: the next one
 * is EMBD_GAP until the refused one was pushed (without keys, to leave it out).
 *
 * The first push opens the stream on each shard. A shard has room for 65536 streams, 4096 of them
 * for one token. A full shard forgets a stream of the same token, or of those without a token, that
 * was idle for 10 minutes; otherwise the push is EMBD_FULL. A push of a forgotten stream is
 * EMBD_FORGOTTEN, also push 1 when this client makes it again: whether it was applied is then
 * unknown. Begin a new stream, with another id or stream number. */
typedef struct embd_pusher {
    uint64_t high, low; /* the id; embd_pusher_new draws one */
    uint32_t stream;
} embd_pusher;

typedef struct embd_call_options {
    uint32_t struct_bytes; /* sizeof(embd_call_options) */
    uint32_t deadline_ms;  /* 0: the client's */
    embd_plan plan;
    /* Rows and gradients are rounded to it where they leave, last: to nearest, but gradients by
     * chance to I8 and I4. A server that does not take I8 or I4: EMBD_INVALID, and nothing is sent;
     * a gradient that is not finite is EMBD_NOT_FINITE there. */
    embd_dtype wire;
    bool zero_missing; /* pull: keys without a row give zeros, and no row is made */
    /* push: the worker that pushes, where all workers of a job make one step together. NULL: a
     * step of its own. Copied. */
    const struct embd_clock *round;
    uint64_t round_clock;      /* the iteration of that step */
    const embd_pusher *pusher; /* push: NULL: the client numbers it. Copied */
    uint64_t sequence;         /* the pusher's number of this push, from 1 */
} embd_call_options;

#define EMBD_CALL_OPTIONS(...)                                                                     \
    {                                                                                              \
        .struct_bytes = sizeof(embd_call_options), __VA_ARGS__                                     \
    }

/* Pulls all parts. Keys without a row give the value they would start with and, unless the table
 * says create_on = pull, stay without one. Either all of `values` is filled or the call fails.
 * After a lost connection or a restart of the server the pull is sent again until the deadline.
 * Blocks. `options` may be NULL.
 *   EMBD_INVALID         struct_bytes; offsets fall, do not start at 0 or do not end at n_keys;
 *                        n_rows is not a multiple of slots; a key is not below its slot's size; a
 *                        weight is not finite; too many keys or rows. Names part, position, value
 *   EMBD_TOO_LARGE       a message would pass the frame limit
 *   EMBD_BUSY            the server is out of budget
 *   EMBD_UNKNOWN_TABLE   the table was dropped
 *   EMBD_FULL            create_on = pull, no room (on_full is not grow), and no `statuses` to say
 *                        which keys: the shard refused the message, and made no row in any table
 *   EMBD_DEADLINE, EMBD_LOADING, EMBD_CLOSED, EMBD_UNREACHABLE, EMBD_DRAINING, EMBD_PROTOCOL,
 *   EMBD_NO_MEMORY */
EMBD_API int embd_pull(embd_client *client, const embd_part *parts, size_t n_parts,
                       const embd_call_options *options);

/* Pushes gradients. Gradients of one key are summed in batch order (in runs of 256, then the runs),
 * so that a key takes one optimizer step per call; keys without a row start from their first value.
 * A call is one step of every table it names, on every shard. A shard applies a push whole or not
 * at all. After an error other shards may have applied it: the sentence says which. Blocks.
 *
 * A push is sent again after a lost connection or a restart of the server, until the deadline, and
 * applied once: it has a number. The client numbers pushes that name neither a pusher nor a round,
 * on each shard by itself; its first push opens a stream on every shard, as a pusher's does, and
 * waits for that. Durable and buffered tables lose nothing in a restart. A shard that comes back
 * without pushes it had acknowledged (tables of durability snapshot, an older data directory)
 * refuses the next push: EMBD_GAP or EMBD_FORGOTTEN. The push after that begins a new stream. When
 * a push fails, those that were started behind it and before embd_wait reported it fail too, on the
 * shards that did not apply it, with the same status.
 *
 * Pushes of a client with embd_options.unnumbered have no numbers, nor those to a shard that has no
 * room for a stream: after a lost connection they are EMBD_CLOSED. Pushes of a round have none
 * either; they are sent again, and are in one step (sync.h says where not).
 *   as embd_pull, and
 *   EMBD_TOO_LARGE    the share of a shard is larger than its push_limit: nothing was sent
 *   EMBD_NOT_FINITE   a gradient is NaN or infinite and the table does not admit them; names the
 *                     first key
 *   EMBD_FULL         no room (on_full is not grow), and no `statuses` to say which keys: the shard
 *                     refused the push; or no room for the stream of a pusher's first push
 *   EMBD_CLOSED       without a number: the connection was lost, and the push may have been applied
 *   EMBD_INVALID      also: a learning rate is none; another push of this worker was in the round;
 *                     other workers gave the step another learning rate
 *   EMBD_LATE         the round was made without this worker, see embd_clock
 *   EMBD_UNANSWERED   with a number: it was sent, and the deadline passed without an answer
 *   EMBD_GAP          the shard has lost acknowledged pushes; with a pusher also: the push before
 *                     it was not applied. Names the last one applied
 *   EMBD_FORGOTTEN    the shard does not know the stream, or not any more: as EMBD_GAP, or the
 *                     stream was idle for 10 minutes and the shard needed its room */
EMBD_API int embd_push(embd_client *client, const embd_part *parts, size_t n_parts,
                       const embd_call_options *options);

/* Start a pull or a push and return once it is on its way; embd_wait ends it. Several calls may be
 * in flight; those to one shard take effect in the order started. `parts` is copied, the arrays are
 * not. Statuses: those that are known before anything is sent. */
EMBD_API int embd_pull_start(embd_client *client, const embd_part *parts, size_t n_parts,
                             const embd_call_options *options, embd_call **call_out);
EMBD_API int embd_push_start(embd_client *client, const embd_part *parts, size_t n_parts,
                             const embd_call_options *options, embd_call **call_out);

/* Waits for a started call, frees it and returns its status, as embd_pull and embd_push do. */
EMBD_API int embd_wait(embd_call *call);

/* Returns true when embd_wait would not block. Moves bytes, so that polling makes progress without
 * own_thread. */
EMBD_API bool embd_is_done(embd_call *call);

/* Memory for `values` of pulls and pushes, which servers on this host share with the client: rows
 * of one shard are written into it, and gradients are read from it, without going through a socket
 * and without another copy. Where no server is on this host, or there is no room in the shared
 * memory (EMBD_SHARED_MIB), it is memory like any other. It begins at a page, and is all zero.
 * After a call that ended without its server's answer, such as with EMBD_DEADLINE, all buffers keep
 * their content and are not shared any more. A forked child has the same memory as its parent, and
 * cannot free it.
 *
 * EMBD_INVALID       no bytes, or more than can be
 * EMBD_NO_MEMORY */
EMBD_API int embd_buffer_new(embd_client *client, uint64_t bytes, void **buffer_out);

/* Frees it, once the calls that use it have ended. On any thread, and also after embd_close. NULL
 * is allowed. */
EMBD_API void embd_buffer_free(void *buffer);

/* Returns whether servers on this host share this buffer of the client now. */
EMBD_API bool embd_buffer_is_shared(const embd_client *client, const void *buffer);

/* Erases keys with their rows, their optimizer state and the count of admit_after. A key that is
 * pushed again gets a new row. `values`, `weights`, `wire` and `plan` are ignored; `offsets` say
 * which slots keys belong to, as for a pull. `statuses` become EMBD_KEY_EVICTED, or
 * EMBD_KEY_MISSING where there was no row. It is not a step of the table, and may be repeated.
 * A server that ends in order passes it on to the next one; where its connection breaks it may have
 * been done: EMBD_CLOSED. Blocks.
 *   as embd_pull, and EMBD_UNSUPPORTED: the servers' store cannot. After an error some keys may be
 *   gone, see embd_push. */
EMBD_API int embd_erase(embd_client *client, const embd_part *parts, size_t n_parts,
                        const embd_call_options *options);

/* Makes a pusher with a random id, and stream 0.
 *   EMBD_IO   the system has no random numbers */
EMBD_API int embd_pusher_new(embd_pusher *pusher_out);

/* Asks all shards for the last push applied of a pusher's stream, 0 where it is not known: the
 * least and the greatest answer. A restarted trainer goes on with the push after the least one.
 * Blocks. Statuses as embd_ping. */
EMBD_API int embd_pusher_last(embd_client *client, const embd_pusher *pusher, uint64_t *least_out,
                              uint64_t *greatest_out);

#ifdef __cplusplus
}
#endif
#endif
