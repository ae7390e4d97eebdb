#ifndef EMBD_TESTS_GOLDEN_LAG_H
#define EMBD_TESTS_GOLDEN_LAG_H

#include "proto/message.h"

void build_pull_behind_request(struct msg *m);
void read_pull_behind_request(struct reader *r);
void check_pull_behind_request(struct reader *r);
void build_pull_behind_result(struct msg *m);
void read_pull_behind_result(struct reader *r);
void check_pull_behind_result(struct reader *r);

#endif
