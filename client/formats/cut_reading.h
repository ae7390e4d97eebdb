/* cut_reading.h - all shards as they are at one moment, read while they change: each push of a
 * client is in the cut on all of its shards or on none (but see cluster_hold.h). */
#ifndef EMBD_FORMATS_CUT_READING_H
#define EMBD_FORMATS_CUT_READING_H

#include "client/formats/coordinate.h"

struct cut_reading {
    struct job_told job; /* id: that of the cut */
    uint64_t renewed_ns;
    bool is_mark; /* digests that shards keep (embd_mark): there is no job */
};

/* Has shard 0's server make the cut, of one table or of all (NULL). EMBD_BUSY: a snapshot or
 * another dump is running. After a failure there is nothing to close. */
int embd__cut_open(embd_client *client, const char *table, struct cut_reading *out);
/* Tells the coordinator that the rows are still wanted: it requires that every 10 s. Call it often;
 * it sends a request every two seconds. */
int embd__cut_renew(embd_client *client, struct cut_reading *cut);
/* The rows are fetched, or not wanted any more. The client's error stays as it is. */
void embd__cut_close(embd_client *client, struct cut_reading *cut);

/* A table as a shard has it in the cut. */
struct cut_table {
    char name[EMBD_NAME_MAX + 1];
    uint64_t rows, candidates, step;
};
int embd__cut_tables(embd_client *client, const struct cut_reading *cut, uint32_t shard,
                     int (*visit)(void *arg, uint32_t shard, const struct cut_table *table),
                     void *arg);

#endif
