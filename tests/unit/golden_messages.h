/* golden_messages.h - one message of each kind, with its bytes in golden/NAME.hex. */
#ifndef EMBD_TESTS_GOLDEN_MESSAGES_H
#define EMBD_TESTS_GOLDEN_MESSAGES_H

#include "tests/unit/received.h"

struct golden {
    const char *name;
    void (*build)(struct msg *m);    /* begins and ends the message */
    void (*read)(struct reader *r);  /* reads all of it; faults stay in r->error */
    void (*check)(struct reader *r); /* reads and asserts every value */
};

extern const struct golden goldens[];
extern const uint32_t n_goldens;

/* Bytes of hex text: pairs of digits, blanks, and comments from '#' to the end of the line. Returns
 * their number, at most `capacity`; SIZE_MAX where the text is something else. */
size_t read_hex(const char *text, size_t text_bytes, uint8_t *out, size_t capacity);

/* The bytes of golden/NAME.hex; GOLDEN_DIR is set by the build. */
size_t read_golden(const char *name, uint8_t *out, size_t capacity);
#define GOLDEN_BYTES 1024

#endif
