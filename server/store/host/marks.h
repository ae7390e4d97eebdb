/* marks.h - which rows a request names: a bit for each row, for what a request does with all the
 * others. Owner: the store's thread. */
#ifndef EMBD_HOST_MARKS_H
#define EMBD_HOST_MARKS_H

#include <stdbool.h>
#include <stdint.h>

struct marks {
    uint64_t *words;
    uint64_t capacity; /* rows there is memory for, a multiple of 64 */
};

/* Memory for n rows. Out of memory: false, and as before. */
bool marks_reserve(struct marks *marks, uint64_t n);
/* The same, keeping what is marked; the new rows are not. */
bool marks_grow(struct marks *marks, uint64_t n);
/* None of the first n rows. */
void marks_clear(struct marks *marks, uint64_t n);
void marks_fini(struct marks *marks);
uint64_t marks_bytes(const struct marks *marks);

static inline void marks_set(struct marks *marks, uint32_t row)
{
    marks->words[row / 64] |= (uint64_t)1 << (row % 64);
}

static inline void marks_drop(struct marks *marks, uint32_t row)
{
    marks->words[row / 64] &= ~((uint64_t)1 << (row % 64));
}

static inline bool marks_has(const struct marks *marks, uint64_t row)
{
    return marks->words[row / 64] >> (row % 64) & 1;
}

#endif
