/* deferred_store.h - a store like that of a GPU: a pull is one whole, and calls return when the
 * test says so. Underneath is the host store. */
#ifndef EMBD_TESTS_SERVER_DEFERRED_STORE_H
#define EMBD_TESTS_SERVER_DEFERRED_STORE_H

#include "server/store/store.h"

extern struct store_ops store_deferred;

/* Sets it up: calls made from now on wait for deferred_run. */
void deferred_open(void);
/* Has the oldest waiting call take effect and return; false: none waits. */
bool deferred_run(void);
/* Has it return an error instead, without effect. */
bool deferred_fail(void);
/* Calls that were cancelled while they waited, since deferred_open. */
uint32_t deferred_cancelled(void);

#endif
