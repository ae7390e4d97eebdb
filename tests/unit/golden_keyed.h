/* golden_keyed.h - see golden_keyed.c. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_KEYED_H
#define EMBD_TESTS_UNIT_GOLDEN_KEYED_H

#include "proto/message.h"

void build_get_request(struct msg *m);
void read_get_request(struct reader *r);
void check_get_request(struct reader *r);
void build_get_result(struct msg *m);
void read_get_result(struct reader *r);
void check_get_result(struct reader *r);
void build_put_request(struct msg *m);
void read_put_request(struct reader *r);
void check_put_request(struct reader *r);
void build_put_result(struct msg *m);
void read_put_result(struct reader *r);
void check_put_result(struct reader *r);
void build_keys_request(struct msg *m);
void read_keys_request(struct reader *r);
void check_keys_request(struct reader *r);
void build_keys_result(struct msg *m);
void read_keys_result(struct reader *r);
void check_keys_result(struct reader *r);

#endif
