/* request.h - a push, pull or erase of one table or two: drawn, done to the models of each shard,
 * and what the cluster answers compared with theirs. */
#ifndef EMBD_TESTS_REQUEST_H
#define EMBD_TESTS_REQUEST_H

#include "tests/history/world.h"

#define KEYS_MAX      400u /* of a batch */
#define SLOTS_TOP     10u
#define DIM_TOP       5u
#define REQUEST_PARTS 2u

/* One sample: row s has the keys of slot s. */
struct keys {
    bool asks_statuses;
    uint32_t n;
    uint64_t offsets[SLOTS_TOP + 1], keys[KEYS_MAX];
    uint16_t slots[KEYS_MAX]; /* the model's: 0 but in slot tables */
    float values[KEYS_MAX * DIM_TOP], wanted[KEYS_MAX * DIM_TOP];
    uint8_t statuses[KEYS_MAX], wanted_statuses[KEYS_MAX];
    float lr;        /* of a push; 0: the table's */
    bool has_scores; /* a push does, to a table with evict_score */
    float scores[KEYS_MAX];
};

struct request {
    uint32_t n, tables[REQUEST_PARTS]; /* of one kind; different ones but in pulls */
    struct keys keys[REQUEST_PARTS];
};

/* n keys of one slot, or of all. */
void request_draw_keys(struct world *w, const embd_schema *schema, uint32_t n, bool is_one_slot,
                       struct keys *k);
/* Few keys of the table, and now and then of another one. */
void request_draw(struct world *w, uint32_t table, struct request *request);
/* The same, and the other one may be the table itself. */
void request_draw_pull(struct world *w, uint32_t table, struct request *request);
/* The same tables without keys. */
void request_empty(struct request *request);
void request_tell(struct world *w, const char *deed, const struct request *request);
void request_parts(struct world *w, struct request *request, embd_part *parts);

/* The shards that refuse it for want of room, as bits; the others of `shards` apply it. */
uint32_t request_push(struct world *w, struct request *request, uint32_t shards);
/* The same of one that makes rows, where its table says so. Values are those wanted where it is 0.
 */
uint32_t request_pull(struct world *w, struct request *request, bool is_zero);
void request_erase(struct world *w, struct request *request);

/* Fails unless a change that these shards refused was answered so. */
void request_expect(struct world *w, const char *call, int status, uint32_t refused);
/* Of the parts that ask for statuses. */
void request_compare_statuses(struct world *w, const char *deed, const struct request *request);

#endif
