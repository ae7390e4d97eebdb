/* golden_erase.h - see golden_erase.c. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_ERASE_H
#define EMBD_TESTS_UNIT_GOLDEN_ERASE_H

#include "proto/message.h"

void build_erase_request(struct msg *m);
void read_erase_request(struct reader *r);
void check_erase_request(struct reader *r);
void build_erase_result(struct msg *m);
void read_erase_result(struct reader *r);
void check_erase_result(struct reader *r);

#endif
