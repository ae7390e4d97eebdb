/* method.h - the methods of the protocol. */
#ifndef EMBD_PROTO_METHOD_H
#define EMBD_PROTO_METHOD_H

#include <stddef.h>

/* Id, name on the wire, listener. */
#define METHOD_LIST(X)                                                                             \
    X(HELLO, "hello", LISTENER_BOTH)                                                               \
    X(PING, "ping", LISTENER_BOTH)                                                                 \
    X(CLUSTER, "cluster", LISTENER_BOTH)                                                           \
    X(TABLES, "tables", LISTENER_BOTH)                                                             \
    X(TABLE_CREATE, "table_create", LISTENER_BOTH)                                                 \
    X(TABLE_DROP, "table_drop", LISTENER_BOTH)                                                     \
    X(TABLE_DESCRIBE, "table_describe", LISTENER_BOTH)                                             \
    X(PULL, "pull", LISTENER_DATA)                                                                 \
    X(PUSH, "push", LISTENER_DATA)                                                                 \
    X(ERASE, "erase", LISTENER_DATA)                                                               \
    X(STATS, "stats", LISTENER_BOTH)                                                               \
    X(HOLD, "hold", LISTENER_ADMIN)                                                                \
    X(RELEASE, "release", LISTENER_ADMIN)                                                          \
    X(SNAPSHOT, "snapshot", LISTENER_ADMIN)                                                        \
    X(SCAN, "scan", LISTENER_ADMIN)                                                                \
    X(LOAD, "load", LISTENER_ADMIN)                                                                \
    X(DRAIN, "drain", LISTENER_ADMIN)                                                              \
    X(HOT, "hot", LISTENER_ADMIN)                                                                  \
    X(TRACE, "trace", LISTENER_ADMIN)                                                              \
    X(TICK, "tick", LISTENER_DATA)                                                                 \
    X(WRITER, "writer", LISTENER_DATA)                                                             \
    X(WRITERS, "writers", LISTENER_ADMIN)                                                          \
    X(STREAM_OPEN, "stream_open", LISTENER_DATA)                                                   \
    X(IDENTITY, "identity", LISTENER_BOTH)                                                         \
    X(TABLE_SET, "table_set", LISTENER_BOTH)                                                       \
    X(TABLE_STAGE, "table_stage", LISTENER_ADMIN)                                                  \
    X(TABLE_REPLACE, "table_replace", LISTENER_ADMIN)                                              \
    X(GET, "get", LISTENER_DATA)                                                                   \
    X(PUT, "put", LISTENER_DATA)                                                                   \
    X(KEYS, "keys", LISTENER_DATA)                                                                 \
    X(SHARE, "share", LISTENER_DATA)                                                               \
    X(DEVICE_OPEN, "device_open", LISTENER_DATA)                                                   \
    X(DEVICE_CLOSE, "device_close", LISTENER_DATA)                                                 \
    X(DEVICE_PULL, "device_pull", LISTENER_DATA)                                                   \
    X(DEVICE_PUSH, "device_push", LISTENER_DATA)                                                   \
    X(RING, "ring", LISTENER_DATA)                                                                 \
    X(FOLLOW, "follow", LISTENER_ADMIN)                                                            \
    X(PROMOTE, "promote", LISTENER_ADMIN)                                                          \
    X(CHANGES, "changes", LISTENER_BOTH)                                                           \
    X(MOVE, "move", LISTENER_ADMIN)                                                                \
    X(MOVE_LOAD, "move_load", LISTENER_ADMIN)                                                      \
    X(TRUNK, "trunk", LISTENER_DATA)

enum listener { LISTENER_DATA = 1, LISTENER_ADMIN = 2, LISTENER_BOTH = 3 };
enum method {
#define METHOD_ENUM(id, name, listener) METHOD_##id,
    METHOD_LIST(METHOD_ENUM)
#undef METHOD_ENUM
        METHOD_COUNT
};

extern const char *const embd__method_names[METHOD_COUNT];

/* NULL for a number out of range. */
static inline const char *embd__method_name(enum method method)
{
    return (unsigned)method < METHOD_COUNT ? embd__method_names[method] : NULL;
}

static inline enum listener embd__method_listener(enum method method)
{
    static const unsigned char listeners[] = {
#define METHOD_LISTENER(id, name, listener) listener,
        METHOD_LIST(METHOD_LISTENER)
#undef METHOD_LISTENER
    };
    return (enum listener)listeners[method];
}

/* -1: unknown name. */
int embd__method_find(const char *name, size_t bytes);

#endif
