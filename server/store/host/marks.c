#include "server/store/host/marks.h"

#include <string.h>

#include "server/store/host/memory.h"

#define FIRST_ROWS 4096u

static uint64_t bytes_of(uint64_t rows)
{
    return (rows + 63) / 64 * sizeof(uint64_t);
}

static bool grow(struct marks *marks, uint64_t n, bool keeps)
{
    if (n <= marks->capacity)
        return true;
    uint64_t capacity = marks->capacity ? marks->capacity : FIRST_ROWS;
    while (capacity < n)
        capacity *= 2;
    uint64_t *words = memory_new(bytes_of(capacity));
    if (words == NULL)
        return false;
    if (keeps && marks->capacity > 0)
        memcpy(words, marks->words, bytes_of(marks->capacity));
    marks_fini(marks);
    *marks = (struct marks){.words = words, .capacity = capacity};
    return true;
}

bool marks_reserve(struct marks *marks, uint64_t n)
{
    return grow(marks, n, false);
}

bool marks_grow(struct marks *marks, uint64_t n)
{
    return grow(marks, n, true);
}

void marks_clear(struct marks *marks, uint64_t n)
{
    if (n != 0)
        memset(marks->words, 0, bytes_of(n));
}

void marks_fini(struct marks *marks)
{
    memory_free(marks->words, bytes_of(marks->capacity));
    *marks = (struct marks){0};
}

uint64_t marks_bytes(const struct marks *marks)
{
    return bytes_of(marks->capacity);
}
