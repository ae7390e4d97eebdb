/* secret.h - files that hold a secret: a key, a token, a password. One that others can read, or its
 * group can write, is refused: modes are 0600 or 0640. Pipes, which a shell makes of a command, are
 * taken. */
#ifndef EMBD_SECRET_H
#define EMBD_SECRET_H

#include "proto/errors.h"

/* Whether the file may hold one: EMBD_INVALID names it, what it was to hold and why not. */
int embd__secret_check(const char *path, const char *what, struct embd__error *e);

/* At most size - 1 bytes of it, and a zero behind them. EMBD_INVALID as above. The caller clears
 * what it no longer needs. */
int embd__secret_read(const char *path, const char *what, char *out, size_t size, size_t *n_out,
                      struct embd__error *e);

#endif
