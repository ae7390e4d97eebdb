/* requests.h - one request to each of several shards, sent together: what they do takes as long as
 * on the slowest of them, and not as long as on all. */
#ifndef EMBD_CLIENT_REQUESTS_H
#define EMBD_CLIENT_REQUESTS_H

#include "client/request.h"

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
