/* golden_device.h - memory of a GPU that a client lends: see golden_device.c. */
#ifndef EMBD_GOLDEN_DEVICE_H
#define EMBD_GOLDEN_DEVICE_H

#include "proto/message.h"

void build_device_open_request(struct msg *m);
void read_device_open_request(struct reader *r);
void check_device_open_request(struct reader *r);
void build_device_open_result(struct msg *m);
void read_device_open_result(struct reader *r);
void check_device_open_result(struct reader *r);
void build_device_pull_request(struct msg *m);
void read_device_pull_request(struct reader *r);
void check_device_pull_request(struct reader *r);
void build_device_pull_own_request(struct msg *m);
void check_device_pull_own_request(struct reader *r);
void build_device_push_request(struct msg *m);
void read_device_push_request(struct reader *r);
void check_device_push_request(struct reader *r);
void build_device_push_gates_request(struct msg *m);
void check_device_push_gates_request(struct reader *r);
void build_device_close_request(struct msg *m);
void read_device_close_request(struct reader *r);

#endif
