/* jobfiles.c - the names that HugeCTR gives the files of a saved model. */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/embctl/embctl.h"
#include "client/embctl/jobfiles.h"

char *job_folder(const char *prefix, uint64_t number, uint64_t iteration)
{
    char *path;
    int n = asprintf(&path, "%s%" PRIu64 "_sparse_%" PRIu64 ".model", prefix, number, iteration);
    return n < 0 ? NULL : path;
}

char *job_state_file(const char *prefix, uint64_t number, uint64_t iteration)
{
    char *path;
    int n =
        asprintf(&path, "%s%" PRIu64 "_opt_sparse_%" PRIu64 ".model", prefix, number, iteration);
    return n < 0 ? NULL : path;
}

static const char *base_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

char *job_prefix_of(const char *path)
{
    const char *base = base_of(path), *dot = strrchr(base, '.');
    return strndup(path, dot && dot > base ? (size_t)(dot - path) : strlen(path));
}

char *job_name_of(const char *path)
{
    return job_prefix_of(base_of(path));
}

/* ---- iterations ---- */

/* Whether `name` is BEGIN<N>.model. */
static bool is_folder(const char *name, const char *begin, uint64_t *iteration)
{
    static const char end[] = ".model";
    char digits[24];
    size_t n = strlen(name), before = strlen(begin);
    if (n <= before + strlen(end) || strncmp(name, begin, before) != 0 ||
        strcmp(name + n - strlen(end), end) != 0)
        return false;
    snprintf(digits, sizeof digits, "%.*s", (int)(n - before - strlen(end)), name + before);
    return n - before - strlen(end) < sizeof digits && read_uint(digits, UINT64_MAX, iteration);
}

struct found {
    uint64_t least, greatest;
    size_t n;
};

static void look(DIR *list, const char *begin, struct found *found)
{
    uint64_t iteration;
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (is_folder(entry->d_name, begin, &iteration)) {
            if (found->n == 0 || iteration < found->least)
                found->least = iteration;
            if (found->n++ == 0 || iteration > found->greatest)
                found->greatest = iteration;
        }
}

int job_find_iteration(const char *prefix, uint64_t *iteration, char *why, size_t why_bytes)
{
    char begin[300], *folder = strndup(prefix, (size_t)(base_of(prefix) - prefix));
    struct found found = {0};
    DIR *list = folder ? opendir(folder[0] ? folder : ".") : NULL;
    free(folder);
    snprintf(begin, sizeof begin, "%s0_sparse_", base_of(prefix));
    if (list) {
        look(list, begin, &found);
        closedir(list);
    }
    *iteration = found.greatest;
    if (found.n == 1)
        return 0;
    if (found.n == 0)
        snprintf(why, why_bytes,
                 "%s0_sparse_<N>.model is not there: set --prefix to what the job's files begin "
                 "with, or use --empty to create tables without rows",
                 prefix);
    else
        snprintf(why, why_bytes,
                 "%s0_sparse_<N>.model is there for %zu iterations, from %" PRIu64 " to %" PRIu64
                 ": choose one with --iteration N",
                 prefix, found.n, found.least, found.greatest);
    return -1;
}
