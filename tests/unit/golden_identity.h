/* golden_identity.h - see golden_identity.c. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_IDENTITY_H
#define EMBD_TESTS_UNIT_GOLDEN_IDENTITY_H

#include "proto/message.h"

void build_identity_request(struct msg *m);
void read_identity_request(struct reader *r);
void build_identity_result(struct msg *m);
void read_identity_result(struct reader *r);
void build_identity_decision_request(struct msg *m);
void read_identity_decision_request(struct reader *r);
void build_identity_decision_result(struct msg *m);
void read_identity_decision_result(struct reader *r);

#endif
