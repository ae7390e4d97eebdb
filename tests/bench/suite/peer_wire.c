/* peer_wire.c - blocking input and output that ends with the last byte. */
#include "tests/bench/suite/peer_wire.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

bool peer_read(int fd, void *to, size_t bytes)
{
    char *at = to;
    while (bytes) {
        ssize_t n = read(fd, at, bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool peer_write(int fd, const void *from, size_t bytes)
{
    const char *at = from;
    while (bytes) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        at += n;
        bytes -= (size_t)n;
    }
    return true;
}

bool peer_write_pieces(int fd, struct iovec *pieces, int n_pieces)
{
    while (n_pieces > 0) {
        struct msghdr message = {.msg_iov = pieces, .msg_iovlen = (size_t)n_pieces};
        ssize_t n = sendmsg(fd, &message, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        size_t left = (size_t)n;
        while (n_pieces > 0 && left >= pieces->iov_len) {
            left -= pieces->iov_len;
            pieces++;
            n_pieces--;
        }
        if (n_pieces > 0) {
            pieces->iov_base = (char *)pieces->iov_base + left;
            pieces->iov_len -= left;
        }
    }
    return true;
}
