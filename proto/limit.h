/* limit.h - every bound on what a peer may send, each with its reason. */
#ifndef EMBD_PROTO_LIMIT_H
#define EMBD_PROTO_LIMIT_H

#define LIMIT_PROTOCOL 1 /* version exchanged in hello */

/* A frame with its bins. 262,144 rows of 64 floats; larger batches are split by the client, but for
 * a push, which is one step. */
#define LIMIT_FRAME_BYTES (64u << 20)
/* The frame of a push. So every length in it, and what a read or write returns, is below 2^31. */
#define LIMIT_PUSH_BYTES (1u << 30)
/* A record of one: i8, divided weights and the pushes of several workers make it longer. */
#define LIMIT_RECORD_BYTES (2u << 30)
/* A request without the payload of its bins: 64 parts at about 60 bytes each, or a schema with long
 * names. */
#define LIMIT_HEADER_BYTES 4096u
/* An answer without the payload of its bins: the figures of 4096 tables at some 400 bytes each. */
#define LIMIT_ANSWER_HEADER_BYTES (4u << 20)
/* message, params, map, parts, part, and one to spare for a nested map of a schema. */
#define LIMIT_DEPTH 6u
/* Elements of one array or map: bounded by the header anyway; this names the culprit early. */
#define LIMIT_ELEMENTS 16384u
/* Bins of a request, and of any other frame that keeps them all: five for each map of a part. */
#define LIMIT_BINS      320u
#define LIMIT_PART_MAPS 64u
/* Parts of a request in columns: one for each table of a shard. */
#define LIMIT_PARTS 4096u
/* Rows and statuses of each part. */
#define LIMIT_ANSWER_BINS (2u * LIMIT_PARTS)
/* 22 bits of a key-table entry mark a key's place in the request being merged. */
#define LIMIT_KEYS (4u << 20)
#define LIMIT_ROWS (4u << 20)
/* Of a shard: each has a store with its own memory. */
#define LIMIT_TABLES 4096u
#define LIMIT_SHARDS 1024u
/* Rows of a shard: rows are numbered by 32 bits. */
#define LIMIT_CAPACITY 0xfffffffeu
/* Steps of a table, as files and loads may say them. States count steps in 48 bits (stamp.h): so
 * half of them, and as many again may be pushed. Adam's formulas have both exactly, in f64. */
#define LIMIT_STEP               (1ull << 47)
#define LIMIT_REQUESTS_IN_FLIGHT 64u
#define LIMIT_ERROR_TEXT         400u
/* Bytes a second: a block of rows has 4 MiB, and a shard that waits for the next one puts its
 * compaction off meanwhile. */
#define LIMIT_RATE_LEAST (1u << 20)
#define LIMIT_RATE_MOST  (1ull << 40)
#define LIMIT_BEHIND_MS  86400000u /* a pull may ask for a follower within */

#endif
