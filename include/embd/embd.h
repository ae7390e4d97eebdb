/* embd.h - the C client library of embd, an embedding parameter server.
 *
 * A trainer connects to a cluster of shards, opens tables, pulls embedding rows and pushes
 * gradients:
 *
 *     embd_client *client;
 *     embd_part part = {.n_keys = 3, .keys = keys, .values = rows};
 *     if (embd_connect("127.0.0.1:7700", NULL, &client, why, sizeof why) != EMBD_OK)
 *         return puts(why);
 *     if (embd_table_open(client, "items", &part.table) || embd_pull(client, &part, 1, NULL))
 *         puts(embd_last_error(client));
 *     embd_close(client);
 *
 * Return values: EMBD_OK (0) or a negative status; embd_last_error() then holds a sentence that
 * names the server and the cause. Functions set their outputs only on success, except that the
 * arrays given to a pull have unspecified contents after a pull that failed.
 *
 * Threads: a client handle, its tables and its calls belong to one thread at a time. Different
 * handles are independent. With embd_options.own_thread the library moves bytes on a thread of its
 * own, so that a started call makes progress while the caller computes; otherwise only inside
 * blocking functions.
 *
 * What a server sends is checked before it is believed: no answer can write outside the arrays
 * given here. The library asserts its own promises, in releases too: a broken one is a bug of the
 * library, which then prints one line on standard error and calls abort(). */
#ifndef EMBD_EMBD_H
#define EMBD_EMBD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EMBD_API __attribute__((visibility("default")))
#else
#define EMBD_API
#endif

/* ---- statuses
 * ------------------------------------------------------------------------------------------ */

/* name, number on the wire, text. The C value is the negated number. */
#define EMBD_STATUS_LIST(X)                                                                        \
    X(INVALID, 1, "invalid argument")                                                              \
    X(MALFORMED, 2, "malformed message")                                                           \
    X(TOO_LARGE, 3, "over a limit")                                                                \
    X(UNKNOWN_METHOD, 4, "unknown method")                                                         \
    X(UNKNOWN_TABLE, 5, "unknown table")                                                           \
    X(EXISTS, 6, "exists with another definition")                                                 \
    X(UNSUPPORTED, 7, "not supported")                                                             \
    X(FULL, 8, "table is full")                                                                    \
    X(NOT_FINITE, 9, "not a finite number")                                                        \
    X(NO_MEMORY, 10, "out of memory")                                                              \
    X(BUSY, 11, "server is busy")                                                                  \
    X(DRAINING, 12, "server is shutting down")                                                     \
    X(UNREACHABLE, 13, "server cannot be reached")                                                 \
    X(DEADLINE, 14, "deadline passed")                                                             \
    X(CLOSED, 15, "connection closed during the call; a push may or may not have been applied")    \
    X(PROTOCOL, 16, "the server's answer is not understood")                                       \
    X(IO, 17, "input or output failed")                                                            \
    X(CORRUPT, 18, "stored data is damaged")                                                       \
    X(INTERNAL, 19, "internal error")                                                              \
    X(DENIED, 20, "not allowed")                                                                   \
    X(GAP, 21, "a push of the same writer is missing before it")                                   \
    X(FORGOTTEN, 22, "the writer is not known")                                                    \
    X(UNANSWERED, 23, "a push was sent and not answered: it may or may not have been applied")     \
    X(LOADING, 24, "server is loading its tables")                                                 \
    X(LATE, 25, "the worker comes late: its job has gone on without it")

typedef enum embd_status {
    EMBD_OK = 0,
#define EMBD_STATUS_ENUM(name, number, text) EMBD_##name = -(number),
    EMBD_STATUS_LIST(EMBD_STATUS_ENUM)
#undef EMBD_STATUS_ENUM
} embd_status;

/* The text of a status; "unknown status" for any other number. Never NULL. */
EMBD_API const char *embd_status_text(int status);

/* "0.1.0" */
EMBD_API const char *embd_version(void);

/* ---- table schema
 * -------------------------------------------------------------------------------------- */

#define EMBD_NAME_MAX  63   /* bytes of a table name: [a-z0-9][a-z0-9_-]{0,62} */
#define EMBD_DIM_MAX   4096 /* columns of a row */
#define EMBD_SLOTS_MAX 1024 /* slots of a table; a key-table entry has 10 bits for the slot */

/* How keys are spread over n shards. */
typedef enum embd_partition {
    EMBD_PARTITION_HASH, /* mix64(key) >> 54 is one of 1024 virtual shards; v belongs to shard v * n
                            / 1024 */
    EMBD_PARTITION_MODULO, /* key % n */
    EMBD_PARTITION_SLOT,   /* slot % n; rows belong to the pair (slot, key), so keys of different
                            slots may
                    overlap */
} embd_partition;

/* How the rows of one slot of one sample become one output row. With weights w: */
typedef enum embd_combiner {
    EMBD_COMBINER_CONCAT, /* no pooling: one output row per key */
    EMBD_COMBINER_SUM,    /* sum(w * row) */
    EMBD_COMBINER_MEAN,   /* sum(w * row) / sum(w); without weights sum(row) / n, where n > 1 */
    EMBD_COMBINER_SQRTN,  /* sum(w * row) / sqrt(sum(w * w)); without weights sum(row) / sqrt(n),
                            where n > 1
                  */
} embd_combiner;

typedef enum embd_dtype { EMBD_DTYPE_F32, EMBD_DTYPE_F16, EMBD_DTYPE_BF16 } embd_dtype;

/* One step of a row w with the gradient g = (sum of the request's gradients of the row) / scaler,
 * all in f32:
 *   sgd               w -= lr*g
 *   momentum          m = momentum*m - lr*g; w += m
 *   nesterov          a' = momentum*a - lr*g; w += -momentum*a + (1+momentum)*a'
 *   adagrad           v += g*g; w -= lr*g / (sqrt(v)+eps)
 *   rowwise_adagrad   v += mean over the columns of g*g; w -= lr*g / (sqrt(v)+eps)
 *   adam              m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g*g; w -=
 *                     lr*sqrt(1-beta2^t)/(1-beta1^t) * m / (sqrt(v)+eps); t counts the table's
 *                     pushes
 *   rmsprop           v = beta2*v + (1-beta2)*g*g; w -= lr*g / (sqrt(v)+eps)
 *   ftrl              n' = n + g*g; z += g - (sqrt(n'+eps)-sqrt(n+eps))/lr*w; w = |z| > l1 ?
 *                     (sign(z)*l1 - z) / (sqrt(n'+eps)/lr + l2 + beta/lr) : 0 */
typedef enum embd_optimizer_kind {
    EMBD_OPTIMIZER_SGD,
    EMBD_OPTIMIZER_MOMENTUM,
    EMBD_OPTIMIZER_NESTEROV,
    EMBD_OPTIMIZER_ADAGRAD,
    EMBD_OPTIMIZER_ROWWISE_ADAGRAD,
    EMBD_OPTIMIZER_ADAM,
    EMBD_OPTIMIZER_RMSPROP,
    EMBD_OPTIMIZER_FTRL,
} embd_optimizer_kind;

/* Which rows a push steps. */
typedef enum embd_update {
    EMBD_UPDATE_LOCAL,  /* those it names */
    EMBD_UPDATE_GLOBAL, /* all there are, those it does not name with g = 0: m, a and v decay, w
                           goes on by
                    them. A pass over the table for each push. sgd, the adagrads and ftrl leave a
                    row without a gradient as it is, so that this is EMBD_UPDATE_LOCAL for them */
    EMBD_UPDATE_LAZY_GLOBAL, /* adam: as HugeCTR's LazyGlobal. A row's steps wait for its next push,
                                at t,
                         k pushes after its last one, at prev: w -= lr/(1-beta1) *
                         sqrt(1-beta2^prev)/(1-beta1^prev) * (1-beta1^k) * m / (sqrt(v)+eps), then m
                         = beta1^k*m + (1-beta1)*g, v = beta2^k*v + (1-beta2)*g*g. So w is always
                         one step behind, and what a row's own push owes is paid by its next one:
                         pulls and dumps show rows without it. prev is part of the state (two floats
                         behind v) */
} embd_update;

typedef struct embd_optimizer {
    embd_optimizer_kind kind;
    embd_update update;
    float lr;
    float scaler;              /* gradients are divided by it */
    float momentum;            /* momentum, nesterov */
    float beta1, beta2;        /* adam; beta2 also rmsprop */
    float eps;                 /* adagrad, rowwise_adagrad, adam, rmsprop, ftrl */
    float initial_accumulator; /* adagrad, rowwise_adagrad: first v */
    float beta, l1, l2;        /* ftrl */
} embd_optimizer;

/* A row's first value: a pure function of (seed, key, slot, column); the slot counts in slot tables
 * only. */
typedef enum embd_initializer_kind {
    EMBD_INITIALIZER_UNIFORM,      /* [a, b) */
    EMBD_INITIALIZER_UNIFORM_SLOT, /* [-u, u), u = sqrt(1 / slot_size of the key's slot); needs
                                      slot_sizes */
    EMBD_INITIALIZER_NORMAL,       /* mean a, standard deviation b */
    EMBD_INITIALIZER_CONSTANT,     /* a */
} embd_initializer_kind;

typedef struct embd_initializer {
    embd_initializer_kind kind;
    float a, b;
} embd_initializer;

/* What happens where a request would need more rows than `capacity`. The evict policies take rows
 * away from keys that the request does not name, as many as are missing or a sixteenth of capacity,
 * whichever is more, all at once; which ones depends on the pushes a shard has seen and on nothing
 * else. Where that is not enough, EMBD_ON_FULL_ERROR. */
typedef enum embd_on_full {
    EMBD_ON_FULL_GROW,      /* capacity is no bound */
    EMBD_ON_FULL_ERROR,     /* keys beyond it get no row: EMBD_FULL or EMBD_KEY_FULL */
    EMBD_ON_FULL_EVICT_LRU, /* the rows whose last push is longest ago; of equal ones the lowest
                               mix64(key),
                       then slot */
    EMBD_ON_FULL_EVICT_LFU, /* the rows pushed least often (up to 2^24 - 1 times is counted); of
                               equal ones
                       as EMBD_ON_FULL_EVICT_LRU */
    EMBD_ON_FULL_EVICT_TTL, /* as EMBD_ON_FULL_EVICT_LRU, but only rows that the table's last `ttl`
                               pushes did not
                       name */
} embd_on_full;
typedef enum embd_create_on { EMBD_CREATE_ON_PUSH, EMBD_CREATE_ON_PULL } embd_create_on;
/* EMBD_DURABILITY_AUTO: EMBD_DURABILITY_DURABLE where the server has a data directory and pulls
 * create no rows, else
 * EMBD_DURABILITY_SNAPSHOT */
typedef enum embd_durability {
    EMBD_DURABILITY_SNAPSHOT,
    EMBD_DURABILITY_BUFFERED,
    EMBD_DURABILITY_DURABLE,
    EMBD_DURABILITY_AUTO
} embd_durability;

typedef struct embd_schema {
    char name[EMBD_NAME_MAX + 1];
    uint32_t dim;   /* 1..EMBD_DIM_MAX */
    uint32_t slots; /* 1..EMBD_SLOTS_MAX; a batch's row r belongs to slot r % slots */
    const uint64_t
        *slot_sizes; /* [slots] or NULL. Given, keys of slot s are 0..slot_sizes[s]-1 and are stored
                        as key + sum(slot_sizes[0..s-1]). The caller's; in answers the client's */
    embd_partition partition;
    embd_combiner combiner;
    embd_dtype dtype; /* of stored rows; optimizer state is f32 */
    embd_optimizer optimizer;
    embd_initializer initializer;
    uint64_t seed;     /* of the initializer */
    uint64_t capacity; /* rows per shard: room made at once with EMBD_ON_FULL_GROW, else a bound; 0:
                     none,
                          which the evict policies do not allow */
    embd_on_full on_full;
    uint32_t admit_after; /* a key gets a row in the n-th request that would create it; 0 and 1: the
                             first */
    embd_create_on
        create_on;        /* which requests create rows; pulls never change a table by default */
    bool admit_nonfinite; /* let NaN and infinite gradients in */
    embd_durability
        durability; /* EMBD_DURABILITY_AUTO. EMBD_DURABILITY_BUFFERED and EMBD_DURABILITY_DURABLE
                       need a server with a
                                   data directory */
    uint64_t
        ttl; /* EMBD_ON_FULL_EVICT_TTL: pushes of its table that a row outlives without one of its
                own,
                     1 or more */
} embd_schema;

/* Sets a schema to the defaults: slots 1, hash, sum, f32, sgd with lr 0.01, uniform [-0.05, 0.05),
 * grow, create on push. Optimizer parameters take the values of embd_optimizer_init. name and dim
 * are left empty. */
EMBD_API void embd_schema_init(embd_schema *schema);

/* Sets an optimizer to its kind's defaults: scaler 1, momentum 0.9, beta1 0.9, beta2 0.999 (rmsprop
 * 0.9), eps 1e-7 (ftrl FLT_EPSILON), initial_accumulator 0, beta, l1 and l2 0, update local. */
EMBD_API void embd_optimizer_init(embd_optimizer *optimizer, embd_optimizer_kind kind, float lr);

/* Names as they stand on the wire and in configuration ("rowwise_adagrad"); NULL for a number out
 * of range. */
EMBD_API const char *embd_partition_name(embd_partition);
EMBD_API const char *embd_combiner_name(embd_combiner);
EMBD_API const char *embd_dtype_name(embd_dtype);
EMBD_API const char *embd_optimizer_name(embd_optimizer_kind);
EMBD_API const char *embd_update_name(embd_update);
EMBD_API const char *embd_initializer_name(embd_initializer_kind);
EMBD_API const char *embd_on_full_name(embd_on_full);
EMBD_API const char *embd_create_on_name(embd_create_on);
EMBD_API const char *embd_durability_name(embd_durability);

/* Sets one field from text, as `embctl table create` does: field "optimizer" value "adam",
 * "optimizer.lr" "0.01", "slot_sizes" "10,20,30". slot_sizes are then kept in `storage`
 * [EMBD_SLOTS_MAX], which must outlive the schema (NULL refuses the field). Setting "optimizer" or
 * "initializer" resets its parameters, but lr, to the kind's defaults; slot_sizes set slots too.
 * EMBD_INVALID: unknown field or value; `why_out` (may be NULL) gets a sentence. */
EMBD_API int embd_schema_set(embd_schema *schema, const char *field, const char *value,
                             uint64_t *storage, char *why_out, size_t why_bytes);

/* EMBD_OK, EMBD_INVALID or EMBD_UNSUPPORTED with a sentence naming the field, its value and the
 * limit. */
EMBD_API int embd_schema_check(const embd_schema *schema, char *why_out, size_t why_bytes);

/* ---- connecting
 * ---------------------------------------------------------------------------------------- */

typedef struct embd_client embd_client;
typedef struct embd_table embd_table;
typedef struct embd_call embd_call;

typedef struct embd_options {
    uint32_t deadline_ms;      /* of every call that names none; default 30000 */
    uint32_t reconnect_min_ms; /* first pause before connecting again, then doubled; default 10 */
    uint32_t reconnect_max_ms; /* default 1000 */
    bool own_thread;           /* move bytes on a thread of the library's; default false */
    /* Who the client is and whom it believes. NULL: the environment decides, by the variable named;
     * where that is not set either, there is none. embd_connect copies the strings; files are read
     * again when they change and a link connects. */
    const char *token_file; /* EMBD_TOKEN_FILE: a file with a token, of mode 0600 or 0640 */
    const char *token;      /* EMBD_TOKEN; not looked at where there is a token_file */
    bool plain_token;       /* EMBD_PLAIN_TOKEN=yes: send the token to other hosts without TLS too;
                               default false */
    const char *tls_ca; /* EMBD_TLS_CA: speak TLS 1.3; believe the authorities in this PEM file, or
                           "system": the system's */
    const char *tls_cert; /* EMBD_TLS_CERT: own certificate with its chain (PEM), where servers ask
                             for one */
    const char *tls_key;  /* EMBD_TLS_KEY: its key (PEM), of mode 0600 or 0640 */
} embd_options;

/* Sets the options to their defaults. */
EMBD_API void embd_options_init(embd_options *options);

/* Connects to a cluster: asks the first address of `servers` ("host:port[,host:port]...") that
 * answers for the map of all shards, then connects to each. Items may also be names that are looked
 * up, and looked up again while nobody answers, until the deadline: "dns://NAME:PORT" is every
 * address of NAME, "dns://_SERVICE._PROTO.NAME" every server of its SRV records. Lost connections
 * look the host of their shard's address up again, and where a shard has moved to (the map is in
 * etcd then), another one is asked. `options` may be NULL. Blocks up to the deadline. EMBD_INVALID:
 * an address, token or certificate cannot be read; EMBD_UNREACHABLE; EMBD_PROTOCOL: the peer is no
 * embd, of another version, or not believed; EMBD_DENIED: the server does not know the token, or
 * asks for one; EMBD_NO_MEMORY. On failure `*client_out` is NULL and `why_out` (may be NULL) gets a
 * sentence. */
EMBD_API int embd_connect(const char *servers, const embd_options *options,
                          embd_client **client_out, char *why_out, size_t why_bytes);

/* Abandons calls in flight, closes the connections and frees the handle and its tables. NULL is
 * allowed. */
EMBD_API void embd_close(embd_client *client);

/* The sentence of the last failed call of this handle; "" before any. Valid until its next call. */
EMBD_API const char *embd_last_error(const embd_client *client);

EMBD_API uint32_t embd_shard_count(const embd_client *client);

/* "127.0.0.1:7700", where the shard is as far as the client knows; valid as long as the handle.
 * NULL for shard >= embd_shard_count(). */
EMBD_API const char *embd_shard_address(const embd_client *client, uint32_t shard);

/* Round trip to one shard; *microseconds_out may be NULL. EMBD_UNREACHABLE, EMBD_DEADLINE,
 * EMBD_CLOSED. */
EMBD_API int embd_ping(embd_client *client, uint32_t shard, uint64_t *microseconds_out);

/* ---- tables
 * -------------------------------------------------------------------------------------------- */

/* Creates the table on every shard. A table of the same name and definition is no error; one of
 * another definition is EMBD_EXISTS, naming the field and both values. Other errors as
 * embd_schema_check. */
EMBD_API int embd_table_create(embd_client *client, const embd_schema *schema);

/* Drops the table on every shard, its rows with it. EMBD_UNKNOWN_TABLE when no shard has it. */
EMBD_API int embd_table_drop(embd_client *client, const char *name);

/* Opens a table; all shards must agree on its definition (EMBD_PROTOCOL where they do not). The
 * handle belongs to the client and lives as long; opening a name again gives a handle of the same
 * definition. */
EMBD_API int embd_table_open(embd_client *client, const char *name, embd_table **table_out);

/* Valid as long as the client. */
EMBD_API const embd_schema *embd_table_schema(const embd_table *table);

/* Calls `visit` with the name of each table of the cluster, in ascending order. The name is valid
 * during the call. A visit that returns nonzero ends the listing; that value is returned. */
EMBD_API int embd_table_list(embd_client *client, int (*visit)(void *arg, const char *name),
                             void *arg);

/* ---- pull and push
 * ------------------------------------------------------------------------------------- */

/* What became of a key. */
typedef enum embd_key_status {
    EMBD_KEY_HIT,      /* had a row */
    EMBD_KEY_INSERTED, /* had none and has one now */
    EMBD_KEY_MISSING,  /* has none; a pull answered its first value, or zeros where asked to */
    EMBD_KEY_FILTERED, /* not seen often enough (admit_after): no row, a push's gradient was dropped
                        */
    EMBD_KEY_EVICTED,  /* lost its row in this request: erased */
    EMBD_KEY_FULL,     /* no room: no row, a push's gradient was dropped */
    EMBD_KEY_UNREPORTED, /* not told: the push of a pusher had been applied when it was sent again
                            */
} embd_key_status;

/* How rows and gradients travel. */
typedef enum embd_plan {
    EMBD_PLAN_AUTO,   /* whichever moves fewer bytes */
    EMBD_PLAN_POOLED, /* shards return partial sums (for concat: one row per key); gradients travel
                         pooled */
    EMBD_PLAN_ROWS,   /* each distinct key once; pooled here, gradients merged here */
} embd_plan;

/* One table's share of a call: a CSR batch and the matrix that belongs to it. The arrays are the
 * caller's and must stay until the call has ended; a pull reads `offsets`, `keys`, `weights` and
 * writes `values` and `statuses`; a push reads all but `statuses`.
 *
 * Row r of the batch (sample r / slots, slot r % slots) holds keys[offsets[r] .. offsets[r+1]). */
typedef struct embd_part {
    embd_table *table;
    uint64_t
        n_rows; /* samples * slots; a multiple of the table's slots. Unused when offsets is NULL */
    const uint64_t
        *offsets; /* [n_rows + 1], from 0 to n_keys, never falling; NULL: one key per row */
    uint64_t n_keys;
    const uint64_t *keys; /* [n_keys], any 64-bit values */
    const float *weights; /* [n_keys], finite, or NULL: all 1 */
    float *values;        /* pull: output. push: gradient of what such a pull returned.
                             Tables with a combiner, and not `raw`: [n_rows][dim]. Otherwise
                             [n_keys][dim], row k for key k, unweighted */
    uint8_t *statuses;    /* [n_keys] of embd_key_status, or NULL */
    bool raw;             /* rows of single keys although the table has a combiner */
} embd_part;

struct embd_clock; /* under "keeping trainers in step" */

/* Who pushes, where every push is to be applied once and no more, whatever happens on the way. A
 * pusher numbers its pushes 1, 2, ... (embd_call_options.sequence), in some streams. Each shard
 * remembers the last one it applied of each stream; with durable and buffered tables in its
 * journal, otherwise until it ends. The tables of a stream are journaled or not, but not both.
 *
 * A stream is opened on each shard before its push 1, by that call. A shard has room for 65536
 * streams, and for 4096 of who shows one token: for a new one it may forget another of the same
 * token that has not pushed for 10 minutes, or of those without a token; else the push is refused
 * with EMBD_FULL. A push of a stream that a shard has forgotten is refused with EMBD_FORGOTTEN,
 * also push 1 when it is made again by this client: whether it was applied is not known then. A new
 * stream can be begun, with another id or number.
 *
 * A push of a pusher whose connection is lost is sent again, to a server that was started anew too,
 * until the deadline. One that is sent after it was applied changes nothing and is EMBD_OK: also
 * for a trainer that was started anew and makes the push again, which has to bring the same
 * gradients where not all shards had it. A push that is refused has used no number: the next one is
 * refused with EMBD_GAP until it was made (without keys, where it is to be left out). */
typedef struct embd_pusher {
    uint64_t high, low; /* the id; embd_pusher_new draws one */
    uint32_t stream;
} embd_pusher;

typedef struct embd_call_options {
    uint32_t deadline_ms; /* 0: the client's */
    embd_plan plan;
    embd_dtype
        wire; /* rows and gradients are rounded to it where they leave, last; default EMBD_DTYPE_F32
                 */
    bool zero_missing; /* pull: zeros instead of first values for keys without a row; then no row is
                          made */
    const struct embd_clock
        *round; /* push: the worker it is of, where all workers of a job make one step together,
                   see embd_clock; NULL: a step of its own. Copied */
    uint64_t round_clock;      /* the iteration that is made */
    const embd_pusher *pusher; /* push: whose it is; NULL: nobody's. Copied */
    uint64_t sequence;         /* the pusher's number of it, from 1 */
} embd_call_options;

/* Pulls all parts. Keys without a row give the value they would start with and, unless the table
 * says create_on = pull, stay without one. Either all of `values` is filled or the call fails. A
 * lost connection or a restarting server does not fail it: it is asked again until the deadline.
 * Blocks. `options` may be NULL.
 *   EMBD_INVALID       offsets fall, do not start at 0 or do not end at n_keys; n_rows is no
 *                      multiple of slots; a key is not below its slot's size; a weight is not
 *                      finite; too many keys or rows. Names the part, position and value
 *   EMBD_TOO_LARGE     a message would pass the frame limit; EMBD_BUSY: the server is out of budget
 *   EMBD_UNKNOWN_TABLE the table was dropped
 *   EMBD_FULL          create_on = pull, no room (on_full is not grow), and no `statuses` to say
 *                      which keys: the shard refused the message, and made no row in any of its
 *                      tables
 *   EMBD_DEADLINE, EMBD_LOADING, EMBD_CLOSED, EMBD_UNREACHABLE, EMBD_DRAINING, EMBD_PROTOCOL,
 *   EMBD_NO_MEMORY
 */
EMBD_API int embd_pull(embd_client *client, const embd_part *parts, size_t n_parts,
                       const embd_call_options *options);

/* Pushes gradients. Gradients of one key are summed in batch order (in runs of 256, then the
 * runs), so that a key takes one optimizer step per call; keys without a row start from their
 * first value. A call is one step of every table it names, on every shard. Blocks. Errors as for
 * pull, and
 *   EMBD_NOT_FINITE    a gradient is NaN or infinite and the table does not admit them; names the
 *                      first key
 *   EMBD_FULL          no room (on_full is not grow), and no `statuses` to say which keys: the
 *                      shard refused the push; or with a pusher's first push: there is no room for
 *                      its stream
 *   EMBD_INVALID       also a round that another push of this worker was in
 *   EMBD_LATE          the round was made without this worker, see embd_clock
 *   EMBD_UNANSWERED       with a pusher: it was sent, and the deadline passed without an answer
 *   EMBD_GAP           with a pusher: the push before it was not applied; the sentence names the
 *                      last one that was
 *   EMBD_FORGOTTEN     with a pusher: a shard does not know the stream (any more)
 * A shard applies a push whole or not at all. After an error others may have: the sentence then
 * says which did. */
EMBD_API int embd_push(embd_client *client, const embd_part *parts, size_t n_parts,
                       const embd_call_options *options);

/* As above, but return once the call is on its way; embd_wait ends it. Several calls may be in
 * flight; those to one shard take effect in the order started. `parts` itself is copied, the arrays
 * are not. */
EMBD_API int embd_pull_start(embd_client *client, const embd_part *parts, size_t n_parts,
                             const embd_call_options *options, embd_call **call_out);
EMBD_API int embd_push_start(embd_client *client, const embd_part *parts, size_t n_parts,
                             const embd_call_options *options, embd_call **call_out);

/* Erases keys: their rows go, with the optimizer's state, and so does how often they were seen
 * (admit_after). A key that is pushed again starts anew. `values` and `weights` of the parts are
 * not looked at; `offsets` say which slots keys belong to, as for a pull. `statuses` become
 * EMBD_KEY_EVICTED, or EMBD_KEY_MISSING where there was no row. It has no values, so `wire` and
 * `plan` have no effect. It is no step of the table, and may be repeated. Blocks. Errors as for
 * pull, and EMBD_UNSUPPORTED where the servers' store cannot. After one some keys may be gone: see
 * push. */
EMBD_API int embd_erase(embd_client *client, const embd_part *parts, size_t n_parts,
                        const embd_call_options *options);

/* A pusher with an id drawn at random, and stream 0. EMBD_IO: the system has no random numbers. */
EMBD_API int embd_pusher_new(embd_pusher *pusher_out);

/* Asks all shards for the last push applied of a pusher's stream, 0 where it is not known: the
 * least and the greatest answer. A trainer that was started anew goes on with the push after the
 * least one. Blocks. Errors as for embd_ping. */
EMBD_API int embd_pusher_last(embd_client *client, const embd_pusher *pusher, uint64_t *least_out,
                              uint64_t *greatest_out);

/* Waits for a started call, frees it and returns its status, as embd_pull and embd_push do. */
EMBD_API int embd_wait(embd_call *call);

/* True when embd_wait would not block. Moves bytes, so that polling makes progress without
 * own_thread. */
EMBD_API bool embd_is_done(embd_call *call);

/* ---- building batches
 * ---------------------------------------------------------------------------------- */

/* A CSR batch that grows key by key within bounds that are set once. One thread at a time. */
typedef struct embd_csr embd_csr;

/* Makes an empty builder for at most `max_rows` rows and `max_keys` keys; its memory is taken here.
 * EMBD_TOO_LARGE: a bound is over 2^31 - 1; EMBD_NO_MEMORY. On failure `*csr_out` is NULL. */
EMBD_API int embd_csr_new(uint64_t max_rows, uint64_t max_keys, embd_csr **csr_out);

/* NULL is allowed. */
EMBD_API void embd_csr_free(embd_csr *csr);

/* Begins a row; one without keys is a row too. A builder is a whole batch after every call: there
 * is no closing row. EMBD_TOO_LARGE: max_rows rows are there; nothing has changed. */
EMBD_API int embd_csr_row(embd_csr *csr);

/* Adds a key to the last row, with the weight 1 or the given one. A batch has weights from its
 * first weighted key on; keys before it then weigh 1. EMBD_INVALID: no row was begun, or the weight
 * is not finite; EMBD_TOO_LARGE: max_keys keys are there. Nothing has changed then. */
EMBD_API int embd_csr_push(embd_csr *csr, uint64_t key);
EMBD_API int embd_csr_push_weighted(embd_csr *csr, uint64_t key, float weight);

/* Remembers the rows and keys so far, as those of whole samples: a sample that turns out to be bad
 * is dropped by embd_csr_roll_back, which leaves the builder as it was at the last check point
 * (empty before any). */
EMBD_API void embd_csr_check_point(embd_csr *csr);
EMBD_API void embd_csr_roll_back(embd_csr *csr);

/* Empties the builder, check point and all; the memory stays. */
EMBD_API void embd_csr_reset(embd_csr *csr);

/* Sets n_rows, offsets, n_keys, keys and weights of `part` to the builder's arrays, which are not
 * copied: they are valid until the builder is changed or freed. The other members stay as they are.
 */
EMBD_API void embd_csr_part(const embd_csr *csr, embd_part *part);

/* The sentence of the last failure, with the bound it met; "" before any. */
EMBD_API const char *embd_csr_last_error(const embd_csr *csr);

/* ---- data sets
 * ----------------------------------------------------------------------------------------- */

/* How samples lie in files. All numbers are little-endian.
 *   norm  binary files named by a list: line 1 is their count, then one path a line, relative to
 *         the list's folder. A file has a header of 8 int64 (1 when samples carry checksums else 0,
 *         number of samples, label_dim, dense_dim, slots, 3 times 0), then samples: float label[],
 *         float dense[], and for each slot an int32 count and as many keys. With checksums, header
 *         and samples are each preceded by their length in bytes, an int32, and followed by the sum
 *         of their bytes modulo 256, one byte
 *   raw   one file without a header: label[] and dense[], 4 bytes each, then one int32 key for each
 *         slot */
typedef enum embd_data_format { EMBD_DATA_FORMAT_NORM, EMBD_DATA_FORMAT_RAW } embd_data_format;

#define EMBD_DATA_DIM_MAX 65536 /* labels of a sample; dense values of a sample */

typedef struct embd_data_shape {
    embd_data_format format;
    uint32_t label_dim, dense_dim; /* 0..EMBD_DATA_DIM_MAX */
    uint32_t slots;                /* 1..EMBD_SLOTS_MAX */
    bool checksum;                 /* norm: with checksums */
    bool i64_keys; /* norm: keys are 8 bytes; otherwise 4, unsigned. No file says which */
    bool integers; /* raw: labels and dense values are int32; a dense x is read as log(x + 1) */
} embd_data_shape;

/* Which part of the data one of several trainers takes. */
typedef enum embd_data_share {
    EMBD_DATA_SHARE_FILES,   /* norm: files f of the list with f % workers == worker; reads those
                              alone */
    EMBD_DATA_SHARE_BATCHES, /* batches b with b % workers == worker; reads all, so that numbers of
                           batches differ by one at most */
} embd_data_share;

typedef struct embd_reader_options {
    uint32_t batch_samples; /* 1..1048576; default 1024 */
    uint32_t threads; /* 1..64 reader threads; default 1. Norm files, or stretches of a raw one, are
                         read in parallel; batches are the same for any number of threads */
    uint32_t batches_ahead; /* 1..1024 batches read before they are asked for, and at least 2 for
                               each thread; default 4 */
    uint32_t sample_keys;   /* 1..4194304, most keys of one sample; default 65536 */
    const uint64_t *slot_sizes; /* [slots] or NULL. A key of slot s must be below slot_sizes[s].
                                   Nothing is added to it: tables with slot_sizes do that. Copied */
    bool refuse_overlap; /* a key found in two slots is an error (needs memory for every distinct
                            key) */
    uint64_t max_bad_samples; /* more of them are an error; default UINT64_MAX */
    uint64_t max_bad_files;   /* default 10 */
    embd_data_share share;
    uint32_t worker, workers; /* this trainer, and of how many; default 0 of 1 */
} embd_reader_options;

/* Sets the options to their defaults. */
EMBD_API void embd_reader_options_init(embd_reader_options *options);

/* Samples in the order of the files. The arrays are the reader's, until embd_reader_release. */
typedef struct embd_batch {
    uint32_t n_samples;      /* batch_samples; less in the last batch, and before an error */
    const float *labels;     /* [n_samples][label_dim] */
    const float *dense;      /* [n_samples][dense_dim] */
    uint64_t n_rows;         /* n_samples * slots; row = sample * slots + slot */
    const uint64_t *offsets; /* [n_rows + 1] */
    uint64_t n_keys;
    const uint64_t *keys; /* [n_keys] */
} embd_batch;

typedef struct embd_reader_counts { /* of everything up to the last batch that was handed out */
    uint64_t samples; /* good ones; with EMBD_DATA_SHARE_BATCHES also those of the other workers */
    uint64_t
        bad_samples;    /* dropped: a wrong checksum, a key out of range, counts that do not fit */
    uint64_t files;     /* read to their end; for raw files the stretches */
    uint64_t bad_files; /* not to be opened, of another shape, or broken: what is before stays */
} embd_reader_counts;

typedef struct embd_reader embd_reader;

/* Starts reading: `path` is the list of norm files or the raw file. EMBD_INVALID: an option or a
 * dimension, with its limit; EMBD_IO: `path` cannot be read; EMBD_CORRUPT: it is no list, or no
 * whole number of raw samples; EMBD_NO_MEMORY. On failure `*reader_out` is NULL and `why_out` (may
 * be NULL) gets a sentence. */
EMBD_API int embd_reader_open(const char *path, const embd_data_shape *shape,
                              const embd_reader_options *options, embd_reader **reader_out,
                              char *why_out, size_t why_bytes);

/* Hands out the next batch; NULL at the end of the data. Several may be held at a time. Blocks
 * until it has been read. A bad sample is dropped and counted, a broken file left at its fault and
 * counted.
 *   EMBD_CORRUPT    more bad samples or files than the options allow; a key in two slots with
 *                   refuse_overlap; no good sample at all, but bad ones. The batches before it have
 *                   been handed out by then
 *   EMBD_NO_MEMORY  ends the reading as well; any later call returns the same */
EMBD_API int embd_reader_next(embd_reader *reader, embd_batch **batch_out);

/* Takes a batch back; NULL is allowed. */
EMBD_API void embd_reader_release(embd_reader *reader, embd_batch *batch);

EMBD_API void embd_reader_count(const embd_reader *reader, embd_reader_counts *counts_out);

/* The first fault that was counted or, after a failure, the sentence of it; "" while there is none.
 * It names the file and the sample. Valid until the next call. */
EMBD_API const char *embd_reader_last_error(const embd_reader *reader);

/* Stops the threads, wherever they are, and frees the reader with its batches. NULL is allowed. */
EMBD_API void embd_reader_close(embd_reader *reader);

typedef struct embd_writer embd_writer;

/* Begins a data set: norm files `path`.0000, `path`.0001, ... of `file_samples` samples each (0:
 * one file) and in the end their list `path`, or the raw file `path`. EMBD_EXISTS: `path` or a data
 * file is there; EMBD_INVALID, EMBD_IO, EMBD_NO_MEMORY. On failure `*writer_out` is NULL. */
EMBD_API int embd_writer_open(const char *path, const embd_data_shape *shape, uint64_t file_samples,
                              embd_writer **writer_out, char *why_out, size_t why_bytes);

/* Adds samples as embd_batch has them: labels [n][label_dim], dense [n][dense_dim], offsets [n *
 * slots + 1] which may start anywhere, keys [offsets[n * slots]]. The arrays are copied.
 * EMBD_INVALID: offsets fall, a key is too large for the key type, or in a raw file a slot has not
 * one key or a dense value is no log(x + 1) of an int32 x; the samples before that one are written.
 * EMBD_IO; EMBD_EXISTS: the next data file is there. After these two nothing is written any more.
 */
EMBD_API int embd_writer_add(embd_writer *writer, uint32_t n_samples, const float *labels,
                             const float *dense, const uint64_t *offsets, const uint64_t *keys);

EMBD_API const char *embd_writer_last_error(const embd_writer *writer);

/* Completes the data set, or removes what was written when that fails or writing failed, and frees
 * the writer. `why_out` (may be NULL) then gets the sentence. EMBD_IO, EMBD_EXISTS. NULL is
 * allowed. */
EMBD_API int embd_writer_close(embd_writer *writer, char *why_out, size_t why_bytes);

/* ---- operating a cluster
 * ------------------------------------------------------------------------------- */

/* Reports a shard's figures: `table` is NULL for figures of the shard itself. Names and units are
 * listed in proto/PROTOCOL.md. A visit that returns nonzero ends the listing; that value is
 * returned. */
EMBD_API int embd_stats(embd_client *client, uint32_t shard,
                        int (*visit)(void *arg, const char *table, const char *name,
                                     uint64_t value),
                        void *arg);

/* How far a dump, load or verification has come; called a few times a second. Nonzero stops it:
 * EMBD_IO. */
typedef int embd_progress(void *arg, uint64_t rows_done, uint64_t rows_total, uint64_t bytes_done);

typedef struct embd_dump_report {
    uint64_t rows;     /* rows of all shards */
    uint64_t bytes;    /* of all part files and blobs */
    uint64_t pause_us; /* how long pushes waited: the longest of the shards */
} embd_dump_report;

/* Writes one table, or all when `table` is NULL, as one consistent cut into the new directory
 * `dir`: keys, slots, rows, optimizer state, step counters, schema. Pushes wait while it runs.
 * Written under a temporary name, synced and renamed; manifest.json last. Needs the shards' admin
 * listeners. EMBD_EXISTS: `dir` exists; EMBD_IO: names the file and the cause. `report_out` and
 * `progress` may be NULL. */
EMBD_API int embd_dump(embd_client *client, const char *table, const char *dir,
                       embd_progress *progress, void *arg, embd_dump_report *report_out);

/* Creates the tables of a dump or snapshot directory and fills them, on any number of shards, bit
 * for bit. A table that exists must be empty and of the same definition (EMBD_EXISTS). `table`
 * NULL: all of them. A snapshot that several server processes wrote is loaded from one directory
 * that holds theirs as sub-directories; EMBD_INVALID names a shard whose rows are in none of them.
 * Checksums are verified first: EMBD_CORRUPT names the file and what differs, and nothing is
 * changed. The progress of that is told first; rows_done then begins again from 0. With all tables
 * of a snapshot come the streams of its pushers. After a later failure the tables that this call
 * created are dropped again. */
EMBD_API int embd_load(embd_client *client, const char *table, const char *dir,
                       embd_progress *progress, void *arg, embd_dump_report *report_out);

/* Checks a directory without a server: manifest, sizes, checksums, structure. */
EMBD_API int embd_verify(const char *dir, embd_progress *progress, void *arg,
                         embd_dump_report *report_out, char *why_out, size_t why_bytes);

#define EMBD_BLOBS_MAX      16           /* of a snapshot */
#define EMBD_BLOB_BYTES_MAX (1ull << 30) /* a reader takes a blob into memory whole */

/* A file of the trainer's own that goes with a snapshot: dense weights, a step, a place in the
 * data. */
typedef struct embd_blob {
    const char *name; /* [a-z0-9][a-z0-9_-]{0,62} */
    const void *data; /* [bytes]; the caller's */
    uint64_t bytes;   /* at most EMBD_BLOB_BYTES_MAX */
} embd_blob;

typedef struct embd_snapshot_options { /* zeros are the defaults */
    const embd_blob *blobs;            /* [n_blobs], at most EMBD_BLOBS_MAX */
    uint32_t n_blobs;
    uint32_t keep; /* complete snapshots that stay in each data directory, this one and the newest
                      others; 0: all */
    const char *base; /* only what changed since this one, which the servers made since they
                         started; NULL: all rows */
} embd_snapshot_options;

/* Has every server process write the state of its shards, one cut over all, under its data
 * directory as `name`
 * ([a-z0-9][a-z0-9_-]{0,63}). The blobs go into the directory of shard 0's process, so that one
 * snapshot resumes a job; they fit the cut where the caller has no push under way. `options` and
 * `report_out` may be NULL. Pushes wait for the moment of the cut alone. EMBD_EXISTS: the name is
 * taken, or a blob's given twice; EMBD_INVALID: a name; EMBD_TOO_LARGE: too many blobs, or one too
 * large; EMBD_UNSUPPORTED: a server has no data directory, or a store does not know what changed;
 * EMBD_BUSY: another snapshot is being written, or a push did not reach all of its shards within 2
 * seconds; EMBD_IO: names the file and the cause, also of older ones that are still there. */
EMBD_API int embd_snapshot(embd_client *client, const char *name,
                           const embd_snapshot_options *options, embd_dump_report *report_out);

/* Calls `visit` for each blob of a snapshot directory, without a server. The name is valid during
 * the call. A visit that returns nonzero ends the listing; that value is returned. Other errors as
 * embd_blob_read. */
EMBD_API int embd_blob_list(const char *dir,
                            int (*visit)(void *arg, const char *name, uint64_t bytes), void *arg,
                            char *why_out, size_t why_bytes);

/* Reads a blob of a snapshot directory, as it was given, into memory of the caller's: free() it. It
 * ends in a zero byte that *bytes_out does not count. EMBD_INVALID: there is none of that name;
 * EMBD_CORRUPT: its size or its checksum is not that of the manifest; EMBD_IO, EMBD_NO_MEMORY.
 * `why_out` (may be NULL) gets a sentence. */
EMBD_API int embd_blob_read(const char *dir, const char *name, void **data_out, uint64_t *bytes_out,
                            char *why_out, size_t why_bytes);

/* Asks every server process to finish what it has begun and exit. */
EMBD_API int embd_drain(embd_client *client);

/* The same of the one process that `shard` belongs to; its other shards end with it. */
EMBD_API int embd_drain_shard(embd_client *client, uint32_t shard);

typedef struct embd_hot_report {
    uint32_t n_keys;  /* set in the arrays */
    uint32_t stride;  /* about one key in so many is sampled */
    uint64_t samples; /* that the counts are out of */
    uint64_t taken;   /* since the table was made */
} embd_hot_report;

/* The keys that one shard is asked for most, from a sample of the keys last pulled and pushed:
 * keys_out [max_keys], most frequent first, and counts_out [max_keys], how often each is in the
 * sample. max_keys is 1 to 1000. Keys carry their slot offsets. Blocks. Needs the shard's admin
 * listener.
 *   EMBD_UNKNOWN_TABLE; EMBD_INVALID: max_keys is out of range */
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
 * shard's admin listener. */
EMBD_API int embd_trace(embd_client *client, uint32_t shard,
                        int (*visit)(void *arg, const embd_trace_report *trace), void *arg);

/* ---- keeping trainers in step
 * -------------------------------------------------------------------------- */

#define EMBD_WORKERS_MAX 1024 /* of a job */
#define EMBD_DROPPED_MAX 16   /* that a report names */

/* One of the trainers of a job. A worker's clock is the number of iterations it has finished and
 * whose pushes have been acknowledged. Shards know the workers of a job, in memory; shard 0 keeps
 * their clocks.
 *
 * Synchronous SGD: pushes with embd_call_options.round are a round. Each shard keeps them until
 * every live worker of the job has pushed to the same tables for the same round_clock, or a later
 * one; then it makes one step of them, with the mean of the workers' gradients: each divided by
 * the number of workers in the round, and summed in the order of the workers, so that the result
 * has the same bits whatever came first. All are answered then, with the counts and statuses of
 * the step they made together. The first round waits until all n_workers have joined. What a
 * connection sends behind such a push waits with it: each worker needs its own client, and all
 * push to their tables in the same order. The pushes of a round have at most 4194304 keys of a
 * table and shard together.
 *
 * A worker joins with its first tick or push to a round, which asks every shard, and lives until
 * it leaves, or the client is closed, or its process dies: the client gives signs of life by a
 * thread of its own, with one more connection to each shard, however long the caller computes or
 * waits. A worker that is not heard of for its lease (a process that died, stopped or lost its
 * network) is dropped: the others go on without it, and every report names it. So the lease is for
 * processes. A worker that lives and does not get on is waited for until the deadline of a call,
 * whose error names it.
 *
 * A worker that was dropped and comes back is live again where its job still is at its clock. Else
 * it comes late: its call is EMBD_LATE, nothing of it is applied, and embd_tick_rejoin tells at
 * which clock it goes on. Steps are made once: n clocks are n steps of each shard, whoever stops
 * or dies. A process that joins in a worker's place is the worker from then on; it joins a job
 * that goes on, as one that comes late does. A job that all have left, or none of whose workers
 * lives when a new process joins, begins anew. The loop of a worker that may stop, and of one that
 * is started again, i being 0 at first:
 *
 *     while (i < n) {
 *         // report.dropped: who is missing
 *         status = embd_tick_wait(client, &clock, i, 0, 0, &report);
 *         if (status == EMBD_OK)
 *             status = train(client, &clock, i); // pushes with round = &clock and round_clock = i
 *         if (status == EMBD_OK)
 *             status = embd_tick(client, &clock, i + 1, &report);
 *         if (status == EMBD_OK)
 *             i++;
 *         else if (status == EMBD_LATE)
 *             status = embd_tick_rejoin(client, &clock, &i, &report); // i is where the job is
 *         if (status != EMBD_OK)
 *             return status;
 *     }
 *     embd_tick_leave(client, &clock, i);
 */
typedef struct embd_clock {
    const char *job;    /* 1 to EMBD_NAME_MAX bytes */
    uint32_t worker;    /* 0..n_workers - 1 */
    uint32_t n_workers; /* 1..EMBD_WORKERS_MAX, the same for all */
    uint32_t lease_ms;  /* 100..3600000: a worker that is not heard of for so long is dropped */
    bool asynchronous;  /* waits for nobody, and so never comes late */
} embd_clock;

typedef struct embd_clock_report {
    uint64_t slowest;           /* clock of the live workers; 0 until all n_workers have joined */
    uint32_t n_live, n_dropped; /* workers that left are neither */
    uint32_t dropped[EMBD_DROPPED_MAX]; /* the first of them, ascending */
} embd_clock_report;

/* Tells this worker's clock. `report_out` may be NULL. Blocks.
 *   EMBD_LATE     the worker was dropped, or its process is new, and the job is at a later clock;
 *                 until embd_tick_rejoin
 *   EMBD_INVALID  a field is out of range; the clock falls; the job has another n_workers; another
 *                 process is the worker now, or the job has begun anew without this one, which the
 *                 sentence says
 *   EMBD_FULL     the server keeps as many jobs as it can; and errors of embd_ping */
EMBD_API int embd_tick(embd_client *client, const embd_clock *clock, uint64_t value,
                       embd_clock_report *report_out);

/* The same, and waits until the slowest live worker has reached value - staleness. Bulk-synchronous
 * training waits with a staleness of 0 after every iteration, stale-synchronous with s;
 * asynchronous does not wait. deadline_ms 0: the client's. EMBD_DEADLINE names the worker that is
 * waited for. */
EMBD_API int embd_tick_wait(embd_client *client, const embd_clock *clock, uint64_t value,
                            uint64_t staleness, uint32_t deadline_ms,
                            embd_clock_report *report_out);

/* Joins again after EMBD_LATE: sets *value, which is the clock the worker was at, to the one it
 * goes on with. That is the greatest of all shards, and the worker takes part in the next step of
 * each. Blocks. Errors of embd_tick. */
EMBD_API int embd_tick_rejoin(embd_client *client, const embd_clock *clock, uint64_t *value,
                              embd_clock_report *report_out);

/* This worker is done: nobody waits for it any more, in rounds neither. */
EMBD_API int embd_tick_leave(embd_client *client, const embd_clock *clock, uint64_t value);

/* ---- model folders of HugeCTR
 * -------------------------------------------------------------------------- */

/* HugeCTR saves a sparse embedding as a folder of three plain files, whose rows belong together by
 * their number: `key` (int64), `slot_id` (uint64; localized embeddings only, here the tables with
 * partition = slot) and `emb_vector` (float32[dim]); and the optimizer's state as one file beside
 * it, which holds for each state tensor and each GPU that GPU's whole buffer,
 * float32[gpu_rows][dim]. A key belongs to GPU slot % n_gpus in slot tables, else to key % n_gpus;
 * keys count as unsigned. Keys are those stored: with slot_sizes, shifted by them. */
typedef struct embd_hugectr_options {
    uint32_t
        n_gpus; /* 1..1024. Export: rows are ordered by GPU, slot and key, on any number of shards.
                   Import: of the job that wrote state_file; without one it does not matter */
    bool u32_keys;          /* 32-bit keys: a greater one is refused */
    const char *state_file; /* the optimizer's state, to write or to read; NULL: none. momentum,
                               nesterov, adagrad, adam (m, then v) and ftrl (n, then z) have one */
    uint64_t gpu_rows; /* rows of a GPU's buffer in state_file. 0: on export as many as the fullest
                          GPU needs, on import what follows from the size of the file */
    embd_dtype state_dtype; /* of the floats of state_file: EMBD_DTYPE_F32 or EMBD_DTYPE_F16 (mixed
                        precision) */
    uint64_t step; /* import: pushes the table has seen, which adam's t counts; no file has it. At
                        most 2^47 */
    bool ignore_slots; /* import: a slot_id may be there although the table has no slots, and is not
                          read */
} embd_hugectr_options;

/* One GPU, 64-bit keys, no state file, f32, step 0. */
EMBD_API void embd_hugectr_options_init(embd_hugectr_options *options);

/* Writes a table as the new folder `folder`, one consistent cut; pushes wait while it is written.
 * Values are f32 whatever the table's dtype; keys that wait for a row (admit_after) are left out.
 * Written under a temporary name, synced and renamed, the state file first: a folder that is there
 * is whole and has its state file. Needs 24 bytes of memory a row (48 while they are sorted), the
 * shards' admin listeners and, with a state file, room on the disk of `folder` for the states once
 * more.
 *   EMBD_EXISTS        `folder` or the state file exists
 *   EMBD_INVALID       an option; a key beyond 32 bits, or in two slots of a GPU; gpu_rows is less
 *                      than a GPU's keys
 *   EMBD_UNSUPPORTED   a state file of an optimizer that HugeCTR has none for
 *   EMBD_UNKNOWN_TABLE; EMBD_IO: names the file and the cause
 * `options`, `report_out` and `progress` may be NULL. */
EMBD_API int embd_hugectr_export(embd_client *client, const char *table, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out);

/* Creates the table of `schema` and fills it from a folder, on any number of shards: rows go where
 * their slot (with partition = slot) or key belongs. A table that exists must be empty and of the
 * same definition (EMBD_EXISTS). Values are rounded to the table's dtype. Without state_file the
 * state is that of new rows. Sizes, slots, and key widths are checked before anything changes;
 * after a later failure the table is dropped again if this call created it.
 *   EMBD_CORRUPT       a file is missing, does not belong there, or has another size than the rows
 *                      of `key` and dim ask for; a slot_id is not below slots; a key is there
 *                      twice; state_file is of another n_gpus
 *   EMBD_INVALID       an option; a key beyond 32 bits with u32_keys; slot_id is there and the
 *                      table has no slots
 *   EMBD_UNSUPPORTED   a state file for an optimizer that HugeCTR has none for
 *   EMBD_NOT_FINITE    a value or state, where the table does not admit that; names file, key and
 *                      column
 *   EMBD_FULL          more rows than a shard's capacity; and errors of embd_table_create and
 *                      embd_load
 * `options`, `report_out` (its pause_us is 0) and `progress` may be NULL. The progress of checking
 * is told first; rows_done then begins again from 0. */
EMBD_API int embd_hugectr_import(embd_client *client, const embd_schema *schema, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out);

/* ---- looking into directories
 * -------------------------------------------------------------------------- */

/* A table of a dump or snapshot, or that of a model folder (embd_hugectr_inspect). */
typedef struct embd_stored_table {
    const char *kind; /* "dump", "snapshot", "hugectr", or "changes": rows that changed since the
                         base alone */
    const char *name; /* NULL in a HugeCTR folder, which has none */
    const embd_schema *schema; /* NULL in a HugeCTR folder */
    uint32_t dim;              /* of a HugeCTR folder: what the sizes give, 0 when it has no rows */
    uint32_t n_files;
    bool has_slots; /* rows belong to (slot, key) */
    uint64_t rows, bytes, step;
} embd_stored_table;

/* Shows what a dump or snapshot directory holds, without a server: calls `visit_table` for each
 * table and then `visit_row` for its first `n_first` rows, as f32 [dim], in the order of the files.
 * All pointers are valid during the call. A visit that returns nonzero ends it; that value is
 * returned. What is looked at is checked as embd_load does (EMBD_CORRUPT, EMBD_IO; `why_out` gets a
 * sentence). visit_row may be NULL if n_first is 0. */
EMBD_API int embd_inspect(const char *dir, uint64_t n_first,
                          int (*visit_table)(void *arg, const embd_stored_table *table),
                          int (*visit_row)(void *arg, const embd_stored_table *table, uint32_t slot,
                                           uint64_t key, const float *values),
                          void *arg, char *why_out, size_t why_bytes);

/* True where `dir` looks like a model folder of HugeCTR: it has a file `key` and no manifest.json.
 */
EMBD_API bool embd_hugectr_is_folder(const char *dir);

/* embd_inspect for a model folder: its one table has no name and no schema. */
EMBD_API int embd_hugectr_inspect(const char *dir, uint64_t n_first,
                                  int (*visit_table)(void *arg, const embd_stored_table *table),
                                  int (*visit_row)(void *arg, const embd_stored_table *table,
                                                   uint32_t slot, uint64_t key,
                                                   const float *values),
                                  void *arg, char *why_out, size_t why_bytes);

#ifdef __cplusplus
}
#endif
#endif
