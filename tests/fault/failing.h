/* failing.h - the steps that a program passes: see failing.c. */
#ifndef EMBD_TESTS_FAILING_H
#define EMBD_TESTS_FAILING_H

#include <stdbool.h>

enum kind { NOTHING, FAIL, ABORT, TORN, SKIP, LATE };

/* What is to happen at this passing of the step; a process that is to die does not return. */
enum kind pass(const char *name);
/* Likewise, of a file or a socket: its kind and what happens to it make the name. */
enum kind pass_fd(int fd, const char *step);
/* Whether it is to fail; errno is set then. */
bool fails(enum kind kind);

#endif
