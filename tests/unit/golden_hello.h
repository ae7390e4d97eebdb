/* golden_hello.h - hello, built, read and checked. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_HELLO_H
#define EMBD_TESTS_UNIT_GOLDEN_HELLO_H

#include "proto/message.h"

void build_hello_request(struct msg *m);
void read_hello_request(struct reader *r);
void check_hello_request(struct reader *r);
void build_hello_result(struct msg *m);
void read_hello_result(struct reader *r);
void check_hello_result(struct reader *r);

#endif
