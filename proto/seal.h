/* seal.h - JSON text whose last member is the checksum of the text before it, so that a flipped
 * digit or a lost end is found. The text is hashed, not what it means: readers in other languages
 * need no rules of printing numbers. */
#ifndef EMBD_PROTO_SEAL_H
#define EMBD_PROTO_SEAL_H

#include <stddef.h>

#include <jansson.h>

#include "proto/errors.h"

/* An object's text, indented by 1, with a last member "xxh3"; takes the reference. malloc'd; NULL:
 * `object` is NULL, or no memory. */
char *embd__seal(json_t *object);

/* Whether the text ends as a sealed one does, with or without a last line break of an editor; then
 * its checksum must be right, else EMBD_CORRUPT. `what`: for the error, "the manifest". */
bool embd__is_sealed(const char *text, size_t bytes, const char *what, struct embd__error *e);

#endif
