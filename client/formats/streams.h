/* streams.h - the pushers' streams that a snapshot has, put back. */
#ifndef EMBD_FORMATS_STREAMS_H
#define EMBD_FORMATS_STREAMS_H

#include "proto/stored/dumpdir.h"
#include "client/core/request.h"

/* For tables that are not journaled, and for those that are. */
enum { STREAMS_OTHER = 1, STREAMS_JOURNALED = 2 };

/* Tells the shards which pushes their rows have: on as many shards as the snapshot has, each what
 * it was; on another number those streams that stood at one push on all of them, and the others are
 * not known then. Where the tables are of one kind here (`kinds`), so are all streams, whatever
 * they were. Nothing where the directory has no streams. The client's error names the shard or
 * file. */
int embd__streams_load(embd_client *client, const struct dump_dir *dir, unsigned kinds);

#endif
