#ifndef EMBD_TESTS_GOLDEN_CHANGES_H
#define EMBD_TESTS_GOLDEN_CHANGES_H

#include "proto/message.h"

void build_changes_request(struct msg *m);
void read_changes_request(struct reader *r);
void build_changes_result(struct msg *m);
void read_changes_result(struct reader *r);

#endif
