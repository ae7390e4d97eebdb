/* place.h - the Unix socket beside a shard's data port: where it is, and which file of which host
 * it is. The server tells it in hello. A client that finds the same file at the same path is on the
 * server's host and sees the server's file system, whatever network and container it is in. */
#ifndef EMBD_PROTO_LOCAL_PLACE_H
#define EMBD_PROTO_LOCAL_PLACE_H

#include "proto/message.h"

#define LOCAL_PATH_BYTES 108u /* as the address of a Unix socket has, with its end */
#define LOCAL_HOST_BYTES 37u
/* Every path ends so: a server cannot make clients connect to sockets of other programs. */
#define LOCAL_SUFFIX ".data.sock"

struct local_place {
    char host[LOCAL_HOST_BYTES]; /* the boot id of the kernel */
    char path[LOCAL_PATH_BYTES]; /* "": there is none */
    uint64_t device, inode;      /* of the file */
};

/* The file at `path` on this host. False: no socket, or this host has no boot id; errno says why.
 * owner_out, which may be NULL, gets the user that the file belongs to. */
bool embd__local_look(const char *path, struct local_place *out, uint32_t *owner_out);
bool embd__local_is_same(const struct local_place *a, const struct local_place *b);

/* The field `local` of the answer to hello. */
void embd__local_write(struct msg *m, const struct local_place *place);
/* out->path is "" where the answer has none, or one that no data socket has. */
void embd__local_read(struct fields *hello, struct local_place *out);

#endif
