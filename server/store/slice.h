/* slice.h - how much a store does at a time of a push that steps all rows: so many columns, a third
 * of a millisecond of adam on the host. Tests set it. */
#ifndef EMBD_STORE_SLICE_H
#define EMBD_STORE_SLICE_H

#include <stdint.h>

extern uint64_t store_slice;

#endif
