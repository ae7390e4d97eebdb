/* elder.c - see elder.h. */
#include "server/snapshot/elder.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/files/safe_open.h"
#include "server/files/whole.h"
#include "server/snapshot/snapshot.h"

#define NEW_FILE  ELDER_FILE ".tmp"
#define MOST_TEXT 32u

static int fail(const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "cannot %s '%s': %s", what, ELDER_FILE, strerror(errno));
}

bool elder_stays(int data_dir, const char *name)
{
    if (strcmp(name, ELDER_FILE) == 0)
        return true;
    int dir = safe_open(data_dir, name, O_RDONLY | O_DIRECTORY, 0);
    int manifest = dir < 0 ? -1 : safe_open(dir, "manifest.json", O_RDONLY, 0);
    if (manifest >= 0)
        close(manifest);
    if (dir >= 0)
        close(dir);
    return manifest >= 0;
}

static int parse(const char *text, uint64_t *out, struct embd__error *e)
{
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || errno != 0 || strcmp(end, "\n") != 0)
        return embd__error_set(e, EMBD_CORRUPT,
                               "'%s' has '%.40s', which is no sequence of a snapshot; remove it "
                               "only if the data directory is to begin with its newest snapshot",
                               ELDER_FILE, text);
    *out = value;
    return EMBD_OK;
}

int elder_read(int data_dir, bool *are_there, uint64_t *sequence_out, struct embd__error *e)
{
    char text[MOST_TEXT] = "";
    *are_there = false;
    *sequence_out = 0;
    int fd = safe_open(data_dir, ELDER_FILE, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : fail("open", e);
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    close(fd);
    if (n < 0)
        return fail("read", e);
    *are_there = parse(text, sequence_out, e) == EMBD_OK;
    return e->status;
}

static int replace_file(int data_dir, uint64_t sequence, struct embd__error *e)
{
    char text[MOST_TEXT];
    int n = snprintf(text, sizeof text, "%" PRIu64 "\n", sequence);
    if (unlinkat(data_dir, NEW_FILE, 0) != 0 && errno != ENOENT)
        return fail("remove an earlier", e);
    if (whole_write(data_dir, NEW_FILE, text, (uint64_t)n, e) != EMBD_OK)
        return e->status;
    if (renameat(data_dir, NEW_FILE, data_dir, ELDER_FILE) != 0 || fsync(data_dir) != 0)
        return fail("write", e);
    return EMBD_OK;
}

int elder_note(int data_dir, struct embd__error *e)
{
    struct snapshot_list all = {.passes_over = true};
    bool are_there;
    uint64_t before;
    if (elder_read(data_dir, &are_there, &before, e) == EMBD_OK &&
        snapshot_list(data_dir, &all, e) == EMBD_OK && all.n > 0 &&
        (!are_there || all.list[0].sequence > before))
        replace_file(data_dir, all.list[0].sequence, e);
    free(all.list);
    return e->status;
}
