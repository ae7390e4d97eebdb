/* request_parser.h - the receiving half of a connection: bytes in, requests out.
 *
 * Heads come through a buffer that all connections of the shard share, and are fed to the frame
 * scanner. Of a bin, what already stands in that buffer is copied; the rest is received straight
 * into the bin's own memory. So a large bin is not copied after the kernel's copy. Its functions
 * are in connection_internal.h. */
#ifndef EMBD_REQUEST_PARSER_H
#define EMBD_REQUEST_PARSER_H

#include "server/net/exchange.h"

/* Bounds one read, so that a connection with much to send leaves turns to others. */
#define PARSER_DIRECT_BYTES (512u << 10)

struct request_parser {
    struct exchange *arriving; /* NULL between frames */
    uint8_t *bin;              /* where the rest of the current bin goes; NULL: it is discarded */
    uint32_t bin_left;         /* payload bytes still to come */
    const uint8_t *shared;     /* the current bin's, which the peer shares; NULL: it comes */
    uint32_t shared_left;      /* bytes there still to copy */
};

static inline bool request_parser_is_between_frames(const struct request_parser *parser)
{
    return parser->arriving == NULL;
}

#endif
