/* reserve.h - what a read may bring is charged before it is read.
 *
 * Of what a read has brought, that which no request may be made of yet is kept. Which read that
 * will be is not known before, so a shard holds a charge for the next one, HUB_READ_BYTES and for
 * TLS a record more, and reads no more than it has; what is kept is taken from it, and before the
 * next read it is filled up again. So a read costs no atomic operation where nothing is kept.
 * Owner: the shard's thread. */
#ifndef EMBD_RESERVE_H
#define EMBD_RESERVE_H

#include "server/net/hub.h"

/* How much of `bytes` may be read now, where `more` may have to be kept beside them; 0: there is no
 * memory. */
size_t reserve_room(struct hub *hub, size_t bytes, size_t more);
/* `bytes` of what was read are kept; given back with frame_budget_give. */
void reserve_spend(struct hub *hub, uint64_t bytes);
/* At the end. */
void reserve_give(struct hub *hub);

#endif
