/* inproc.h - a server in this process: libembd-inproc is loaded when the first one is asked for. */
#ifndef EMBD_IO_INPROC_H
#define EMBD_IO_INPROC_H

#include "proto/dial.h"

/* Whether embd_connect was given a configuration ("inproc:...") in the place of addresses. */
bool embd__inproc_is(const char *servers);
/* Starts the server, or takes part in the one that runs. EMBD_UNSUPPORTED: the library is not
 * there, or of another release; else as embd_connect says. */
int embd__inproc_open(const char *servers, const struct dialer **out, struct embd__error *e);
/* NULL is allowed. */
void embd__inproc_close(const struct dialer *dialer);

#endif
