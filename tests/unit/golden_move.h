/* golden_move.h - a move of keys begins, a row that leaves, and the same row where it comes to; the
 * map as a journal and a promoted server say it. */
#ifndef EMBD_TESTS_GOLDEN_MOVE_H
#define EMBD_TESTS_GOLDEN_MOVE_H

#include "proto/message.h"

void build_move_begin_request(struct msg *m);
void read_move_begin_request(struct reader *r);
void build_move_begin_result(struct msg *m);
void read_move_begin_result(struct reader *r);
void build_snapshot_rate_request(struct msg *m);
void read_snapshot_rate_request(struct reader *r);
void build_snapshot_rate_result(struct msg *m);
void read_snapshot_rate_result(struct reader *r);
void build_move_add_request(struct msg *m);
void read_move_add_request(struct reader *r);
void build_move_retire_request(struct msg *m);
void read_move_retire_request(struct reader *r);
void build_move_streams_result(struct msg *m);
void read_move_streams_result(struct reader *r);
void build_move_marks_request(struct msg *m);
void read_move_marks_request(struct reader *r);
void build_move_read_result(struct msg *m);
void read_move_read_result(struct reader *r);
void build_table_replace_record(struct msg *m);
void read_table_replace_record(struct reader *r);
void build_cluster_next_result(struct msg *m);
void read_cluster_next_result(struct reader *r);
void build_cluster_joining_result(struct msg *m);
void read_cluster_joining_result(struct reader *r);
void build_move_state_result(struct msg *m);
void read_move_state_result(struct reader *r);
void build_move_load_request(struct msg *m);
void read_move_load_request(struct reader *r);

#endif
