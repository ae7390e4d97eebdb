/* status.h - statuses, the text of an error, and the version. <embd/embd.h> includes it. */
#ifndef EMBD_STATUS_H
#define EMBD_STATUS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define EMBD_API __attribute__((visibility("default")))
#else
#define EMBD_API
#endif

/* ---- version ---- */

/* Of this header. While MAJOR is 0, a new MINOR may change the interface: the library's soname
 * carries both (libembd.so.0.2). */
#define EMBD_VERSION_MAJOR 0
#define EMBD_VERSION_MINOR 2
#define EMBD_VERSION_PATCH 0
/* For comparisons: 0.2.0 is 200. */
#define EMBD_VERSION_NUMBER                                                                        \
    (EMBD_VERSION_MAJOR * 10000 + EMBD_VERSION_MINOR * 100 + EMBD_VERSION_PATCH)

/* Returns the version of the library, "0.2.0". */
EMBD_API const char *embd_version(void);

/* ---- statuses ---- */

/* name, number on the wire, text. The C value is the negated number. */
#define EMBD_STATUS_LIST(X)                                                                        \
    X(INVALID, 1, "invalid argument")                                                              \
    X(MALFORMED, 2, "malformed message")                                                           \
    X(TOO_LARGE, 3, "over a limit")                                                                \
    X(UNKNOWN_METHOD, 4, "unknown method")                                                         \
    X(UNKNOWN_TABLE, 5, "unknown table")                                                           \
    X(EXISTS, 6, "exists with another definition")                                                 \
    X(UNSUPPORTED, 7, "not supported")                                                             \
    X(FULL, 8, "table is full")                                                                    \
    X(NOT_FINITE, 9, "not a finite number")                                                        \
    X(NO_MEMORY, 10, "out of memory")                                                              \
    X(BUSY, 11, "server is busy")                                                                  \
    X(DRAINING, 12, "server is shutting down")                                                     \
    X(UNREACHABLE, 13, "server cannot be reached")                                                 \
    X(DEADLINE, 14, "deadline passed")                                                             \
    X(CLOSED, 15, "connection closed during the call; a push may or may not have been applied")    \
    X(PROTOCOL, 16, "the server's answer is not understood")                                       \
    X(IO, 17, "input or output failed")                                                            \
    X(CORRUPT, 18, "stored data is damaged")                                                       \
    X(INTERNAL, 19, "internal error")                                                              \
    X(DENIED, 20, "not allowed")                                                                   \
    X(GAP, 21, "an earlier push of the same pusher is missing")                                    \
    X(FORGOTTEN, 22, "the pusher's stream is not known")                                           \
    X(UNANSWERED, 23, "a push was sent and not answered: it may or may not have been applied")     \
    X(LOADING, 24, "server is loading its tables")                                                 \
    X(LATE, 25, "the worker comes late: its job has gone on without it")                           \
    X(MOVED, 26, "keys are placed by another map of the cluster")

typedef enum embd_status {
    EMBD_OK = 0,
#define EMBD_STATUS_ENUM(name, number, text) EMBD_##name = -(number),
    EMBD_STATUS_LIST(EMBD_STATUS_ENUM)
#undef EMBD_STATUS_ENUM
} embd_status;

/* Returns the text of a status; "unknown status" for any other number. Never NULL. */
EMBD_API const char *embd_status_text(int status);

/* Returns the sentence of this thread's last call that failed: the server or file, the cause and
 * the limit. "" before any failure. A call that succeeds leaves it. Valid until the thread's next
 * call that fails, also after the handle of the failed call is closed. Never NULL. */
EMBD_API const char *embd_error_text(void);

#ifdef __cplusplus
}
#endif
#endif
