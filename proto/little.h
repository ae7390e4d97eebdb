/* little.h - little-endian numbers in files, at any address. embd runs on little-endian machines
 * alone, which rows.c asserts. */
#ifndef EMBD_LITTLE_H
#define EMBD_LITTLE_H

#include <stdint.h>
#include <string.h>

static inline void embd__put_u32(uint8_t *at, uint32_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline uint32_t embd__get_u32(const uint8_t *at)
{
    uint32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static inline void embd__put_u64(uint8_t *at, uint64_t value)
{
    memcpy(at, &value, sizeof value);
}

static inline uint64_t embd__get_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

#endif
