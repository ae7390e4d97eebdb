/* place_without_s3.c - in builds without libcurl. */
#include "client/backup/place.h"

int place_open_s3(const char *path, const struct backup_where *where, struct place **out,
                  struct embd__error *e)
{
    (void)where, (void)out;
    return embd__error_set(
        e, EMBD_UNSUPPORTED,
        "s3://%.200s: this embctl was built without libcurl 7.88 or later, which buckets need",
        path);
}
