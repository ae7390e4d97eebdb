#include "tests/store/image.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static size_t compared_bytes;

static int compare_records(const void *a, const void *b)
{
    return memcmp(a, b, compared_bytes);
}

static uint8_t *add_record(struct image *image, uint64_t key, uint32_t slot)
{
    if (image->n == image->capacity) {
        image->capacity = image->capacity ? 2 * image->capacity : 1024;
        image->records = realloc(image->records, image->capacity * image->record_bytes);
        assert_non_null(image->records);
    }
    uint8_t *record = image->records + image->n++ * image->record_bytes;
    memset(record, 0, image->record_bytes);
    memcpy(record, &key, 8);
    memcpy(record + 8, &slot, 4);
    return record + 12;
}

void image_add(struct image *image, const struct pair *pair, const struct store_scan *out)
{
    const embd_schema *s = &pair->schema.s;
    size_t value_bytes = embd__value_bytes(s->dtype, s->dim),
           state_bytes = pair->model->state_floats * sizeof(float);
    for (uint32_t i = 0; i < out->n_rows; i++) {
        uint8_t *to = add_record(image, out->keys[i], out->slots ? out->slots[i] : 0);
        memcpy(to + 4, (const uint8_t *)out->rows + i * value_bytes, value_bytes);
        if (state_bytes > 0)
            memcpy(to + 4 + value_bytes, (const uint8_t *)out->states + i * state_bytes,
                   state_bytes);
    }
    for (uint32_t i = 0; i < out->n_candidates; i++) {
        uint32_t slot = out->candidate_slots ? out->candidate_slots[i] : 0;
        memcpy(add_record(image, out->candidate_keys[i], slot), &out->candidate_counts[i], 4);
    }
}

struct image image_new(const struct pair *pair)
{
    const embd_schema *s = &pair->schema.s;
    return (struct image){.record_bytes = 16 + embd__value_bytes(s->dtype, s->dim) +
                                          pair->model->state_floats * sizeof(float)};
}

struct image scan_all(struct pair *pair)
{
    struct image image = image_new(pair);
    struct scanned scanned;
    struct embd__error e = {0};
    uint64_t cursor = 0;
    scanned_init(&scanned, &pair->schema.s, 500, pair->model->state_floats);
    while (cursor != UINT64_MAX) {
        assert_int_equal(pair->ops->scan(pair->store, &cursor, 500, &scanned.out, &e), EMBD_OK);
        image_add(&image, pair, &scanned.out);
    }
    scanned_free(&scanned);
    return image;
}

bool scan_some(struct pair *pair, uint32_t max_rows, struct image *image)
{
    struct scanned scanned;
    struct embd__error e = {0};
    bool done;
    scanned_init(&scanned, &pair->schema.s, max_rows, pair->model->state_floats);
    scanned.out.skip = pair->skip;
    assert_int_equal(pair->ops->scan_frozen(pair->store, max_rows, &scanned.out, &done, &e),
                     EMBD_OK);
    assert_true(scanned.out.n_rows + scanned.out.n_candidates <= max_rows);
    image_add(image, pair, &scanned.out);
    scanned_free(&scanned);
    return done;
}

void image_skip(struct image *image, const struct store_skip *skip)
{
    uint64_t n = 0, key;
    uint32_t slot;
    for (uint64_t i = 0; i < image->n; i++) {
        const uint8_t *record = image->records + i * image->record_bytes;
        memcpy(&key, record, 8);
        memcpy(&slot, record + 8, 4);
        if (!skip->has(skip, key, slot))
            memmove(image->records + n++ * image->record_bytes, record, image->record_bytes);
    }
    image->n = n;
}

void compare_images(struct image *read, struct image *expected)
{
    assert_int_equal(read->n, expected->n);
    compared_bytes = expected->record_bytes;
    if (read->n > 0) {
        qsort(read->records, read->n, compared_bytes, compare_records);
        qsort(expected->records, expected->n, compared_bytes, compare_records);
        assert_memory_equal(read->records, expected->records, read->n * compared_bytes);
    }
    free(read->records);
    free(expected->records);
}

embd_schema image_schema(struct dice *dice)
{
    static const embd_optimizer_kind kinds[] = {EMBD_OPTIMIZER_SGD, EMBD_OPTIMIZER_ADAM,
                                                EMBD_OPTIMIZER_ROWWISE_ADAGRAD,
                                                EMBD_OPTIMIZER_MOMENTUM};
    embd_schema s;
    embd_schema_init(&s);
    strcpy(s.name, "frozen");
    s.dim = 1 + dice_below(dice, 9);
    s.slots = 3;
    s.partition = dice_below(dice, 2) ? EMBD_PARTITION_SLOT : EMBD_PARTITION_HASH;
    static const embd_dtype dtypes[] = {EMBD_DTYPE_F32, EMBD_DTYPE_F16, EMBD_DTYPE_F32,
                                        EMBD_DTYPE_I8, EMBD_DTYPE_E4M3};
    s.dtype = dtypes[dice_below(dice, 5)];
    embd_optimizer_init(&s.optimizer, kinds[dice_below(dice, 4)], 0.05f);
    if (s.optimizer.kind == EMBD_OPTIMIZER_ADAM || s.optimizer.kind == EMBD_OPTIMIZER_MOMENTUM)
        s.optimizer.update = dice_below(dice, 3) ? EMBD_UPDATE_LOCAL : EMBD_UPDATE_GLOBAL;
    if (model_has_codes(s.dtype))
        s.optimizer.update = EMBD_UPDATE_LOCAL;
    s.admit_after = dice_below(dice, 4);
    if (dice_below(dice, 2)) {
        s.on_full = (embd_on_full)(EMBD_ON_FULL_ERROR + dice_below(dice, 4));
        s.capacity = 20 + dice_below(dice, 100);
        s.ttl = 1 + dice_below(dice, 6);
        s.lfu_half_life = dice_below(dice, 5);
        s.lfu_occurrences = dice_below(dice, 2);
    }
    return s;
}
