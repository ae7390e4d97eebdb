/* place.c - see place.h. */
#include "proto/local/place.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

/* ---- this host ---- */

static bool read_host(char out[LOCAL_HOST_BYTES])
{
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file == NULL)
        return false;
    size_t n = fread(out, 1, LOCAL_HOST_BYTES - 1, file);
    out[n] = '\0';
    fclose(file);
    return n == LOCAL_HOST_BYTES - 1;
}

bool embd__local_look(const char *path, struct local_place *out, uint32_t *owner_out)
{
    struct stat found;
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof out->path || lstat(path, &found) != 0 || !read_host(out->host))
        return false;
    if (!S_ISSOCK(found.st_mode)) {
        errno = ENOTSOCK;
        return false;
    }
    strcpy(out->path, path);
    out->device = found.st_dev;
    out->inode = found.st_ino;
    if (owner_out != NULL)
        *owner_out = found.st_uid;
    return true;
}

bool embd__local_is_same(const struct local_place *a, const struct local_place *b)
{
    return strcmp(a->host, b->host) == 0 && strcmp(a->path, b->path) == 0 &&
           a->device == b->device && a->inode == b->inode;
}

/* ---- in the answer to hello ---- */

void embd__local_write(struct msg *m, const struct local_place *place)
{
    embd__msg_str(m, "local");
    embd__msg_map(m, 4);
    embd__msg_field_str(m, "host", place->host);
    embd__msg_field_str(m, "path", place->path);
    embd__msg_field_uint(m, "device", place->device);
    embd__msg_field_uint(m, "inode", place->inode);
}

/* An absolute path to a data socket. */
static bool is_of_embd(const char *path)
{
    size_t bytes = strlen(path), suffix = sizeof LOCAL_SUFFIX - 1;
    return path[0] == '/' && bytes > suffix && strcmp(path + bytes - suffix, LOCAL_SUFFIX) == 0;
}

void embd__local_read(struct fields *hello, struct local_place *out)
{
    struct fields f;
    struct local_place place = {.path = ""};
    out->path[0] = '\0';
    if (!embd__field_has(hello, "local"))
        return;
    embd__field_map(hello, "local", &f, "local");
    embd__field_str(&f, "host", place.host, sizeof place.host, NULL);
    embd__field_str(&f, "path", place.path, sizeof place.path, NULL);
    place.device = embd__field_uint(&f, "device", 0, UINT64_MAX, FIELD_REQUIRED);
    place.inode = embd__field_uint(&f, "inode", 0, UINT64_MAX, FIELD_REQUIRED);
    if (hello->reader->error->status == EMBD_OK && is_of_embd(place.path))
        *out = place;
}
