/* schema.h - table definitions as messages, and the questions both sides ask of them. */
#ifndef EMBD_PROTO_SCHEMA_H
#define EMBD_PROTO_SCHEMA_H

#include "proto/message.h"
#include "proto/stamp.h"

/* A schema that owns its slot_sizes. */
struct table_schema {
    embd_schema s; /* s.slot_sizes points to sizes or is NULL */
    uint64_t *sizes;
    uint64_t *slot_starts; /* [slots + 1] prefix sums of slot_sizes, or NULL */
};

/* Copies; EMBD_NO_MEMORY leaves *to all zero. embd__schema_fini frees, zero is allowed. */
int embd__schema_copy(struct table_schema *to, const embd_schema *from, struct embd__error *e);
void embd__schema_fini(struct table_schema *schema);

/* All of embd_schema_check. */
int embd__schema_check(const embd_schema *schema, struct embd__error *e);

/* ---- durabilities: what a change waits for before it is acknowledged ---- */

/* In a journal. */
static inline bool embd__durability_is_journaled(embd_durability durability)
{
    return durability != EMBD_DURABILITY_SNAPSHOT && durability != EMBD_DURABILITY_AUTO;
}

/* On this server's disk. */
static inline bool embd__durability_is_synced(embd_durability durability)
{
    return durability == EMBD_DURABILITY_DURABLE ||
           durability == EMBD_DURABILITY_REPLICATED_DURABLE;
}

/* With followers. */
static inline bool embd__durability_is_replicated(embd_durability durability)
{
    return durability == EMBD_DURABILITY_REPLICATED ||
           durability == EMBD_DURABILITY_REPLICATED_DURABLE;
}

/* All that either waits for. Neither is EMBD_DURABILITY_AUTO. */
static inline embd_durability embd__durability_join(embd_durability a, embd_durability b)
{
    bool is_synced = embd__durability_is_synced(a) || embd__durability_is_synced(b);
    if (embd__durability_is_replicated(a) || embd__durability_is_replicated(b))
        return is_synced ? EMBD_DURABILITY_REPLICATED_DURABLE : EMBD_DURABILITY_REPLICATED;
    return a > b ? a : b;
}

/* NULL when equal, else the name of the first field that differs. EMBD_DURABILITY_AUTO is equal to
 * every durability. */
const char *embd__schema_difference(const embd_schema *a, const embd_schema *b);

/* The same without the fields that may change (schema_change.h): NULL where both can be one table
 * at two times. */
const char *embd__schema_fixed_difference(const embd_schema *a, const embd_schema *b);

/* The first field that differs and both its values, as text: "dim", "16", "4". */
struct schema_difference {
    char field[32], a[32], b[32];
};
/* The same of two schemas of one name. False when they are equal; *out is as it was. */
bool embd__schema_tell_difference(const embd_schema *a, const embd_schema *b,
                                  struct schema_difference *out);
/* A table's schema and one that is asked for: fields that were set since it was created do not
 * count. */
bool embd__schema_tell_asked(const embd_schema *table, const embd_schema *asked,
                             struct schema_difference *out);

/* The schema as one map; where it has slot_sizes, the map says `slot_sizes: true` and this function
 * adds their u64 bin right after it. So a schema is the last field of the map around it. */
void embd__schema_write(struct msg *m, const embd_schema *schema);
/* Reads the map; where it says slot_sizes, takes the reader's next bin. Checks everything. On error
 * *out is zero. */
int embd__schema_read(struct fields *map, struct table_schema *out);
/* One field of such a map; what it leaves out stays as it is. */
struct schema_field;
void embd__schema_field_write(struct msg *m, const struct schema_field *field,
                              const embd_schema *schema);
void embd__schema_field_read(struct fields *map, const struct schema_field *field,
                             embd_schema *schema);

/* f32 values of an optimizer's own state beside a row: 0, dim, 2 * dim or 3 * dim; 1 for
 * rowwise_adagrad. In memory and in files: adam and lamb m then v, amsgrad m, v, u, ftrl n then z,
 * each [dim]; partial_rowwise_adam m [dim], v; counter_adagrad v, c. */
uint32_t embd__schema_optimizer_floats(const embd_schema *schema);
/* Whether the step of a row's last push follows (stamp.h): lazy_global, decoupled_global,
 * counter_adagrad. */
bool embd__schema_has_stamp(const embd_schema *schema);
/* The master values of a row that is rounded from them (EMBD_ROUNDING_MASTER), f32: dim, else 0. */
uint32_t embd__schema_master_floats(const embd_schema *schema);
/* Where they begin in a row's state: behind the optimizer's own state and the stamp. */
uint32_t embd__schema_master_at(const embd_schema *schema);
/* Whether a step needs more than its columns one by one (server/store/wholerow.h): the optimizers
 * after ftrl, all regularization but lr_decay, and coded rows, whose scale is the row's. */
bool embd__schema_is_wholerow(const embd_schema *schema);
/* An evicting table's state of a row's use: the step, or second, of its last push (stamp.h), and
 * with evict_lfu how often it was pushed, with evict_score its score. Last in the state. */
uint32_t embd__schema_use_floats(const embd_schema *schema);
/* The rows that a table may have on a shard; UINT64_MAX: any number. */
uint64_t embd__schema_bound(const embd_schema *schema);
/* Whether rows expire by seconds: then these stand where steps do in the state of their use. */
static inline bool embd__schema_is_timed(const embd_schema *schema)
{
    return schema->on_full == EMBD_ON_FULL_EVICT_TTL && schema->ttl_seconds > 0;
}
/* Whether rows remember of their use what the other's policy asks for too. */
bool embd__schema_same_use(const embd_schema *a, const embd_schema *b);
/* All state: the optimizer's, then the stamp, the master values, and the use. */
uint32_t embd__schema_state_floats(const embd_schema *schema);

/* The slot a stored key (offset added) belongs to by slot_sizes, or slots when it is beyond the
 * last. Needs slot_starts. */
uint32_t embd__schema_slot_of(const struct table_schema *schema, uint64_t key);

#endif
