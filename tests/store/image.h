/* image.h - all that a table holds at one moment, as records that can be sorted and compared. */
#ifndef EMBD_TESTS_STORE_IMAGE_H
#define EMBD_TESTS_STORE_IMAGE_H

#include "tests/store/pair.h"

/* Rows and candidates as records of one size, to be sorted. */
struct image {
    uint8_t *records;
    size_t record_bytes;
    uint64_t n, capacity;
};

struct image image_new(const struct pair *pair);
void image_add(struct image *image, const struct pair *pair, const struct store_scan *out);
struct image scan_all(struct pair *pair);
/* The next part of the cut; true: there is no more. */
bool scan_some(struct pair *pair, uint32_t max_rows, struct image *image);
/* Takes out what cuts are read without: a store may have read it all the same. */
void image_skip(struct image *image, const struct store_skip *skip);
/* Frees both. */
void compare_images(struct image *read, struct image *expected);

/* A table of some rule, type, partition and bound. */
embd_schema image_schema(struct dice *dice);

#endif
