/* rig.h - a shard without sockets: requests are built, scanned and handed over as net does it,
 * answers are put together byte by byte as net sends them, and read as a client reads them. */
#ifndef EMBD_TESTS_SERVER_RIG_H
#define EMBD_TESTS_SERVER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "proto/message.h"
#include "server/service/shard.h"

struct rig {
    struct shard *shard;
    struct shard_config config;
    struct shard_session data, admin;
    uint64_t now_ns; /* the clock of requests */
    uint32_t n_drains;
};

/* Shard `index` of n_shards; data_dir may be NULL. */
void rig_open(struct rig *rig, const struct store_ops *ops, uint32_t index, uint32_t n_shards,
              const char *data_dir);
/* Shard 0 of 1 on the host's store, whose journal begins anew beyond so many bytes. */
void rig_open_limited(struct rig *rig, const char *data_dir, uint64_t journal_limit);
/* The same as rig_open; damage of its journal may be accepted. */
void rig_open_damaged(struct rig *rig, const struct store_ops *ops, uint32_t index,
                      uint32_t n_shards, const char *data_dir, bool accepts_damage);
/* Its shard starts anew, and has threads write for it: ask_wait is there for what they answer. */
void rig_wake(struct rig *rig);
void rig_close(struct rig *rig);

/* One request and its answer. */
struct exchange {
    struct rig *rig;
    struct msg out; /* write the map and bins */
    uint8_t head[LIMIT_HEADER_BYTES];
    struct frame_scanner frame;
    struct request request;
    uint8_t *arriving; /* the last bin whole, while it arrives */
    bool is_answered;
    uint8_t *answer; /* [answer_bytes], n_taken of them are made */
    uint64_t answer_bytes, n_taken;
    uint32_t piece;
    uint64_t piece_at;
    struct frame_scanner answer_frame;
    uint8_t *answer_head;
    msgpack_zone zone;
    struct embd__error error;
    struct reader reader;
};

/* Begins a request; `session` is &rig->data, &rig->admin or another's. */
struct exchange *ask(struct rig *rig, struct shard_session *session, enum method method);
/* Sends what was begun to the shard. */
void ask_send(struct exchange *x);
/* Until what was sent is answered. */
void ask_wait(struct exchange *x);
/* Sends bytes that are a whole message without bins. */
struct exchange *ask_bytes(struct rig *rig, struct shard_session *session, const void *bytes,
                           size_t n);

/* Sends all but the end of what was begun: the last bin is there up to its byte `arrived`, and the
 * shard is told so at every `chunk` bytes. ask_arrive_all sends the rest. */
void ask_arrive(struct exchange *x, uint32_t arrived, uint32_t chunk);
void ask_arrive_all(struct exchange *x);

/* Takes up to `bytes` more of the answer, made in chunks of at most `chunk` bytes (LIMIT_FILL_BYTES
 * and up). */
void ask_take(struct exchange *x, uint64_t bytes, size_t chunk);
/* Takes the rest and opens it for reading: x->reader. */
void ask_read(struct exchange *x);
void ask_free(struct exchange *x);

/* Sends, reads, and checks that the answer is a result. */
void ask_ok(struct exchange *x);
/* Sends, reads, and checks that the answer is that error and its text has every fragment; ends with
 * NULL. Frees. */
void ask_error(struct exchange *x, int status, ...) __attribute__((sentinel));
/* The same for an answer that is there already. Does not free. */
void check_error(struct exchange *x, int status, const char *const *fragments);

/* ---- the usual requests ---- */

void create_table(struct rig *rig, const embd_schema *schema);
struct exchange *ask_parts(struct rig *rig, enum method method, const struct part *parts,
                           uint32_t n);
/* Pulls one part and copies what comes back; statuses may be NULL where none are asked for. */
void pull(struct rig *rig, const struct part *part, void *values, uint8_t *statuses);
struct push_answer push(struct rig *rig, const struct part *part, uint8_t *statuses);
/* Begins the opening of a stream of pushes. */
struct exchange *ask_opening(struct rig *rig, const struct push_number *stream, bool is_journaled);
/* Opens one. Whether it was not open before. */
bool open_stream(struct rig *rig, const struct push_number *stream, bool is_journaled);

/* All rows, states and candidates of a table, as records in ascending order, and its step: equal
 * images are equal tables. */
struct image {
    uint8_t *records; /* [rows + candidates][record_bytes] */
    size_t record_bytes;
    uint64_t rows, candidates, step;
};
void image_take(struct rig *rig, const char *table, struct image *image);
void image_fini(struct image *image);
/* The table is as it was. */
void image_check(struct rig *rig, const char *table, const struct image *before);

/* A figure of the shard (table NULL) or of a table. */
uint64_t figure(struct rig *rig, const char *table, const char *name);

/* A new directory for files, and its removal with everything in it. It is in memory where the
 * system has such a place: what tests sync thousands of times need not last. */
void scratch_new(char out[64]);
void scratch_remove(const char *dir);

#endif
