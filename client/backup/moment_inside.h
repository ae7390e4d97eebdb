/* moment_inside.h - what the files of moment.h share: moment_files.c finds the records of a shard,
 * and moment.c, the roof, says which of them count. */
#ifndef EMBD_BACKUP_MOMENT_INSIDE_H
#define EMBD_BACKUP_MOMENT_INSIDE_H

#include "client/backup/agree.h"
#include "client/backup/moment.h"

/* Of one shard. */
struct shard_file {
    int fd;
    struct records_place at; /* behind its bytes */
    uint64_t bytes, bound;   /* records before `bound` are of the moment */
    uint64_t ms, n_replaces;
    uint64_t replaced_at; /* the record of the last of them */
    uint64_t moved;       /* the decision of the last map of keys that it has taken; 0: none */
    uint64_t moved_at;    /* and its record */
    uint64_t prepared;    /* and that of the one that it waits for; 0: none */
    uint32_t n_shards;    /* of the map; 0: it has none yet */
    uint32_t n_prepared;  /* of the one that it waits for */
    uint64_t added;       /* the decision of the map by which it was added behind the backup */
    uint64_t since;       /* records from here on are of as many shards */
    uint64_t until;       /* the record of what it waits for */
    uint64_t had;         /* by the moment, as all files of its time say; 0: not known */
    uint64_t *skips;      /* [n_skips], malloc'd */
    uint64_t n_skips;
    char after[PLACE_NAME_BYTES]; /* the file that was taken last; "": none yet */
};

struct writing {
    const struct shelf *shelf;
    const struct record *record;
    const struct moment_ask *ask;
    const char *dir;
    struct moment *out;
    struct embd__error *e;
    struct records_place *cut; /* [LIMIT_SHARDS] */
    struct shard_file *files;  /* [LIMIT_SHARDS] */
    uint64_t *limits; /* [LIMIT_SHARDS] records from here on do not count: the moment is earlier */
    uint64_t *maps;   /* [n_maps] decisions of the maps that shard 0 has taken, malloc'd */
    uint64_t n_maps;
    bool is_parted; /* some shards had another map, or other tables */
    struct agree agree;
    uint32_t n;      /* shards at the moment, */
    uint32_t n_kept; /* of which those before are in the backup */
    uint32_t shard;  /* the one at work */
};

static inline struct shard_file *moment_mine(struct writing *w)
{
    return &w->files[w->shard];
}

/* The records of w->shard behind the backup, up to the moment, in its file; w->out->is_late: the
 * backup is behind the moment. */
int moment_collect(struct writing *w);
/* Positions of its records that do nothing. EMBD_NO_MEMORY. */
int moment_add_skips(struct writing *w, const uint64_t *list, uint64_t n);
int moment_write_at(const struct writing *w, int fd, const uint8_t *bytes, uint64_t n, uint64_t at);
/* errno's. */
int moment_fail(const struct writing *w);

#endif
