/* schema.h - what a table is: its rows, their first values, their steps and their limits.
 * <embd/embd.h> includes it. */
#ifndef EMBD_SCHEMA_H
#define EMBD_SCHEMA_H

#include "embd/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBD_NAME_MAX  63   /* bytes of a table name: [a-z0-9][a-z0-9_-]{0,62} */
#define EMBD_DIM_MAX   4096 /* columns of a row */
#define EMBD_SLOTS_MAX 1024 /* slots of a table; a key-table entry has 10 bits for the slot */

/* How keys are spread over n shards. */
typedef enum embd_partition {
    EMBD_PARTITION_HASH,   /* v = mix64(key) >> 54, one of 1024; shard v * n / 1024 */
    EMBD_PARTITION_MODULO, /* shard key % n */
    EMBD_PARTITION_SLOT,   /* shard slot % n; a row belongs to the pair (slot, key), so keys of
                              different slots may overlap */
} embd_partition;

/* How the rows of one slot of one sample become one output row. With weights w: */
typedef enum embd_combiner {
    EMBD_COMBINER_CONCAT, /* no pooling: one output row per key */
    EMBD_COMBINER_SUM,    /* sum(w * row) */
    EMBD_COMBINER_MEAN,   /* sum(w * row) / sum(w); without weights sum(row) / n, where n > 1 */
    EMBD_COMBINER_SQRTN,  /* sum(w * row) / sqrt(sum(w * w)); without weights sum(row) / sqrt(n),
                             where n > 1 */
} embd_combiner;

typedef enum embd_dtype {
    EMBD_DTYPE_F32,
    EMBD_DTYPE_F16,
    EMBD_DTYPE_BF16,
    /* Each row is codes and one f32 scale: SEMANTICS.md. */
    EMBD_DTYPE_I8,   /* -127..127 times the scale, which is max|v| / 127 */
    EMBD_DTYPE_I4,   /* on the wire only: -7..7 times max|v| / 7; two columns a byte */
    EMBD_DTYPE_E4M3, /* of stored rows only: 8-bit floats without infinity, times max|v| / 448 */
} embd_dtype;

/* How a step's result becomes f16, bf16, i8 or e4m3. Steps smaller than half a unit of the last
 * place are lost by NEAREST, kept on average by STOCHASTIC, and all kept by MASTER. */
typedef enum embd_rounding {
    EMBD_ROUNDING_NEAREST,    /* to nearest, ties to even */
    EMBD_ROUNDING_STOCHASTIC, /* up or down by chance, in proportion to the distances: a pure
                                 function of (seed, key, slot, column, pushes of the table) */
    EMBD_ROUNDING_MASTER,     /* master weights: the row's state has its values as f32 too, dim more
                             floats. Steps read and write these; the row is their nearest
                             rounding, and all that pulls read */
} embd_rounding;

/* One step of a row w, all in f32, with g = (sum of the request's gradients of the row) / scaler:
 *
 *   sgd               w -= lr*g
 *   momentum          m = momentum*m - lr*g; w += m
 *   nesterov          a' = momentum*a - lr*g; w += -momentum*a + (1+momentum)*a'
 *   adagrad           v += g*g; w -= lr*g / (sqrt(v)+eps)
 *   rowwise_adagrad   v += mean over the columns of g*g; w -= lr*g / (sqrt(v)+eps)
 *   adam              m = beta1*m + (1-beta1)*g; v = beta2*v + (1-beta2)*g*g;
 *                     w -= lr*sqrt(1-beta2^t)/(1-beta1^t) * m / (sqrt(v)+eps);
 *                     t counts the table's pushes
 *   rmsprop           v = beta2*v + (1-beta2)*g*g; w -= lr*g / (sqrt(v)+eps)
 *   ftrl              n' = n + g*g; z += g - (sqrt(n'+eps)-sqrt(n+eps))/lr*w;
 *                     w = |z| > l1 ? (sign(z)*l1 - z) / (sqrt(n'+eps)/lr + l2 + beta/lr) : 0
 *   amsgrad           m and v as adam; u = max(u, v);
 *                     w -= lr/(1-beta1^t) * m / (sqrt(u)/sqrt(1-beta2^t) + eps)
 *   partial_rowwise_adam
 *                     m as adam; v = beta2*v + (1-beta2) * mean over the columns of g*g;
 *                     w -= lr/(1-beta1^t) * m / (sqrt(v)/sqrt(1-beta2^t) + eps)
 *   lamb              m and v as adam; d = m/(1-beta1^t) / (sqrt(v)/sqrt(1-beta2^t) + eps), plus
 *                     weight_decay*w if decay is decoupled; w -= lr * |w|/|d| * d, with norms
 *                     over the row; the ratio is 1 where one of them is 0
 *   counter_adagrad   c = 1 + c * 2^(-k/counter_halflife), k pushes after the row's last one, or
 *                     c = 1 + c where counter_halflife is 0; then rowwise_adagrad, but
 *                     weight_decay is multiplied by counter_halflife / c */
typedef enum embd_optimizer_kind {
    EMBD_OPTIMIZER_SGD,
    EMBD_OPTIMIZER_MOMENTUM,
    EMBD_OPTIMIZER_NESTEROV,
    EMBD_OPTIMIZER_ADAGRAD,
    EMBD_OPTIMIZER_ROWWISE_ADAGRAD,
    EMBD_OPTIMIZER_ADAM,
    EMBD_OPTIMIZER_RMSPROP,
    EMBD_OPTIMIZER_FTRL,
    EMBD_OPTIMIZER_AMSGRAD,
    EMBD_OPTIMIZER_PARTIAL_ROWWISE_ADAM,
    EMBD_OPTIMIZER_LAMB,
    EMBD_OPTIMIZER_COUNTER_ADAGRAD,
} embd_optimizer_kind;

/* Which rows a push steps.
 *
 * GLOBAL steps rows that the push does not name with g = 0: m, a and v decay, and w moves on by
 * them. Each push is a pass over the table. sgd, the adagrads and ftrl leave a row without a
 * gradient as it is, so GLOBAL equals LOCAL for them.
 *
 * LAZY_GLOBAL is HugeCTR's LazyGlobal, for adam. A row's steps wait for its next push, at t, which
 * comes k pushes after its last one, at prev:
 *     w -= lr/(1-beta1) * sqrt(1-beta2^prev)/(1-beta1^prev) * (1-beta1^k) * m / (sqrt(v)+eps)
 *     m = beta1^k*m + (1-beta1)*g; v = beta2^k*v + (1-beta2)*g*g
 * So w is always one step behind: pulls and dumps show rows without the step of their last push.
 * prev is part of the state (two floats behind v). */
typedef enum embd_update {
    EMBD_UPDATE_LOCAL, /* the rows that the push names */
    EMBD_UPDATE_GLOBAL,
    EMBD_UPDATE_LAZY_GLOBAL,
} embd_update;

typedef struct embd_optimizer {
    embd_optimizer_kind kind;
    embd_update update;
    float lr;
    float scaler;              /* gradients are divided by it */
    float momentum;            /* momentum, nesterov */
    float beta1, beta2;        /* the adams, lamb; beta2 also rmsprop */
    float eps;                 /* all but sgd, momentum, nesterov */
    float initial_accumulator; /* adagrad, rowwise_adagrad: first v */
    float beta, l1, l2;        /* ftrl */
} embd_optimizer;

/* How weight_decay acts on the rows that a push names. AdamW is adam with DECOUPLED. */
typedef enum embd_decay {
    EMBD_DECAY_L2,               /* g += weight_decay*w */
    EMBD_DECAY_DECOUPLED,        /* w *= 1 - lr*weight_decay, before the step */
    EMBD_DECAY_DECOUPLED_GLOBAL, /* the same for each push since the row's last one, so that rows
                                    that pushes do not name decay too: they pay at their next push.
                                    The step of the last push is part of the state (two floats). */
} embd_decay;

/* Regularization, with every optimizer, in this order. By default there is none. The order of sums
 * and the bits: SEMANTICS.md. Needs update local. First values are not changed: bounds and max_norm
 * hold for rows that were pushed. */
typedef struct embd_regularization {
    float clip_value;   /* g = each column clipped to [-clip_value, clip_value]; 0: no clipping */
    float clip_norm;    /* g *= clip_norm/|g| where |g|, over the row, is larger; 0: no clipping */
    float weight_decay; /* 0: none */
    embd_decay decay;
    float max_norm; /* after the step w *= max_norm/|w| where |w| is larger; 0: no limit */
    float weight_min, weight_max; /* then each column is clipped to [weight_min, weight_max];
                                     -FLT_MAX, FLT_MAX: no limits */
    /* adagrad, rowwise_adagrad: lr is divided by 1 + (t-1)*lr_decay; t counts the table's pushes */
    float lr_decay;
    float counter_halflife; /* counter_adagrad: pushes; 0 (counts do not decay), or 1 or more */
} embd_regularization;

/* A row's first value: a pure function of (seed, key, slot, column). The slot counts in slot
 * tables only. */
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

/* The policy of a table when a request needs more rows than `capacity`. An evict policy removes
 * rows of keys that the request does not name: as many as are missing or a sixteenth of capacity,
 * whichever is more, all at once. The choice depends only on the pushes that a shard has seen. If
 * that is not enough, EMBD_ON_FULL_ERROR applies. */
typedef enum embd_on_full {
    EMBD_ON_FULL_GROW,      /* capacity is not a bound */
    EMBD_ON_FULL_ERROR,     /* keys beyond it get no row: EMBD_FULL or EMBD_KEY_FULL */
    EMBD_ON_FULL_EVICT_LRU, /* rows whose last push is longest ago; of equal ones the lowest
                               mix64(key), then slot */
    EMBD_ON_FULL_EVICT_LFU, /* rows pushed least often (counted up to 2^24 - 1; see lfu_occurrences
                               and lfu_half_life); of equal ones as EMBD_ON_FULL_EVICT_LRU */
    EMBD_ON_FULL_EVICT_TTL, /* as EMBD_ON_FULL_EVICT_LRU, but only rows that have expired: that the
                               table's last `ttl` pushes did not name, or that no push of the last
                               `ttl_seconds` did */
    EMBD_ON_FULL_EVICT_SCORE, /* rows with the lowest score, which pushes give
                                 (embd_part.scores); of equal ones as EMBD_ON_FULL_EVICT_LRU. New
                                 rows have 0 */
} embd_on_full;

/* Which requests create rows. By default pulls never change a table. */
typedef enum embd_create_on { EMBD_CREATE_ON_PUSH, EMBD_CREATE_ON_PULL } embd_create_on;

/* How long an acknowledged push lasts. */
typedef enum embd_durability {
    EMBD_DURABILITY_SNAPSHOT,   /* until the server ends; snapshots keep tables */
    EMBD_DURABILITY_BUFFERED,   /* journaled, synced shortly after; needs a data directory */
    EMBD_DURABILITY_DURABLE,    /* journaled and synced first; needs a data directory */
    EMBD_DURABILITY_AUTO,       /* DURABLE where the server has a data directory and pulls create no
                                 rows, else SNAPSHOT */
    EMBD_DURABILITY_REPLICATED, /* BUFFERED, and `replicas` followers have applied it */
    EMBD_DURABILITY_REPLICATED_DURABLE, /* DURABLE, and `replicas` followers have it on disk */
} embd_durability;

/* Set by embd_schema_init first. */
typedef struct embd_schema {
    uint32_t struct_bytes; /* sizeof(embd_schema) */
    char name[EMBD_NAME_MAX + 1];
    uint32_t dim;   /* 1..EMBD_DIM_MAX */
    uint32_t slots; /* 1..EMBD_SLOTS_MAX; a batch's row r belongs to slot r % slots */
    /* [slots] or NULL. Given, keys of slot s are 0..slot_sizes[s]-1 and are stored as
     * key + sum(slot_sizes[0..s-1]). The caller's; in answers the client's. */
    const uint64_t *slot_sizes;
    embd_partition partition;
    embd_combiner combiner;
    embd_dtype dtype; /* of stored rows; optimizer state is f32. I8 and E4M3 need update local */
    embd_optimizer optimizer;
    embd_initializer initializer;
    uint64_t seed; /* of the initializer, and of EMBD_ROUNDING_STOCHASTIC */
    /* Rows per shard: room made at once with EMBD_ON_FULL_GROW, else a bound. 0: none, which the
     * evict policies do not allow. */
    uint64_t capacity;
    embd_on_full on_full;
    uint32_t admit_after; /* a key gets a row in the n-th request that would create it; 0: as 1 */
    embd_create_on create_on;
    bool admit_nonfinite; /* let NaN and infinite gradients in */
    embd_durability durability;
    uint64_t ttl; /* EMBD_ON_FULL_EVICT_TTL: pushes of its table that a row outlives without one of
                     its own; 0: ttl_seconds applies. Exactly one of the two is above 0 */
    /* The library's: the fields that embd_table_set has set, a bit each. embd_table_create does not
     * compare them. */
    uint64_t changed;
    /* Of steps' results; STOCHASTIC and MASTER need a dtype other than f32, STOCHASTIC also update
     * local or lazy_global. First values, loaded rows and the wire are rounded to nearest. */
    embd_rounding rounding;
    /* EMBD_ON_FULL_EVICT_LFU: the count of a row is halved at each step of its table that is a
     * multiple of this; 0: never. Compared are counts, each halved for the steps since its last
     * push, before rounding. */
    uint64_t lfu_half_life;
    bool lfu_occurrences; /* EMBD_ON_FULL_EVICT_LFU: a push counts each occurrence of a key, not
                             itself alone */
    embd_regularization regularization; /* set by "optimizer.clip_value" and so on */
    /* EMBD_ON_FULL_EVICT_TTL: seconds of the table's clock that a row outlives without a push; 0:
     * ttl applies. A shard reads its host's clock when a push comes; the table's clock is the
     * latest time that it read. Of rows last pushed in one second the lowest mix64(key) goes
     * first. */
    uint64_t ttl_seconds;
} embd_schema;

/* Sets a schema to the defaults: slots 1, hash, sum, f32, sgd with lr 0.01, uniform [-0.05, 0.05),
 * grow, create on push, durability auto. Optimizer parameters take the values of
 * embd_optimizer_init. No regularization. name and dim are left empty. */
#define embd_schema_init(schema) embd_schema_init_sized((schema), (uint32_t)sizeof(embd_schema))
EMBD_API void embd_schema_init_sized(embd_schema *schema, uint32_t struct_bytes);

/* Sets an optimizer to its kind's defaults: scaler 1, momentum 0.9, beta1 0.9, beta2 0.999 (rmsprop
 * 0.9), eps 1e-7 (ftrl FLT_EPSILON), initial_accumulator 0, beta, l1 and l2 0, update local. */
EMBD_API void embd_optimizer_init(embd_optimizer *optimizer, embd_optimizer_kind kind, float lr);

/* Return names as the wire and configurations have them ("rowwise_adagrad"); NULL for a number out
 * of range. */
EMBD_API const char *embd_partition_name(embd_partition);
EMBD_API const char *embd_combiner_name(embd_combiner);
EMBD_API const char *embd_dtype_name(embd_dtype);
EMBD_API const char *embd_rounding_name(embd_rounding);
EMBD_API const char *embd_optimizer_name(embd_optimizer_kind);
EMBD_API const char *embd_update_name(embd_update);
EMBD_API const char *embd_decay_name(embd_decay);
EMBD_API const char *embd_initializer_name(embd_initializer_kind);
EMBD_API const char *embd_on_full_name(embd_on_full);
EMBD_API const char *embd_create_on_name(embd_create_on);
EMBD_API const char *embd_durability_name(embd_durability);

/* Sets one field from text, as `embctl table create` does: field "optimizer" value "adam",
 * "optimizer.lr" "0.01", "slot_sizes" "10,20,30". slot_sizes are kept in `storage`
 * [EMBD_SLOTS_MAX], which must outlive the schema (NULL refuses the field). Setting "optimizer" or
 * "initializer" resets its parameters, but lr, to the kind's defaults, and "optimizer" also
 * regularization; slot_sizes set slots too.
 *   EMBD_INVALID   unknown field or value, or struct_bytes */
EMBD_API int embd_schema_set(embd_schema *schema, const char *field, const char *value,
                             uint64_t *storage);

/* Checks a definition without a server.
 *   EMBD_INVALID, EMBD_UNSUPPORTED   names the field, its value and the limit */
EMBD_API int embd_schema_check(const embd_schema *schema);

#ifdef __cplusplus
}
#endif
#endif
