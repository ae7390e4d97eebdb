/* address.h - reading "host:port" and lists of it. */
#ifndef EMBD_CLIENT_ADDRESS_H
#define EMBD_CLIENT_ADDRESS_H

#include "proto/errors.h"

#define ADDRESS_HOST_MAX 255u

struct address {
    char host[ADDRESS_HOST_MAX + 1]; /* without the brackets of an IPv6 address */
    char port[6];
};

/* "host:port" or "[v6]:port". EMBD_INVALID names what is wrong. */
int embd__address_read(const char *text, size_t bytes, struct address *out, struct embd__error *e);

/* The next item of a list separated by commas: sets *item_out and *bytes_out and returns the rest,
 * NULL at the end. An empty list has one empty item. */
const char *embd__address_next(const char *list, const char **item_out, size_t *bytes_out);

#endif
