/* place.h - where backups lie: a directory, or a prefix of an S3 bucket.
 *
 * A place has files with names like "nightly/0/items.0.part": parts of [a-z0-9_.-]+ between single
 * slashes. Files are written and read in pieces of PLACE_PIECE_BYTES, so that a piece is a request
 * that can be repeated. A bucket has a file of several pieces as an object for each, NAME/000000
 * and so on; a directory has files as they are.
 *
 * Functions return EMBD_OK or e->status, whose text names the file or object. Owner: one thread. */
#ifndef EMBD_BACKUP_PLACE_H
#define EMBD_BACKUP_PLACE_H

#include "client/backup/backup.h"
#include "proto/errors.h"

#define PLACE_PIECE_BYTES (16u << 20)
#define PLACE_NAME_BYTES  256u      /* of a name with its zero */
#define PLACE_PIECE_NAME  "%s/%06u" /* in a bucket: a piece of a file of several */

struct place;
/* A visit that returns nonzero ends the listing; that value is returned. */
typedef int place_visit(void *arg, const char *name);

struct place_ops {
    /* The pieces of a file in order, all but the last of PLACE_PIECE_BYTES; after the last one the
     * file is on disk. `data` is not used after the call. */
    int (*put)(struct place *place, const char *name, uint32_t piece, bool is_last,
               const void *data, size_t bytes, struct embd__error *e);
    /* Piece `piece` of a file of `file_bytes`, whole, to `to` [PLACE_PIECE_BYTES]. EMBD_CORRUPT: it
     * does not exist, or has another size. */
    int (*get)(struct place *place, const char *name, uint32_t piece, uint64_t file_bytes, void *to,
               struct embd__error *e);
    /* A file of one piece, and of any size up to that, malloc'd with a zero byte behind it. NULL
     * and no error: it does not exist. */
    void *(*read)(struct place *place, const char *name, size_t *bytes_out, struct embd__error *e);
    /* Every file, in no order; in a bucket pieces, as NAME/000000. Others' files are left out. */
    int (*list)(struct place *place, place_visit *visit, void *arg, struct embd__error *e);
    /* No error if there is none. Directories that become empty go too. */
    int (*remove)(struct place *place, const char *name, struct embd__error *e);
    void (*close)(struct place *place);
};

struct place {
    const struct place_ops *ops;
    char *url;         /* as it was given, without '/' at its end; for errors */
    const char *dir;   /* its path; NULL: a bucket */
    bool is_temporary; /* set by its user: files of this directory need not outlive a crash */
    struct backup_known *known; /* set by its user: what catalog.c has read here; NULL: nothing */
};

/* `makes`: a directory that does not exist is made. EMBD_INVALID: not a place; EMBD_UNSUPPORTED:
 * s3:// without libcurl; EMBD_IO. */
int place_open(const struct backup_where *where, bool makes, struct place **out,
               struct embd__error *e);
void place_close(struct place *place); /* NULL is allowed */

/* How many pieces, and the bytes of one. */
uint32_t place_pieces(uint64_t file_bytes);
size_t place_piece_bytes(uint64_t file_bytes, uint32_t piece);

/* Whether a place can have a file of this name. */
bool place_is_name(const char *name);

/* The kinds, for place_open. `path`: without '/' at its end; BUCKET/PREFIX. */
int place_open_directory(const char *path, bool makes, struct place **out, struct embd__error *e);
int place_open_s3(const char *path, const struct backup_where *where, struct place **out,
                  struct embd__error *e);

#endif
