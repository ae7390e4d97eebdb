/* arrays.h - tables read from plain arrays in files: keys in one file, their rows in another, and
 * perhaps optimizer state and scores in more.
 *
 * So other systems keep tables: SOK, TensorFlow Recommenders Addons, HierarchicalKV and DynamicEmb
 * (client/hugectr/README.md says which files each has). Arrays are little-endian, one row after the
 * other, and belong together by their number alone. A table may have several files of each kind,
 * one a GPU or process of the job that wrote them. */
#ifndef EMBD_ARRAYS_H
#define EMBD_ARRAYS_H

#include "embd/admin.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBD_ARRAYS_FILES_MAX  65536
#define EMBD_ARRAYS_STATES_MAX 4

typedef enum embd_arrays_key {
    EMBD_ARRAYS_64,  /* 8 bytes; negative keys are their unsigned values */
    EMBD_ARRAYS_I32, /* 4 bytes, extended by their sign to 64 bits */
    EMBD_ARRAYS_U32, /* 4 bytes, extended by zeros */
} embd_arrays_key;

/* The meaning of a score for its row, and how it becomes the row's use in a table that evicts. */
typedef enum embd_arrays_score {
    EMBD_ARRAYS_STEP,  /* score_now - score steps have passed since the row's last one: evict_lru,
                          evict_lfu, and evict_ttl with ttl */
    EMBD_ARRAYS_COUNT, /* how often it was touched: evict_lfu; the last step counts as its last */
} embd_arrays_score;

/* A part of the rows' optimizer state. */
typedef struct embd_arrays_state {
    uint32_t struct_bytes;     /* sizeof(embd_arrays_state); the same in all states of a call */
    uint32_t width;            /* floats of a row */
    embd_dtype dtype;          /* in the files: f32, f16 or bf16 */
    const char *const *values; /* [n_files] paths: [rows][width] */
    const char *const *keys;   /* [n_files] paths: the keys of its rows, in any order, or NULL: its
                                  rows are the table's. A row that has no state begins with that of
                                  a new one */
} embd_arrays_state;

/* An initializer, also within one of an array: EMBD_ARRAYS_STATE(.width = 16). */
#define EMBD_ARRAYS_STATE(...)                                                                     \
    {                                                                                              \
        .struct_bytes = sizeof(embd_arrays_state), __VA_ARGS__                                     \
    }

/* An initializer: embd_arrays arrays = EMBD_ARRAYS(.n_files = 1). All paths are the caller's. */
typedef struct embd_arrays {
    uint32_t struct_bytes;     /* sizeof(embd_arrays) */
    uint32_t n_files;          /* 1..EMBD_ARRAYS_FILES_MAX, of each kind */
    const char *const *keys;   /* [n_files] */
    const char *const *values; /* [n_files]: [rows][dim] */
    const char *const *scores; /* [n_files]: a u64 a row; NULL: none */
    embd_arrays_key key;
    embd_dtype dtype;    /* of values in the files, f32, f16 or bf16; the table may have another */
    uint32_t head_bytes; /* at the beginning of each file, which are not read */
    uint32_t n_states;   /* 0..EMBD_ARRAYS_STATES_MAX; 0: rows begin with the state of new ones */
    const embd_arrays_state *states; /* [n_states]: together the state of the optimizer, in order */
    embd_arrays_score score;
    uint64_t score_now; /* EMBD_ARRAYS_STEP: the score of a row that is touched now */
    uint64_t step;      /* pushes the table has seen, which adam's t counts. At most 2^47 */
    bool check_only;    /* checks files and tables, and changes nothing */
    bool check_values;  /* with check_only: reads values, states and scores too, not keys alone */
    bool is_checked;    /* a call with check_only has read the keys: they are not read twice */
} embd_arrays;

#define EMBD_ARRAYS(...)                                                                           \
    {                                                                                              \
        .struct_bytes = sizeof(embd_arrays), __VA_ARGS__                                           \
    }

/* Creates the table of `schema` and fills it from arrays, on any number of shards. A table that
 * exists must be empty and of the same definition. Values are rounded to the table's dtype. Sizes
 * and keys are checked before anything changes; after a later failure the table is dropped again if
 * this call created it. Needs up to 48 bytes of memory a key, and as much for each state that has
 * keys of its own. `report_out` (its pause_us is 0) and `progress` may be NULL. Blocks.
 *   EMBD_EXISTS        the table has rows or another definition
 *   EMBD_CORRUPT       a file is missing, is not a regular file, or has another size than its keys
 *                      and width need; a key is there twice; a state has a key without a row; a
 *                      score is beyond score_now. Names the files and numbers
 *   EMBD_INVALID       a member of `arrays`; states of another width than the optimizer's; a table
 *                      with partition slot
 *   EMBD_NOT_FINITE    a value or state, where the table does not admit that
 *   EMBD_FULL          more rows than a shard's capacity
 *   EMBD_NO_MEMORY     others as embd_table_create and embd_load */
EMBD_API int embd_arrays_import(embd_client *client, const embd_schema *schema,
                                const embd_arrays *arrays, embd_progress *progress, void *arg,
                                embd_dump_report *report_out);

#ifdef __cplusplus
}
#endif
#endif
