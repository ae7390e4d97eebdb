/* resolve.h - addresses and lists of them, and what a name stands for now: dns://NAME:PORT is every
 * address of the name, and dns://_SERVICE._PROTO.NAME every server of its SRV records. */
#ifndef EMBD_IO_RESOLVE_H
#define EMBD_IO_RESOLVE_H

#include <uv.h>

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

#define RESOLVED_MAX       64u
#define ADDRESS_TEXT_BYTES (ADDRESS_HOST_MAX + 16)

struct dns_name {
    char host[ADDRESS_HOST_MAX + 1];
    char port[6]; /* "" : SRV records say it */
};

/* For a list's item; false: it is not dns:// */
bool embd__is_dns(const char *item, size_t bytes);
/* EMBD_INVALID names what is wrong. */
int embd__dns_read(const char *item, size_t bytes, struct dns_name *out, struct embd__error *e);

struct resolved {
    uint32_t n;
    /* "host:port", in the order in which to try them */
    char addresses[RESOLVED_MAX][ADDRESS_TEXT_BYTES];
};

/* Asks the system's resolver, on a thread of libuv's pool, and runs the loop until it has
 * answered or the deadline has passed. SRV records come by priority, and those of one priority
 * at random by their weights (RFC 2782). EMBD_UNREACHABLE: there are none, or the lookup failed;
 * EMBD_NO_MEMORY. */
int embd__resolve(uv_loop_t *loop, const struct dns_name *name, uint64_t deadline_ns,
                  struct resolved *out, struct embd__error *e);

#endif
