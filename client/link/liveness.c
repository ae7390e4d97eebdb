/* liveness.c - whether the server of a link is still there.
 *
 * A server that ends closes its connections, and the kernel tells at once. A host that vanishes
 * says nothing: the kernel by itself waits a quarter of an hour. So:
 *
 *     connecting and greeting  one attempt takes LIVENESS_ATTEMPT_MS at most; then the name is
 *                              looked up again
 *     an answer is due,        keepalive probes (socket.c) end the connection after 6 s
 *     and all was taken
 *     an answer is due,        embd__link_look() sees that the peer's kernel acknowledges nothing
 *     and bytes are not taken
 *     the host lives, but the  its answers are late: the follower asks other servers for the map
 *                              meanwhile, and a call
 *     process hangs            whose deadline passes takes the silent connection with it
 *
 * TCP_USER_TIMEOUT would be shorter, but also ends connections to a server that lives and takes
 * nothing for a while. */
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>

#include "client/link/link_state.h"

#define UNACKNOWLEDGED_MS 6000u
#define PROBES_MOST       5u /* of a closed window, unanswered: about 6 s */

uint64_t embd__liveness_silent_since(const struct link *link, const struct exchange *x)
{
    uint64_t begun_ns = x->deadline_ns - (uint64_t)x->deadline_ms * 1000000;
    return begun_ns > link->heard_ns ? begun_ns : link->heard_ns;
}

bool embd__link_is_late(const struct link *link, uint64_t now)
{
    const struct exchange *x = link->flights.n > 0 ? link->flights.list[0].x : NULL;
    return link->state == LINK_READY && x != NULL && x != &link->hello &&
           embd__liveness_silent_since(link, x) + LIVENESS_QUIET_NS <= now;
}

/* Whether bytes or probes have been on their way for so long that there is nobody. */
static bool is_gone(const struct link *link)
{
    struct tcp_info info;
    socklen_t bytes = sizeof info;
    if (link->config.is_path ||
        getsockopt(embd__socket_fd(link->socket), IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
        return false;
    return info.tcpi_probes >= PROBES_MOST || (info.tcpi_unacked > 0 && info.tcpi_retransmits > 0 &&
                                               info.tcpi_last_ack_recv >= UNACKNOWLEDGED_MS);
}

void embd__link_look(struct link *link)
{
    if (link->state == LINK_READY && (link->flights.n > 0 || link->queue.head != NULL) &&
        is_gone(link))
        embd__connect_lose(link, EMBD_CLOSED, "the server's host does not answer any more");
}
