/* golden_tick.h - a tick and its answer, built and read. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_TICK_H
#define EMBD_TESTS_UNIT_GOLDEN_TICK_H

#include "proto/message.h"

void build_tick_request(struct msg *m);
void read_tick_request(struct reader *r);
void build_tick_result(struct msg *m);
void read_tick_result(struct reader *r);

#endif
