/* errors.h - a status and the sentence that explains it. The first detector fills it in; everybody
 * else passes it on. */
#ifndef EMBD_PROTO_ERRORS_H
#define EMBD_PROTO_ERRORS_H

#include "embd/embd.h"
#include "proto/limit.h"

struct embd__error {
    int status; /* EMBD_OK or negative */
    char text[LIMIT_ERROR_TEXT];
};

/* Sets status and text unless an error is set already; returns e->status. */
int embd__error_set(struct embd__error *e, int status, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* At the end of a public function: keeps the sentence of a failure for embd_error_text. Returns
 * `status`. */
EMBD_API int embd__error_keep(const struct embd__error *e, int status);

#endif
