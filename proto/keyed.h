/* keyed.h - rows by key: the fields of get and put, and the answer of get. The keys and, in slot
 * tables, slots of one table follow the fields; then, of a put, the rows and, where it brings them,
 * their states. A journal has a put as it was requested. */
#ifndef EMBD_PROTO_KEYED_H
#define EMBD_PROTO_KEYED_H

#include "proto/message.h"

struct keyed_fields {
    char table[EMBD_NAME_MAX + 1];
    uint32_t n_keys;
    bool has_states; /* of a get: it asks for them */
};

void embd__keyed_fields_write(struct msg *m, const struct keyed_fields *fields);
/* EMBD_INVALID, EMBD_MALFORMED: naming the field. `what`: "get" or "put". */
int embd__keyed_fields_read(struct reader *r, const char *what, struct keyed_fields *out);

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

/* Answer to a put: {"inserted"}. */
void embd__put_answer_write(struct msg *m, uint64_t n_inserted);
int embd__put_answer_read(struct reader *r, uint64_t *n_inserted_out);

#endif
