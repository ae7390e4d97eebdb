/* golden_writer.h - see golden_writer.c. */
#ifndef EMBD_TESTS_UNIT_GOLDEN_WRITER_H
#define EMBD_TESTS_UNIT_GOLDEN_WRITER_H

#include "proto/message.h"

void build_push_writer_request(struct msg *m);
void read_push_writer_request(struct reader *r);
void build_push_again_result(struct msg *m);
void read_push_again_result(struct reader *r);
void build_writer_request(struct msg *m);
void read_writer_request(struct reader *r);
void build_writer_result(struct msg *m);
void read_writer_result(struct reader *r);
void build_stream_open_request(struct msg *m);
void read_stream_open_request(struct reader *r);
void build_stream_open_result(struct msg *m);
void read_stream_open_result(struct reader *r);

#endif
