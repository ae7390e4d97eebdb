/* golden_hold.h - a hold that lets clients in and its answer, built and read. */
#ifndef EMBD_TESTS_GOLDEN_HOLD_H
#define EMBD_TESTS_GOLDEN_HOLD_H

#include "proto/message.h"

void build_push_order_request(struct msg *m);
void read_push_order_request(struct reader *r);
void build_hold_request(struct msg *m);
void read_hold_request(struct reader *r);
void build_hold_result(struct msg *m);
void read_hold_result(struct reader *r);

#endif
