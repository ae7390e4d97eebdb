/* snapshot_scope.h - whether this shard has the tables that a snapshot is to be of. */
#ifndef EMBD_SNAPSHOT_SCOPE_H
#define EMBD_SNAPSHOT_SCOPE_H

#include "proto/scope.h"
#include "server/service/state.h"

/* EMBD_UNKNOWN_TABLE: this shard has no table of a name, or none with a prefix. */
int snapshot_check_scope(const struct shard *shard, const struct table_scope *scope,
                         struct embd__error *e);

#endif
