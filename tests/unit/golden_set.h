/* golden_set.h - see golden_set.c. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_SET_H
#define EMBD_TESTS_UNIT_GOLDEN_SET_H

#include "proto/message.h"

void build_table_set_request(struct msg *m);
void read_table_set_request(struct reader *r);
void check_table_set_request(struct reader *r);
void build_table_set_result(struct msg *m);
void read_table_set_result(struct reader *r);

#endif
