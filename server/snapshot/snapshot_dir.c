/* snapshot_dir.c - directories that are complete on disk or do not exist.
 *
 * Everything happens below one descriptor of the data directory, opened at start: none of its paths
 * is looked up again, and names from a peer cannot lead out of it. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/snapshot/snapshot.h"

#define STAGED_NAME (SNAPSHOT_NAME_MAX + 5) /* with ".tmp" and the zero */

static int fail(const char *file, const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "snapshot '%s': cannot %s: %s", file, what, strerror(errno));
}

static void staged_name(char out[STAGED_NAME], const char *name)
{
    snprintf(out, STAGED_NAME, "%s.tmp", name);
}

int snapshot_check_name(const char *name, struct embd__error *e)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t n = strlen(name);
    if (n >= 1 && n <= SNAPSHOT_NAME_MAX && strspn(name, first) >= 1 && strspn(name, all) == n)
        return EMBD_OK;
    return embd__error_set(
        e, EMBD_INVALID,
        "snapshot name: '%.65s' is not 1 to %d of a-z, 0-9, '-' and '_', the first a "
        "letter or digit",
        name, SNAPSHOT_NAME_MAX);
}

int snapshot_begin(int data_dir, const char *name, struct embd__error *e)
{
    char staged[STAGED_NAME];
    struct stat st;
    staged_name(staged, name);
    if (fstatat(data_dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0)
        return embd__error_set(e, EMBD_EXISTS, "snapshot '%s' exists", name);
    if (errno != ENOENT)
        return fail(name, "look for it", e);
    if (mkdirat(data_dir, staged, 0755) == 0)
        return EMBD_OK;
    if (errno == EEXIST)
        return embd__error_set(e, EMBD_EXISTS,
                               "snapshot '%s' exists: it is being written, or its writing was "
                               "interrupted; embctl snapshot --cancel %s ends it",
                               staged, name);
    return fail(staged, "make the directory", e);
}

int snapshot_open(int data_dir, const char *name, struct embd__error *e)
{
    char staged[STAGED_NAME];
    staged_name(staged, name);
    int dir = safe_open(data_dir, staged, O_RDONLY | O_DIRECTORY, 0);
    if (dir < 0 && errno == ENOENT)
        return embd__error_set(e, EMBD_INVALID, "snapshot '%s' was not begun", name);
    return dir >= 0 ? dir : fail(staged, "open the directory", e);
}

static int sync_staged(int data_dir, const char *name, struct embd__error *e)
{
    int dir = snapshot_open(data_dir, name, e);
    if (dir < 0)
        return e->status;
    if (fsync(dir) != 0)
        fail(name, "sync the directory", e);
    close(dir);
    return e->status;
}

int snapshot_publish(int data_dir, const char *name, struct embd__error *e)
{
    char staged[STAGED_NAME];
    staged_name(staged, name);
    if (sync_staged(data_dir, name, e) != EMBD_OK)
        return e->status;
    if (renameat(data_dir, staged, data_dir, name) != 0) {
        if (errno == EEXIST || errno == ENOTEMPTY || errno == ENOTDIR)
            return embd__error_set(e, EMBD_EXISTS, "snapshot '%s' exists", name);
        return fail(staged, "rename it", e);
    }
    return fsync(data_dir) == 0 ? EMBD_OK : fail(name, "sync the data directory", e);
}

/* Files only: nothing else is ever made in there. */
static int empty(int dir, struct embd__error *e)
{
    DIR *list = fdopendir(dir);
    if (list == NULL) {
        close(dir);
        return fail("", "list the directory", e);
    }
    errno = 0;
    for (struct dirent *entry; e->status == EMBD_OK && (entry = readdir(list)) != NULL; errno = 0) {
        bool is_file = strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
        if (is_file && unlinkat(dirfd(list), entry->d_name, 0) != 0)
            fail(entry->d_name, "remove", e);
    }
    if (e->status == EMBD_OK && errno != 0)
        fail("", "list the directory", e);
    closedir(list);
    return e->status;
}

int snapshot_remove_directory(int data_dir, const char *name, struct embd__error *e)
{
    int dir = safe_open(data_dir, name, O_RDONLY | O_DIRECTORY, 0);
    if (dir < 0)
        return errno == ENOENT ? EMBD_OK : fail(name, "open the directory", e);
    if (empty(dir, e) != EMBD_OK)
        return e->status;
    return unlinkat(data_dir, name, AT_REMOVEDIR) == 0 ? EMBD_OK
                                                       : fail(name, "remove the directory", e);
}

int snapshot_remove(int data_dir, const char *name, struct embd__error *e)
{
    char staged[STAGED_NAME];
    staged_name(staged, name);
    return snapshot_remove_directory(data_dir, staged, e);
}
