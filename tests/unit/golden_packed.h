/* golden_packed.h - see golden_packed.c. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_PACKED_H
#define EMBD_TESTS_UNIT_GOLDEN_PACKED_H

#include "proto/message.h"

void build_push_packed_request(struct msg *m);
void read_push_packed_request(struct reader *r);
void build_pull_packed_result(struct msg *m);
void read_pull_packed_result(struct reader *r);

#endif
