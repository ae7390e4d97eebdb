/* pace.h - how fast bytes may be copied: after each piece, when the next one may begin. Times are
 * given. Owner: whose struct has it. */
#ifndef EMBD_COORDINATOR_PACE_H
#define EMBD_COORDINATOR_PACE_H

#include <stdint.h>

struct pace {
    uint64_t rate;   /* bytes a second; 0: no limit */
    uint64_t due_ns; /* what was copied is paid for then */
};

/* Another rate; what is not paid for is paid at that one. */
void pace_set(struct pace *pace, uint64_t rate, uint64_t now_ns);
/* So many bytes were copied. */
void pace_owe(struct pace *pace, uint64_t bytes, uint64_t now_ns);
/* How long to wait; 0: the next piece may begin. */
uint64_t pace_left_ns(const struct pace *pace, uint64_t now_ns);

#endif
