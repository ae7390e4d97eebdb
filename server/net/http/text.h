/* text.h - a page being written: text that grows. After a failure nothing is added; check once at
 * the end. Owner: one thread. */
#ifndef EMBD_NET_TEXT_H
#define EMBD_NET_TEXT_H

#include <stdbool.h>
#include <stddef.h>

struct text {
    char *p; /* [n + 1], terminated; NULL while empty */
    size_t n, capacity;
    bool has_failed; /* out of memory */
};

void text_print(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A JSON string with its quotes; anything that is not plain ASCII is escaped. */
void text_json(struct text *text, const char *value);

void text_fini(struct text *text);

#endif
