/* local.c - see local.h. */
#include "client/io/local.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/local/place.h"

int embd__transport_read(enum transport *out, struct embd__error *e)
{
    static const char *const names[] = {"tcp", "auto", "local"};
    const char *text = getenv("EMBD_TRANSPORT");
    *out = TRANSPORT_ANY;
    if (text == NULL || text[0] == '\0')
        return EMBD_OK;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum transport)i;
            return EMBD_OK;
        }
    return embd__error_set(e, EMBD_INVALID, "EMBD_TRANSPORT: '%.60s'; expected auto, tcp or local",
                           text);
}

int embd__local_find(const struct local_place *named, uint32_t *owner_out, struct embd__error *e)
{
    struct local_place here;
    if (named->path[0] == '\0')
        return embd__error_set(e, EMBD_UNREACHABLE,
                               "the server has no data socket (local_socket: off, or a version "
                               "without it)");
    if (!embd__local_look(named->path, &here, owner_out))
        return embd__error_set(e, EMBD_UNREACHABLE, "the server's data socket %s: %s", named->path,
                               strerror(errno));
    if (!embd__local_is_same(named, &here))
        return embd__error_set(e, EMBD_UNREACHABLE,
                               "the server is on another host; %s is another socket here",
                               named->path);
    if (eaccess(named->path, W_OK) != 0)
        return embd__error_set(e, EMBD_UNREACHABLE,
                               "the server's data socket %s: %s; local_group can let this user in",
                               named->path, strerror(errno));
    return EMBD_OK;
}

bool embd__local_is_of(int fd, uint32_t owner)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == owner;
}
