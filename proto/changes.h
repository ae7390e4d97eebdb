/* changes.h - the method `changes`: a subscriber asks what changed in a table since its last round,
 * part by part. Each part carries number and checksum of the one before, so that a part that was
 * lost, doubled or swapped is seen. */
#ifndef EMBD_PROTO_CHANGES_H
#define EMBD_PROTO_CHANGES_H

#include "proto/message.h"

#define CHANGES_BYTES   (1u << 20) /* of stored rows in a part, about, and up to 4 times that */
#define CHANGES_ROWS    65536u     /* rows and keys that went in a part, at most */
#define CHANGES_WHY_MAX 159u

struct changes_ask {
    char table[EMBD_NAME_MAX + 1];
    embd_dtype dtype;     /* of the rows that come */
    bool from_now;        /* of the first question: the first round has no rows */
    bool ends;            /* the subscription is over: the answer has nothing */
    uint64_t id;          /* of the subscription; 0: a new one */
    uint64_t part, chain; /* of the last part that the subscriber has */
};

struct changes_answer {
    uint64_t id;
    char gone[CHANGES_WHY_MAX + 1]; /* the subscription is over: why. Begin anew; "": it is not */
    bool waits;                     /* there is no part now: ask again soon */
    uint64_t part;                  /* the first one is 1 */
    uint64_t before, chain;         /* checksums of the part before (the first: 0), and of this */
    uint64_t round;                 /* the first one is 1 */
    bool is_first; /* part of its round; what came of this round before does not count */
    bool is_last;
    bool has_all;  /* the round has all rows: others are gone */
    uint64_t step; /* of the table on this shard, which the receiver equals after the last part */
    embd_dtype dtype;
    uint32_t dim, n_rows, n_gone;
    bool has_slots;
    const uint64_t *keys;  /* [n_rows] */
    const uint16_t *slots; /* [n_rows], with has_slots */
    const void *rows;      /* [n_rows] of dtype and dim */
    const uint64_t *gone_keys;
    const uint16_t *gone_slots;
};

void embd__changes_ask_write(struct msg *m, const struct changes_ask *ask);
int embd__changes_ask_read(struct reader *r, struct changes_ask *out);
/* The arrays have to stay as those of bins. */
void embd__changes_answer_write(struct msg *m, const struct changes_answer *answer);
int embd__changes_answer_read(struct reader *r, struct changes_answer *out);
/* The checksum of a part, upon that of the one before. */
uint64_t embd__changes_chain(const struct changes_answer *answer);

#endif
