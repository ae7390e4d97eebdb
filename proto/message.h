/* message.h - building and reading MessagePack-RPC messages.
 *
 * params of every request and the result of every answer have one shape: an array of a map, then
 * bins. The map names everything small; the bins carry packed little-endian arrays, in the order
 * the map declares them.
 *
 * `struct msg` builds (build.h). `struct reader` reads a scanned frame. Both keep their first
 * error: write straight through, check once. */
#ifndef EMBD_PROTO_MESSAGE_H
#define EMBD_PROTO_MESSAGE_H

#include <msgpack.h>

#include "proto/build.h"
#include "proto/errors.h"
#include "proto/batch.h"
#include "proto/frame.h"
#include "proto/method.h"
#include "embd/sync.h"

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
int embd__reader_refuse_rest(struct reader *r);
/* After the last one: error if bins are left over. Returns r->error->status. */
static inline int embd__reader_end(struct reader *r)
{
    bool has_rest = r->error->status == EMBD_OK && r->next < r->n_items;
    return has_rest ? embd__reader_refuse_rest(r) : r->error->status;
}

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
/* A number of things; EMBD_TOO_LARGE above the limit. */
uint32_t embd__field_count(struct fields *f, const char *name, uint32_t limit, uint64_t absent);
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
static inline void embd__request_placement_read(struct fields *message)
{
    message->reader->placement = embd__field_uint(message, "placement", 1, UINT64_MAX - 1, 0);
}
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
