/* golden_follow.c - a server that follows another asks for records, and is told that there is none.
 * As golden_messages.c has the others. */
#include "tests/unit/golden_follow.h"

#include <string.h>

#include "proto/follow.h"

static const struct follow_ask the_ask = {.name = "10.0.0.9:7700",
                                          .cluster = "embd",
                                          .epoch = 1,
                                          .position = 300,
                                          .chain = 0x0123456789abcdef,
                                          .file = 2,
                                          .at = 4096,
                                          .applied = 300,
                                          .disk = 200,
                                          .wait_ms = 1000};

void build_follow_request(struct msg *m)
{
    embd__msg_request(m, 51, METHOD_FOLLOW);
    embd__follow_ask_write(m, &the_ask);
    embd__msg_end(m);
}

void read_follow_request(struct reader *r)
{
    struct follow_ask ask;
    if (embd__follow_ask_read(r, &ask) == EMBD_OK &&
        (strcmp(ask.name, the_ask.name) != 0 || ask.chain != the_ask.chain || ask.is_base ||
         ask.disk != 200 || ask.wait_ms != 1000))
        embd__error_set(r->error, EMBD_INVALID, "another question than was written");
}

void build_follow_maps_request(struct msg *m)
{
    const struct follow_ask ask = {.name = "10.0.0.9:7700",
                                   .cluster = "embd",
                                   .epoch = 1,
                                   .is_base = true,
                                   .takes_maps = true,
                                   .wait_ms = 1000};
    embd__msg_request(m, 51, METHOD_FOLLOW);
    embd__follow_ask_write(m, &ask);
    embd__msg_end(m);
}

void read_follow_maps_request(struct reader *r)
{
    struct follow_ask ask;
    if (embd__follow_ask_read(r, &ask) == EMBD_OK && (!ask.takes_maps || !ask.is_base))
        embd__error_set(r->error, EMBD_INVALID, "another question than was written");
}

void build_follow_room_request(struct msg *m)
{
    const struct follow_ask ask = {.name = "10.0.0.9:7700",
                                   .cluster = "embd",
                                   .epoch = 1,
                                   .is_base = true,
                                   .takes_maps = true,
                                   .room = 3,
                                   .bases = 2,
                                   .wait_ms = 1000};
    embd__msg_request(m, 51, METHOD_FOLLOW);
    embd__follow_ask_write(m, &ask);
    embd__msg_end(m);
}

void read_follow_room_request(struct reader *r)
{
    struct follow_ask ask;
    if (embd__follow_ask_read(r, &ask) == EMBD_OK && (ask.room != 3 || ask.bases != 2))
        embd__error_set(r->error, EMBD_INVALID, "another question than was written");
}

void build_follow_most_request(struct msg *m)
{
    struct follow_ask ask = the_ask;
    ask.most = 16u << 20;
    embd__msg_request(m, 51, METHOD_FOLLOW);
    embd__follow_ask_write(m, &ask);
    embd__msg_end(m);
}

void read_follow_most_request(struct reader *r)
{
    struct follow_ask ask;
    if (embd__follow_ask_read(r, &ask) == EMBD_OK && ask.most != 16u << 20)
        embd__error_set(r->error, EMBD_INVALID, "another question than was written");
}

void build_follow_result(struct msg *m)
{
    static const uint64_t skips[1] = {300};
    const struct follow_answer answer = {.epoch = 1,
                                         .position = 301,
                                         .chain = 0x1122334455667788,
                                         .file = 2,
                                         .at = 4104,
                                         .end = 301,
                                         .sum = 7,
                                         .bytes = (const uint8_t *)"record..",
                                         .n_bytes = 8,
                                         .skips = skips,
                                         .n_skips = 1};
    embd__msg_result(m, 51);
    embd__follow_answer_write(m, &answer);
    embd__msg_end(m);
}

void build_follow_growing_result(struct msg *m)
{
    static const uint64_t skips[1] = {300};
    const struct follow_answer answer = {.epoch = 1,
                                         .position = 301,
                                         .chain = 0x1122334455667788,
                                         .file = 2,
                                         .at = 4104,
                                         .end = 301,
                                         .sum = 7,
                                         .bytes = (const uint8_t *)"record..",
                                         .n_bytes = 8,
                                         .skips = skips,
                                         .n_skips = 1,
                                         .shards = 3};
    embd__msg_result(m, 51);
    embd__follow_answer_write(m, &answer);
    embd__msg_end(m);
}

void read_follow_growing_result(struct reader *r)
{
    struct follow_answer answer;
    if (embd__follow_answer_read(r, &answer) == EMBD_OK && answer.shards != 3)
        embd__error_set(r->error, EMBD_INVALID, "another answer than was written");
}

void build_follow_aged_result(struct msg *m)
{
    const struct follow_answer answer = {.epoch = 1,
                                         .position = 302,
                                         .chain = 0x1122334455667788,
                                         .file = 2,
                                         .at = 4112,
                                         .end = 302,
                                         .sum = 7,
                                         .bytes = (const uint8_t *)"record..",
                                         .n_bytes = 8,
                                         .has_age = true,
                                         .age_us = 250,
                                         .waited_us = 1500};
    embd__msg_result(m, 51);
    embd__follow_answer_write(m, &answer);
    embd__msg_end(m);
}

void read_follow_aged_result(struct reader *r)
{
    struct follow_answer answer;
    if (embd__follow_answer_read(r, &answer) == EMBD_OK &&
        (!answer.has_age || answer.age_us != 250 || answer.waited_us != 1500))
        embd__error_set(r->error, EMBD_INVALID, "another answer than was written");
}

void read_follow_result(struct reader *r)
{
    struct follow_answer answer;
    if (embd__follow_answer_read(r, &answer) == EMBD_OK &&
        (answer.position != 301 || answer.n_skips != 1 || answer.skips[0] != 300 ||
         answer.n_bytes != 8 || memcmp(answer.bytes, "record..", 8) != 0 ||
         answer.gone[0] != '\0' || answer.has_age))
        embd__error_set(r->error, EMBD_INVALID, "another answer than was written");
}
