/* rings.h - links whose bytes go through rings (proto/local/ring.h) in place of their sockets.
 *
 * A link that waits for an answer is watched: its ring is looked at in each turn of the loop, and,
 * where that was worth it lately (proto/local/spin.h), for some microseconds before the loop
 * sleeps. Then the server learns that we wait, and a doorbell on the socket wakes the loop. While
 * short answers are due by sockets, the loop looks at these as long before it sleeps. */
#ifndef EMBD_IO_RINGS_H
#define EMBD_IO_RINGS_H

#include <sys/queue.h>
#include <uv.h>

#include "proto/local/spin.h"

/* Bytes of requests and answers. What is larger passes in several parts: the server makes rows
 * while the client takes those before. */
#define RINGS_REQUEST_BYTES (256u << 10)
#define RINGS_ANSWER_BYTES  (1u << 20)

struct link;
LIST_HEAD(link_list, link);

/* Of one loop. Owner: the thread that runs it. */
struct rings {
    uv_prepare_t prepare;
    uv_idle_t busy; /* runs while rings are looked at, so that the loop does not sleep */
    struct link_list watched;
    struct spin spin;
    uint32_t n_short; /* jobs under way with short answers, which sockets may bring */
    bool may_wait;    /* the loop is run to wait, and not just to look */
};

#endif
