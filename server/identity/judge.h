/* judge.h - what the answers of other servers say about a data directory: pure. */
#ifndef EMBD_IDENTITY_JUDGE_H
#define EMBD_IDENTITY_JUDGE_H

#include <stdbool.h>
#include <stdint.h>

#define CLUSTER_ID_BYTES 33u /* 32 hexadecimal digits */

/* What a server says of itself, and of the one that asks. */
struct identity_answer {
    bool is_there;                  /* false: it did not answer; the rest is zero */
    char cluster[CLUSTER_ID_BYTES]; /* "": it has none, or is of an earlier version */
    uint64_t epoch, start;          /* of its directory; 0: not accepted yet */
    uint64_t tables;
    bool is_loaded;                    /* then its tables are those it began with, and: */
    uint64_t cut, cut_rows;            /* of the snapshot it began with */
    uint64_t known_epoch, known_start; /* of the server that asks; 0: it has not met it */
    uint64_t placement,
        placement_digest; /* version of its map of keys; digest 0: it does not say */
    bool is_moving;       /* keys move, or have moved and not all rows are gone */
    uint32_t shards;      /* of the cluster, where some have left; 0: it does not say */
};

/* The directory that is judged. */
struct identity_own {
    char cluster[CLUSTER_ID_BYTES]; /* "": none yet */
    uint64_t epoch, start;          /* 0: it was never started with */
    bool has_journal;
};

enum judgement {
    JUDGED_OWN,     /* nothing speaks against it */
    JUDGED_FOREIGN, /* others are of another cluster */
    JUDGED_OLDER,   /* others know a later one */
    JUDGED_EMPTY,   /* others know one with tables */
};

struct verdict {
    enum judgement judgement;
    uint32_t witness;               /* the answer that says most */
    char cluster[CLUSTER_ID_BYTES]; /* of the majority that answers; "": none has one */
    uint64_t greatest_epoch;        /* that is known of it in that cluster */
    bool is_heard;                  /* somebody of a cluster has answered */
};

void judge(const struct identity_own *own, const struct identity_answer *answers, uint32_t n,
           struct verdict *out);

#endif
