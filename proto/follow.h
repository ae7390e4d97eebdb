/* follow.h - the method `follow`: a server that follows another asks for the records of a shard's
 * journal, and its next question says how far it has them. */
#ifndef EMBD_PROTO_FOLLOW_H
#define EMBD_PROTO_FOLLOW_H

#include "proto/message.h"

#define FOLLOW_BYTES (4u << 20) /* of records in an answer */
/* The same, of who says that it takes more, and lacks more. */
#define FOLLOW_BYTES_MOST (16u << 20)
#define FOLLOW_SKIPS      64u
#define FOLLOW_WAIT_MS    10000u /* an answer may take so long, where there is nothing new */
#define FOLLOW_NAME_MAX   127u
#define FOLLOW_WHY_MAX    159u

#define FOLLOW_AGE_MOST_US 100000000u /* an age: as long or longer, or not known */

struct follow_ask {
    char name[FOLLOW_NAME_MAX + 1]; /* of who follows */
    char cluster[64];
    uint64_t epoch;   /* the greatest that it has heard of */
    uint64_t start;   /* number of the follower's start; 0: not known */
    uint64_t lineage; /* of the cluster whose records it has; 0: it has none, or it is not known */
    uint64_t who;     /* of one that was promoted, and tells it; 0: not so, or not known */
    bool is_base;     /* the records of the base are wanted, and not those behind it */
    uint64_t position, chain, offset; /* what it has: journal/tail.h */
    uint64_t file, at;                /* as an answer said; 0: not known */
    uint64_t applied, disk;           /* of these records, that it has applied, and has on disk */
    bool asks_base;                   /* the answer says where the last base is */
    bool reads;                       /* an archive, which keeps records and has no tables */
    bool takes_maps;                  /* records may bring another map of keys */
    uint64_t room;  /* for shards of the cluster, how many it may have; 0: as many as it has now */
    uint64_t bases; /* of so many shards from the first, it has the base */
    uint64_t wait_ms;
    uint64_t most;    /* bytes of records in the answer; 0: FOLLOW_BYTES */
    uint64_t mark;    /* digests of that number are wanted; 0: none */
    uint64_t mark_at; /* where, as an answer said; 0: not known */
};

struct follow_answer {
    uint64_t epoch;
    uint64_t lineage;                 /* a number of the cluster; 0: not known */
    uint64_t position, chain, offset; /* behind the bytes */
    uint64_t file, at;
    uint64_t behind, behind_chain; /* of a base: where the records go on behind it */
    uint64_t end;                  /* records that there are */
    uint64_t left;                 /* bytes of them behind these; of a base, 0: that was all */
    uint64_t base;                 /* position of the last base, where it was asked for */
    bool syncs;                    /* a change waits until these records are on a follower's disk */
    uint64_t mark;   /* the tables are digested as they are before this record; 0: not (yet) */
    uint64_t digest; /* of all of them; 0: not yet */
    uint64_t sum;    /* XXH3 of the bytes */
    char gone[FOLLOW_WHY_MAX + 1]; /* who follows has to begin anew: why; "": not so */
    const uint8_t *bytes;          /* [n_bytes] */
    uint64_t n_bytes;
    bool has_age;          /* records behind the base, of a server that tells their age */
    uint64_t age_us;       /* time since the first of them was acknowledged, at most */
    uint64_t waited_us;    /* from the question to this answer, there */
    uint64_t shards;       /* that the cluster is about to have; 0: as many as it has */
    const uint64_t *skips; /* [n_skips] positions of records that were not applied */
    uint32_t n_skips;
};

void embd__follow_ask_write(struct msg *m, const struct follow_ask *ask);
int embd__follow_ask_read(struct reader *r, struct follow_ask *out);
/* Bytes and skips have to stay as those of bins. */
void embd__follow_answer_write(struct msg *m, const struct follow_answer *answer);
int embd__follow_answer_read(struct reader *r, struct follow_answer *out);

#endif
