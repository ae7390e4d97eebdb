/* header_cpp17.cpp - embd.h compiles as C++17 with nothing included before it. */
#include <embd/embd.h>

static_assert(EMBD_OK == 0 && EMBD_INVALID == -1, "statuses are negated wire numbers");
