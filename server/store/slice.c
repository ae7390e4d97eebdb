/* slice.c - see slice.h. */
#include "server/store/slice.h"

uint64_t store_slice = (uint64_t)256 << 10;
