/* stand_in_device.h - what a test may do to the stand-in of a device. */
#ifndef EMBD_TESTS_CUDA_STAND_IN_DEVICE_H
#define EMBD_TESTS_CUDA_STAND_IN_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

extern uint64_t stand_in_calls_left;    /* allocations that succeed from now on; UINT64_MAX: all */
extern uint64_t stand_in_block_max;     /* bytes of the largest block there is memory for */
extern uint64_t stand_in_bytes_max;     /* that may be in use; no less than are */
extern bool stand_in_is_full;           /* ranges have all the memory they will get */
extern _Atomic uint64_t stand_in_bytes; /* device memory in use, without ranges */
extern int stand_in_failure;            /* what waits and events report; 0: nothing */
extern bool stand_in_is_stuck;          /* events stay pending */
extern uint64_t stand_in_reach;         /* bytes that memory of this process has at most */
extern uint32_t stand_in_unimports;     /* memory of others that was given back, so often */
extern uint64_t stand_in_queries_left;  /* of events until all stay pending; UINT64_MAX: no end */

/* Called before each launch of a kernel, unless it is NULL: what others do to memory meanwhile. */
extern void (*emulator_before_launch)(void);

#endif
