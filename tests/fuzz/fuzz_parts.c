/* fuzz_parts.c - any bytes as a pull, push or erase; of what is believed, every promise is checked.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/received.h"
#include "embd/sync.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static struct part parts[LIMIT_PARTS];
static volatile uint64_t touched; /* keeps the reads from being optimized away */

static void must(bool condition)
{
    if (!condition)
        abort();
}

static void check(const struct part *p)
{
    uint64_t sum = 0; /* touches every byte */
    must(p->table != 0 && p->n_keys <= LIMIT_KEYS && p->n_rows <= LIMIT_ROWS);
    for (uint32_t k = 0; k < p->n_keys; k++) {
        sum += p->keys[k];
        must(p->weights == NULL || isfinite(p->weights[k]));
        must(p->scores == NULL || isfinite(p->scores[k]) || p->scores[k] < 0.0f);
    }
    must(p->offsets != NULL || p->n_rows == p->n_keys);
    must(p->offsets == NULL || (p->offsets[0] == 0 && p->offsets[p->n_rows] == p->n_keys));
    for (uint32_t r = 0; r < p->n_rows; r++) {
        must(p->offsets == NULL || p->offsets[r] <= p->offsets[r + 1]);
        sum += p->slots != NULL ? p->slots[r] : 0;
    }
    for (uint64_t i = 0; i < p->grads_bytes; i++)
        sum += ((const uint8_t *)p->grads)[i];
    touched = sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    for (int kind = PARTS_PULL; kind <= PARTS_ERASE; kind++) {
        struct received r;
        struct reader reader;
        received_init(&r, LIMIT_HEADER_BYTES, LIMIT_FRAME_BYTES);
        if (received_feed(&r, data, n, 0) == FRAME_DONE && received_read(&r, &reader) == EMBD_OK) {
            struct push_extra extra = {0};
            int n_parts = kind == PARTS_PUSH ? embd__push_read(&reader, parts, LIMIT_PARTS, &extra)
                                             : embd__parts_read(&reader, parts, LIMIT_PARTS,
                                                                (enum parts_kind)kind);
            const struct push_round round = extra.round;
            if (kind == PARTS_PUSH && n_parts >= 0 && round.n_workers > 0)
                must(extra.number.sequence == 0 && round.worker < round.n_workers &&
                     round.n_workers <= EMBD_WORKERS_MAX &&
                     memchr(round.job, '\0', sizeof round.job) != NULL);
            must((n_parts < 0) == (r.error.status != EMBD_OK));
            for (int i = 0; i < n_parts; i++)
                check(&parts[i]);
        }
        received_fini(&r);
    }
    return 0;
}
