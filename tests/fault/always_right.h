/* always_right.h - a switch for checksums; see always_right.c. */
#ifndef EMBD_TESTS_ALWAYS_RIGHT_H
#define EMBD_TESTS_ALWAYS_RIGHT_H

#include <stdbool.h>

extern bool always_right; /* at first they are compared */

#endif
