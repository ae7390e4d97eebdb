#ifndef EMBD_TESTS_GOLDEN_FOLLOW_H
#define EMBD_TESTS_GOLDEN_FOLLOW_H

#include "proto/message.h"

void build_follow_request(struct msg *m);
void read_follow_request(struct reader *r);
void build_follow_maps_request(struct msg *m);
void read_follow_maps_request(struct reader *r);
void build_follow_most_request(struct msg *m);
void read_follow_most_request(struct reader *r);
void build_follow_room_request(struct msg *m);
void read_follow_room_request(struct reader *r);
void build_follow_result(struct msg *m);
void build_follow_growing_result(struct msg *m);
void read_follow_growing_result(struct reader *r);
void read_follow_result(struct reader *r);
void build_follow_aged_result(struct msg *m);
void read_follow_aged_result(struct reader *r);

#endif
