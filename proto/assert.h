/* assert.h - EMBD_ASSERT: a promise between two modules of this program, checked in releases too.
 *
 * Use it at the boundaries of a module, for what its caller promised: sizes, order, states. Never
 * use it on bytes of a peer or of a file; those get an error. A broken promise means that memory or
 * order cannot be trusted any more, so the process ends before it answers or writes anything else.
 *
 * In the client library it prints one line on standard error and aborts. The server installs a
 * function of its own (server/log/ending.h), which logs the line and exits with EXIT_ASSERTION. */
#ifndef EMBD_PROTO_ASSERT_H
#define EMBD_PROTO_ASSERT_H

#define EMBD_ASSERT(condition)                                                                     \
    (__builtin_expect(!(condition), 0) ? embd__assert_failed(__FILE__, __LINE__, #condition)       \
                                       : (void)0)

typedef void embd__assert_report(const char *file, int line, const char *condition);

/* Does not return. */
void embd__assert_failed(const char *file, int line, const char *condition)
    __attribute__((noreturn, cold));

/* Called in the place of the line on standard error; it should end the process. Before the first
 * thread starts. */
void embd__assert_to(embd__assert_report *report);

#endif
