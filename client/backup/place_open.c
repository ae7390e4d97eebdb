/* place_open.c - see place.h. */
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
