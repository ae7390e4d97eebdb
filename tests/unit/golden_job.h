/* golden_job.h - a cluster's snapshot as its asker starts, watches, continues and cancels it. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_JOB_H
#define EMBD_TESTS_UNIT_GOLDEN_JOB_H

#include "proto/message.h"

void build_snapshot_start_request(struct msg *m);
void read_snapshot_start_request(struct reader *r);
void build_snapshot_tables_request(struct msg *m);
void read_snapshot_tables_request(struct reader *r);
void build_snapshot_start_result(struct msg *m);
void read_snapshot_start_result(struct reader *r);
void build_snapshot_progress_request(struct msg *m);
void read_snapshot_progress_request(struct reader *r);
void build_snapshot_progress_result(struct msg *m);
void read_snapshot_progress_result(struct reader *r);
void build_snapshot_go_request(struct msg *m);
void read_snapshot_go_request(struct reader *r);
void build_snapshot_cancel_request(struct msg *m);
void read_snapshot_cancel_request(struct reader *r);
void build_snapshot_fetch_request(struct msg *m);
void read_snapshot_fetch_request(struct reader *r);
void build_snapshot_fetch_result(struct msg *m);
void read_snapshot_fetch_result(struct reader *r);

#endif
