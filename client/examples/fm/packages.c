/* packages.c - reading Packages indexes.
 *
 * The happy path: list /var/lib/apt/lists, let apt-helper uncompress each index into a pipe,
 * read stanzas line by line, add each package whose name is new. What can fail: no index is
 * there (the caller then generates data), apt-helper ends with an error, memory runs out. Lines
 * that continue a field (they begin with a space) are skipped: none of the four fields is ever
 * folded in an archive's index. */
#include "client/examples/fm/packages.h"

#include <dirent.h>
#include <errno.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define APT_LISTS  "/var/lib/apt/lists"
#define APT_HELPER "/usr/lib/apt/apt-helper"

extern char **environ;

uint64_t packages_mix(uint64_t x)
{
    x = (x ^ x >> 33) * 0xff51afd7ed558ccdu;
    x = (x ^ x >> 33) * 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

uint64_t packages_hash(uint64_t seed, const char *text, size_t bytes)
{
    uint64_t h = 0xcbf29ce484222325u ^ packages_mix(seed);
    for (size_t i = 0; i < bytes; i++)
        h = (h ^ (unsigned char)text[i]) * 0x100000001b3u;
    return packages_mix(h);
}

/* ---- the list and its index ------------------------------------------------------------------ */

void packages_init(package_list *list)
{
    *list = (package_list){0};
}

void packages_fini(package_list *list)
{
    for (uint32_t i = 0; i < list->n_packages; i++) {
        free(list->items[i].name);
        free(list->items[i].section);
        free(list->items[i].maintainer);
        free(list->items[i].depends);
    }
    free(list->items);
    free(list->index);
    packages_init(list);
}

/* The place of a name in the index: of its package, or the empty place where it would go. */
static uint32_t place(const package_list *list, const char *name, size_t bytes)
{
    uint32_t mask = list->index_room - 1;
    for (uint32_t at = (uint32_t)packages_hash(0, name, bytes) & mask;; at = (at + 1) & mask) {
        uint32_t number = list->index[at];
        if (number == PACKAGE_NONE)
            return at;
        const char *other = list->items[number].name;
        if (strncmp(other, name, bytes) == 0 && other[bytes] == '\0')
            return at;
    }
}

uint32_t packages_find(const package_list *list, const char *name, size_t bytes)
{
    return list->index_room > 0 ? list->index[place(list, name, bytes)] : PACKAGE_NONE;
}

/* Doubles items and index, which stays at most half full. */
static bool grow(package_list *list)
{
    uint32_t room = list->room > 0 ? list->room * 2 : 1024;
    package *items = realloc(list->items, room * sizeof *items);
    if (!items)
        return false;
    list->items = items;
    uint32_t *index = malloc(2 * (size_t)room * sizeof *index);
    if (!index)
        return false;
    memset(index, 0xff, 2 * (size_t)room * sizeof *index);
    free(list->index);
    list->index = index;
    list->index_room = 2 * room;
    list->room = room;
    for (uint32_t i = 0; i < list->n_packages; i++)
        index[place(list, items[i].name, strlen(items[i].name))] = i;
    return true;
}

bool packages_add(package_list *list, const package *stanza)
{
    if (packages_find(list, stanza->name, strlen(stanza->name)) != PACKAGE_NONE)
        return true;
    if (list->n_packages == list->room && !grow(list))
        return false;
    package copy = {strdup(stanza->name), strdup(stanza->section), strdup(stanza->maintainer),
                    strdup(stanza->depends)};
    if (!copy.name || !copy.section || !copy.maintainer || !copy.depends) {
        free(copy.name);
        free(copy.section);
        free(copy.maintainer);
        free(copy.depends);
        return false;
    }
    list->index[place(list, copy.name, strlen(copy.name))] = list->n_packages;
    list->items[list->n_packages++] = copy;
    return true;
}

/* ---- stanzas --------------------------------------------------------------------------------- */

/* The value of a line "Field: value" when it is of this field, else NULL. */
static const char *field_value(const char *line, const char *field)
{
    size_t bytes = strlen(field);
    if (strncmp(line, field, bytes) != 0 || line[bytes] != ':')
        return NULL;
    line += bytes + 1;
    return line + strspn(line, " \t");
}

static bool assign(char **member, const char *value)
{
    free(*member);
    *member = strdup(value);
    return *member != NULL;
}

/* Appends a dependency field to those the stanza already has. */
static bool append(char **depends, const char *value)
{
    char *joined = NULL;
    if (asprintf(&joined, "%s%s%s", *depends ? *depends : "", *depends ? ", " : "", value) < 0)
        return false;
    free(*depends);
    *depends = joined;
    return true;
}

static bool take_line(package *stanza, const char *line)
{
    const char *value;
    if ((value = field_value(line, "Package")))
        return assign(&stanza->name, value);
    if ((value = field_value(line, "Section")))
        return assign(&stanza->section, value);
    if ((value = field_value(line, "Maintainer")))
        return assign(&stanza->maintainer, value);
    if ((value = field_value(line, "Depends")) || (value = field_value(line, "Pre-Depends")))
        return append(&stanza->depends, value);
    return true;
}

/* Adds the stanza if it names a package, and empties it for the next. */
static bool finish_stanza(package_list *list, package *stanza)
{
    bool ok = true;
    if (stanza->name) {
        package full = *stanza;
        full.section = full.section ? full.section : "";
        full.maintainer = full.maintainer ? full.maintainer : "";
        full.depends = full.depends ? full.depends : "";
        ok = packages_add(list, &full);
    }
    free(stanza->name);
    free(stanza->section);
    free(stanza->maintainer);
    free(stanza->depends);
    *stanza = (package){0};
    return ok;
}

bool packages_read(package_list *list, FILE *index)
{
    package stanza = {0};
    char *line = NULL;
    size_t room = 0;
    bool ok = true;
    while (ok) {
        ssize_t bytes = getline(&line, &room, index);
        if (bytes < 0)
            break;
        if (bytes > 0 && line[bytes - 1] == '\n')
            line[bytes - 1] = '\0';
        ok = line[0] == '\0' ? finish_stanza(list, &stanza) : take_line(&stanza, line);
    }
    if (ferror(index)) {
        fprintf(stderr, "reading the index failed: %s\n", strerror(errno));
        ok = false;
    }
    if (!finish_stanza(list, &stanza))
        ok = false;
    free(line);
    return ok;
}

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_compressed(const char *path)
{
    static const char *const endings[] = {".lz4", ".gz", ".xz", ".bz2", ".zst"};
    size_t bytes = strlen(path);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t n = strlen(endings[i]);
        if (bytes > n && strcmp(path + bytes - n, endings[i]) == 0)
            return true;
    }
    return false;
}

/* Starts apt-helper with its output in a pipe. NULL with errno set on failure. */
static FILE *start_helper(const char *path, pid_t *pid_out)
{
    int ends[2];
    if (pipe(ends) != 0)
        return NULL;
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
    posix_spawn_file_actions_addclose(&actions, ends[0]);
    posix_spawn_file_actions_addclose(&actions, ends[1]);
    char *argv[] = {(char *)APT_HELPER, (char *)"cat-file", (char *)path, NULL};
    int code = posix_spawn(pid_out, APT_HELPER, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    FILE *stream = code == 0 ? fdopen(ends[0], "r") : NULL;
    if (!stream) {
        close(ends[0]);
        errno = code != 0 ? code : errno;
    }
    return stream;
}

static bool read_compressed(package_list *list, const char *path)
{
    pid_t pid;
    FILE *stream = start_helper(path, &pid);
    if (!stream) {
        fprintf(stderr, "%s cannot be started: %s\n", APT_HELPER, strerror(errno));
        return false;
    }
    bool ok = packages_read(list, stream);
    fclose(stream);
    int status = 0;
    waitpid(pid, &status, 0);
    if (ok && status != 0)
        fprintf(stderr, "%s cannot uncompress %s\n", APT_HELPER, path);
    return ok && status == 0;
}

bool packages_read_path(package_list *list, const char *path)
{
    if (strcmp(path, "-") == 0)
        return packages_read(list, stdin);
    if (is_compressed(path))
        return read_compressed(list, path);
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "%s cannot be opened: %s\n", path, strerror(errno));
        return false;
    }
    bool ok = packages_read(list, file);
    fclose(file);
    return ok;
}

/* Names of indexes end in _Packages, with the ending of a compression or without. */
static int is_index(const struct dirent *entry)
{
    const char *at = strstr(entry->d_name, "_Packages");
    if (!at)
        return 0;
    at += strlen("_Packages");
    return *at == '\0' || (*at == '.' && is_compressed(entry->d_name));
}

/* By bytes: alphasort would follow the locale. */
static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

bool packages_read_apt(package_list *list, uint32_t *n_indexes_out)
{
    struct dirent **entries = NULL;
    int n = scandir(APT_LISTS, &entries, is_index, by_name);
    bool ok = true;
    uint32_t n_read = 0;
    for (int i = 0; i < n; i++) {
        char *path = NULL;
        ok = ok && asprintf(&path, "%s/%s", APT_LISTS, entries[i]->d_name) > 0 &&
             packages_read_path(list, path);
        n_read += ok;
        free(path);
        free(entries[i]);
    }
    free(entries);
    *n_indexes_out = n_read;
    return ok;
}
