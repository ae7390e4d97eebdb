/* loads.h - loads that are on their way to the disk beside others.
 *
 * A load changes tables, so it waits for the end of all that is under way, and what comes next
 * waits for it. But loads behind loads of their own connection, and of nobody else, go on: one is
 * written while those before it are applied. And rows of keys that move go beside pushes: these
 * name none of their keys before the shard has the map, whose record is synced behind theirs. */
#ifndef EMBD_SERVICE_LOADS_H
#define EMBD_SERVICE_LOADS_H

#include "server/service/answer.h"

/* Whether the request in `call` is a load that waits for nothing that is on its way. Sets
 * request->goes_beside: rows of keys that move, whose operation is_unnamed then. */
bool loads_go_on(const struct call *call);

#endif
