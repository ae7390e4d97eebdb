/* host.c - see host.h. */
#include "server/net/http/host.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define PATH_BYTES 4096

/* UINT64_MAX: no limit. */
static uint64_t limit_in(const char *root, const char *path, const char *name)
{
    char file[PATH_BYTES + 64], text[32] = "";
    if (snprintf(file, sizeof file, "%s%s/%s", root, path, name) >= (int)sizeof file)
        return UINT64_MAX;
    FILE *f = fopen(file, "re");
    if (f == NULL)
        return UINT64_MAX;
    bool is_number = fgets(text, sizeof text, f) != NULL && text[0] >= '0' && text[0] <= '9';
    fclose(f);
    return is_number ? strtoull(text, NULL, 10) : UINT64_MAX; /* "max" means no limit */
}

/* The least limit of the cgroup and those around it. In a container the path may be the host's and
 * not exist: then the container's own cgroup is the root. */
static uint64_t least_limit(const char *root, char *path, const char *name)
{
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t limit = limit_in(root, path, name);
        char *last = strrchr(path, '/');
        least = limit < least ? limit : least;
        if (last == NULL)
            return least;
        *last = '\0';
    }
}

/* A line of /proc/self/cgroup is NUMBER:CONTROLLERS:PATH; version 2 has number 0 and no
 * controllers. */
static uint64_t limit_of_line(char *line, const char *root)
{
    char version_1[PATH_BYTES];
    char *controllers = strchr(line, ':');
    char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
    if (path == NULL)
        return UINT64_MAX;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    if (strncmp(line, "0:", 2) == 0 && controllers[1] == '\0')
        return least_limit(root, path, "memory.max");
    snprintf(version_1, sizeof version_1, "%s/memory", root);
    if (strcmp(controllers + 1, "memory") == 0)
        return least_limit(version_1, path, "memory.limit_in_bytes");
    return UINT64_MAX;
}

uint64_t host_cgroup_limit(const char *cgroups_of_process, const char *root)
{
    char line[PATH_BYTES];
    uint64_t least = UINT64_MAX;
    FILE *f = fopen(cgroups_of_process, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) {
        uint64_t limit = limit_of_line(line, root);
        least = limit < least ? limit : least;
    }
    if (f != NULL)
        fclose(f);
    return least;
}

uint64_t host_memory_limit(void)
{
    uint64_t ram = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    uint64_t limit = host_cgroup_limit("/proc/self/cgroup", "/sys/fs/cgroup");
    return limit < ram ? limit : ram;
}

bool host_room_read(const char *dir, struct host_room *out)
{
    struct statvfs room;
    if (statvfs(dir, &room) != 0)
        return false;
    out->free_bytes = (uint64_t)room.f_bavail * room.f_frsize;
    out->bytes = (uint64_t)room.f_blocks * room.f_frsize;
    return true;
}
