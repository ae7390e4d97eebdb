/* keyed.h - rows by key: the fields of get and put, and the answer of get. The keys and, in slot
 * tables, slots of one table follow the fields; then, of a put, the rows and, where it brings them,
 * their states. A journal has a put as it was requested. */
#ifndef EMBD_PROTO_KEYED_H
#define EMBD_PROTO_KEYED_H

#include "proto/message.h"

struct keyed_fields {
    char table[EMBD_NAME_MAX + 1];
    uint32_t n_keys;
    bool has_states;           /* of a get: it asks for them */
    struct push_number number; /* of a put; sequence 0: it has none */
    uint64_t step;             /* of a put: the table's from then on; 0: as it is */
    uint64_t seconds;          /* of a put's record: UNIX time; 0: none */
    bool is_foreign;           /* of a put's record: see push_extra */
    uint64_t placement;        /* written only: see push_extra */
};

void embd__keyed_fields_write(struct msg *m, const struct keyed_fields *fields);
/* EMBD_INVALID, EMBD_MALFORMED: naming the field. */
int embd__get_fields_read(struct reader *r, struct keyed_fields *out);
int embd__put_fields_read(struct reader *r, struct keyed_fields *out);

/* The same of a put's record, which may have seconds. */
int embd__put_record_read(struct reader *r, struct keyed_fields *out);

/* Bins of a get, or of a put; block->states NULL: it brings none. */
void embd__get_bins_write(struct msg *m, const embd_schema *schema, const struct row_block *block);
void embd__put_bins_write(struct msg *m, const embd_schema *schema, const struct row_block *block);
/* Sets n_rows, keys, slots; of a put rows and states too. */
int embd__get_bins_read(struct reader *r, const embd_schema *schema, uint32_t n,
                        struct row_block *out);
int embd__put_bins_read(struct reader *r, const embd_schema *schema, uint32_t n, bool has_states,
                        struct row_block *out);

/* Answer to a get: {"keys", "dim", "dtype", "states"}: the last is the number of floats of a row's
 * state, 0 where they were not asked for; then statuses, rows, states. */
struct get_answer {
    uint32_t n_keys, dim, n_states;
    embd_dtype dtype;
    const uint8_t *statuses;
    const void *rows;
    const float *states; /* NULL: n_states is 0 */
};
uint64_t embd__get_answer_bytes(const struct get_answer *answer);
void embd__get_answer_write(struct msg *m, const struct get_answer *answer);
int embd__get_answer_read(struct reader *r, struct get_answer *out);

/* ---- which keys a table has ---- */

#define LIST_KEYS_MAX 131072u /* of an answer */
#define LIST_KEYS     65536u  /* if the request does not say */

/* Request and answer of keys. `cursor`: 0 to begin, then what the answer before it gave; `scan`
 * says which table the cursor belongs to, and is not read with the cursor 0. */
struct list_fields {
    char table[EMBD_NAME_MAX + 1];
    uint64_t cursor, scan;
    uint32_t n_most;
};
void embd__list_fields_write(struct msg *m, const struct list_fields *fields);
int embd__list_fields_read(struct reader *r, struct list_fields *out);

struct list_answer {
    uint32_t n_keys;
    uint64_t next, scan;
    bool is_done;
    const uint64_t *keys;
    const uint16_t *slots; /* NULL: the table has none */
};
void embd__list_answer_write(struct msg *m, const struct list_answer *answer);
/* `has_slots`: a bin of them follows. */
int embd__list_answer_read(struct reader *r, bool has_slots, struct list_answer *out);

/* Answer to a put: {"inserted", "again"}; the second only where it was applied before: then the
 * first is 0. */
void embd__put_answer_write(struct msg *m, uint64_t n_inserted, bool is_again);
int embd__put_answer_read(struct reader *r, uint64_t *n_inserted_out);

#endif
