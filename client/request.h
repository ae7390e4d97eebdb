/* request.h - one blocking request to one shard: everything that is neither pull nor push. */
#ifndef EMBD_CLIENT_REQUEST_H
#define EMBD_CLIENT_REQUEST_H

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

/* The client's message buffer, begun as a request of `method`; write a map and bins, then
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

#endif
