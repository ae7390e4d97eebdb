/* records.h - the records of a cluster's journals, as its servers write them: what an archive
 * keeps. Exported like table_copy.h: under a version that names the release.
 *
 * Functions return EMBD_OK or a negative status; the client's error then has the sentence. */
#ifndef EMBD_FORMATS_RECORDS_H
#define EMBD_FORMATS_RECORDS_H

#include "proto/follow.h"
#include "proto/message.h"

/* Whose records they are, as servers want to hear it. */
struct records_whose {
    char reader[FOLLOW_NAME_MAX + 1]; /* who asks: one of that name at a time */
    char cluster[64];
    uint64_t lineage; /* 0: not known */
};

/* The cluster's name and number. */
EMBD_API int embd__copy_records_whose(embd_client *client, struct records_whose *out);

/* How far the records of a shard are known. */
struct records_place {
    uint64_t position, chain, offset; /* proto/follow.h */
    uint64_t file, at;                /* where the server found that; 0: not known */
};

/* What one shard answered: valid during the call. */
struct records_came {
    uint32_t shard;
    struct follow_answer answer;
};
typedef void records_take(void *arg, const struct records_came *came);

/* Asks all shards at once for the records behind places[shards], and calls `take` for each answer
 * whose checksum is right. They come at the latest after `wait_ms`: from a shard as soon as it has
 * some. */
EMBD_API int embd__copy_records(embd_client *client, const struct records_whose *whose,
                                const struct records_place *places, uint32_t wait_ms,
                                records_take *take, void *arg);

#endif
