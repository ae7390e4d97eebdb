#include "server/store/gone.h"

#include <stdlib.h>

/* Keys beyond which it is not worth going on: more than these, and more than a quarter of the rows.
 */
#define GONE_MIN ((uint64_t)1 << 20)

static bool make_room(struct gone *gone, uint64_t n_rows)
{
    uint64_t capacity = gone->capacity ? 2 * gone->capacity : 1024;
    if (gone->n >= GONE_MIN && gone->n >= n_rows / 4)
        return false;
    struct gone_key *grown = realloc(gone->keys, capacity * sizeof *grown);
    if (grown == NULL)
        return false;
    gone->keys = grown;
    gone->capacity = capacity;
    return true;
}

void gone_add(struct gone *gone, uint64_t key, uint32_t slot, uint64_t n_rows)
{
    if (!gone->is_unsure && gone->n == gone->capacity)
        gone->is_unsure = !make_room(gone, n_rows);
    if (!gone->is_unsure)
        gone->keys[gone->n++] = (struct gone_key){key, slot};
}

void gone_fini(struct gone *gone)
{
    free(gone->keys);
    *gone = (struct gone){0};
}

uint64_t gone_bytes(const struct gone *gone)
{
    return gone->capacity * sizeof *gone->keys;
}
