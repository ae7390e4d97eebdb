/* golden_shared.h - memory that a client shares with its server: see golden_shared.c. */
#ifndef EMBD_TESTS_GOLDEN_SHARED_H
#define EMBD_TESTS_GOLDEN_SHARED_H

#include "proto/message.h"

void build_share_request(struct msg *m);
void read_share_request(struct reader *r);
void build_ring_request(struct msg *m);
void read_ring_request(struct reader *r);
void build_trunk_request(struct msg *m);
void read_trunk_request(struct reader *r);
void build_pull_shared_request(struct msg *m);
void read_pull_shared_request(struct reader *r);
void build_pull_shared_result(struct msg *m);
void read_pull_shared_result(struct reader *r);

#endif
