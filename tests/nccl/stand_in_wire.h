/* stand_in_wire.h - what a test may do to the stand-in of the wire. */
#ifndef EMBD_TESTS_NCCL_STAND_IN_WIRE_H
#define EMBD_TESTS_NCCL_STAND_IN_WIRE_H

#include <stdbool.h>
#include <stdint.h>

extern uint32_t stand_in_devices; /* of the next table that is opened; 1 at first */
extern bool stand_in_peer;        /* by peer access, else as NCCL does it */
extern bool stand_in_lost;        /* what wire_check reports */
extern uint32_t stand_in_aborts;
extern uint64_t stand_in_messages; /* sends of more than no bytes from one device to another */

/* Called for each device after each exchange, where it is set, with what it sent to others and got
 * from them. */
extern void (*stand_in_watch)(uint32_t device, const uint8_t *sent, uint64_t sent_bytes,
                              const uint8_t *got, uint64_t got_bytes);

#endif
