/* golden_stage.h - tables that take the places of others: see golden_stage.c. */
#ifndef EMBD_TESTS_GOLDEN_STAGE_H
#define EMBD_TESTS_GOLDEN_STAGE_H

#include "proto/message.h"

void build_table_stage_request(struct msg *m);
void read_table_stage_request(struct reader *r);
void build_table_stage_result(struct msg *m);
void read_table_stage_result(struct reader *r);
void build_table_stage_writers_request(struct msg *m);
void read_table_stage_writers_request(struct reader *r);
void build_table_replace_request(struct msg *m);
void read_table_replace_request(struct reader *r);
void build_table_replace_prepare_request(struct msg *m);
void read_table_replace_prepare_request(struct reader *r);

#endif
