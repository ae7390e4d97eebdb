/* header_c11.c - embd.h compiles as strict C11 with nothing included before it. */
#include <embd/embd.h>

_Static_assert(EMBD_OK == 0 && EMBD_INVALID == -1, "statuses are negated wire numbers");
