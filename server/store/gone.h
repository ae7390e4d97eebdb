/* gone.h - keys that were erased or evicted, for cuts that are only of what changed. Where there is
 * no memory for one, or they are too many to be worth it, the list says that it cannot tell. Owner:
 * the shard's thread. */
#ifndef EMBD_STORE_GONE_H
#define EMBD_STORE_GONE_H

#include <stdbool.h>
#include <stdint.h>

struct gone_key {
    uint64_t key;
    uint32_t slot;
};

/* Zeroed: none. */
struct gone {
    struct gone_key *keys; /* [n] */
    uint64_t n, capacity;
    bool is_unsure; /* keys may be missing */
};

/* `n_rows`: that the table has. */
void gone_add(struct gone *gone, uint64_t key, uint32_t slot, uint64_t n_rows);
void gone_fini(struct gone *gone);
uint64_t gone_bytes(const struct gone *gone);

#endif
