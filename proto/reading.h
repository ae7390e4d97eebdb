/* reading.h - what read.c, fields.c and their users in this folder share to word their errors. */
#ifndef EMBD_PROTO_READING_H
#define EMBD_PROTO_READING_H

#include "proto/message.h"

/* `status` for a fault of a request, EMBD_PROTOCOL for any fault of an answer. */
int embd__reader_fault(const struct reader *r, int status);

/* "a bin", "an unsigned integer" */
const char *embd__type_name(const msgpack_object *o);

/* A peer's text made safe to quote: cut, and without control characters or bytes that are not
 * ASCII. */
#define SHOWN_TEXT 32
void embd__show_text(char out[SHOWN_TEXT], const char *text, size_t bytes);

/* Whether a status is EMBD_OK's negative, named in EMBD_STATUS_LIST. */
bool embd__status_is_known(int status);

#endif
