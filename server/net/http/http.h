/* http.h - what operators look at, on a port of its own: metrics, health, status. Read only.
 *
 * Reading order: http (this: connections), http_request (their bytes), http_pages (which page, and
 * the short ones), gather (figures of all shards, by message), http_metrics, http_status, and
 * page.html for the browser.
 *
 * The server lives on a loop of its caller's, not on that of a shard: a scrape costs a shard the
 * time to copy its figures. One request for each connection. Owner: that loop's thread. */
#ifndef EMBD_HTTP_H
#define EMBD_HTTP_H

#include "server/net/quota.h"
#include "server/net/http/http_pages.h"
#include "server/net/listener.h"

/* A browser, some scrapers and probes. */
#define HTTP_CONNECTIONS 64u

struct http;

/* Binds. `address` may have any host, where its owner says so: nothing here changes anything or
 * shows a key or row. Peers and their pages are charged to `quota`, which outlives http_free.
 * EMBD_IO with the cause, EMBD_NO_MEMORY. */
int http_open(uv_loop_t *uv, const struct listen_address *address, struct quota *quota,
              struct http **out, struct embd__error *e);
uint16_t http_port(const struct http *http);

/* From now on pages are answered. `loops` are started, and asked for their figures. Whatever
 * `process` points to, loops and addresses outlive http_free. EMBD_NO_MEMORY. */
int http_start(struct http *http, const struct http_process *process, struct loop *const *loops,
               char *const *addresses, struct embd__error *e);

/* Closes the port and all connections; the handles are closed when the loop has run dry. NULL is
 * allowed. */
void http_stop(struct http *http);

/* After http_stop, loop_close of all loops, and a run of the owner's loop. NULL is allowed. */
void http_free(struct http *http);

#endif
