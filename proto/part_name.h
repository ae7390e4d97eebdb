/* part_name.h - "part 3 values": what errors call an array of a request or answer. It is made for
 * each part of each message, where snprintf would show in the time of a small pull. */
#ifndef EMBD_PROTO_PART_NAME_H
#define EMBD_PROTO_PART_NAME_H

#include <stdint.h>
#include <string.h>

#define PART_NAME_BYTES 32

/* `i` is below 10000, `suffix` has at most 20 bytes. */
static inline void embd__part_name(char out[PART_NAME_BYTES], uint32_t i, const char *suffix)
{
    char *end = stpcpy(out, "part ");
    for (uint32_t unit = 1000; unit > 1; unit /= 10)
        if (i >= unit)
            *end++ = (char)('0' + i / unit % 10);
    *end++ = (char)('0' + i % 10);
    strcpy(end, suffix);
}

#endif
