/* streams.h - the pushers' streams that a snapshot has, put back. */
#ifndef EMBD_FORMATS_STREAMS_H
#define EMBD_FORMATS_STREAMS_H

#include "proto/stored/dumpdir.h"
#include "client/core/request.h"

/* For tables that are not journaled, and for those that are. */
enum { STREAMS_OTHER = 1, STREAMS_JOURNALED = 2 };

/* Positions that come with tables that are staged, and take effect with these. */
struct streams_staged {
    uint64_t id;
    bool is_all;     /* the tables are all of the directory */
    bool goes[2][2]; /* [kind there][kind here]: there is such a table; kind 1: journaled */
};

/* Tells the shards which pushes their rows have: on as many shards as the snapshot has, each what
 * it was; on another number those streams that stood at one push on all of them, and the others are
 * not known then. Where the tables are of one kind here (`kinds`), so are all streams, whatever
 * they were. Nothing where the directory has no streams. `staged`: they wait until the tables take
 * their places, and its kinds count; NULL: they are put back now. The client's error names the
 * shard or file. */
int embd__streams_load(embd_client *client, const struct dump_dir *dir, unsigned kinds,
                       const struct streams_staged *staged);

#endif
