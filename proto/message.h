/* message.h - building and reading MessagePack-RPC messages.
 *
 * params of every request and the result of every answer have one shape: an array of a map, then
 * bins. The map names everything small; the bins carry packed little-endian arrays, in the order
 * the map declares them.
 *
 * `struct msg` builds: a head of bytes with bins cut out, which point to memory of the caller's
 * (gathered by writev, never copied), or to nothing yet (data NULL: the sender makes the bytes
 * while sending). `struct reader` reads a scanned frame. Both keep their first error: write
 * straight through, check once. */
#ifndef EMBD_PROTO_MESSAGE_H
#define EMBD_PROTO_MESSAGE_H

#include <msgpack.h>

#include "proto/errors.h"
#include "proto/batch.h"
#include "proto/frame.h"
#include "embd/sync.h"

/* ---- methods: id, name on the wire, listener ---- */
#define METHOD_LIST(X)                                                                             \
    X(HELLO, "hello", LISTENER_BOTH)                                                               \
    X(PING, "ping", LISTENER_BOTH)                                                                 \
    X(CLUSTER, "cluster", LISTENER_BOTH)                                                           \
    X(TABLES, "tables", LISTENER_BOTH)                                                             \
    X(TABLE_CREATE, "table_create", LISTENER_BOTH)                                                 \
    X(TABLE_DROP, "table_drop", LISTENER_BOTH)                                                     \
    X(TABLE_DESCRIBE, "table_describe", LISTENER_BOTH)                                             \
    X(PULL, "pull", LISTENER_DATA)                                                                 \
    X(PUSH, "push", LISTENER_DATA)                                                                 \
    X(ERASE, "erase", LISTENER_DATA)                                                               \
    X(STATS, "stats", LISTENER_BOTH)                                                               \
    X(HOLD, "hold", LISTENER_ADMIN)                                                                \
    X(RELEASE, "release", LISTENER_ADMIN)                                                          \
    X(SNAPSHOT, "snapshot", LISTENER_ADMIN)                                                        \
    X(SCAN, "scan", LISTENER_ADMIN)                                                                \
    X(LOAD, "load", LISTENER_ADMIN)                                                                \
    X(DRAIN, "drain", LISTENER_ADMIN)                                                              \
    X(HOT, "hot", LISTENER_ADMIN)                                                                  \
    X(TRACE, "trace", LISTENER_ADMIN)                                                              \
    X(TICK, "tick", LISTENER_DATA)                                                                 \
    X(WRITER, "writer", LISTENER_DATA)                                                             \
    X(WRITERS, "writers", LISTENER_ADMIN)                                                          \
    X(STREAM_OPEN, "stream_open", LISTENER_DATA)                                                   \
    X(IDENTITY, "identity", LISTENER_BOTH)                                                         \
    X(TABLE_SET, "table_set", LISTENER_BOTH)                                                       \
    X(TABLE_STAGE, "table_stage", LISTENER_ADMIN)                                                  \
    X(TABLE_REPLACE, "table_replace", LISTENER_ADMIN)                                              \
    X(GET, "get", LISTENER_DATA)                                                                   \
    X(PUT, "put", LISTENER_DATA)                                                                   \
    X(KEYS, "keys", LISTENER_DATA)                                                                 \
    X(SHARE, "share", LISTENER_DATA)                                                               \
    X(DEVICE_OPEN, "device_open", LISTENER_DATA)                                                   \
    X(DEVICE_CLOSE, "device_close", LISTENER_DATA)                                                 \
    X(DEVICE_PULL, "device_pull", LISTENER_DATA)                                                   \
    X(DEVICE_PUSH, "device_push", LISTENER_DATA)                                                   \
    X(RING, "ring", LISTENER_DATA)                                                                 \
    X(FOLLOW, "follow", LISTENER_ADMIN)                                                            \
    X(PROMOTE, "promote", LISTENER_ADMIN)                                                          \
    X(CHANGES, "changes", LISTENER_BOTH)                                                           \
    X(MOVE, "move", LISTENER_ADMIN)                                                                \
    X(MOVE_LOAD, "move_load", LISTENER_ADMIN)                                                      \
    X(TRUNK, "trunk", LISTENER_DATA)

enum listener { LISTENER_DATA = 1, LISTENER_ADMIN = 2, LISTENER_BOTH = 3 };
enum method {
#define METHOD_ENUM(id, name, listener) METHOD_##id,
    METHOD_LIST(METHOD_ENUM)
#undef METHOD_ENUM
        METHOD_COUNT
};

/* NULL for a number out of range. */
const char *embd__method_name(enum method method);
/* -1: unknown name. */
int embd__method_find(const char *name, size_t bytes);
enum listener embd__method_listener(enum method method);

/* ---- building ---- */

/* A bin, or one of several pieces of a bin, which have one place. */
struct msg_bin {
    uint32_t at; /* offset in head where the payload goes */
    uint64_t bytes;
    const void *data; /* NULL: made while sending */
};

/* Shorter bins are sent. */
#define SHARED_LEAST_BYTES 1024u

/* Memory that the receiver has, too. */
struct shared_range {
    const uint8_t *base; /* NULL: none */
    uint64_t bytes;
};

/* Owner: one thread. Buffers are kept between messages. */
struct msg {
    uint8_t *head;
    uint32_t head_bytes, head_capacity;
    struct msg_bin *bins; /* pieces of bins, too */
    uint32_t n_bins, bins_capacity;
    uint32_t n_whole;                  /* bins, however many pieces they have */
    bool has_lent_head, has_lent_bins; /* embd__msg_lend */
    uint8_t *own;                      /* [own_capacity] bytes of a bin that embd__msg_own made */
    uint32_t own_capacity;
    uint32_t count_at; /* offset of the array16 count that embd__msg_end fills in */
    uint32_t limit;    /* of the message's bytes, by its method */
    struct shared_range shared;
    bool names_shared; /* a bin of it lies there */
    int status;        /* EMBD_OK, EMBD_NO_MEMORY or EMBD_TOO_LARGE; sticky */
};

void embd__msg_init(struct msg *m);
void embd__msg_fini(struct msg *m);
/* Its first buffers, which outlive it: what fits there is beside what else its owner has. */
void embd__msg_lend(struct msg *m, uint8_t *head, uint32_t head_bytes, struct msg_bin *bins,
                    uint32_t n_bins);
/* Reserves memory for this many more bytes of head, and bins: adding them does not fail then.
 * EMBD_NO_MEMORY, EMBD_TOO_LARGE. */
int embd__msg_reserve(struct msg *m, uint32_t head_bytes, uint32_t n_bins);

/* Each begins a new message in m, dropping what it held. A request or result goes on with exactly
 * one map, then any number of bins, then embd__msg_end. An error is complete at once: [1, msgid,
 * [number, text], nil]. */
void embd__msg_request(struct msg *m, uint32_t msgid, enum method method);
void embd__msg_result(struct msg *m, uint32_t msgid);
/* A notification, which has no answer: [2, method, params]. A journal's record is
 * one. */
void embd__msg_notice(struct msg *m, enum method method);
void embd__msg_error(struct msg *m, uint32_t msgid, int status, const char *text);
/* [2, "error", [number, text]]: for a peer whose msgid could not be read. */
void embd__msg_error_notice(struct msg *m, int status, const char *text);
int embd__msg_end(struct msg *m); /* returns m->status */

void embd__msg_map(struct msg *m, uint32_t n_fields);
void embd__msg_array(struct msg *m, uint32_t n);
void embd__msg_str(struct msg *m, const char *text);
void embd__msg_uint(struct msg *m, uint64_t value);
void embd__msg_bool(struct msg *m, bool value);
void embd__msg_f32(struct msg *m, float value); /* travels as a float64 of the same value */
void embd__msg_field_uint(struct msg *m, const char *name, uint64_t value);
void embd__msg_field_bool(struct msg *m, const char *name, bool value);
void embd__msg_field_f32(struct msg *m, const char *name, float value);
void embd__msg_field_str(struct msg *m, const char *name, const char *text);
/* Cuts out a bin of `bytes`, at most the message's limit. `data` must stay until the message is
 * sent; NULL: see top. */
void embd__msg_bin(struct msg *m, const void *data, uint64_t bytes);

/* From now on, bins of this message that lie in `shared`, and are long enough for it to pay, are
 * named there and not sent. */
static inline void embd__msg_share(struct msg *m, const struct shared_range *shared)
{
    m->shared = *shared;
}

/* A bin that lies `at` in what the receiver shares with us. */
void embd__msg_bin_shared(struct msg *m, uint64_t at, uint64_t bytes);

/* A bin of `bytes` in pieces, which the caller adds: one or more, `bytes` in all. */
void embd__msg_bin_begin(struct msg *m, uint64_t bytes);
void embd__msg_bin_piece(struct msg *m, const void *data, uint64_t bytes);
/* Memory for one bin's bytes, kept as long as the message; NULL: m->status says why. */
void *embd__msg_own(struct msg *m, uint32_t bytes);

/* The complete message as the scanner would give it: its bins are emptied in m->head, which `out`
 * points to, as to their data: out->pieces. Only what a user of whole frames reads is set. */
void embd__msg_frame(struct msg *m, struct frame_scanner *out);

/* Bytes of the whole message, head and bins. */
uint64_t embd__msg_bytes(const struct msg *m);

/* One piece of the message for writev: pieces are head, bin, head, bin, ... head. */
struct msg_piece {
    const void *data; /* NULL: a bin made while sending */
    uint64_t bytes;   /* may be 0 */
};
static inline uint32_t embd__msg_n_pieces(const struct msg *m)
{
    return 2 * m->n_bins + 1;
}

/* The bytes in front of the last bin's payload. There is a bin. */
uint32_t embd__msg_pieces_before_last(const struct msg *m);

static inline struct msg_piece embd__msg_piece(const struct msg *m, uint32_t i)
{
    if (i % 2 == 1)
        return (struct msg_piece){m->bins[i / 2].data, m->bins[i / 2].bytes};
    uint32_t from = i == 0 ? 0 : m->bins[i / 2 - 1].at;
    uint32_t to = i / 2 == m->n_bins ? m->head_bytes : m->bins[i / 2].at;
    return (struct msg_piece){m->head + from, to - from};
}

/* ---- reading ---- */

/* A whole received message. Points into the scanner's head and bins; valid while those and the zone
 * are. */
/* How far behind another server's records one may be that answers a pull; and how far it is. */
struct lag {
    bool is_told;      /* a request asks for it, an answer says it */
    uint64_t ms;       /* a request: at most; 0: any. An answer: it is */
    uint64_t position; /* of an answer: records whose changes its rows have, at least */
};

struct reader {
    struct embd__error *error; /* sticky; the caller's */
    const struct frame_scanner *frame;
    int type;
    uint32_t msgid;
    int method;              /* enum method, or -1: unknown; requests and notifications */
    char method_name[32];    /* cut; for the error text */
    int answer_status;       /* of a response: EMBD_OK or the peer's error */
    const char *answer_text; /* the peer's sentence, not terminated; NULL with EMBD_OK */
    uint32_t answer_text_bytes;
    const msgpack_object *items; /* map and bins of params or result */
    uint32_t n_items;
    uint32_t next; /* item that embd__read_bin takes next */
    uint64_t map;  /* of an answer to a pull, push or erase: see below; 0: it does not say */
    /* Of a request with keys: version of the map that they were split by; 0: the even one. */
    uint64_t placement;
    /* Of a pull, and of its answer: */
    struct lag lag;
};

/* Unpacks frame->head. Returns EMBD_OK or e->status. `zone` is cleared first and owns what is
 * unpacked. An unknown method or an answer that is an error is not a failure here. An absent map
 * reads as an empty one. */
int embd__reader_init(struct reader *r, const struct frame_scanner *frame, msgpack_zone *zone,
                      struct embd__error *e);

/* The next bin: *data_out points to exactly `bytes`, aligned to 8. Anything else sets the error,
 * naming `what`
 * ("part 0 keys"), the value and what was expected, and gives NULL. */
const void *embd__read_bin(struct reader *r, const char *what, uint64_t bytes);
/* The next bin of any length that is a multiple of `unit`, at most `max_bytes`. */
const void *embd__read_bin_any(struct reader *r, const char *what, uint64_t unit,
                               uint64_t max_bytes, uint64_t *bytes_out);
/* After the last one: error if bins are left over. Returns r->error->status. */
int embd__reader_end(struct reader *r);

#define FIELDS_WORDS 4u
/* A map being read field by field. Names are matched exactly; a field that is absent takes the
 * default. */
struct fields {
    struct reader *reader;
    const msgpack_object_map *map; /* NULL: empty */
    const char *what;              /* "part 3"; for errors; must outlive this */
    uint64_t seen[FIELDS_WORDS];   /* bit i: field i was asked for; maps have at most 256 fields */
};

/* The message's own map (item 0). */
void embd__read_fields(struct fields *f, struct reader *r, const char *what);
/* A nested map; absent gives an empty one. */
void embd__field_map(struct fields *f, const char *name, struct fields *out, const char *what);
/* A nested array of maps: count, then each by index. Absent: 0. Over max: error. */
uint32_t embd__field_list(struct fields *f, const char *name, uint32_t max,
                          const msgpack_object **items_out);
/* The same of a list that must be there. */
uint32_t embd__field_list_required(struct fields *f, const char *name, uint32_t max,
                                   const msgpack_object **items_out);
void embd__list_map(struct reader *r, const msgpack_object *item, struct fields *out,
                    const char *what);

#define FIELD_REQUIRED UINT64_MAX /* as `absent`: the field must be there */
uint64_t embd__field_uint(struct fields *f, const char *name, uint64_t min, uint64_t max,
                          uint64_t absent);
/* Any number representable as f32 (integers too); NaN never. */
float embd__field_f32(struct fields *f, const char *name, float absent);
/* The learning rate "lr": finite and above 0, also as an f32. Absent: 0. */
float embd__field_lr(struct fields *f);
bool embd__field_bool(struct fields *f, const char *name, bool absent);
/* Copies into out[out_bytes], terminated. NULL absent: required. Error when longer. */
void embd__field_str(struct fields *f, const char *name, char *out, size_t out_bytes,
                     const char *absent);
/* The same of a name that must be there: 1 to out_bytes - 1 bytes. */
void embd__field_name(struct fields *f, const char *name, char *out, size_t out_bytes);
/* One of n names, by index; `absent` < 0: required. */
int embd__field_enum(struct fields *f, const char *name, const char *const *names, int n,
                     int absent);
/* Whether the field is present; does not count as asking for it. */
bool embd__field_has(const struct fields *f, const char *name);
/* Error for a field that was not asked for, naming it. Returns the error's status. */
int embd__fields_end(struct fields *f);

/* ---- the data methods: one table's share of a pull, push or erase ---- */

/* The map and bins of a request with n parts; the caller has called embd__msg_request and calls
 * embd__msg_end. Bin order for each part: keys, offsets, slots, weights, scores, grads, as far as
 * present.
 * Map of a part: table, keys, rows (with offsets only), dtype (absent: f32), slots, weights,
 * scores, status, zero, scale (flags: present and true), lr, into. */
void embd__parts_write(struct msg *m, const struct part *parts, uint32_t n, enum parts_kind kind);
/* Reads and checks all that can be without a schema: counts, bin lengths, offsets (start, rise,
 * end, naming part, position and value). grads may have any length; the handler compares it with
 * rows * dim. Returns n or a negative status. */
int embd__parts_read(struct reader *r, struct part *parts, uint32_t capacity, enum parts_kind kind);
/* The same with `placement` and max_behind of `extra`. */
void embd__parts_write_split(struct msg *m, const struct part *parts, uint32_t n,
                             enum parts_kind kind, const struct push_extra *extra);

/* As embd__parts_write and embd__parts_read for a push; `extra` NULL: neither round nor pusher. */
void embd__push_write(struct msg *m, const struct part *parts, uint32_t n,
                      const struct push_extra *extra);
int embd__push_read(struct reader *r, struct part *parts, uint32_t capacity,
                    struct push_extra *extra_out);
/* The same of a journal's record, which may have sources, PUSH_SOURCES_MAX at most, and
 * seconds. */
int embd__push_read_record(struct reader *r, struct part *parts, uint32_t capacity,
                           struct push_extra *extra_out, struct push_source *sources_out,
                           uint32_t *n_sources_out);
/* The field `sources` of a record: [PUSH_SOURCES_MAX]. */
void embd__push_sources_read(struct fields *message, struct push_source *out, uint32_t *n_out);
/* The same for parts as columns, at most LIMIT_PARTS; embd__parts_read and
 * embd__push_read read both forms. `extra` as above; NULL for other kinds. */
void embd__columns_write(struct msg *m, const struct part_list *list, enum parts_kind kind,
                         const struct push_extra *extra);
/* The field `writer` of a push or put: who numbers it, its stream and number. */
void embd__push_number_write(struct msg *m, const struct push_number *number);
void embd__push_number_read(struct fields *message, struct push_number *number);
/* The field `placement` of a request with keys goes to the reader. */
void embd__request_placement_read(struct fields *message);
/* A push's order, before it is read; 0: it has none. */
uint64_t embd__push_order(const struct reader *r);

/* Answers to pulls, pushes and erases also have the version of the cluster's map: `map`, if that
 * can change; 0 if it cannot, and if an answer lacks it. */

/* Answer to a pull: `lag` NULL: it does not say. For each part values [n_rows][dim] of dtype, then
 * statuses [n_keys] u8 if requested. {"parts": [{"rows", "dim", "dtype", "status"}]}. Data may be
 * NULL (made while sending). */
struct part_answer {
    uint32_t n_rows, dim, n_keys;
    embd_dtype dtype;
    bool has_status;
    const void *values;
    uint64_t into; /* where in shared memory values are; 0: in the answer */
    const uint8_t *statuses;
};
void embd__pull_answer_write(struct msg *m, const struct part_answer *answers, uint32_t n,
                             uint64_t map, const struct lag *lag);
int embd__pull_answer_read(struct reader *r, struct part_answer *answers, uint32_t capacity);

/* Answer to a push: {"parts": [{"step", "inserted", "full", "filtered", "evicted", "keys",
 * "status"}]}, statuses bins. `evicted` stands there only where it is not 0. */
struct push_answer {
    uint64_t step; /* of the table, after this push */
    uint32_t n_inserted, n_full, n_filtered, n_evicted, n_keys;
    const uint8_t *statuses; /* [n_keys] or NULL */
};
void embd__push_answer_write(struct msg *m, const struct push_answer *answers, uint32_t n,
                             uint64_t map);
/* Answer to a push that was applied before: {"parts": [], "again": true}. */
void embd__push_again_write(struct msg *m, uint64_t map);
/* *again_out may be true with 0 parts only. */
int embd__push_answer_read(struct reader *r, struct push_answer *answers, uint32_t capacity,
                           bool *again_out);

/* Answer to an erase: {"parts": [{"erased", "keys", "status"}]}, statuses bins. */
struct erase_answer {
    uint32_t n_erased, n_keys;
    const uint8_t *statuses; /* [n_keys] or NULL */
};
void embd__erase_answer_write(struct msg *m, const struct erase_answer *answers, uint32_t n,
                              uint64_t map);
int embd__erase_answer_read(struct reader *r, struct erase_answer *answers, uint32_t capacity);

/* ---- rows in bulk: the answer of scan, the request of load, and the block of a part file ---- */

/* Bytes of one row of the block, and of one candidate. */
uint64_t embd__row_bytes(const embd_schema *schema);
uint64_t embd__candidate_bytes(const embd_schema *schema);
/* The schema of a block that has keys and slots alone: without columns, without state. */
embd_schema embd__keys_schema(const embd_schema *schema);
/* Bins in struct order, those that exist for the schema, also when their length is 0. */
void embd__row_block_write(struct msg *m, const embd_schema *schema, const struct row_block *block);
int embd__row_block_read(struct reader *r, const embd_schema *schema, uint32_t n_rows,
                         uint32_t n_candidates, struct row_block *out);

#endif
