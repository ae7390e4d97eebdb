/* place.c - see place.h. */
#include "client/backup/place.h"

#include <stdlib.h>
#include <string.h>

#include "embd/embd.h"

#define S3_SCHEME "s3://"

int place_open(const struct backup_where *where, bool makes, struct place **out,
               struct embd__error *e)
{
    bool is_s3 = strncmp(where->url, S3_SCHEME, strlen(S3_SCHEME)) == 0;
    const char *path = where->url + (is_s3 ? strlen(S3_SCHEME) : 0);
    size_t n = strlen(path);
    *out = NULL;
    while (n > 1 && path[n - 1] == '/')
        n--;
    if (n == 0 || (!is_s3 && strstr(path, "://") != NULL))
        return embd__error_set(e, EMBD_INVALID,
                               "'%.200s' is not a place for backups; expected a directory or "
                               "s3://BUCKET/PREFIX",
                               where->url);
    char *own = strndup(path, n), *url = strndup(where->url, n + (size_t)(path - where->url));
    if (own == NULL || url == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for the name of a place");
    else if (is_s3)
        place_open_s3(own, where, out, e);
    else
        place_open_directory(own, makes, out, e);
    free(own);
    if (*out != NULL)
        (*out)->url = url;
    else
        free(url);
    return e->status;
}

void place_close(struct place *place)
{
    if (place == NULL)
        return;
    char *url = place->url;
    place->ops->close(place);
    free(url);
}

uint32_t place_pieces(uint64_t file_bytes)
{
    uint64_t n = file_bytes / PLACE_PIECE_BYTES + (file_bytes % PLACE_PIECE_BYTES != 0);
    return n == 0 ? 1 : (uint32_t)n;
}

size_t place_piece_bytes(uint64_t file_bytes, uint32_t piece)
{
    uint64_t left = file_bytes - (uint64_t)piece * PLACE_PIECE_BYTES;
    return left < PLACE_PIECE_BYTES ? (size_t)left : PLACE_PIECE_BYTES;
}

bool place_is_name(const char *name)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789_.-/";
    size_t n = strlen(name);
    bool is = n > 0 && n < PLACE_NAME_BYTES && strspn(name, all) == n && name[n - 1] != '/';
    for (const char *part = name; is && part != NULL; part = strchr(part, '/')) {
        part += *part == '/' && part != name;
        is = *part != '/' && *part != '.';
    }
    return is;
}
