/* request.h - blocking requests to one shard, or to several at once: everything that is not a pull,
 * push or erase. */
#ifndef EMBD_CORE_REQUEST_H
#define EMBD_CORE_REQUEST_H

#include "proto/message.h"

/* An answer and all it points to. */
struct answer {
    struct frame_scanner frame;
    uint8_t *head;
    msgpack_zone zone;
    struct reader reader; /* positioned at the map; type response, status EMBD_OK */
    embd_client *client;
    const char *address; /* of who answered */
};

/* The client's message buffer, begun as a request of `method`; write a map and bins, then call
 * embd__request. */
struct msg *embd__request_begin(embd_client *client, enum method method);

/* Sends what embd__request_begin began to one shard, on its data or its admin connection (opened
 * when first needed, then kept: a hold belongs to it), and waits until the client's deadline. On
 * failure the client's last error is set, naming the shard's address; on success embd__answer_free
 * frees. */
int embd__request(embd_client *client, uint32_t shard, enum listener listener,
                  struct answer **answer_out);

/* If the client's error is EMBD_PROTOCOL, found while reading this answer, its text gets the
 * server's address. */
void embd__answer_free(struct answer *answer);

/* The client's error, for messages that are built outside; names no shard by itself. Each public
 * function clears it at its start. */
struct embd__error *embd__client_error(embd_client *client);
void embd__client_clear_error(embd_client *client);

/* On any link: sends what embd__request_begin began. */
struct link;
int embd__request_on(embd_client *client, struct link *link, struct answer **answer_out);

/* ---- that the caller does not wait for at once ---- */

/* One request, kept for the next. */
struct started_request;

/* EMBD_NO_MEMORY. */
int embd__started_new(embd_client *client, struct started_request **out);
/* None is under way, or the loop stands still. NULL is allowed. */
void embd__started_free(struct started_request *started);

/* Write a map, then send. deadline_ns: as uv_hrtime(); 0: the client's from now on. waits_refused:
 * of exchange.h. */
struct msg *embd__started_begin(struct started_request *started, enum method method,
                                uint64_t deadline_ns, bool waits_refused);
/* on_end is called by the loop's thread, once, whatever becomes of the request; never after a
 * failure. NULL: nobody is. After EMBD_OK embd__started_wait is owed. */
int embd__started_send(struct started_request *started, uint32_t shard, void (*on_end)(void *arg),
                       void *arg);
/* The same to the shard's admin listener, and nobody is called. */
int embd__started_send_admin(struct started_request *started, uint32_t shard);
/* How it went. From within on_end, or behind it, until it is begun again. */
struct exchange;
const struct exchange *embd__started_exchange(const struct started_request *started);
bool embd__started_is_done(struct started_request *started);
/* As embd__request. */
int embd__started_wait(struct started_request *started, struct answer **answer_out);

/* ---- to several shards at once ---- */

/* One request to each of several shards, sent together: they take as long as the slowest. */
struct requests;

/* Room for one request to each shard. EMBD_NO_MEMORY. */
int embd__requests_new(embd_client *client, struct requests **out);
void embd__requests_free(struct requests *requests); /* NULL is allowed */

/* Begins a request to the shard's admin listener, which fails at once where that cannot be
 * connected to: write a map and bins, whose data stay until embd__requests_run has returned.
 * deadline_ms 0: the client's. */
struct msg *embd__requests_add(struct requests *requests, uint32_t shard, enum method method,
                               uint32_t deadline_ms);

/* As if none had been added. */
void embd__requests_forget(struct requests *requests);

/* Sends those that were added since the last run, and waits for all. Then `take` gets each answer,
 * in the order they were added, and frees it (embd__admin_end); it is called for all answers,
 * whatever became of others. Returns the first error, which is the client's then. */
int embd__requests_run(struct requests *requests,
                       void (*take)(void *arg, uint32_t shard, struct answer *answer), void *arg);

#endif
