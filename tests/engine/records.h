/* records.h - operations as a journal has them, in memory, and engines that are made of them
 * alone. */
#ifndef EMBD_TESTS_ENGINE_RECORDS_H
#define EMBD_TESTS_ENGINE_RECORDS_H

#include "server/journal/commit.h"

/* A sealed record, and the status that its operation ended with. */
struct written {
    uint8_t *bytes; /* [n_bytes] */
    uint64_t n_bytes;
    int status;
};

struct records {
    struct record_key key;
    struct msg msg;
    struct frame_scanner frame;
    struct written **list; /* [n] */
    uint32_t n, capacity;
    uint64_t position, chain;
};

void records_open(struct records *records);
void records_close(struct records *records);
/* The admitted operation as the list's last record; it does not move. */
struct written *records_write(struct records *records, const struct op *op);
void records_drop_last(struct records *records);

/* An engine on the host store. */
struct copy {
    struct engine engine;
    struct operation_reader reader;
};

void copy_open(struct copy *copy);
void copy_close(struct copy *copy);
/* Fails the test where the operation does not end as it did. */
void copy_replay(struct copy *copy, const struct records *records, const struct written *record);

#endif
