/* golden_watch.h - hot, trace, and pushes of a round and with a rate, built and read. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_WATCH_H
#define EMBD_TESTS_UNIT_GOLDEN_WATCH_H

#include "proto/message.h"

void build_push_round_request(struct msg *m);
void read_push_round_request(struct reader *r);
void build_push_lr_request(struct msg *m);
void read_push_lr_request(struct reader *r);
void build_push_scores_request(struct msg *m);
void read_push_scores_request(struct reader *r);
void build_push_columns_request(struct msg *m);
void read_push_columns_request(struct reader *r);
void build_hot_request(struct msg *m);
void read_hot_request(struct reader *r);
void build_hot_result(struct msg *m);
void read_hot_result(struct reader *r);
void build_trace_request(struct msg *m);
void read_trace_request(struct reader *r);
void build_trace_result(struct msg *m);
void read_trace_result(struct reader *r);

#endif
