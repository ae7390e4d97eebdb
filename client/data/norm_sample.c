/* norm_sample.c - the bytes of a norm file: header, samples, sums.
 *
 * A sample is labels, dense values, and for each slot a count and its keys. Only the counts say
 * where a sample ends, so a count that cannot be is the end of a file without checksums; with them
 * the frame around the sample says where the next one begins. */
#include <inttypes.h>
#include <string.h>

#include "client/data/sample.h"
#include "embd/data.h"

uint8_t embd__norm_sum(const uint8_t *p, size_t n)
{
    uint8_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum = (uint8_t)(sum + p[i]);
    return sum;
}

/* ---- header ---------------------------------------------------------------------------------- */

static int check_field(const char *name, int64_t found, uint64_t expected, struct embd__error *e)
{
    if (found >= 0 && (uint64_t)found == expected)
        return EMBD_OK;
    return embd__error_set(e, EMBD_CORRUPT, "%s is %" PRId64 " in the header; expected %" PRIu64,
                           name, found, expected);
}

int embd__norm_decode_header(const uint8_t *p, const embd_data_shape *shape,
                             uint64_t *n_samples_out, struct embd__error *e)
{
    int64_t fields[NORM_HEADER_BYTES / sizeof(int64_t)];
    memcpy(fields, p, sizeof fields);
    int status = check_field("error_check", fields[0], shape->checksum, e);
    if (status == EMBD_OK)
        status = check_field("label_dim", fields[2], shape->label_dim, e);
    if (status == EMBD_OK)
        status = check_field("dense_dim", fields[3], shape->dense_dim, e);
    if (status == EMBD_OK)
        status = check_field("slot_num", fields[4], shape->slots, e);
    if (status == EMBD_OK && fields[1] < 0)
        status = embd__error_set(e, EMBD_CORRUPT, "number_of_records is %" PRId64 " in the header",
                                 fields[1]);
    if (status == EMBD_OK)
        *n_samples_out = (uint64_t)fields[1];
    return status;
}

/* ---- samples --------------------------------------------------------------------------------- */

/* Copies keys as 64-bit ones; true: one of them is not below `size`. */
static bool take_u32(uint64_t *to, const uint8_t *p, size_t n, uint64_t size)
{
    bool beyond = false;
    for (size_t i = 0; i < n; i++) {
        uint32_t key;
        memcpy(&key, p + i * sizeof key, sizeof key);
        to[i] = key;
        beyond |= key >= size;
    }
    return beyond;
}

static bool take_i64(uint64_t *to, const uint8_t *p, size_t n, uint64_t size)
{
    bool beyond = false;
    memcpy(to, p, n * sizeof *to);
    for (size_t i = 0; i < n; i++)
        beyond |= to[i] >= size;
    return beyond;
}

static void say_beyond(struct embd__error *why, uint32_t slot, const uint64_t *keys, size_t n,
                       uint64_t size)
{
    for (size_t i = 0; i < n; i++)
        if (keys[i] >= size)
            embd__error_set(why, EMBD_CORRUPT,
                            "slot %" PRIu32 " has key %" PRIu64 "; its size is %" PRIu64, slot,
                            keys[i], size);
}

/* The keys of one slot, which are all there. BAD: one is out of range; they are added all the same.
 */
static enum verdict take_keys(const struct data_plan *plan, struct embd_csr *csr, uint32_t slot,
                              const uint8_t *p, size_t n, struct embd__error *why)
{
    if (n > csr->keys_room - csr->n_keys) {
        csr->error.status = EMBD_OK;
        if (embd__csr_make_room(csr, n) != EMBD_OK) {
            embd__error_set(why, csr->error.status, "%s", csr->error.text);
            return SAMPLE_REFUSED;
        }
    }
    const uint64_t *sizes = plan->options.slot_sizes;
    uint64_t *keys = csr->keys + csr->n_keys, size = sizes != NULL ? sizes[slot] : UINT64_MAX;
    bool beyond = plan->shape.i64_keys ? take_i64(keys, p, n, size) : take_u32(keys, p, n, size);
    csr->n_keys += n;
    csr->offsets[++csr->n_rows] = csr->n_keys;
    if (!beyond || sizes == NULL)
        return SAMPLE_GOOD;
    say_beyond(why, slot, keys, n, size);
    return SAMPLE_BAD;
}

/* BAD: not as many keys as the slot's input allows. */
static enum verdict check_length(const struct data_plan *plan, uint32_t slot, int32_t count,
                                 struct embd__error *why)
{
    if (plan->slot_keys == NULL)
        return SAMPLE_GOOD;
    const struct slot_keys *keys = &plan->slot_keys[slot];
    if ((uint32_t)count >= keys->least && (uint32_t)count <= keys->most)
        return SAMPLE_GOOD;
    embd__error_set(why, EMBD_CORRUPT,
                    "slot %" PRIu32 " has %" PRId32 " keys; its input has %s%" PRIu32, slot, count,
                    keys->least > 0 ? "" : "at most ", keys->most);
    return SAMPLE_BAD;
}

static enum verdict refuse_count(uint32_t slot, int32_t count, uint64_t limit,
                                 struct embd__error *why)
{
    embd__error_set(why, EMBD_CORRUPT,
                    "slot %" PRIu32 " announces %" PRId32 " keys; at most %" PRIu64
                    " of sample_keys remain",
                    slot, count, limit);
    return SAMPLE_BROKEN;
}

/* All slots. A key out of range does not end the walk, which must find the sample's end. */
static enum verdict decode_slots(const struct data_plan *plan, const uint8_t *p, size_t n,
                                 struct embd_csr *csr, size_t *used_out, struct embd__error *why)
{
    enum verdict verdict = SAMPLE_GOOD;
    uint64_t keys_left = plan->options.sample_keys;
    size_t at = 0;
    for (uint32_t slot = 0; slot < plan->shape.slots; slot++) {
        int32_t count;
        if (n - at < sizeof count)
            return SAMPLE_SHORT;
        memcpy(&count, p + at, sizeof count);
        at += sizeof count;
        if (count < 0 || (uint64_t)count > keys_left)
            return refuse_count(slot, count, keys_left, why);
        size_t bytes = (size_t)count * plan->key_bytes;
        if (n - at < bytes)
            return SAMPLE_SHORT;
        enum verdict of_keys = take_keys(plan, csr, slot, p + at, (size_t)count, why);
        if (of_keys == SAMPLE_REFUSED)
            return of_keys;
        if (of_keys == SAMPLE_BAD || check_length(plan, slot, count, why) == SAMPLE_BAD)
            verdict = SAMPLE_BAD;
        keys_left -= (uint64_t)count;
        at += bytes;
    }
    *used_out = at;
    return verdict;
}

enum verdict embd__norm_decode(const struct data_plan *plan, const uint8_t *p, size_t n,
                               struct chunk *c, size_t *used_out, struct embd__error *why)
{
    size_t label_dim = plan->shape.label_dim, dense_dim = plan->shape.dense_dim;
    if (n < plan->fixed_bytes)
        return SAMPLE_SHORT;
    embd_csr_check_point(&c->csr);
    enum verdict verdict =
        decode_slots(plan, p + plan->fixed_bytes, n - plan->fixed_bytes, &c->csr, used_out, why);
    *used_out += plan->fixed_bytes;
    if (verdict != SAMPLE_GOOD) {
        embd_csr_roll_back(&c->csr);
        if (verdict == SAMPLE_SHORT) /* what was found so far will be found again */
            why->status = EMBD_OK;
        return verdict;
    }
    memcpy(c->labels + c->n_samples * label_dim, p, label_dim * sizeof(float));
    memcpy(c->dense + c->n_samples * dense_dim, p + label_dim * sizeof(float),
           dense_dim * sizeof(float));
    c->n_samples++;
    return SAMPLE_GOOD;
}
