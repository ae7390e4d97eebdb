/* csr.c - builds a CSR batch row by row, key by key.
 *
 * The happy path: a row is begun, keys are pushed into it, and embd_csr_part lends the arrays to a
 * pull or push. Keys always go to the end, so a check point is two numbers, and rolling back sets
 * them again. What can fail: a bound is exceeded. The builder is then as it was before the call,
 * and the sentence names the bound. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/data/csr.h"
#include "embd/data.h"

#define LIMIT_BOUND INT32_MAX /* of rows, and of keys: that of a part */

static int fail(struct embd_csr *csr, int status, const char *what, uint64_t bound)
{
    csr->error.status = EMBD_OK;
    return embd__error_set(&csr->error, status, "%s %" PRIu64, what, bound);
}

int embd__csr_init(struct embd_csr *csr, uint64_t max_rows, uint64_t max_keys, uint64_t keys_room)
{
    *csr = (struct embd_csr){.max_rows = max_rows, .max_keys = max_keys, .keys_room = keys_room};
    if (max_rows > LIMIT_BOUND || max_keys > LIMIT_BOUND)
        return EMBD_TOO_LARGE;
    csr->offsets = malloc((max_rows + 1) * sizeof *csr->offsets);
    csr->keys = malloc((keys_room + !keys_room) * sizeof *csr->keys);
    if (csr->offsets == NULL || csr->keys == NULL)
        return EMBD_NO_MEMORY;
    csr->offsets[0] = 0;
    return EMBD_OK;
}

void embd__csr_fini(struct embd_csr *csr)
{
    free(csr->offsets);
    free(csr->keys);
    free(csr->weights);
    *csr = (struct embd_csr){0};
}

/* Why a builder could not be made. */
static int refuse(int status, uint64_t max_rows, uint64_t max_keys)
{
    struct embd__error e = {0};
    embd__error_set(&e, status,
                    "%s a batch of %" PRIu64 " rows and %" PRIu64 " keys; the limit is %d of each",
                    status == EMBD_NO_MEMORY ? "no memory for" : "cannot make", max_rows, max_keys,
                    LIMIT_BOUND);
    return embd__error_keep(&e, status);
}

int embd_csr_new(uint64_t max_rows, uint64_t max_keys, embd_csr **csr_out)
{
    *csr_out = NULL;
    struct embd_csr *csr = malloc(sizeof *csr);
    if (csr == NULL)
        return refuse(EMBD_NO_MEMORY, max_rows, max_keys);
    int status = embd__csr_init(csr, max_rows, max_keys, max_keys);
    if (status == EMBD_OK) {
        csr->weights = malloc((max_keys + !max_keys) * sizeof *csr->weights);
        status = csr->weights == NULL ? EMBD_NO_MEMORY : EMBD_OK;
    }
    if (status != EMBD_OK) {
        embd_csr_free(csr);
        return refuse(status, max_rows, max_keys);
    }
    *csr_out = csr;
    return EMBD_OK;
}

void embd_csr_free(embd_csr *csr)
{
    if (csr == NULL)
        return;
    embd__csr_fini(csr);
    free(csr);
}

int embd__csr_make_room(struct embd_csr *csr, uint64_t n)
{
    if (n <= csr->keys_room - csr->n_keys)
        return EMBD_OK;
    if (n > csr->max_keys - csr->n_keys)
        return fail(csr, EMBD_TOO_LARGE, "more keys than the bound of", csr->max_keys);
    uint64_t wanted = csr->n_keys + n, twice = 2 * csr->keys_room;
    uint64_t room = twice > wanted ? twice : wanted;
    room = room > csr->max_keys ? csr->max_keys : room;
    uint64_t *keys = realloc(csr->keys, room * sizeof *keys);
    if (keys == NULL)
        return fail(csr, EMBD_NO_MEMORY, "no memory for so many keys:", room);
    csr->keys = keys;
    csr->keys_room = room;
    return EMBD_OK;
}

/* ---- building -------------------------------------------------------------------------------- */

int embd_csr_row(embd_csr *csr)
{
    if (csr->n_rows == csr->max_rows)
        return embd__error_keep(
            &csr->error,
            fail(csr, EMBD_TOO_LARGE, "one more row than the bound max_rows =", csr->max_rows));
    csr->offsets[++csr->n_rows] = csr->n_keys;
    return EMBD_OK;
}

static int append(struct embd_csr *csr, uint64_t key, float weight)
{
    if (csr->n_rows == 0)
        return fail(csr, EMBD_INVALID, "no row was begun for key", key);
    if (csr->n_keys == csr->max_keys)
        return fail(csr, EMBD_TOO_LARGE, "one more key than the bound max_keys =", csr->max_keys);
    if (csr->has_weights)
        csr->weights[csr->n_keys] = weight;
    csr->keys[csr->n_keys++] = key;
    csr->offsets[csr->n_rows] = csr->n_keys;
    return EMBD_OK;
}

int embd_csr_push(embd_csr *csr, uint64_t key)
{
    return embd__error_keep(&csr->error, append(csr, key, 1));
}

int embd_csr_push_weighted(embd_csr *csr, uint64_t key, float weight)
{
    bool had_weights = csr->has_weights;
    if (!isfinite(weight))
        return embd__error_keep(&csr->error,
                                fail(csr, EMBD_INVALID, "the weight is not finite: key", key));
    csr->has_weights = true;
    int status = append(csr, key, weight);
    if (status != EMBD_OK)
        csr->has_weights = had_weights;
    for (uint64_t i = 0; status == EMBD_OK && !had_weights && i + 1 < csr->n_keys; i++)
        csr->weights[i] = 1;
    return embd__error_keep(&csr->error, status);
}

void embd_csr_check_point(embd_csr *csr)
{
    csr->mark_rows = csr->n_rows;
    csr->mark_keys = csr->n_keys;
    csr->mark_has_weights = csr->has_weights;
}

/* The last row of the check point may have got keys since: its end is set again too. */
void embd_csr_roll_back(embd_csr *csr)
{
    csr->n_rows = csr->mark_rows;
    csr->n_keys = csr->mark_keys;
    csr->has_weights = csr->mark_has_weights;
    csr->offsets[csr->n_rows] = csr->n_keys;
}

void embd_csr_reset(embd_csr *csr)
{
    csr->mark_rows = csr->mark_keys = 0;
    csr->mark_has_weights = false;
    embd_csr_roll_back(csr);
}

/* ---- handing over ---------------------------------------------------------------------------- */

void embd_csr_part(const embd_csr *csr, embd_part *part)
{
    part->n_rows = csr->n_rows;
    part->offsets = csr->offsets;
    part->n_keys = csr->n_keys;
    part->keys = csr->keys;
    part->weights = csr->has_weights ? csr->weights : NULL;
}
