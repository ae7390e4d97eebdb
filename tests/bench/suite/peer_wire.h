/* peer_wire.h - what the two halves of the peer say to each other, and blocking input and output. A
 * request is this header, the keys, then rows where the kind has them; an answer is bytes whose
 * number the client knows. */
#ifndef EMBD_BENCH_PEER_WIRE_H
#define EMBD_BENCH_PEER_WIRE_H

#include "client/bench/cpu.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

enum peer_method {
    PEER_ECHO,   /* reads request_bytes, answers answer_bytes out of one buffer */
    PEER_COPY,   /* answers the rows of the keys */
    PEER_SUM,    /* answers sums of keys_per_row rows */
    PEER_ADD,    /* adds a row each to the stored ones; answers PEER_ACK_BYTES */
    PEER_GATHER, /* gathers for nanoseconds in memory; answers a struct peer_gathered */
};

#define PEER_ACK_BYTES 16u

struct peer_request {
    uint32_t method, keys_per_row;
    uint64_t n_keys;
    uint64_t request_bytes; /* that follow this header */
    uint64_t answer_bytes;
    uint64_t nanoseconds; /* PEER_GATHER */
};

struct peer_gathered {
    uint64_t n_keys, nanoseconds;
};

/* The server: takes connections from `listener` until the process ends. Does not return. */
_Noreturn void peer_serve(int listener, uint64_t n_keys, uint32_t dim, const struct cpu_list *cpus,
                          int ready_fd);

/* All bytes, or false: the connection is gone. */
bool peer_read(int fd, void *to, size_t bytes);
bool peer_write(int fd, const void *from, size_t bytes);
bool peer_write_pieces(int fd, struct iovec *pieces, int n_pieces); /* changes the pieces */

#endif
